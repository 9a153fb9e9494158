//! Chooses the DRAM slab size so that the workload's largest items fit, if memory suffices.

use cache::config::{DramConfig, DramConfigError};
use cache::internals::dram::HEADER_BYTES;
use workload::generate::{Distribution, GeneratorConfig, Table};

use super::cache_keys::with_config_keys;
use super::error::OpenError;
use crate::config::check::LARGEST_CLASS_BYTES;
use crate::config::plan::{CachePlan, WorkloadPlan};

/// The engine omits a size class if DRAM would hold fewer of its chunks than this.
const USUAL_CHUNKS: u64 = 64;
/// Larger slabs are chosen only if there are at least this many per size class in use: with fewer, some classes would get none.
const SLABS_PER_CLASS: u64 = 2;
const MIB: u64 = 1 << 20;

/// The range of item sizes that a workload stores, header and key included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemSizes {
    /// The smallest.
    pub least_bytes: u64,
    /// The largest.
    pub most_bytes: u64,
}

impl ItemSizes {
    /// The sizes of `plan`; `None` for a trace, whose sizes are unknown until it is read.
    #[must_use]
    pub fn of(plan: &WorkloadPlan) -> Option<Self> {
        match plan {
            WorkloadPlan::Online(config) | WorkloadPlan::Prepared { config, .. } => {
                Self::of_generator(config)
            }
            WorkloadPlan::Replay(_) | WorkloadPlan::Stressor(_) => None,
        }
    }

    fn of_generator(config: &GeneratorConfig) -> Option<Self> {
        let used = config.pools.iter().filter(|pool| pool.op_share > 0.0);
        let all = used.flat_map(|pool| Self::in_pool(&pool.distribution));
        all.reduce(|one, other| Self {
            least_bytes: one.least_bytes.min(other.least_bytes),
            most_bytes: one.most_bytes.max(other.most_bytes),
        })
    }

    /// Items and their chained items. An invalid table is skipped; opening the workload reports it.
    fn in_pool(distribution: &Distribution) -> Vec<Self> {
        let keys = distribution.key_bytes.sizes().map_or(0, |sizes| sizes.largest());
        let of = |table: &Table| {
            let sizes = table.sizes().ok()?;
            let beside = HEADER_BYTES as u64 + keys;
            Some(Self { least_bytes: sizes.at(0) + beside, most_bytes: sizes.largest() + beside })
        };
        let chained = distribution.chain_value_bytes.iter().filter(|_| distribution.mix.add_chained > 0.0);
        std::iter::once(&distribution.value_bytes).chain(chained).filter_map(of).collect()
    }
}

/// The largest item that DRAM accepts, and the config keys that determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemLimit {
    /// The largest chunk.
    pub largest_chunk_bytes: u64,
    /// The largest chunk that the config allows.
    allowed_bytes: u64,
    /// Whether `allocSizes` is set, so that `maxAllocSize` has no effect.
    has_alloc_sizes: bool,
}

impl ItemLimit {
    fn of(config: &DramConfig, plan: &CachePlan) -> Result<Self, OpenError> {
        let chunks = config.chunk_sizes().map_err(|error| refused(&error))?;
        let explicit = plan.classes.explicit_bytes.last();
        Ok(Self {
            largest_chunk_bytes: u64::from(chunks.last().copied().unwrap_or(0)),
            allowed_bytes: u64::from(explicit.copied().unwrap_or(plan.classes.max_bytes)),
            has_alloc_sizes: explicit.is_some(),
        })
    }

    /// The key that causes an item of `item_bytes` (header and key included) to be refused, and how to change it.
    #[must_use]
    pub fn remedy(&self, item_bytes: u64) -> (&'static str, String) {
        let key = match (item_bytes > self.allowed_bytes, self.has_alloc_sizes) {
            (false, _) => "cache_config.cacheSizeMB",
            (true, true) => "cache_config.allocSizes",
            (true, false) => "cache_config.maxAllocSize",
        };
        let message = if item_bytes > LARGEST_CLASS_BYTES {
            "no chunk can be larger than 4 MiB: request smaller values, or chained items".to_owned()
        } else if item_bytes <= self.allowed_bytes {
            let needed_mib = item_bytes.next_power_of_two() * USUAL_CHUNKS / MIB;
            format!(
                "DRAM has too few slabs for chunks of all sizes up to that: cacheSizeMB {needed_mib} (after --scale) is enough"
            )
        } else if self.largest_chunk_bytes < self.allowed_bytes {
            "raise it and cacheSizeMB, which has too few slabs for such chunks".to_owned()
        } else if self.has_alloc_sizes {
            "add larger sizes".to_owned()
        } else {
            "raise it, or set allocSizes".to_owned()
        };
        (key, message)
    }
}

/// Raises the slab size of `config` so that the largest of `sizes` fits, if the plan allows such chunks, memory suffices, and they
/// would not fit otherwise. Returns the largest item that DRAM accepts, and a warning if some of `sizes` are larger.
///
/// # Errors
/// An invalid DRAM configuration.
pub fn fit_slabs(
    config: &mut DramConfig,
    plan: &CachePlan,
    sizes: Option<ItemSizes>,
) -> Result<(ItemLimit, Option<String>), OpenError> {
    let limit = ItemLimit::of(config, plan)?;
    let Some(sizes) = sizes else { return Ok((limit, None)) };
    let wanted = sizes.most_bytes.min(limit.allowed_bytes);
    if wanted > limit.largest_chunk_bytes
        && let Some(slab_bytes) = u32::try_from(wanted).ok().and_then(u32::checked_next_power_of_two)
    {
        let mut wider = config.clone();
        wider.slab_bytes = Some(slab_bytes);
        wider.max_chunk_bytes = wider.max_chunk_bytes.map(|bytes| bytes.min(slab_bytes));
        if has_enough_slabs(&wider, plan, sizes, &wider.chunk_sizes().unwrap_or_default()) {
            *config = wider;
        }
    }
    let limit = ItemLimit::of(config, plan)?;
    let is_too_large = sizes.most_bytes > limit.largest_chunk_bytes;
    Ok((limit, is_too_large.then(|| too_large(sizes.most_bytes, limit))))
}

/// The error for an invalid DRAM configuration, with the config key that causes it.
fn refused(error: &DramConfigError) -> OpenError {
    OpenError::Config(with_config_keys(&error.to_string()))
}

/// Whether each pool has enough slabs for the size classes in use.
fn has_enough_slabs(config: &DramConfig, plan: &CachePlan, sizes: ItemSizes, chunks: &[u32]) -> bool {
    let slabs = plan.dram_bytes / u64::from(config.slab_bytes.unwrap_or(u32::MAX));
    let smaller = |than: u64| chunks.partition_point(|chunk| u64::from(*chunk) < than);
    let in_use =
        (smaller(sizes.most_bytes) + 1).min(chunks.len()) - smaller(sizes.least_bytes).min(chunks.len());
    let of = |share: &f64| (*share * slabs as f64) as u64;
    !chunks.is_empty() && plan.pool_shares.iter().all(|share| of(share) >= SLABS_PER_CLASS * in_use as u64)
}

fn too_large(item_bytes: u64, limit: ItemLimit) -> String {
    let (key, remedy) = limit.remedy(item_bytes);
    format!(
        "{key}: items of up to {item_bytes} bytes, header and key included, are requested, and those above {} are refused as \
         too large: {remedy}",
        limit.largest_chunk_bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::generate::{BucketRule, Mix, PoolConfig, Popularity};

    fn plan(dram_mib: u64) -> CachePlan {
        use crate::config::plan::{ClassesPlan, EvictionPlan};
        CachePlan {
            dram_bytes: dram_mib * MIB,
            pool_shares: vec![1.0],
            classes: ClassesPlan {
                factor: 1.5,
                min_bytes: 64,
                max_bytes: 1 << 20,
                explicit_bytes: Vec::new(),
            },
            eviction: EvictionPlan {
                policy: "LRU".to_owned(),
                refresh_seconds: 60,
                update_on_read: true,
                insertion_point: 0,
                hot_percent: 20,
                cold_percent: 20,
            },
            rebalance: None,
            flash: None,
            persist_dir: None,
            events: None,
            destructor: crate::config::plan::DestructorPlan::None,
            objects: None,
        }
    }

    /// The largest chunk, and the warning.
    fn fit(dram_mib: u64, least: u64, most: u64) -> (u32, Option<String>) {
        let plan = plan(dram_mib);
        let eviction = policy::eviction::EvictionConfig::new(policy::eviction::Kind::Lru);
        let mut config = DramConfig::new(plan.dram_bytes, cache::config::eviction(eviction));
        config.max_chunk_bytes = Some(plan.classes.max_bytes);
        let fitted = fit_slabs(&mut config, &plan, Some(ItemSizes { least_bytes: least, most_bytes: most }));
        (*config.chunk_sizes().unwrap().last().unwrap(), fitted.unwrap().1)
    }

    #[test]
    fn small_dram_accepts_large_items_if_it_has_enough_slabs() {
        assert_eq!(fit(16, 600_030, 600_030), (1 << 20, None));
        assert_eq!(fit(64, 100, 1 << 20), (1 << 20, None));
        assert_eq!(fit(16, 100, 200_000), (256 << 10, None), "the engine's own choice");
    }

    #[test]
    fn items_too_large_for_the_slabs_cause_a_warning() {
        let (largest, warning) = fit(16, 100, 1_000_000);
        let warning = warning.unwrap();
        assert_eq!(largest, 256 << 10);
        assert!(
            warning.contains("above 262144 are refused as too large")
                && warning.ends_with("cacheSizeMB 64 (after --scale) is enough"),
            "{warning}"
        );
        let (_, warning) = fit(1024, 100, 3_000_000);
        let warning = warning.unwrap();
        assert!(
            warning.starts_with("cache_config.maxAllocSize: ")
                && warning.ends_with("raise it, or set allocSizes"),
            "{warning}"
        );
    }

    #[test]
    fn warning_names_the_keys_that_limit_the_item() {
        let warning = fit(16, 100, 3_000_000).1.unwrap();
        assert!(
            warning.ends_with("raise it and cacheSizeMB, which has too few slabs for such chunks"),
            "{warning}"
        );
        let warning = fit(1024, 100, 5_000_000).1.unwrap();
        assert!(
            warning.ends_with("no chunk can be larger than 4 MiB: request smaller values, or chained items"),
            "{warning}"
        );
    }

    /// `maxAllocSize` has no effect beside `allocSizes`.
    #[test]
    fn warning_names_alloc_sizes_if_they_are_set() {
        let mut plan = plan(64);
        plan.classes.explicit_bytes = vec![100, 200];
        let eviction = policy::eviction::EvictionConfig::new(policy::eviction::Kind::Lru);
        let mut config = DramConfig::new(plan.dram_bytes, cache::config::eviction(eviction));
        config.alloc_sizes = plan.classes.explicit_bytes.clone();
        let sizes = ItemSizes { least_bytes: 100, most_bytes: 8000 };
        let warning = fit_slabs(&mut config, &plan, Some(sizes)).unwrap().1.unwrap();
        assert!(
            warning.starts_with("cache_config.allocSizes: ") && warning.ends_with("add larger sizes"),
            "{warning}"
        );
    }

    #[test]
    fn factor_that_makes_too_many_classes_is_refused_by_its_key() {
        let mut plan = plan(1024);
        plan.classes.factor = 1.02;
        let eviction = policy::eviction::EvictionConfig::new(policy::eviction::Kind::Lru);
        let mut config = DramConfig::new(plan.dram_bytes, cache::config::eviction(eviction));
        config.alloc_factor = Some(plan.classes.factor);
        let sizes = ItemSizes { least_bytes: 100, most_bytes: 1000 };
        let refused = fit_slabs(&mut config, &plan, Some(sizes)).unwrap_err().to_string();
        assert!(refused.contains("cache_config.allocFactor: "), "{refused}");
    }

    #[test]
    fn sizes_cover_only_pools_with_requests() {
        let pool = |op_share, value: u64| PoolConfig {
            op_share,
            key_share: 1.0,
            distribution: Distribution {
                key_bytes: Table::uniform(8, 11),
                value_bytes: Table::uniform(value, 2 * value),
                chain_items: None,
                chain_value_bytes: None,
                ttl_seconds: None,
                popularity: Popularity::Buckets {
                    counts: vec![1.0],
                    weights: vec![1.0],
                    rule: BucketRule::Flattened,
                },
                mix: Mix { get: 1.0, ..Mix::default() },
            },
        };
        let config =
            GeneratorConfig { keys: 9, pools: vec![pool(1.0, 100), pool(0.5, 1000), pool(0.0, 9000)] };
        let sizes = ItemSizes { least_bytes: 130, most_bytes: 1999 + 30 };
        assert_eq!(ItemSizes::of(&WorkloadPlan::Online(config)), Some(sizes));
    }
}
