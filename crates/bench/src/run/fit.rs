//! Regions that fit: a small device or arena may hold too few of the regions that its config asks for.

use crate::config::plan::FlashPlan;

/// Regions are not made smaller than this.
const LEAST_REGION_BYTES: u32 = 64 << 10;
/// They stay in whole pages of a drive, where they were.
const PAGE_BYTES: u32 = 4096;
/// What a pair of engines keeps for superblocks and frames.
const FIXED_BYTES: u64 = 256 << 10;
/// A region's share of the snapshot is below a hundredth of it.
const SNAPSHOT_SHARE: u64 = 100;

/// The largest region, the asked-for one or one of its halves, of which every pair of engines of `plan` holds
/// `least_regions` on `capacity_bytes`; the smallest possible where none does.
pub fn region_bytes(plan: &FlashPlan, capacity_bytes: u64, least_regions: u32) -> u32 {
    let room =
        plan.pairs.iter().filter(|(_, soc)| *soc < 100).map(|pair| room(plan, capacity_bytes, *pair)).min();
    let Some(room) = room else { return plan.region_bytes };
    let mut bytes = plan.region_bytes;
    while room / u64::from(bytes) < u64::from(least_regions) && can_halve(bytes) {
        bytes /= 2;
    }
    bytes
}

/// Bytes that a pair of `size` percent of the device has for regions beside its `soc` percent of buckets.
fn room(plan: &FlashPlan, capacity_bytes: u64, (size, soc): (u8, u8)) -> u64 {
    let pair_bytes = capacity_bytes / 100 * u64::from(size);
    let soc_bytes = pair_bytes / 100 * u64::from(soc) + u64::from(plan.bucket_bytes);
    // Whether so much fits at all, the engine says; here it must only not wrap.
    let buckets = soc_bytes / u64::from(plan.bucket_bytes.max(1));
    let filters = buckets.saturating_mul(u64::from(plan.filter_bytes) + 1);
    let room = pair_bytes.saturating_sub(soc_bytes.saturating_add(filters).saturating_add(FIXED_BYTES));
    room - room / SNAPSHOT_SHARE
}

fn can_halve(bytes: u32) -> bool {
    bytes / 2 >= LEAST_REGION_BYTES && (bytes / 2).is_multiple_of(PAGE_BYTES)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::plan::{AdmissionPlan, OrderPlan, PlacementExtras, ReinsertionPlan};

    const MIB: u64 = 1 << 20;

    /// A flash of 512 MiB.
    pub fn plan(pairs: Vec<(u8, u8)>) -> FlashPlan {
        FlashPlan {
            paths: Vec::new(),
            listed_drives: Vec::new(),
            bytes_per_device: 512 * MIB,
            block_bytes: 4096,
            region_bytes: 16 << 20,
            region_key: "cache_config.navyRegionSizeMB",
            pairs,
            bucket_bytes: 4096,
            filter_bytes: 8,
            small_item_max_bytes: 2048,
            small_items: cache::SmallItems::Sets,
            clean_regions: 1,
            order: OrderPlan::Fifo,
            admission: AdmissionPlan::Always,
            reinsertion: ReinsertionPlan::Never,
            value_checksums: true,
            max_write_bytes: 1 << 20,
            min_ttl_seconds: 0,
            retention_seconds: 0,
            allow_buffered: false,
            placement: false,
            placement_extras: PlacementExtras::default(),
            transfers_at_once: 0,
            write_whole: false,
            pending_divisor: 1,
        }
    }

    #[test]
    fn regions_that_fit_stay_as_they_are() {
        assert_eq!(region_bytes(&plan(vec![(100, 50)]), 512 * MIB, 5), 16 << 20);
        assert_eq!(region_bytes(&plan(vec![(100, 100)]), MIB, 5), 16 << 20, "buckets alone need none");
    }

    #[test]
    fn the_smallest_arena_decides() {
        // 30 % of 512 MiB, half of it in buckets, is 76 MiB: four regions of 16 MiB, nine of 8.
        assert_eq!(region_bytes(&plan(vec![(20, 0), (30, 50), (50, 60)]), 512 * MIB, 5), 8 << 20);
    }

    #[test]
    fn a_hundredth_of_a_small_device_still_holds_regions() {
        assert_eq!(region_bytes(&plan(vec![(100, 99)]), 512 * MIB, 5), 512 << 10);
    }

    #[test]
    fn what_cannot_fit_is_left_to_the_engine_to_refuse() {
        assert_eq!(region_bytes(&plan(vec![(100, 0)]), MIB / 4, 5), 64 << 10);
    }
}
