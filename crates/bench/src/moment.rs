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
    /// DRAM. What a size class holds belongs to one cache, and is left out.
    pub dram: DramCounts,
    /// Flash. How items ended and what listed drives tell belong to one cache, and are left out.
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
        let mut moment = Self { at, drive, ..Self::default() };
        for (number, instance) in instances.iter().enumerate() {
            moment.counts.add(&instance.counts());
            moment.latencies.merge(&instance.latencies());
            let snapshot = instance.snapshot();
            moment.bucket_bytes += detail(&snapshot, "navy_bh_physical_written");
            moment.region_bytes += detail(&snapshot, "navy_bc_physical_written");
            let (dram, flash) = (snapshot.dram, snapshot.flash.unwrap_or_default());
            if number == 0 {
                moment.dram = DramCounts { classes: Vec::new(), ..dram };
                moment.flash = FlashCounts { put_ends: Vec::new(), listed_drives: Vec::new(), ..flash };
            } else {
                add_dram(&mut moment.dram, &dram);
                add_flash(&mut moment.flash, flash);
            }
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
            dram: dram_since(&self.dram, &earlier.dram),
            flash: flash_since(&self.flash, &earlier.flash),
            bucket_bytes: self.bucket_bytes - earlier.bucket_bytes,
            region_bytes: self.region_bytes - earlier.region_bytes,
            drive: self.drive.as_ref().zip(earlier.drive.as_ref()).map(|(now, then)| now.since(then)),
        }
    }
}

fn detail(snapshot: &Snapshot, name: &str) -> f64 {
    snapshot.details.iter().find(|(of, _)| of == name).map_or(0.0, |(_, value)| *value)
}

/// Counters that only grow: theirs is the difference. What one moment does not know the part does not know.
macro_rules! each_grown {
    ($type:ident: $($field:ident),* $(,)?) => {
        |now: &$type, then: &$type| $type {
            $($field: now.$field.zip(then.$field).map(|(now, then)| now.saturating_sub(then)),)*
            ..now.clone()
        }
    };
}

fn dram_since(now: &DramCounts, then: &DramCounts) -> DramCounts {
    each_grown!(DramCounts: alloc_attempts, alloc_failures, evict_attempts, evictions, slabs_released)(
        now, then,
    )
}

fn flash_since(now: &FlashCounts, then: &FlashCounts) -> FlashCounts {
    let mut part = each_grown!(
        FlashCounts: gets, gets_coalesced, puts, puts_stored, puts_clean, puts_overtaken, puts_expired, lost, evictions,
        deletes, logical_bytes, host_bytes, host_read_bytes, media_bytes, io_errors, checksum_errors,
    )(now, then);
    // What waited before and is written now was taken earlier: counted as taken here, so that what is written has its bytes.
    let waiting_more = now.waiting_bytes.zip(then.waiting_bytes).map(|(now, then)| now.saturating_sub(then));
    part.logical_bytes = now
        .settled_bytes()
        .zip(then.settled_bytes())
        .zip(waiting_more)
        .map(|((settled_now, settled_then), waiting)| settled_now.saturating_sub(settled_then) + waiting);
    part.waiting_bytes = waiting_more;
    part.device_latency = now
        .device_latency
        .as_ref()
        .zip(then.device_latency.as_ref())
        .map(|(now, then)| (now.0.since(&then.0), now.1.since(&then.1)));
    part
}

fn both(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a? + b?)
}

fn add_dram(sum: &mut DramCounts, more: &DramCounts) {
    sum.items = both(sum.items, more.items);
    sum.alloc_attempts = both(sum.alloc_attempts, more.alloc_attempts);
    sum.evictions = both(sum.evictions, more.evictions);
}

fn add_flash(sum: &mut FlashCounts, more: FlashCounts) {
    sum.items = both(sum.items, more.items);
    sum.host_bytes = both(sum.host_bytes, more.host_bytes);
    sum.logical_bytes = both(sum.logical_bytes, more.logical_bytes);
    sum.waiting_bytes = both(sum.waiting_bytes, more.waiting_bytes);
    // Of one namespace alone nobody knows, and of a drive that they share it would count twice.
    sum.media_bytes = None;
    sum.io_errors = both(sum.io_errors, more.io_errors);
    sum.checksum_errors = both(sum.checksum_errors, more.checksum_errors);
    match (&mut sum.device_latency, more.device_latency) {
        (Some((reads, writes)), Some(more)) => {
            reads.merge(&more.0);
            writes.merge(&more.1);
        }
        (none, more) => *none = more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flash(logical: u64, waiting: u64, host: u64) -> FlashCounts {
        FlashCounts {
            logical_bytes: Some(logical),
            waiting_bytes: Some(waiting),
            host_bytes: Some(host),
            ..FlashCounts::default()
        }
    }

    #[test]
    fn a_part_settles_what_was_written_in_it() {
        for (then, now, settled) in [
            (flash(100, 10, 100), flash(300, 30, 400), 180),
            (flash(100, 90, 100), flash(200, 10, 400), 180),
            (flash(100, 90, 100), flash(110, 10, 400), 90),
        ] {
            let part = flash_since(&now, &then);
            assert_eq!((part.settled_bytes(), part.host_bytes), (Some(settled), Some(300)));
            assert_eq!(part.media_bytes, None, "what is unknown stays unknown");
        }
    }
}
