//! What a watcher sees of a run.

use std::time::Duration;

use cache::stats::FlashStats;

use super::counts::Counts;
use super::latency::{Histogram, Latencies};
use super::sweeps::Sweeps;
use super::target::Snapshot;
use crate::report::series::Span;

/// Figures of a running instance that a watcher can read.
pub trait Observable {
    /// Current counters, summed over all threads.
    fn counts(&self) -> Counts;
    /// Current histograms, merged over all threads.
    fn latencies(&self) -> Latencies;
    /// The target's current counters.
    fn snapshot(&self) -> Snapshot;
    /// Counters of flash; `None` without flash.
    fn flash_stats(&self) -> Option<FlashStats> {
        self.snapshot().stats.flash
    }
    /// Whether the media writes of flash are those of listed drives.
    fn lists_drives(&self) -> bool {
        self.snapshot().device.is_some_and(|device| !device.listed_drives.is_empty())
    }
    /// Latencies of the device's reads and writes; `None` if they are not measured.
    fn device_latency(&self) -> Option<(Histogram, Histogram)> {
        self.snapshot().device?.latency
    }
    /// Operations of the whole run, unless its workload ends earlier.
    fn total_ops(&self) -> u64;
    /// Progress towards the limits other than `numOps` and the time limit.
    fn limits(&self) -> Limits {
        Limits::default()
    }
    /// Totals of the completed iterations over DRAM; `None` if none are configured.
    fn sweeps(&self) -> Option<Sweeps> {
        None
    }
    /// Sets the request rate of all threads together. Has no effect if the run was started without a rate.
    fn set_rate(&self, ops_per_second: u64);
}

/// Progress towards each limit, 0 to 1; `None` if the limit is not set.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// `maxFlashWriteMB`.
    pub flash_written: Option<f64>,
    /// Share of the trace that was replayed, over all its passes.
    pub trace: Option<f64>,
}

/// Observes a run.
pub trait Watcher {
    /// Called every 200 ms of real time, for a display on the terminal. `elapsed` is the time since the start, in virtual time if
    /// the run is simulated.
    fn refresh(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        let _ = (instances, elapsed);
    }

    /// Called to sample figures for the record: with each [`refresh`](Self::refresh) in real time, and every 10 ms of virtual time in a
    /// simulated run, where all runs with one seed get the same samples.
    fn sample(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        let _ = (instances, elapsed);
    }

    /// The warm-up ended.
    fn warmed_up(&mut self) {}

    /// A problem that does not end the run, for example with an output file.
    fn warn(&mut self, message: &str) {
        let _ = message;
    }

    /// Whether [`interval`](Self::interval) is to be called.
    fn needs_intervals(&self) -> bool {
        false
    }

    /// Figures of one sampling interval, summed over all instances. The last interval ends with the run.
    fn interval(&mut self, span: &Span) {
        let _ = span;
    }
}
