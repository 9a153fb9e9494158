//! Counters at a point of a run, from which the counters of a part of the run are computed, for example without the warm-up.

use std::time::Duration;

use ssd::Stats;

use crate::run::Observable;
use crate::run::counts::Counts;
use crate::run::latency::Latencies;
use crate::run::target::{DramCounts, FlashCounts, Snapshot};

/// The counters of all instances together, since the start or since an earlier point.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    /// Time since the start or the earlier point.
    pub at: Duration,
    /// Counts of all threads.
    pub counts: Counts,
    /// Latencies of all threads.
    pub latencies: Latencies,
    /// Counters of DRAM.
    pub dram: DramCounts,
    /// Counters of flash. With several instances media writes are only in [`drive`](Self::drive).
    pub flash: FlashCounts,
    /// Bytes written by the small-object engines.
    pub bucket_bytes: f64,
    /// Bytes written by the large-object engines.
    pub region_bytes: f64,
    /// Counters of the model drive.
    pub drive: Option<Stats>,
}

impl Moment {
    /// Reads the current counters.
    pub fn of(instances: &[&dyn Observable], at: Duration, drive: Option<Stats>) -> Self {
        let snapshots: Vec<Snapshot> = instances.iter().map(|instance| instance.snapshot()).collect();
        let written = |name: &str| snapshots.iter().map(|of| detail(of, name)).sum();
        let (bucket_bytes, region_bytes) =
            (written("navy_bh_physical_written"), written("navy_bc_physical_written"));
        let Snapshot { dram, flash, .. } =
            snapshots.into_iter().reduce(|all, more| all.plus(&more)).unwrap_or_default();
        let flash = flash.unwrap_or_default();
        let mut moment = Self { at, drive, dram, flash, bucket_bytes, region_bytes, ..Self::default() };
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
            dram: self.dram.since(&earlier.dram),
            flash: self.flash.since(&earlier.flash),
            bucket_bytes: self.bucket_bytes - earlier.bucket_bytes,
            region_bytes: self.region_bytes - earlier.region_bytes,
            drive: self.drive.as_ref().zip(earlier.drive.as_ref()).map(|(now, then)| now.since(then)),
        }
    }
}

fn detail(snapshot: &Snapshot, name: &str) -> f64 {
    snapshot.details.iter().find(|it| it.name == name).map_or(0.0, |it| it.value)
}
