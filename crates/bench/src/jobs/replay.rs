//! A job file on the drive of a card, up to an amount of host writes, to compare with a log of the drive.

use ssd::card::MIN_SCALED_PAGES;
use ssd::{Card, Drive};
use workload::block::BlockKind;
use workload::fio::{Job, JobFile, kind_index};

use super::plan::{Plan, Target};
use super::run::run;
use crate::drive::log::{DriveLog, LogSample};
use crate::run::stop::{Stop, StopReason};

/// A run to make.
pub struct Replay<'a> {
    /// The drive at full size.
    pub card: &'a Card,
    /// The jobs. The drive uses placement if one of them does.
    pub file: &'a JobFile,
    /// Divisor of the drive's capacity.
    pub scale: u32,
    /// Host writes after which the run ends, in capacities of the drive.
    pub capacities: f64,
    /// Seed of all random draws.
    pub seed: u64,
}

/// Fewest writes of a job that a reclaim unit must hold, so that its data has many ages: of random writes 64, of sequential ones 8. With two
/// random writes per unit, the model relocates almost nothing.
const RANDOM_WRITES_PER_UNIT: u64 = 64;
const SEQUENTIAL_WRITES_PER_UNIT: u64 = 8;

/// The largest divisor of the capacity of `card` at which its units still hold enough writes of the jobs.
#[must_use]
pub fn smallest_scale(card: &Card, file: &JobFile) -> u32 {
    let page_bytes = u64::from(card.space.page_bytes);
    let pages = |job: &Job| {
        let writes = if job.pattern.is_random { RANDOM_WRITES_PER_UNIT } else { SEQUENTIAL_WRITES_PER_UNIT };
        writes * job.block_bytes[kind_index(BlockKind::Write)].largest().div_ceil(page_bytes)
    };
    let writes = |job: &&Job| job.pattern.mix.kinds().contains(&BlockKind::Write);
    let unit_pages = file.jobs.iter().filter(writes).map(pages).max().unwrap_or(0).max(MIN_SCALED_PAGES);
    u32::try_from(card.space.unit_bytes / page_bytes / unit_pages).unwrap_or(u32::MAX).max(1)
}

/// The write counters of a run.
pub struct Replayed {
    /// The counters over time.
    pub log: DriveLog,
    /// Capacity of the scaled drive.
    pub capacity_bytes: u64,
}

impl Replayed {
    /// Write amplification between two amounts of host writes, in capacities.
    #[must_use]
    pub fn dlwa(&self, from: f64, to: f64) -> f64 {
        let capacity = self.capacity_bytes as f64;
        self.log.dlwa_between(from * capacity, to * capacity)
    }

    /// Host writes of the run, in capacities.
    #[must_use]
    pub fn capacities(&self) -> f64 {
        self.log.host_bytes() as f64 / self.capacity_bytes as f64
    }
}

/// Samples per capacity of host writes.
const SAMPLES_PER_CAPACITY: u64 = 20;

impl Replay<'_> {
    /// Runs the jobs; `None` if `stop` was set. `advance` receives the completed share.
    ///
    /// # Errors
    /// The card cannot be scaled, or a job does not fit its drive.
    pub fn run(&self, stop: &Stop, advance: &dyn Fn(f64)) -> Result<Option<Replayed>, String> {
        let card = self.card.scaled(self.scale).map_err(|error| error.to_string())?;
        let has_placement = card.placement.is_some() && self.file.jobs.iter().any(|job| job.has_placement);
        let shape = card.shape(has_placement);
        let capacity_bytes = u64::from(shape.logical_pages) * u64::from(shape.page_bytes);
        let mut drive =
            Drive::new(&card, &shape, card.upkeep(self.seed)).map_err(|error| error.to_string())?;
        let handles =
            card.placement.as_ref().filter(|_| has_placement).map_or(1, |placement| placement.handles);
        let target = Target { capacity_bytes, handles, scale: self.scale };
        let plan = Plan::new(self.file, target, self.seed).map_err(|error| error.to_string())?;
        let all_bytes = self.capacities * capacity_bytes as f64;
        let own_stop = stop.for_instance();
        let interval_bytes = capacity_bytes / SAMPLES_PER_CAPACITY;
        let outcome = run(plan, &mut drive, (interval_bytes, self.seed), &own_stop, |host_bytes| {
            advance(host_bytes as f64 / all_bytes);
            if host_bytes as f64 >= all_bytes {
                own_stop.end_instance(StopReason::FlashWritten);
            }
        });
        if stop.is_set() {
            return Ok(None);
        }
        let zero = LogSample { host_bytes: 0, media_bytes: 0 };
        let later = outcome
            .intervals
            .iter()
            .map(|it| LogSample { host_bytes: it.host_bytes, media_bytes: it.media_bytes });
        let samples = std::iter::once(zero).chain(later).collect();
        Ok(Some(Replayed { log: DriveLog { samples, warnings: Vec::new() }, capacity_bytes }))
    }
}
