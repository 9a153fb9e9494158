//! Keys of distributions: sizes, popularity and the mix of operations; and the two kinds of distribution file.

use crate::config::condition::Condition;
use crate::config::schema::Status::{Honoured, HonouredIf};
use crate::config::schema::section;

section! {
    /// Sizes, popularity and mix of one pool's requests.
    Distribution: "test_config or test_config.poolDistributions[]" => {
        "Edges of the ranges of key lengths.";
        key_sizes: Vec<f64> = Vec::new(), "keySizeRange", "B", HonouredIf(Condition::Generator);
        "Weight of each range.";
        key_size_weights: Vec<f64> = Vec::new(), "keySizeRangeProbability", "", HonouredIf(Condition::Generator);
        "Value sizes: with as many entries as weights, the sizes themselves; with one entry more, the edges of ranges.";
        value_sizes: Vec<f64> = Vec::new(), "valSizeRange", "B", HonouredIf(Condition::NoSizesFile);
        "Weight of each value size or range.";
        value_size_weights: Vec<f64> = Vec::new(), "valSizeRangeProbability", "", HonouredIf(Condition::NoSizesFile);
        "File with the two keys above; it overrides them.";
        value_sizes_file: String = String::new(), "valSizeDistFile", "path", HonouredIf(Condition::Generator);
        "Lengths of chains, as value sizes.";
        chain_lengths: Vec<f64> = Vec::new(), "chainedItemLengthRange", "items", HonouredIf(Condition::Chains);
        "Weight of each.";
        chain_length_weights: Vec<f64> = Vec::new(), "chainedItemLengthRangeProbability", "", HonouredIf(Condition::Chains);
        "Sizes of chained items, as value sizes.";
        chain_value_sizes: Vec<f64> = Vec::new(), "chainedItemValSizeRange", "B", HonouredIf(Condition::Chains);
        "Weight of each.";
        chain_value_size_weights: Vec<f64> = Vec::new(), "chainedItemValSizeRangeProbability", "", HonouredIf(Condition::Chains);
        "Times to live, as value sizes; every generator uses them. In a replay they are those of rows that have none (no TTL, or 0).";
        ttl_seconds: Vec<f64> = Vec::new(), "ttlSecsRange", "s", HonouredIf(Condition::PoolInUse);
        "Weight of each.";
        ttl_weights: Vec<f64> = Vec::new(), "ttlSecsRangeProbability", "", HonouredIf(Condition::PoolInUse);
        "Number of objects in each popularity bucket; if empty, popularity is a normal distribution around the middle key.";
        popularity_buckets: Vec<f64> = Vec::new(), "popularityBuckets", "objects", HonouredIf(Condition::NoPopularityFile);
        "Share of requests of each bucket.";
        popularity_weights: Vec<f64> = Vec::new(), "popularityWeights", "", HonouredIf(Condition::NoPopularityFile);
        "File with the two keys above; it overrides them.";
        popularity_file: String = String::new(), "popDistFile", "path", HonouredIf(Condition::Generator);
        "Share of gets.";
        get_ratio: f64 = 0.0, "getRatio", "", HonouredIf(Condition::Generator);
        "Share of sets.";
        set_ratio: f64 = 0.0, "setRatio", "", HonouredIf(Condition::Generator);
        "Share of deletes.";
        delete_ratio: f64 = 0.0, "delRatio", "", HonouredIf(Condition::Generator);
        "Share of sets of an item with a chain.";
        add_chained_ratio: f64 = 0.0, "addChainedRatio", "", HonouredIf(Condition::Generator);
        "Share of gets of keys that no other request asks for.";
        lone_get_ratio: f64 = 0.0, "loneGetRatio", "", HonouredIf(Condition::Generator);
        "Share of sets of keys that are never requested.";
        lone_set_ratio: f64 = 0.0, "loneSetRatio", "", HonouredIf(Condition::Generator);
        "Share of updates: a get for write, then the value is overwritten.";
        update_ratio: f64 = 0.0, "updateRatio", "", HonouredIf(Condition::Generator);
        "Share of checks whether a key could exist.";
        could_exist_ratio: f64 = 0.0, "couldExistRatio", "", HonouredIf(Condition::Generator);
        "Draw from the objects of the popularity file and multiply the result, instead of scaling the file first.";
        legacy_key_generator: bool = false, "useLegacyKeyGen", "", HonouredIf(Condition::Popularity);
    }
    legacy {}
}

section! {
    /// A popularity file.
    PopularityFile: "popularity file (popDistFile)" => {
        "Objects in each bucket.";
        buckets: Vec<f64> = Vec::new(), "popularityBuckets", "objects", Honoured;
        "Share of requests of each bucket.";
        weights: Vec<f64> = Vec::new(), "popularityWeights", "", Honoured;
    }
    legacy { "oneHits", "CacheBench does not read it; use loneGetRatio"; }
}

section! {
    /// A file of value sizes.
    SizesFile: "value size file (valSizeDistFile)" => {
        "Value sizes, or edges of their ranges.";
        sizes: Vec<f64> = Vec::new(), "valSizeRange", "B", Honoured;
        "Weight of each.";
        weights: Vec<f64> = Vec::new(), "valSizeRangeProbability", "", Honoured;
    }
    legacy {}
}
