//! Checks that the total size of all devices and instances fits the integers that later sums use.

use super::super::amounts::{MAX_BYTES, MIB};
use super::super::findings::{Findings, join};
use super::super::instance::InstanceConfig;
use super::super::keys::CacheConfig;

/// Limit of each total.
const MAX_TOTAL_MIB: u64 = MAX_BYTES / MIB;

/// Checks the total sizes of all instances; the error names the first instance that exceeds the limit. A single size that is
/// too large is reported when it is converted to bytes.
pub(super) fn check(instances: &[InstanceConfig], findings: &mut Findings) {
    type Size = fn(&CacheConfig) -> (&'static str, u64, usize);
    for (what, size) in [("DRAM", dram_mib as Size), ("flash", flash_mib)] {
        let mut sum_mib = 0;
        for instance in instances {
            let (key, each_mib, parts) = size(&instance.cache);
            if each_mib > MAX_TOTAL_MIB {
                break;
            }
            let mib = u128::from(each_mib) * parts as u128;
            sum_mib += mib;
            if sum_mib > u128::from(MAX_TOTAL_MIB) {
                let others = if sum_mib > mib { ", with the instances before it" } else { "" };
                let message =
                    format!("{sum_mib} MiB of {what} in total{others}: the maximum is {MAX_TOTAL_MIB} MiB");
                findings.problem(&join(&join(&instance.at, "cache_config"), key), message);
                break;
            }
        }
    }
}

fn dram_mib(cache: &CacheConfig) -> (&'static str, u64, usize) {
    let mib = if cache.is_flash_component() { 0 } else { cache.cache_size_mib };
    ("cacheSizeMB", mib, 1)
}

/// Key and size of each device, and the number of devices.
fn flash_mib(cache: &CacheConfig) -> (&'static str, u64, usize) {
    let (key, mib) = match cache.is_flash_component() {
        true => ("cacheSizeMB", cache.cache_size_mib),
        false => ("nvmCacheSizeMB", cache.nvm_size_mib),
    };
    (key, mib, cache.nvm_paths.len().max(1))
}
