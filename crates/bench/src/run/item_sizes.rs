//! Items that DRAM takes: chunks large enough for what the workload stores, as far as so little memory can bear them.

use cache::dram::{ConfigError, DramConfig, HEADER_BYTES};
use workload::generate::{Distribution, GeneratorConfig, Table};

use super::cache_keys::by_its_key;
use super::error::OpenError;
use crate::config::check::LARGEST_CLASS_BYTES;
use crate::config::plan::{CachePlan, WorkloadPlan};

/// The engine leaves out chunks of which DRAM would hold fewer than this.
const USUAL_CHUNKS: u64 = 64;
/// Larger ones are asked for if there are that many slabs for each size of chunk in use: with fewer, some sizes have none.
const SLABS_A_SIZE: u64 = 2;
const MIB: u64 = 1 << 20;

/// The sizes of the items that a workload stores, header and key included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemSizes {
    /// The smallest.
    pub least_bytes: u64,
    /// The largest.
    pub most_bytes: u64,
}

impl ItemSizes {
    /// Those of `plan`; `None` where nobody knows before it is read: of a trace.
    #[must_use]
    pub fn of(plan: &WorkloadPlan) -> Option<Self> {
        match plan {
            WorkloadPlan::Online(config) | WorkloadPlan::Prepared { config, .. } => Self::made_up(config),
            WorkloadPlan::Replay(_) | WorkloadPlan::Stressor(_) => None,
        }
    }

    fn made_up(config: &GeneratorConfig) -> Option<Self> {
        let asked = config.pools.iter().filter(|pool| pool.op_share > 0.0);
        let all = asked.flat_map(|pool| Self::in_pool(&pool.distribution));
        all.reduce(|one, other| Self {
            least_bytes: one.least_bytes.min(other.least_bytes),
            most_bytes: one.most_bytes.max(other.most_bytes),
        })
    }

    /// Items, and what is chained to them. A table that is none is refused elsewhere.
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

/// The largest item that DRAM takes, and what in the config sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemLimit {
    /// The largest chunk that there is.
    pub largest_chunk_bytes: u64,
    /// The largest chunk that the config allows.
    allowed_bytes: u64,
    /// `allocSizes` are given, so that `maxAllocSize` has no effect.
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

    /// The key that refuses an item of `item_bytes`, header and key included, and what makes the cache take it.
    #[must_use]
    pub fn remedy(&self, item_bytes: u64) -> (&'static str, String) {
        let key = match (item_bytes > self.allowed_bytes, self.has_alloc_sizes) {
            (false, _) => "cache_config.cacheSizeMB",
            (true, true) => "cache_config.allocSizes",
            (true, false) => "cache_config.maxAllocSize",
        };
        let words = if item_bytes > LARGEST_CLASS_BYTES {
            "no chunk can be larger than 4 MiB: request smaller values, or chained items".to_owned()
        } else if item_bytes <= self.allowed_bytes {
            let needed_mib = item_bytes.next_power_of_two() * USUAL_CHUNKS / MIB;
            format!(
                "DRAM has too few slabs for chunks of all sizes up to that: cacheSizeMB {needed_mib} (after --scale) is enough"
            )
        } else if self.largest_chunk_bytes < self.allowed_bytes {
            "raise it and cacheSizeMB, which has too few slabs for such chunks".to_owned()
        } else if self.has_alloc_sizes {
            "give larger ones".to_owned()
        } else {
            "raise it, or give allocSizes".to_owned()
        };
        (key, words)
    }
}

/// Gives `config` slabs that the largest of `sizes` fits, where the plan wants such chunks, memory bears them and it would not
/// have them by itself. The answer is the largest item that it takes, and a warning if some of `sizes` are larger.
///
/// # Errors
/// A DRAM that cannot be.
pub fn make_room(
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
        (wider.slab_bytes, wider.max_item_bytes) = (Some(slab_bytes), wider.max_item_bytes.min(slab_bytes));
        if bears(&wider, plan, sizes, &wider.chunk_sizes().unwrap_or_default()) {
            *config = wider;
        }
    }
    let limit = ItemLimit::of(config, plan)?;
    let is_too_large = sizes.most_bytes > limit.largest_chunk_bytes;
    Ok((limit, is_too_large.then(|| too_large(sizes.most_bytes, limit))))
}

/// A DRAM that cannot be, by the key that makes it so.
fn refused(error: &ConfigError) -> OpenError {
    OpenError::Config(by_its_key(&error.to_string()))
}

/// Whether each pool has enough slabs for the chunks that are in use.
fn bears(config: &DramConfig, plan: &CachePlan, sizes: ItemSizes, chunks: &[u32]) -> bool {
    let slabs = plan.dram_bytes / u64::from(config.slab_bytes.unwrap_or(u32::MAX));
    let smaller = |than: u64| chunks.partition_point(|chunk| u64::from(*chunk) < than);
    let in_use =
        (smaller(sizes.most_bytes) + 1).min(chunks.len()) - smaller(sizes.least_bytes).min(chunks.len());
    let of = |share: &f64| (*share * slabs as f64) as u64;
    !chunks.is_empty() && plan.pool_shares.iter().all(|share| of(share) >= SLABS_A_SIZE * in_use as u64)
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

    /// The largest chunk, and what is said.
    fn room(dram_mib: u64, least: u64, most: u64) -> (u32, Option<String>) {
        let plan = plan(dram_mib);
        let eviction = policy::eviction::EvictionConfig::new(policy::eviction::Kind::Lru);
        let mut config = DramConfig::new(plan.dram_bytes, cache::config::eviction(eviction));
        config.max_item_bytes = plan.classes.max_bytes;
        let said = make_room(&mut config, &plan, Some(ItemSizes { least_bytes: least, most_bytes: most }));
        (*config.chunk_sizes().unwrap().last().unwrap(), said.unwrap().1)
    }

    #[test]
    fn a_small_dram_refused_large_items_though_it_could_bear_them() {
        assert_eq!(room(16, 600_030, 600_030), (1 << 20, None));
        assert_eq!(room(64, 100, 1 << 20), (1 << 20, None));
        assert_eq!(room(16, 100, 200_000), (256 << 10, None), "as it would be by itself");
    }

    #[test]
    fn what_a_small_dram_cannot_bear_is_told() {
        let (largest, said) = room(16, 100, 1_000_000);
        let said = said.unwrap();
        assert_eq!(largest, 256 << 10);
        assert!(
            said.contains("above 262144 are refused as too large")
                && said.ends_with("cacheSizeMB 64 (after --scale) is enough"),
            "{said}"
        );
        let (_, said) = room(1024, 100, 3_000_000);
        let said = said.unwrap();
        assert!(
            said.starts_with("cache_config.maxAllocSize: ") && said.ends_with("raise it, or give allocSizes"),
            "{said}"
        );
    }

    /// The key that was said to be raised was not what limited, or could not be raised so far.
    #[test]
    fn what_is_to_be_raised_would_help() {
        let said = room(16, 100, 3_000_000).1.unwrap();
        assert!(
            said.ends_with("raise it and cacheSizeMB, which has too few slabs for such chunks"),
            "{said}"
        );
        let said = room(1024, 100, 5_000_000).1.unwrap();
        assert!(
            said.ends_with("no chunk can be larger than 4 MiB: request smaller values, or chained items"),
            "{said}"
        );
    }

    /// `maxAllocSize` was named, which nobody heeds then.
    #[test]
    fn sizes_that_are_given_are_what_is_too_small() {
        let mut plan = plan(64);
        plan.classes.explicit_bytes = vec![100, 200];
        let eviction = policy::eviction::EvictionConfig::new(policy::eviction::Kind::Lru);
        let mut config = DramConfig::new(plan.dram_bytes, cache::config::eviction(eviction));
        config.alloc_sizes = plan.classes.explicit_bytes.clone();
        let sizes = ItemSizes { least_bytes: 100, most_bytes: 8000 };
        let said = make_room(&mut config, &plan, Some(sizes)).unwrap().1.unwrap();
        assert!(
            said.starts_with("cache_config.allocSizes: ") && said.ends_with("give larger ones"),
            "{said}"
        );
    }

    /// Every reason was laid on `cacheSizeMB`.
    #[test]
    fn a_factor_that_makes_too_many_sizes_is_refused_by_its_key() {
        let mut plan = plan(1024);
        plan.classes.factor = 1.02;
        let eviction = policy::eviction::EvictionConfig::new(policy::eviction::Kind::Lru);
        let mut config = DramConfig::new(plan.dram_bytes, cache::config::eviction(eviction));
        config.alloc_factor = Some(plan.classes.factor);
        let sizes = ItemSizes { least_bytes: 100, most_bytes: 1000 };
        let refused = make_room(&mut config, &plan, Some(sizes)).unwrap_err().to_string();
        assert!(refused.contains("cache_config.allocFactor: "), "{refused}");
    }

    #[test]
    fn sizes_are_those_of_pools_that_are_asked() {
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
