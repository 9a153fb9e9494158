//! What is wrong with a cache, by the keys of its config.
//!
//! The engine names its settings as its builder does, at the head of each error and here and there in it.

/// A setting of the engine, and the key of `cache_config` that comes to it.
const KEYS: [(&str, &str); 22] = [
    ("dram_bytes", "cacheSizeMB"),
    ("min_item_bytes", "minAllocSize"),
    ("max_item_bytes", "maxAllocSize"),
    ("alloc_factor", "allocFactor"),
    ("alloc_sizes", "allocSizes"),
    ("pools", "poolSizes"),
    ("bucket_bytes", "navyBigHashBucketSize"),
    ("filter_bytes_per_bucket", "navyBloomFilterPerBucketSize"),
    ("small_item_max_bytes", "navySmallItemMaxSize"),
    ("pairs", "navyArenas"),
    ("soc_share", "navyBigHashSizePct"),
    // A region of a stripe lies on one device.
    ("region_alignment_bytes", "navyRegionSizeMB"),
    ("regions.capacity_bytes", "nvmCacheSizeMB"),
    ("regions.unit_bytes", "nvmCacheSizeMB"),
    ("regions.region_bytes", "navyRegionSizeMB"),
    ("regions.clean_regions", "navyCleanRegions"),
    ("regions.buffers", "navyCleanRegions"),
    ("regions.max_write_bytes", "deviceMaxWriteSize"),
    ("regions.order", "navySegmentedFifoSegmentRatio"),
    ("regions.reinsertion", "navyHitsReinsertionThreshold"),
    // What cannot be divided as it is asked for.
    ("a device of", "nvmCacheSizeMB: a device of"),
    ("a pair's share", "nvmCacheSizeMB: a pair's share"),
];

/// The error in the words of a config: its first word is the key, if it is one that a config has.
pub(super) fn by_its_key(error: &str) -> String {
    let head = KEYS
        .iter()
        .find(|(setting, _)| error.strip_prefix(setting).is_some_and(|rest| rest.starts_with([':', ' '])));
    let Some((setting, key)) = head else { return format!("cache: {error}") };
    format!("cache_config.{key}{}", with_keys(&error[setting.len()..]))
}

/// Settings in the midst of it, if they are no words of a sentence too.
fn with_keys(words: &str) -> String {
    let of_word = |word: &str| {
        let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
        let key = KEYS.iter().find(|(setting, _)| setting.contains('_') && *setting == bare);
        key.map_or_else(|| word.to_owned(), |(_, key)| format!("{key}{}", &word[bare.len()..]))
    };
    words.split(' ').map(of_word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A config that was refused was told of `allocFactor` whatever it was, or in words of the engine's.
    #[test]
    fn what_the_engine_refused_was_named_by_its_settings_not_by_the_keys_of_the_config() {
        for (error, told) in [
            (
                "dram_bytes: 9 bytes are more than the 8 that can be addressed; raise min_item_bytes",
                "cache_config.cacheSizeMB: 9 bytes are more than the 8 that can be addressed; raise minAllocSize",
            ),
            ("regions.order: 20 priorities", "cache_config.navySegmentedFifoSegmentRatio: 20 priorities"),
            (
                "a device of 5 bytes is too small",
                "cache_config.nvmCacheSizeMB: a device of 5 bytes is too small",
            ),
            ("writing the snapshot: full", "cache: writing the snapshot: full"),
            ("pools of sand", "cache_config.poolSizes of sand"),
        ] {
            assert_eq!(by_its_key(error), told);
        }
    }
}
