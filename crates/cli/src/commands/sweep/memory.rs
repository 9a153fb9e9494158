//! How many cells fit into memory: by the peak of the first.

use std::fs;

use bench::environment::{FreeMemory, free_memory};

/// Share of the available memory that a sweep uses by default.
const SHARE_PERCENT: u64 = 80;

/// The process's memory before the first cell.
pub struct Gauge {
    before_bytes: u64,
}

impl Gauge {
    /// Begins to measure.
    pub fn start() -> Self {
        // Resets the peak of the resident memory to its present size (proc(5)). Where that is not permitted, the peak is too high.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self { before_bytes: kib_in("/proc/self/status", "VmRSS:").unwrap_or(0) << 10 }
    }

    /// Bytes by which the process's memory has grown since the start, at its peak.
    pub fn peak_bytes(&self) -> u64 {
        let peak_bytes = kib_in("/proc/self/status", "VmHWM:").unwrap_or(0) << 10;
        peak_bytes.saturating_sub(self.before_bytes).max(1)
    }
}

/// Cells of `cell_bytes` that fit into `budget_bytes` beside each other, at least one.
pub fn jobs_within(budget_bytes: Option<u64>, cell_bytes: u64) -> usize {
    let share = |free: FreeMemory| free.bytes / 100 * SHARE_PERCENT;
    let budget = budget_bytes.or_else(|| free_memory().map(share));
    let jobs = budget.map_or(u64::MAX, |budget| budget / cell_bytes);
    usize::try_from(jobs).unwrap_or(usize::MAX).max(1)
}

fn kib_in(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_more_memory_than_the_budget_run_one_at_a_time() {
        let gauge = Gauge::start();
        let held = vec![1_u8; 64 << 20];
        assert_eq!(jobs_within(Some(48 << 20), gauge.peak_bytes()), 1);
        assert!(jobs_within(Some(u64::MAX), gauge.peak_bytes()) > 1);
        assert_eq!(held.len(), 64 << 20);
    }
}
