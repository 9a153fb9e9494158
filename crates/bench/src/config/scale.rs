//! Scales a run down to a fraction of the bytes.

use super::amounts::MIB;
use super::plan::{CachePlan, FlashPlan, RunPlan, RunSettings, WorkloadPlan};
use crate::run::objects;
use workload::generate::{GeneratorConfig, Popularity};

/// Region sizes are multiples of a drive's page, which may be larger than the blocks of the config.
const PAGE_BYTES: u32 = 4096;
/// A smaller region could not store the large objects.
const MIN_REGION_BYTES: u32 = 64 << 10;

impl RunPlan {
    /// Divides sizes in bytes, the number of keys, and the flash writes or evictions that end the warm-up or the run by
    /// `divisor`. Shares, mixes, operations, object sizes and traces do not change. A region stays at least 64 KiB.
    #[must_use]
    pub fn scaled(mut self, divisor: u32) -> Self {
        if divisor <= 1 {
            return self;
        }
        for instance in &mut self.instances {
            scale_cache(&mut instance.cache, divisor);
            scale_lengths(&mut instance.run, divisor);
            match &mut instance.workload {
                WorkloadPlan::Online(config) | WorkloadPlan::Prepared { config, .. } => {
                    scale_keys(config, divisor);
                }
                WorkloadPlan::Replay(_) | WorkloadPlan::Stressor(_) => {}
            }
        }
        self
    }
}

fn scale_cache(cache: &mut CachePlan, divisor: u32) {
    if let Some(objects) = &mut cache.objects {
        objects.max_objects = (objects.max_objects / u64::from(divisor)).max(1);
        if let Some(limit) = &mut objects.size_limit {
            limit.bytes = (limit.bytes / u64::from(divisor)).max(1);
        }
        cache.dram_bytes = objects::dram_bytes(objects);
        return;
    }
    cache.dram_bytes = (cache.dram_bytes / u64::from(divisor)).max(MIB);
    if let Some(flash) = &mut cache.flash {
        scale_flash(flash, divisor);
    }
}

fn scale_flash(flash: &mut FlashPlan, divisor: u32) {
    let block = u64::from(flash.block_bytes.max(flash.bucket_bytes));
    flash.bytes_per_device = flash.bytes_per_device / u64::from(divisor) / block * block;
    // The limit of pending items stays in proportion to the buckets; otherwise items would be flushed less often together than
    // on the full-size drive.
    flash.pending_divisor = divisor;
    let region = (flash.region_bytes / divisor).max(MIN_REGION_BYTES.min(flash.region_bytes));
    flash.region_bytes = region.next_multiple_of(flash.block_bytes.max(PAGE_BYTES));
    flash.max_write_bytes = flash.max_write_bytes.min(flash.region_bytes);
}

/// A smaller flash is full after fewer writes. A value of 0, which disables the condition, stays 0; a small value stays at least 1.
fn scale_lengths(run: &mut RunSettings, divisor: u32) {
    let (warmup, limits) = (&mut run.warmup, &mut run.limits);
    for amount in [&mut warmup.flash_bytes, &mut warmup.flash_evictions, &mut limits.flash_bytes] {
        *amount = (*amount / u64::from(divisor)).max(u64::from(*amount > 0));
    }
}

fn scale_keys(config: &mut GeneratorConfig, divisor: u32) {
    config.keys = (config.keys / u64::from(divisor)).max(1);
    for pool in &mut config.pools {
        if let Popularity::Buckets { counts, .. } = &mut pool.distribution.popularity {
            counts.iter_mut().for_each(|count| *count /= f64::from(divisor));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::path::Path;

    use super::*;
    use crate::config::Loaded;
    use crate::config::cachebench::load_text;
    use crate::config::lower::lower;
    use crate::config::plan::{LimitsPlan, WarmupPlan};

    #[test]
    fn scaled_divides_flash_write_and_eviction_limits() {
        let text = r#"{ "test_config": { "generator": "online", "numOps": 10, "numThreads": 1, "numKeys": 10, "keySizeRange": [8, 16],
            "keySizeRangeProbability": [1.0], "valSizeRange": [1, 300], "valSizeRangeProbability": [1.0], "getRatio": 1.0 }, "cache_config": { "cacheSizeMB": 64 } }"#;
        let Ok(Loaded::Config(config)) = load_text(Path::new("c.json"), text, &[]) else {
            panic!("bad config")
        };
        let mut plan = lower(&config).unwrap();
        let lengths = |mib: u64, flash_evictions: u64| {
            let warmup = WarmupPlan {
                ops_per_thread: 7,
                flash_bytes: mib * MIB,
                flash_evictions,
                ..WarmupPlan::default()
            };
            (warmup, LimitsPlan { flash_bytes: 3 * mib * MIB, steady_round_ops: 9 })
        };
        let run = &mut plan.instances[0].run;
        (run.warmup, run.limits) = lengths(4000, 3);
        let run = plan.clone().scaled(1000).instances.remove(0).run;
        assert_eq!((run.warmup, run.limits), lengths(4, 1));
        plan.instances[0].run.warmup = WarmupPlan::default();
        assert_eq!(plan.scaled(1000).instances[0].run.warmup, WarmupPlan::default(), "0 stays 0");
    }
}
