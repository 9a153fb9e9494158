//! Whether sizes can be reckoned with: those of several devices and instances are added up later, for what one drive is to
//! hold, for instance.

use super::super::amounts::{MIB, MOST_BYTES};
use super::super::cachebench::InstanceConfig;
use super::super::keys::CacheConfig;
use super::super::knob::Findings;
use super::super::text::join;
use super::is_flash_component;

/// Mebibytes below which every sum stays.
const MOST_MIB: u64 = MOST_BYTES / MIB;

/// Checks the sizes of all instances together; the first that makes them too much is named. One that is too large by itself is
/// refused when its bytes are counted.
pub(super) fn check(instances: &[InstanceConfig], findings: &mut Findings) {
    type Size = fn(&CacheConfig) -> (&'static str, u64, usize);
    for (what, size) in [("DRAM", dram_mib as Size), ("flash", flash_mib)] {
        let mut sum_mib = 0;
        for instance in instances {
            let (key, each_mib, parts) = size(&instance.cache);
            if each_mib > MOST_MIB {
                break;
            }
            let mib = u128::from(each_mib) * parts as u128;
            sum_mib += mib;
            if sum_mib > u128::from(MOST_MIB) {
                let others = if sum_mib > mib { ", with the instances before it" } else { "" };
                let words =
                    format!("{sum_mib} MiB of {what} in all{others}: at most {MOST_MIB} can be addressed");
                findings.problem(&join(&join(&instance.at, "cache_config"), key), words);
                break;
            }
        }
    }
}

fn dram_mib(cache: &CacheConfig) -> (&'static str, u64, usize) {
    let mib = if is_flash_component(cache) { 0 } else { cache.cache_size_mib };
    ("cacheSizeMB", mib, 1)
}

/// Of each of its devices, and how many these are.
fn flash_mib(cache: &CacheConfig) -> (&'static str, u64, usize) {
    let (key, mib) = match is_flash_component(cache) {
        true => ("cacheSizeMB", cache.cache_size_mib),
        false => ("nvmCacheSizeMB", cache.nvm_size_mib),
    };
    (key, mib, cache.nvm_paths.len().max(1))
}
