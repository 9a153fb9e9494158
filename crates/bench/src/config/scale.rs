//! The same run on a fraction of the bytes.

use super::amounts::MIB;
use super::plan::{CachePlan, FlashPlan, RunPlan, WorkloadPlan};
use workload::generate::{GeneratorConfig, Popularity};

/// Regions are in whole pages of a drive, which may be longer than the blocks of the config.
const PAGE_BYTES: u32 = 4096;
/// Below this a region would no longer hold the objects that belong in regions.
const LEAST_REGION_BYTES: u32 = 64 << 10;

impl RunPlan {
    /// Divides what counts in bytes, and the number of keys, by `divisor`; shares, mixes and the sizes of objects stay.
    /// A region is not made smaller than 64 KiB. A trace stays as it is.
    #[must_use]
    pub fn scaled(mut self, divisor: u32) -> Self {
        if divisor <= 1 {
            return self;
        }
        for instance in &mut self.instances {
            scale_cache(&mut instance.cache, divisor);
            match &mut instance.workload {
                WorkloadPlan::Online(config) | WorkloadPlan::Prepared { config, .. } => {
                    scale_keys(config, divisor);
                }
                WorkloadPlan::Replay(_) => {}
            }
        }
        self
    }
}

fn scale_cache(cache: &mut CachePlan, divisor: u32) {
    cache.dram_bytes = (cache.dram_bytes / u64::from(divisor)).max(MIB);
    if let Some(flash) = &mut cache.flash {
        scale_flash(flash, divisor);
    }
}

fn scale_flash(flash: &mut FlashPlan, divisor: u32) {
    let block = u64::from(flash.block_bytes.max(flash.bucket_bytes));
    flash.bytes_per_device = flash.bytes_per_device / u64::from(divisor) / block * block;
    // As many of the buckets have something that waits: fewer would be settled together on a larger drive.
    flash.pending_divisor = divisor;
    let region = (flash.region_bytes / divisor).max(LEAST_REGION_BYTES.min(flash.region_bytes));
    flash.region_bytes = region.next_multiple_of(flash.block_bytes.max(PAGE_BYTES));
    flash.max_write_bytes = flash.max_write_bytes.min(flash.region_bytes);
}

fn scale_keys(config: &mut GeneratorConfig, divisor: u32) {
    config.keys = (config.keys / u64::from(divisor)).max(1);
    for pool in &mut config.pools {
        if let Popularity::Buckets { counts, .. } = &mut pool.distribution.popularity {
            counts.iter_mut().for_each(|count| *count /= f64::from(divisor));
        }
    }
}
