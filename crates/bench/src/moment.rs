//! Counters at a point of a run, from which the counters of a part of the run are computed, for example without the warm-up.

use std::borrow::Cow;
use std::time::Duration;

use cache::stats::FlashStats;
use ssd::Stats;

use crate::run::Observable;
use crate::run::counts::{CounterTable, Counts};
use crate::run::latency::Latencies;
use crate::run::target::Snapshot;

/// The counters of all instances together, since the start or since an earlier point.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    /// Time since the start or the earlier point.
    pub at: Duration,
    /// Counts of all threads.
    pub counts: Counts,
    /// Latencies of all threads.
    pub latencies: Latencies,
    /// Counters of the caches. With several instances media writes are only in [`drive`](Self::drive).
    pub snapshot: Snapshot,
    /// Counters of the model drive.
    pub drive: Option<Stats>,
}

impl Moment {
    /// Reads the current counters.
    pub fn of(instances: &[&dyn Observable], at: Duration, drive: Option<Stats>) -> Self {
        let snapshots = instances.iter().map(|instance| instance.snapshot());
        let snapshot = snapshots.reduce(|all, more| all.plus(&more)).unwrap_or_default();
        let mut moment = Self { at, drive, snapshot, ..Self::default() };
        for instance in instances {
            moment.counts.add(&instance.counts());
            moment.latencies.merge(&instance.latencies());
        }
        moment
    }

    /// Counters since `earlier`. Fill levels are those at the end.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            at: self.at.saturating_sub(earlier.at),
            counts: self.counts.since(&earlier.counts),
            latencies: self.latencies.since(&earlier.latencies),
            snapshot: self.snapshot.since(&earlier.snapshot),
            drive: self.drive.as_ref().zip(earlier.drive.as_ref()).map(|(now, then)| now.since(then)),
        }
    }
    /// Counters of flash; zeros without flash.
    #[must_use]
    pub fn flash(&self) -> Cow<'_, FlashStats> {
        self.snapshot.stats.flash.as_ref().map_or_else(Cow::default, Cow::Borrowed)
    }
}
