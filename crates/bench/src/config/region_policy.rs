//! Converts the keys of the region engine: CacheBench's own, or a photo cache policy by name.

use cache::config::regions::{EarlyReclaim, RipqConfig};

use super::amounts::{mib, narrow};
use super::keys::CacheConfig;
use super::plan::{OrderPlan, PlacementExtras, ReinsertionPlan};

/// Region size in bytes, and the key that sets it.
pub fn region_bytes(typed: &CacheConfig) -> Result<(u32, &'static str), String> {
    let (count, key) = match typed.region_policy.as_str() {
        "" => (typed.navy_region_mib, "cache_config.navyRegionSizeMB"),
        _ => (typed.region_policy_config.block_mib, "cache_config.navyRegionPolicyConfig.blockMB"),
    };
    Ok((narrow(mib(count, key)?, key)?, key))
}

/// Eviction order of regions.
pub fn order(typed: &CacheConfig) -> Result<OrderPlan, String> {
    let settings = &typed.region_policy_config;
    Ok(match typed.region_policy.as_str() {
        "mcdipper" | "mcdipper-lru" => OrderPlan::Fifo,
        "blockcache" => OrderPlan::SegmentedLru(narrow(
            settings.segments,
            "cache_config.navyRegionPolicyConfig.segments",
        )?),
        "ripq" => OrderPlan::Ripq(ripq(typed, false)?),
        "sipq" => OrderPlan::Ripq(ripq(typed, true)?),
        _ => by_segments(&typed.navy_segment_ratio)?,
    })
}

fn ripq(typed: &CacheConfig, single_point: bool) -> Result<RipqConfig, String> {
    let settings = &typed.region_policy_config;
    let unless_0 = |share: f64| (share > 0.0).then_some(share);
    let early_reclaim = unless_0(settings.reinsertion_target).map(|above| EarlyReclaim {
        coefficient: settings.moving_average,
        above,
        cold_below: settings.cold_block_ratio,
    });
    Ok(RipqConfig {
        sections: narrow(settings.insertion_points, "cache_config.navyRegionPolicyConfig.insertionPoints")?,
        caching: settings.caching.parse().map_err(|error| format!("{error}"))?,
        single_point,
        hot_above: unless_0(settings.hot_block_ratio),
        early_reclaim,
        compact_above: unless_0(settings.dead_block_ratio),
    })
}

/// No share is LRU, one is FIFO, several are a segmented FIFO.
fn by_segments(shares: &[u64]) -> Result<OrderPlan, String> {
    Ok(match shares.len() {
        0 => OrderPlan::Lru,
        1 => OrderPlan::Fifo,
        _ => {
            let key = "cache_config.navySegmentedFifoSegmentRatio";
            OrderPlan::SegmentedFifo(
                shares.iter().map(|share| narrow(*share, key)).collect::<Result<_, _>>()?,
            )
        }
    })
}

/// Reinsertion of items of a reclaimed region, unless the policy has its own rule.
pub fn reinsertion(typed: &CacheConfig) -> Result<ReinsertionPlan, String> {
    let (hits, percent) = (typed.navy_hits_reinsertion, typed.navy_probability_reinsertion);
    if typed.region_policy == "mcdipper-lru" {
        return Ok(ReinsertionPlan::Hits(1));
    }
    Ok(match (hits, percent) {
        (0, 0) => ReinsertionPlan::Never,
        (0, percent) => {
            ReinsertionPlan::Percent(narrow(percent, "cache_config.navyProbabilityReinsertionThreshold")?)
        }
        (hits, _) => ReinsertionPlan::Hits(narrow(hits, "cache_config.navyHitsReinsertionThreshold")?),
    })
}

/// Consumers of placement handles in addition to the engines.
pub fn placement_extras(typed: &CacheConfig) -> PlacementExtras {
    let has = |name: &str| typed.placement_handles.iter().any(|it| it == name);
    PlacementExtras {
        insertion_points: has("insertion-points"),
        reinserted: has("reinserted"),
        metadata: has("metadata"),
    }
}

/// CacheBench's engine does not write the hole between the items and the table of a region.
pub fn write_whole(typed: &CacheConfig) -> bool {
    !typed.region_policy.is_empty() && typed.region_policy_config.write_whole
}

/// Limit of concurrent transfers of a region; 0 is no limit, as in CacheBench's engine.
pub fn transfers_at_once(typed: &CacheConfig) -> Result<u32, String> {
    match typed.region_policy.as_str() {
        "" => Ok(0),
        _ => narrow(
            typed.region_policy_config.transfers_at_once,
            "cache_config.navyRegionPolicyConfig.transfersAtOnce",
        ),
    }
}
