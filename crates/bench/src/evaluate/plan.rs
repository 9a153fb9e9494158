//! The steps of an evaluation, in order, with the bytes written and the time of each.

use std::fmt::Write as _;
use std::num::NonZero;
use std::time::Duration;

use device::names::noun;

use super::MAX_PASSES;
use super::profile::{CacheSetup, Profile};
use super::run::Job;
use super::stages::Lengths;
use super::subject::Subject;
use crate::drive::text::bytes;

/// Placement modes that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementModes {
    /// Without placement, and also with placement if the drive supports it.
    Both,
    /// Without placement.
    Unplaced,
    /// With placement.
    Placed,
}

/// The steps of an evaluation.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The runs in order.
    pub jobs: Vec<Job>,
    /// Number of concurrent runs.
    pub threads: usize,
    /// Time limit of the fill.
    pub fill_ns: u64,
    /// Size of the cache on the drive, at full size.
    pub flash_bytes: u64,
    /// Reason why placement is not measured, if it was requested.
    pub unplaced: Option<String>,
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
struct Step {
    what: String,
    bytes: u64,
    seconds: f64,
}

/// Options from which a plan is made.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// Workloads.
    pub profiles: Vec<&'static Profile>,
    /// Placement modes.
    pub ways: PlacementModes,
    /// Share of the drive that the cache uses.
    pub share: f64,
    /// Maximum requests in flight.
    pub workers: u32,
    /// Whether values are checked.
    pub checked: bool,
    /// Duration of each step on a real drive.
    pub budget: Duration,
    /// Number of rates in addition to the unlimited one.
    pub rates: usize,
}

/// Length of a model's stage and maximum length of its fill, in drive capacities written by the host.
const MODEL_STAGE: f64 = 0.3;
const MODEL_WARM_UP: f64 = 6.0;
/// Length of a stage including settling, relative to its measured part.
const UNMEASURED: f64 = 1.1;
/// Memory limit of all concurrent models.
const MODEL_MEMORY_BYTES: u64 = 3 << 30;
/// Estimated write rates of a model per core and of a real drive.
const MODEL_BYTES_PER_SECOND: f64 = 300e6;
const DRIVE_BYTES_PER_SECOND: f64 = 500e6;

/// Lengths of the fill and the stages.
#[must_use]
pub fn lengths(subject: &Subject, budget: Duration, rates: usize) -> Lengths {
    match subject {
        Subject::Model(_) => Lengths { by_time: false, warm_up: MODEL_WARM_UP, stage: MODEL_STAGE },
        // Half of the budget is for the fill.
        Subject::Real(_) => {
            let half = budget.as_secs_f64() / 2.0;
            Lengths { by_time: true, warm_up: half, stage: half / (rates + 1) as f64 / UNMEASURED }
        }
    }
}

impl Plan {
    /// Makes a plan.
    ///
    /// # Errors
    /// Placement is required and not supported, a profile cannot run on the drive, or memory is too small.
    pub fn new(subject: &Subject, options: &PlanOptions) -> Result<Self, String> {
        let unplaced =
            if options.ways == PlacementModes::Unplaced { None } else { subject.missing_placement() };
        if let (PlacementModes::Placed, Some(why)) = (options.ways, &unplaced) {
            return Err(format!("--placement on: {}: {why}", subject.name()));
        }
        let ways: &[bool] = match options.ways {
            PlacementModes::Placed => &[true],
            PlacementModes::Both if unplaced.is_none() => &[false, true],
            _ => &[false],
        };
        let flash_mib = (subject.capacity_bytes() as f64 * options.share / f64::from(1 << 20)) as u64;
        let setup = |placement| CacheSetup {
            flash_mib,
            scale: subject.scale(),
            placement,
            workers: options.workers,
            checked: options.checked,
        };
        let both = |profile| ways.iter().map(move |way| (profile, *way));
        let jobs = options.profiles.iter().flat_map(|profile| both(*profile));
        let jobs: Vec<Job> = jobs.map(|(profile, way)| Job { profile, setup: setup(way) }).collect();
        jobs.iter().try_for_each(|job| job.config(subject).map(drop)).map_err(|error| error.to_string())?;
        let threads = threads(subject)?.min(jobs.len().max(1));
        let fill_ns = u64::try_from(options.budget.as_nanos()).unwrap_or(u64::MAX);
        let mut plan =
            Self { jobs, threads, fill_ns, flash_bytes: flash_mib << 20, unplaced, steps: Vec::new() };
        plan.steps = match subject {
            Subject::Model(model) => plan.of_model(model.scaled_bytes, options),
            Subject::Real(real) => plan.of_drive(real.capacity_bytes, options),
        };
        Ok(plan)
    }

    fn of_model(&self, scaled_bytes: u64, options: &PlanOptions) -> Vec<Step> {
        let capacities = MODEL_WARM_UP + (options.rates + 1) as f64 * MODEL_STAGE * UNMEASURED;
        let bytes = (capacities * scaled_bytes as f64) as u64;
        let seconds = bytes as f64 / MODEL_BYTES_PER_SECOND / self.threads as f64;
        let step = |job: &Job| {
            let rates = options.rates + 1;
            let what = format!("{}: fill until steady, {rates} rates", job.name());
            Step { what, bytes, seconds }
        };
        self.jobs.iter().map(step).collect()
    }

    fn of_drive(&self, capacity_bytes: u64, options: &PlanOptions) -> Vec<Step> {
        let budget = options.budget.as_secs_f64();
        let filled = (capacity_bytes as f64 * (1.0 + MAX_PASSES)) as u64;
        let fill_seconds = (filled as f64 / DRIVE_BYTES_PER_SECOND).min(budget);
        let at_most = |seconds: f64| (seconds * DRIVE_BYTES_PER_SECOND) as u64;
        let trim = Step { what: "trim".to_owned(), bytes: 0, seconds: 1.0 };
        let what = "fill until steady".to_owned();
        let fill = Step { what, bytes: at_most(fill_seconds).min(filled), seconds: fill_seconds };
        let step = |job: &Job| {
            let what = format!("{}: fill the cache, {} rates", job.name(), options.rates + 1);
            Step { what, bytes: at_most(budget), seconds: budget }
        };
        [trim, fill].into_iter().chain(self.jobs.iter().map(step)).collect()
    }

    /// The plan as text; bytes and times are upper estimates.
    #[must_use]
    pub fn text(&self, subject: &Subject) -> String {
        let mut out = match subject {
            Subject::Model(_) => {
                format!("plan, {} concurrent {}:\n", self.threads, noun(self.threads as u64, "run"))
            }
            Subject::Real(_) => "plan, if the drive writes 500 MB/s:\n".to_owned(),
        };
        let all = Step {
            what: "total, at most".to_owned(),
            bytes: self.steps.iter().map(|step| step.bytes).sum(),
            seconds: self.steps.iter().map(|step| step.seconds).sum(),
        };
        for step in self.steps.iter().chain([&all]) {
            let (written, time) = (bytes(step.bytes.into()), time_text(step.seconds));
            let _ = writeln!(out, "  {:<36} {written:>12} written  {time:>8}", step.what);
        }
        out
    }

    /// Total bytes written and seconds, upper estimates.
    #[must_use]
    pub fn cost(&self) -> (u64, f64) {
        let sum = |of: fn(&Step) -> f64| self.steps.iter().map(of).sum::<f64>();
        (sum(|step| step.bytes as f64) as u64, sum(|step| step.seconds))
    }

    /// Steps for the result file.
    pub fn steps(&self) -> impl Iterator<Item = (&str, u64, f64)> {
        self.steps.iter().map(|step| (step.what.as_str(), step.bytes, step.seconds))
    }
}

/// Number of concurrent runs: limited by cores and by memory, because a model keeps the drive's data in memory.
fn threads(subject: &Subject) -> Result<usize, String> {
    let Subject::Model(model) = subject else { return Ok(1) };
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let free = crate::environment::free_memory().map(|free| free.bytes);
    // Data, mapping table and cache indexes.
    let one = model.scaled_bytes.saturating_add(model.scaled_bytes / 4);
    if let Some(has) = free.filter(|has| *has < one) {
        let (one, has) = (bytes(one.into()), bytes(has.into()));
        return Err(format!(
            "--scale 1/{}: a run takes {one} of memory, and only {has} are free",
            model.scale
        ));
    }
    let budget = free.unwrap_or(u64::MAX).min(MODEL_MEMORY_BYTES);
    let fit = usize::try_from(budget / one.max(1)).unwrap_or(usize::MAX);
    Ok(cores.min(fit).max(1))
}

/// Formats an estimated time.
fn time_text(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 100.0 => format!("{:.0} s", seconds.max(1.0)),
        seconds if seconds < 6000.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use ssd::Card;
    use ssd::card::MIN_SCALED_PAGES;

    use super::*;
    use crate::evaluate::profile::PROFILES;
    use crate::evaluate::subject::{MIN_BYTES, Model};

    /// Scales from about 1 GB down to the smallest drive for a cache, including some that do not divide a reclaim unit or
    /// mapping page evenly.
    fn scales(card: &Card) -> Vec<u32> {
        let least = card.space.usable_bytes.div_ceil(1_500_000_000);
        let unit_pages = card.space.unit_bytes / u64::from(card.space.page_bytes);
        let most = (card.space.usable_bytes / MIN_BYTES).min(unit_pages / MIN_SCALED_PAGES).max(least);
        let steps = (0..12).map(|step| least + (most - least) * step / 11);
        let odd = steps.clone().map(|scale| (scale | 1).min(most));
        let mut all: Vec<u32> = steps.chain(odd).map(|scale| u32::try_from(scale).unwrap()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The QLC card has pages of 16 KiB, to which a cache with blocks of 4 KiB must be rounded.
    #[test]
    fn plan_accepts_every_profile_card_and_scale() {
        let options = |share| PlanOptions {
            profiles: PROFILES.iter().collect(),
            ways: PlacementModes::Both,
            share,
            workers: 64,
            checked: false,
            budget: Duration::from_secs(3600),
            rates: 5,
        };
        let mut planned = 0;
        for card in Card::built_in() {
            let scales = scales(&card).into_iter().map(Some).chain([None]);
            // The smallest scales are refused because the drive is too small for a cache.
            for model in scales.filter_map(|scale| Model::new(&card.name, scale).ok()) {
                let scale = model.scale;
                let subject = Subject::Model(Box::new(model));
                for share in [1.0, 0.999, 0.37, 0.05] {
                    let plan = Plan::new(&subject, &options(share));
                    let plan = plan.unwrap_or_else(|why| panic!("{} 1/{scale}, {share}: {why}", card.name));
                    let ways = if card.placement.is_some() { 2 } else { 1 };
                    assert_eq!(plan.jobs.len(), PROFILES.len() * ways);
                    planned += plan.jobs.len();
                }
            }
        }
        assert!(planned > 500, "{planned}");
    }
}
