//! Evaluates a drive as the flash of a cache: trim it, fill it until it is steady, run profiles at rising rates, and give a
//! verdict.
//!
//! [`subject`] is the evaluated drive or model, [`profile`] the workloads, [`plan`] the steps and their cost. [`run`] runs a
//! profile, [`stages`] controls its fill and rates, [`life`] and [`criteria`] judge the measurements, and [`text`], [`json`]
//! and [`plot`] report them.

pub mod criteria;
pub mod json;
pub mod life;
pub mod plan;
pub mod plot;
pub mod profile;
pub mod run;
pub mod stages;
pub mod subject;
pub mod text;

use parking_lot::Mutex;

use crate::bar::{Bar, Unit};
use crate::drive::precondition::{self, Outcome};
use crate::drive::{self, DriveError, text as drive_text};
use crate::run::stop::Stop;
use crate::session::SessionError;
use crate::side_by_side::Progress;
use criteria::Criteria;
use plan::Plan;
use run::{Job, Measured, RunOptions};
use subject::{Real, Subject};

/// Settings of an evaluation, except the drive.
#[derive(Debug, Clone)]
pub struct EvaluationOptions {
    /// Settings of the runs.
    pub how: RunOptions,
    /// Pass criteria.
    pub criteria: Criteria,
    /// Source of the rated endurance.
    pub rated: Option<String>,
    /// Notes on values that cannot be measured.
    pub notes: Vec<String>,
    /// Whether progress is hidden.
    pub quiet: bool,
}

/// Results of an evaluation.
#[derive(Debug, Default)]
pub struct EvaluationResult {
    /// Result of the preconditioning of a real drive.
    pub filled: Option<Outcome>,
    /// All runs in the order of the plan.
    pub measured: Vec<Measured>,
    /// Whether the user interrupted the evaluation.
    pub interrupted: bool,
    /// Profiles with a run that was interrupted or not started. They are not judged.
    pub unfinished: Vec<&'static str>,
    /// Deviations from the settings.
    pub notes: Vec<String>,
    /// Runs that failed or were not started, with the reason.
    pub unmeasured: Vec<String>,
}

/// Size of a random write, queue depth, and maximum capacities written while filling: the same as in `ssd precondition`.
const WRITE_BYTES: u64 = 64 << 10;
const DEPTH: usize = 32;
pub(crate) const MAX_PASSES: f64 = 4.0;

/// Executes the plan.
///
/// # Errors
/// The drive cannot be opened or written, or the first run failed. A failure of a later run is reported in the result.
pub fn evaluate(
    subject: &Subject,
    plan: &Plan,
    options: &EvaluationOptions,
) -> Result<EvaluationResult, String> {
    let mut found = match subject {
        Subject::Model(_) => side_by_side(subject, plan, options),
        Subject::Real(real) => one_by_one(subject, real, plan, options),
    }?;
    if found.interrupted {
        found.unfinished = unfinished(&plan.jobs, &found.measured);
    }
    Ok(found)
}

/// Names of the profiles without a complete run.
fn unfinished(jobs: &[Job], measured: &[Measured]) -> Vec<&'static str> {
    let is_whole = |job: &&Job| {
        let of_job = |it: &&Measured| it.profile == job.profile.name && it.placement == job.setup.placement;
        measured.iter().find(of_job).is_some_and(|it| !it.interrupted)
    };
    let mut names: Vec<&str> = jobs.iter().filter(|job| !is_whole(job)).map(|job| job.profile.name).collect();
    names.dedup();
    names
}

/// Runs models concurrently: each has its own drive, so the results do not depend on each other.
fn side_by_side(
    subject: &Subject,
    plan: &Plan,
    options: &EvaluationOptions,
) -> Result<EvaluationResult, String> {
    let measured = Mutex::new(vec![None; plan.jobs.len()]);
    let progress = Progress::new(options.quiet);
    let ran = progress.each::<SessionError>(plan.threads, plan.jobs.len(), |number, advance| {
        if !options.how.interrupt.is_set() {
            let found = plan.jobs[number].run(subject, &options.how, advance)?;
            measured.lock()[number] = Some(found);
        }
        Ok(())
    });
    ran.map_err(|error| error.to_string())?;
    let measured = measured.into_inner().into_iter().flatten().collect();
    Ok(EvaluationResult {
        measured,
        interrupted: options.how.interrupt.is_set(),
        ..EvaluationResult::default()
    })
}

fn one_by_one(
    subject: &Subject,
    real: &Real,
    plan: &Plan,
    options: &EvaluationOptions,
) -> Result<EvaluationResult, String> {
    let mut found = EvaluationResult::default();
    prepare(real, plan, options, &mut found)?;
    let bar = Bar::new(Unit::Steps, options.quiet);
    run_each(&plan.jobs, &options.how.interrupt, &mut found, |number, job| {
        let name = job.name();
        bar.line(&format!("{name}: run {} of {}", number + 1, plan.jobs.len()));
        let advance = |share: f64| bar.set((share * 1000.0) as u64, 1000, format!("{name}, "));
        let measured = job.run(subject, &options.how, &advance);
        bar.finish();
        measured.map_err(|error| error.to_string())
    })?;
    found.interrupted = options.how.interrupt.is_set();
    Ok(found)
}

/// Runs the jobs one after another.
fn run_each(
    jobs: &[Job],
    stop: &Stop,
    found: &mut EvaluationResult,
    mut run: impl FnMut(usize, &Job) -> Result<Measured, String>,
) -> Result<(), String> {
    for (number, job) in jobs.iter().enumerate() {
        if stop.is_set() {
            break;
        }
        match run(number, job) {
            Ok(measured) => found.measured.push(measured),
            // Keeps the results of earlier runs. The failed and remaining runs are reported, so the evaluation does not pass.
            Err(error) if !found.measured.is_empty() => {
                found.unmeasured.push(format!("{}: {error}", job.name()));
                let later = jobs[number + 1..].iter().map(|job| format!("{}: not run", job.name()));
                found.unmeasured.extend(later);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Trims the drive and fills it until it is steady.
fn prepare(
    real: &Real,
    plan: &Plan,
    options: &EvaluationOptions,
    found: &mut EvaluationResult,
) -> Result<(), String> {
    let device = drive::open_whole(&real.path).map_err(|error| error.to_string())?;
    let bar = Bar::new(Unit::Bytes, options.quiet);
    let stop = &options.how.interrupt;
    bar.line("trim");
    let trimmed = drive::trim(&*device, |done| {
        bar.set(done, real.capacity_bytes, "trimmed");
        !stop.is_set()
    });
    bar.finish();
    match trimmed {
        // A failed trim is no error: the fill overwrites the drive.
        Err(DriveError::Device(error)) => found.notes.push(format!("not trimmed: {error}")),
        Err(error) if !stop.is_set() => return Err(error.to_string()),
        _ => {}
    }
    if !stop.is_set() {
        bar.line("fill until steady");
        fill(&*device, plan, options, found, &bar)?;
    }
    Ok(())
}

fn fill(
    device: &dyn device::Device,
    plan: &Plan,
    options: &EvaluationOptions,
    found: &mut EvaluationResult,
    bar: &Bar,
) -> Result<(), String> {
    let geometry = device.geometry();
    let write_bytes = WRITE_BYTES.min(geometry.max_io_bytes.into());
    let seed = options.how.seed;
    let passes = precondition::Options { write_bytes, depth: DEPTH, max_passes: MAX_PASSES, seed };
    let (clock, stop, mut rounds) = (drive::clock(), &options.how.interrupt, Vec::new());
    let end_ns = clock.monotonic_ns().saturating_add(plan.fill_ns);
    let outcome = precondition::run(device, clock, &passes, &mut |done, most, so_far| {
        bar.set(done, most, "of at most");
        so_far.iter().skip(rounds.len()).enumerate().for_each(|(more, round)| {
            bar.line(&drive_text::round(rounds.len() + more + 1, round));
        });
        rounds = so_far.to_vec();
        !stop.is_set() && clock.monotonic_ns() < end_ns
    });
    bar.finish();
    let outcome = match outcome {
        Err(DriveError::Stopped(_)) => Outcome { steady: false, rounds },
        ended => ended.map_err(|error| error.to_string())?,
    };
    if !outcome.steady && !stop.is_set() {
        found
            .notes
            .push("the drive was not steady when the fill ended: give it longer with --budget".to_owned());
    }
    found.filled = Some(outcome);
    Ok(())
}

impl Job {
    /// Name in progress messages.
    #[must_use]
    pub fn name(&self) -> String {
        let how = if self.setup.placement { ", placed" } else { "" };
        format!("{}{how}", self.profile.name)
    }
}

impl EvaluationOptions {
    /// Flag that stops the evaluation, for signal handlers.
    #[must_use]
    pub fn interrupt(&self) -> &Stop {
        &self.how.interrupt
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::evaluate::life::Life;
    use crate::evaluate::profile::{CacheSetup, PROFILES};
    use crate::evaluate::stages::{Lengths, WarmUp};

    #[test]
    fn run_each_failed_job_keeps_earlier_results_and_reports_failures() {
        let setup = CacheSetup { flash_mib: 64, scale: 1, placement: false, workers: 1, checked: false };
        let jobs = PROFILES.each_ref().map(|profile| Job { profile, setup });
        let mut found = EvaluationResult::default();
        let ran = run_each(&jobs, &Stop::default(), &mut found, |number, job| match number {
            0 => Ok(measured(job.profile.name, false, Vec::new())),
            _ => Err("no such device".to_owned()),
        });
        assert_eq!((ran, found.measured.len()), (Ok(()), 1), "the earlier result is kept");
        assert_eq!(text::failures(&found, &options()), ["cdn: no such device", "graph: not run"]);
    }

    fn options() -> EvaluationOptions {
        let second = std::time::Duration::from_secs(1);
        EvaluationOptions {
            how: RunOptions {
                stop_early: false,
                seed: 1,
                lengths: Lengths { by_time: true, warm_up: 1.0, stage: 1.0 },
                offers: Vec::new(),
                life: Life { endurance: None, min_years: 5.0, capacity_bytes: 1e12 },
                interrupt: Stop::default(),
            },
            criteria: Criteria {
                max_read_p99: second,
                max_write_p99: None,
                min_years: 5.0,
                min_reached: 0.95,
                min_hit_ratio: 0.0,
                min_rate: None,
            },
            rated: None,
            notes: Vec::new(),
            quiet: true,
        }
    }

    fn measured(profile: &'static str, interrupted: bool, failures: Vec<String>) -> Measured {
        Measured {
            profile,
            placement: false,
            warm_up: WarmUp::default(),
            rows: Vec::new(),
            interrupted,
            failures,
            warnings: Vec::new(),
            wear: None,
        }
    }

    #[test]
    fn interrupted_evaluation_judges_only_complete_profiles() {
        let setup = CacheSetup { flash_mib: 64, scale: 1, placement: false, workers: 1, checked: false };
        let jobs = PROFILES.each_ref().map(|profile| Job { profile, setup });
        let mut found = EvaluationResult {
            measured: vec![measured("kv", false, Vec::new()), measured("cdn", true, Vec::new())],
            interrupted: true,
            ..EvaluationResult::default()
        };
        found.unfinished = unfinished(&jobs, &found.measured);
        assert_eq!(found.unfinished, ["cdn", "graph"]);
        assert_eq!(text::failures(&found, &options()), [""; 0]);
        let verdict = text::verdict(&found, &options());
        assert!(verdict.contains("interrupted: cdn and graph are not judged"), "{verdict}");
        found.measured[0].failures.push("3 checksum errors".to_owned());
        assert_eq!(text::failures(&found, &options()), ["kv without placement: 3 checksum errors"]);
    }
}
