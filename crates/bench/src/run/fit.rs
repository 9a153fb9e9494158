//! Reduces the region size if a small device or arena holds too few regions of the configured size.

use crate::config::plan::FlashPlan;

/// Lower limit of the region size.
const MIN_REGION_BYTES: u32 = 64 << 10;
/// The region size remains a multiple of a drive's page.
const PAGE_BYTES: u32 = 4096;
/// Space for superblocks and frames in a pair of engines.
const FIXED_BYTES: u64 = 256 << 10;
/// A region's part of the snapshot takes less than a hundredth of its size.
const SNAPSHOT_SHARE: u64 = 100;

/// The configured region size, halved until every engine pair of `plan` holds `least_regions` on `capacity_bytes`. The smallest
/// possible size if that does not suffice.
pub fn region_bytes(plan: &FlashPlan, capacity_bytes: u64, least_regions: u32) -> u32 {
    let smallest = plan
        .pairs
        .iter()
        .filter(|(_, soc)| *soc < 100)
        .map(|pair| space_bytes(plan, capacity_bytes, *pair))
        .min();
    let Some(space) = smallest else { return plan.region_bytes };
    let mut bytes = plan.region_bytes;
    while space / u64::from(bytes) < u64::from(least_regions) && can_halve(bytes) {
        bytes /= 2;
    }
    bytes
}

/// Space for regions in an engine pair. The pair has `size` percent of the device, and `soc` percent of the pair are buckets.
fn space_bytes(plan: &FlashPlan, capacity_bytes: u64, (size, soc): (u8, u8)) -> u64 {
    let pair_bytes = capacity_bytes / 100 * u64::from(size);
    let soc_bytes = pair_bytes / 100 * u64::from(soc) + u64::from(plan.bucket_bytes);
    // This saturates so as not to wrap; the engine reports that the buckets do not fit.
    let buckets = soc_bytes / u64::from(plan.bucket_bytes.max(1));
    let filters = buckets.saturating_mul(u64::from(plan.filter_bytes) + 1);
    let space = pair_bytes.saturating_sub(soc_bytes.saturating_add(filters).saturating_add(FIXED_BYTES));
    space - space / SNAPSHOT_SHARE
}

fn can_halve(bytes: u32) -> bool {
    bytes / 2 >= MIN_REGION_BYTES && (bytes / 2).is_multiple_of(PAGE_BYTES)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::plan::{AdmissionPlan, OrderPlan, PlacementExtras, ReinsertionPlan};

    const MIB: u64 = 1 << 20;

    /// A plan with 512 MiB of flash.
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
            recover_after: cache::RecoverAfter::CleanClose,
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
    fn regions_that_fit_keep_their_size() {
        assert_eq!(region_bytes(&plan(vec![(100, 50)]), 512 * MIB, 5), 16 << 20);
        assert_eq!(region_bytes(&plan(vec![(100, 100)]), MIB, 5), 16 << 20, "buckets alone need none");
    }

    #[test]
    fn smallest_arena_determines_the_size() {
        // 30 % of 512 MiB, half of it in buckets, is 76 MiB: four regions of 16 MiB, or nine of 8 MiB.
        assert_eq!(region_bytes(&plan(vec![(20, 0), (30, 50), (50, 60)]), 512 * MIB, 5), 8 << 20);
    }

    #[test]
    fn one_percent_of_a_small_device_still_holds_regions() {
        assert_eq!(region_bytes(&plan(vec![(100, 99)]), 512 * MIB, 5), 512 << 10);
    }

    #[test]
    fn too_small_device_gets_the_smallest_regions() {
        assert_eq!(region_bytes(&plan(vec![(100, 0)]), MIB / 4, 5), 64 << 10);
    }
}
