//! Everything that is counted at a moment of a run, so that a part of the run can be told from the rest: what comes after a
//! warm-up, or one of several rates.

use std::time::Duration;

use ssd::Stats;

use crate::run::Observable;
use crate::run::counts::Counts;
use crate::run::latency::Latencies;
use crate::run::target::{DramCounts, FlashCounts, Snapshot};

/// The counters of all instances together, since the start or since an earlier moment.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    /// Time of the run.
    pub at: Duration,
    /// Of all threads.
    pub counts: Counts,
    /// Of all threads.
    pub latencies: Latencies,
    /// DRAM.
    pub dram: DramCounts,
    /// Flash; with several instances nobody knows what the media wrote, but [`drive`](Self::drive).
    pub flash: FlashCounts,
    /// Bytes written by the engines of small objects.
    pub bucket_bytes: f64,
    /// Bytes written by the engines of large ones.
    pub region_bytes: f64,
    /// The model drive under all of them.
    pub drive: Option<Stats>,
}

impl Moment {
    /// The counters as they are.
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

    /// What was counted since `earlier`, of the same run. How full anything is stays as it is at the end.
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
