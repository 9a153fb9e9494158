//! Checks that the machine has enough memory for DRAM, flash in memory and a model drive, before any is allocated.

use crate::config::plan::RunPlan;
use crate::drive::text::bytes;
use crate::environment::{FreeMemory, free_memory};

/// A model drive holds the contents of its flash, and mapping tables and indexes of about a quarter of that.
const MODEL_OVERHEAD_DIVISOR: u64 = 4;

/// Memory of a run, by the config key that sets it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    dram_bytes: u64,
    flash_in_memory_bytes: u64,
    model_bytes: u64,
}

impl Needs {
    fn of(plan: &RunPlan) -> Self {
        let mut needs = Self::default();
        for cache in plan.instances.iter().map(|instance| &instance.cache) {
            needs.dram_bytes = needs.dram_bytes.saturating_add(cache.dram_bytes);
            let Some(flash) = &cache.flash else { continue };
            if plan.card.is_some() {
                let paths = flash.paths.len().max(1) as u64;
                let bytes = flash.bytes_per_device.saturating_mul(paths);
                let with_indexes = bytes.saturating_add(bytes / MODEL_OVERHEAD_DIVISOR);
                needs.model_bytes = needs.model_bytes.saturating_add(with_indexes);
            } else if flash.paths.is_empty() {
                needs.flash_in_memory_bytes =
                    needs.flash_in_memory_bytes.saturating_add(flash.bytes_per_device);
            }
        }
        needs
    }

    fn total_bytes(&self) -> u64 {
        self.dram_bytes.saturating_add(self.flash_in_memory_bytes).saturating_add(self.model_bytes)
    }

    /// The error if `free` does not suffice.
    fn refusal(&self, free: &FreeMemory) -> Option<String> {
        let total = self.total_bytes();
        if total <= free.bytes {
            return None;
        }
        let parts = [
            (self.dram_bytes, "cache_config.cacheSizeMB", "DRAM"),
            (self.flash_in_memory_bytes, "cache_config.nvmCacheSizeMB", "flash in memory"),
            (self.model_bytes, "cache_config.nvmCacheSizeMB", "the model drive"),
        ];
        let (_, key, _) = parts.iter().max_by_key(|(bytes, _, _)| *bytes)?;
        let text = |bytes_of: u64| bytes(bytes_of.into());
        let used = parts.iter().filter(|(bytes, _, _)| *bytes > 0);
        let used: Vec<String> = used.map(|(bytes, _, what)| format!("{} for {what}", text(*bytes))).collect();
        let scale = total.div_ceil(free.bytes.max(1)).next_power_of_two().max(2);
        Some(format!(
            "{key}: the run takes {} of memory ({}), and {} are available{}: lower the sizes, or scale them with --scale 1/{scale}",
            text(total),
            used.join(", "),
            text(free.bytes),
            if free.is_cgroup { " in this cgroup" } else { "" },
        ))
    }
}

/// Checks the memory of a run against the memory available to this process.
///
/// # Errors
/// A message with the key of the largest part, if it is not enough.
pub fn check(plan: &RunPlan) -> Result<(), String> {
    let Some(free) = free_memory() else { return Ok(()) };
    Needs::of(plan).refusal(&free).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn needs_above_free_memory_are_refused_with_the_largest_key() {
        let free = FreeMemory { bytes: 24 * GIB, is_cgroup: false };
        let dram = Needs { dram_bytes: 60_000 << 20, ..Needs::default() };
        let message = dram.refusal(&free).unwrap_or_default();
        assert!(
            message.starts_with("cache_config.cacheSizeMB: ") && message.ends_with("--scale 1/4"),
            "{message}"
        );
        let flash = Needs { dram_bytes: GIB, flash_in_memory_bytes: 500 * GIB, ..Needs::default() };
        let limited = FreeMemory { bytes: 2 * GIB, is_cgroup: true };
        let message = flash.refusal(&limited).unwrap_or_default();
        assert!(
            message.starts_with("cache_config.nvmCacheSizeMB: ") && message.contains("in this cgroup"),
            "{message}"
        );
        assert_eq!(Needs { dram_bytes: 24 * GIB, ..Needs::default() }.refusal(&free), None);
    }
}
