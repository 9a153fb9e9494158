//! Checks `memoryTiers`: the engine has a single memory tier.

use super::super::findings::{Findings, join};
use super::super::keys::CacheConfig;

/// Refuses more than one tier. The message names the flags for running with one tier, or with a second tier in memory as the
/// flash engine.
pub(super) fn check(cache: &CacheConfig, at: &str, findings: &mut Findings) {
    let tiers = &cache.memory_tiers;
    if tiers.len() < 2 {
        return;
    }
    let mut message = format!(
        "has {} tiers, and the engine has one in DRAM: to run with all of cacheSizeMB in one tier, \
         --set cache_config.memoryTiers=[]",
        tiers.len()
    );
    let ratios: u64 = tiers.iter().fold(0, |sum, tier| sum.saturating_add(tier.ratio));
    if let ([first, _], true) = (&tiers[..], ratios > 0 && cache.nvm_size_mib == 0) {
        let first_mib =
            (u128::from(cache.cache_size_mib) * u128::from(first.ratio) / u128::from(ratios)) as u64;
        let second_mib = cache.cache_size_mib - first_mib;
        message += &format!(
            "; to have the second tier behind the first, as the flash engine in memory, set cacheSizeMB={first_mib} and \
             nvmCacheSizeMB={second_mib} too, and no nvmCachePaths"
        );
    }
    findings.problem(&join(at, "memoryTiers"), message);
}
