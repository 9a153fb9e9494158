//! The result of one instance of a run.

use workload::trace::ReplayStats;

use super::counts::Counts;
use super::destructors::DestructorCounts;
use super::latency::Latencies;
use super::misses::Misses;
use super::punctuality::Punctuality;
use super::stop::StopReason;
use super::stressors::StressorReport;
use super::sweeps::Sweeps;
use super::target::Snapshot;
use super::tenants::Tenants;
use super::warmup::Warmup;
use crate::config::plan::RunSettings;
use crate::consistency::Inconsistency;
use crate::events::EventCounts;

/// The result of one instance.
#[derive(Debug, Clone)]
pub struct InstanceReport {
    /// Its configuration.
    pub settings: RunSettings,
    /// Seconds from the start of the first thread to the end of the last.
    pub seconds: f64,
    /// Counters, summed over all threads.
    pub counts: Counts,
    /// Histograms, merged over all threads.
    pub latencies: Latencies,
    /// Whether every operation was timed, instead of one in [`SAMPLE_EVERY`](super::worker::SAMPLE_EVERY).
    pub timed_all: bool,
    /// The target's counters at the end.
    pub snapshot: Snapshot,
    /// The largest item that DRAM refused, header and key included; 0 if it refused none.
    pub largest_refused_bytes: u64,
    /// Details of the first inconsistent reads; `counts` has their number.
    pub inconsistencies: Vec<Inconsistency>,
    /// Why the run ended early, if it did.
    pub stopped: Option<StopReason>,
    /// Lateness of requests, in an open loop.
    pub punctuality: Option<Punctuality>,
    /// The warm-up, which the figures exclude; `None` if none is configured.
    pub warmup: Option<Warmup>,
    /// Statistics of reading the trace; `None` without a trace.
    pub trace: Option<ReplayStats>,
    /// Counters per tenant of the trace; `None` if it has no tenants.
    pub tenants: Option<Tenants>,
    /// The file with the misses, if one was written.
    pub misses: Option<Misses>,
    /// Totals of the iterations over DRAM, warm-up included; `None` if none are configured.
    pub sweeps: Option<Sweeps>,
    /// Counts of the logged key events, warm-up included; `None` if events are not logged.
    pub events: Option<EventCounts>,
    /// Counts of the item destructor's calls; `None` without a destructor.
    pub destructors: Option<DestructorCounts>,
    /// Results of the special stressor or target; `None` for the usual request loop.
    pub stressor: Option<StressorReport>,
}

impl InstanceReport {
    /// Operations of the whole run, warm-up included.
    #[must_use]
    pub fn ops_with_warmup(&self) -> u64 {
        self.counts.ops + self.warmup.map_or(0, |warmup| warmup.counts.ops)
    }
}
