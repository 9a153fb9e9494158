//! `cache_config.navyRegionPolicyConfig`: McDipper, BlockCache and RIPQ.

use crate::config::knob::Status::Honoured;
use crate::config::knob::section;

section! {
    /// Settings of the region policies of the photo caches.
    RegionPolicyConfig: "cache_config.navyRegionPolicyConfig" => {
        "Block of the policy, in place of navyRegionSizeMB; at most 1024.";
        block_mib: u64 = 64, "blockMB", "MiB", Honoured;
        "`blockcache`: segments of the LRU.";
        segments: u64 = 4, "segments", "", Honoured;
        "`ripq`, `sipq`: sections of the queue, K; `ripq` has as many insertion points, with a block in memory each.";
        insertion_points: u64 = 8, "insertionPoints", "", Honoured;
        "`ripq`, `sipq`: which item gets which priority: `lru`, `slru-4`, `gdsf`, `gdsf-3`, `lfu-da`; the numbers are free.";
        caching: String = "slru-4".to_owned(), "caching", "", Honoured;
        "`ripq`, `sipq`: share of a block to be written again above which it goes to the head instead; 0 never.";
        hot_block_ratio: f64 = 0.6, "hotBlockRatio", "", Honoured;
        "`ripq`, `sipq`: moving average of that share above which a cold block is given up instead; 0 never.";
        reinsertion_target: f64 = 0.2, "reinsertionTarget", "", Honoured;
        "`ripq`, `sipq`: share below which a block is cold.";
        cold_block_ratio: f64 = 0.1, "coldBlockRatio", "", Honoured;
        "`ripq`, `sipq`: weight of the newest block in the moving average.";
        moving_average: f64 = 0.5, "movingAverage", "", Honoured;
        "`ripq`, `sipq`: dead share above which a block is given up first and what is alive in it stays; 0 never.";
        dead_block_ratio: f64 = 0.5, "deadBlockRatio", "", Honoured;
        "Pieces of a block, each of deviceMaxWriteSize at most, that are written or read at once in the background; 0 is all.";
        transfers_at_once: u64 = 2, "transfersAtOnce", "", Honoured;
        "Whether a block is written from end to end; else a drive goes on holding what an earlier filling left in its hole.";
        write_whole: bool = true, "writeWhole", "", Honoured;
    }
    legacy {}
}
