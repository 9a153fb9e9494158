//! Translates the engine's errors to the keys of a config.
//!
//! The engine names a setting as its builder does, at the start of an error and sometimes within it.

/// A setting of the engine, and the key of `cache_config` that determines it.
const KEYS: [(&str, &str); 22] = [
    ("dram_bytes", "cacheSizeMB"),
    ("min_item_bytes", "minAllocSize"),
    ("max_chunk_bytes", "maxAllocSize"),
    ("alloc_factor", "allocFactor"),
    ("alloc_sizes", "allocSizes"),
    ("pools", "poolSizes"),
    ("bucket_bytes", "navyBigHashBucketSize"),
    ("filter_bytes_per_bucket", "navyBloomFilterPerBucketSize"),
    ("small_item_max_bytes", "navySmallItemMaxSize"),
    ("pairs", "navyArenas"),
    ("soc_share", "navyBigHashSizePct"),
    // A region of a stripe is stored on one device.
    ("region_alignment_bytes", "navyRegionSizeMB"),
    ("regions.capacity_bytes", "nvmCacheSizeMB"),
    ("regions.unit_bytes", "nvmCacheSizeMB"),
    ("regions.region_bytes", "navyRegionSizeMB"),
    ("regions.clean_regions", "navyCleanRegions"),
    ("regions.buffers", "navyCleanRegions"),
    ("regions.max_write_bytes", "deviceMaxWriteSize"),
    ("regions.order", "navySegmentedFifoSegmentRatio"),
    ("regions.reinsertion", "navyHitsReinsertionThreshold"),
    // Errors about the device's size have no setting at their start.
    ("a device of", "nvmCacheSizeMB: a device of"),
    ("a pair's share", "nvmCacheSizeMB: a pair's share"),
];

/// Replaces the engine's settings in `error` by config keys. If the error starts with a setting, its key becomes the prefix.
pub(super) fn with_config_keys(error: &str) -> String {
    let head = KEYS
        .iter()
        .find(|(setting, _)| error.strip_prefix(setting).is_some_and(|rest| rest.starts_with([':', ' '])));
    let Some((setting, key)) = head else { return format!("cache: {error}") };
    format!("cache_config.{key}{}", replace_settings(&error[setting.len()..]))
}

/// Replaces settings within a sentence, except those that are also English words.
fn replace_settings(message: &str) -> String {
    let of_word = |word: &str| {
        let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
        let key = KEYS.iter().find(|(setting, _)| setting.contains('_') && *setting == bare);
        key.map_or_else(|| word.to_owned(), |(_, key)| format!("{key}{}", &word[bare.len()..]))
    };
    message.split(' ').map(of_word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_the_engine_names_config_keys() {
        for (error, expected) in [
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
            ("pools are empty", "cache_config.poolSizes are empty"),
        ] {
            assert_eq!(with_config_keys(error), expected);
        }
    }
}
