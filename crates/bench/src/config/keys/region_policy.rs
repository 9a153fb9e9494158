//! `cache_config.navyRegionPolicyConfig`: McDipper, BlockCache and RIPQ.

use crate::config::condition::Condition;
use crate::config::schema::Status::HonouredIf;
use crate::config::schema::section;

section! {
    /// Settings of the region policies of the photo caches.
    RegionPolicyConfig: "cache_config.navyRegionPolicyConfig" => {
        "Block size of the policy, instead of navyRegionSizeMB; at most 1024.";
        block_mib: u64 = 64, "blockMB", "MiB", HonouredIf(Condition::RegionPolicy);
        "`blockcache`: number of segments of the LRU.";
        segments: u64 = 4, "segments", "", HonouredIf(Condition::BlockCache);
        "`ripq`, `sipq`: number of sections of the queue, K; `ripq` has as many insertion points, each with one block in memory.";
        insertion_points: u64 = 8, "insertionPoints", "", HonouredIf(Condition::ItemQueue);
        "`ripq`, `sipq`: caching policy that sets the priority of items: `lru`, `slru-4`, `gdsf`, `gdsf-3`, `lfu-da`, with any number in place of 4 and 3.";
        caching: String = "slru-4".to_owned(), "caching", "", HonouredIf(Condition::ItemQueue);
        "`ripq`, `sipq`: if more than this share of a block would be reinserted, the whole block is moved to the insertion point of its items instead; 0 is never.";
        hot_block_ratio: f64 = 0.6, "hotBlockRatio", "", HonouredIf(Condition::ItemQueue);
        "`ripq`, `sipq`: if the moving average of that share is above this, a cold block is evicted instead; 0 is never.";
        reinsertion_target: f64 = 0.2, "reinsertionTarget", "", HonouredIf(Condition::ItemQueue);
        "`ripq`, `sipq`: a block is cold if less than this share of it would be reinserted.";
        cold_block_ratio: f64 = 0.1, "coldBlockRatio", "", HonouredIf(Condition::ItemQueue);
        "`ripq`, `sipq`: weight of the newest block in the moving average.";
        moving_average: f64 = 0.5, "movingAverage", "", HonouredIf(Condition::ItemQueue);
        "`ripq`, `sipq`: if more than this share of a block is dead, the block is evicted first and its live items are kept; 0 is never.";
        dead_block_ratio: f64 = 0.5, "deadBlockRatio", "", HonouredIf(Condition::ItemQueue);
        "Number of pieces of a block, each of at most deviceMaxWriteSize, that are written or read concurrently in the background; 0 is all.";
        transfers_at_once: u64 = 2, "transfersAtOnce", "", HonouredIf(Condition::RegionPolicy);
        "Whether a block is written from end to end; otherwise its unused part is not written, and the drive keeps the old data there.";
        write_whole: bool = true, "writeWhole", "", HonouredIf(Condition::RegionPolicy);
    }
    legacy {}
}
