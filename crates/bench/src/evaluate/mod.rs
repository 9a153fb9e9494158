//! A drive, judged as a cache's flash: trim, fill until steady, the profiles at rising rates, one verdict.
//!
//! [`subject`] is what is evaluated and what must not be, [`profile`] the workloads, [`plan`] what will be done and how long
//! that takes. [`run`] makes one run of them, [`stages`] leads it from the filling through the rates; [`life`] and [`criteria`]
//! judge what was measured. [`text`], [`json`] and [`plot`] tell it.

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
use crate::drive::{self, DriveError, text as words};
use crate::run::stop::Stop;
use crate::session::SessionError;
use crate::side_by_side::Progress;
use criteria::Criteria;
use plan::Plan;
use run::{How, Job, Measured};
use subject::{Real, Subject};

/// What is asked for, besides the drive.
#[derive(Debug, Clone)]
pub struct Asked {
    /// How runs go.
    pub how: How,
    /// What passes.
    pub criteria: Criteria,
    /// Who says what the drive is rated for.
    pub rated: Option<String>,
    /// Words on what cannot be measured.
    pub notes: Vec<String>,
    /// Shows no progress.
    pub quiet: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// How the filling by itself went, on a real drive.
    pub filled: Option<Outcome>,
    /// Every run, in the plan's order.
    pub measured: Vec<Measured>,
    /// Whether the user interrupted it.
    pub interrupted: bool,
    /// Profiles with a run that the interrupt ended or prevented. They are not judged.
    pub unfinished: Vec<&'static str>,
    /// What was not as asked for.
    pub notes: Vec<String>,
    /// The runs that failed or were not made any more, and why.
    pub unmeasured: Vec<String>,
}

/// Bytes of a random write, writes under way, and capacities written while filling, as `ssd precondition` has them.
const WRITE_BYTES: u64 = 64 << 10;
const DEPTH: usize = 32;
pub(crate) const MAX_PASSES: f64 = 4.0;

/// Does what the plan says.
///
/// # Errors
/// What cannot be opened, written or run. What was found before is lost only if nothing was.
pub fn evaluate(subject: &Subject, plan: &Plan, asked: &Asked) -> Result<Found, String> {
    let mut found = match subject {
        Subject::Model(_) => side_by_side(subject, plan, asked),
        Subject::Real(real) => one_by_one(subject, real, plan, asked),
    }?;
    if found.interrupted {
        found.unfinished = unfinished(&plan.jobs, &found.measured);
    }
    Ok(found)
}

/// The profiles that lack a whole run, each once.
fn unfinished(jobs: &[Job], measured: &[Measured]) -> Vec<&'static str> {
    let is_whole = |job: &&Job| {
        let of_job = |it: &&Measured| it.profile == job.profile.name && it.placement == job.room.placement;
        measured.iter().find(of_job).is_some_and(|it| !it.interrupted)
    };
    let mut names: Vec<&str> = jobs.iter().filter(|job| !is_whole(job)).map(|job| job.profile.name).collect();
    names.dedup();
    names
}

/// Each model is a drive of its own: they run together, and what came of them does not depend on it.
fn side_by_side(subject: &Subject, plan: &Plan, asked: &Asked) -> Result<Found, String> {
    let measured = Mutex::new(vec![None; plan.jobs.len()]);
    let progress = Progress::new(asked.quiet);
    let ran = progress.each::<SessionError>(plan.threads, plan.jobs.len(), |number, advance| {
        if !asked.how.interrupt.is_set() {
            let found = plan.jobs[number].run(subject, &asked.how, advance)?;
            measured.lock()[number] = Some(found);
        }
        Ok(())
    });
    ran.map_err(|error| error.to_string())?;
    let measured = measured.into_inner().into_iter().flatten().collect();
    Ok(Found { measured, interrupted: asked.how.interrupt.is_set(), ..Found::default() })
}

fn one_by_one(subject: &Subject, real: &Real, plan: &Plan, asked: &Asked) -> Result<Found, String> {
    let mut found = Found::default();
    prepare(real, plan, asked, &mut found)?;
    let bar = Bar::new(Unit::Steps, asked.quiet);
    run_each(&plan.jobs, &asked.how.interrupt, &mut found, |number, job| {
        let name = job.name();
        bar.line(&format!("{name}: run {} of {}", number + 1, plan.jobs.len()));
        let advance = |share: f64| bar.set((share * 1000.0) as u64, 1000, format!("{name}, "));
        let measured = job.run(subject, &asked.how, &advance);
        bar.finish();
        measured.map_err(|error| error.to_string())
    })?;
    found.interrupted = asked.how.interrupt.is_set();
    Ok(found)
}

/// One job after the other.
fn run_each(
    jobs: &[Job],
    stop: &Stop,
    found: &mut Found,
    mut run: impl FnMut(usize, &Job) -> Result<Measured, String>,
) -> Result<(), String> {
    for (number, job) in jobs.iter().enumerate() {
        if stop.is_set() {
            break;
        }
        match run(number, job) {
            Ok(measured) => found.measured.push(measured),
            // What hours have shown is not thrown away for what the next run did not; but what was not seen is no pass.
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

/// Trims, and fills until steady.
fn prepare(real: &Real, plan: &Plan, asked: &Asked, found: &mut Found) -> Result<(), String> {
    let device = drive::open_whole(&real.path).map_err(|error| error.to_string())?;
    let bar = Bar::new(Unit::Bytes, asked.quiet);
    let stop = &asked.how.interrupt;
    bar.line("trim");
    let trimmed = drive::trim(&*device, |done| {
        bar.set(done, real.capacity_bytes, "trimmed");
        !stop.is_set()
    });
    bar.finish();
    match trimmed {
        // Filling writes over everything anyway.
        Err(DriveError::Device(error)) => found.notes.push(format!("not trimmed: {error}")),
        Err(error) if !stop.is_set() => return Err(error.to_string()),
        _ => {}
    }
    if !stop.is_set() {
        bar.line("fill until steady");
        fill(&*device, plan, asked, found, &bar)?;
    }
    Ok(())
}

fn fill(
    device: &dyn device::Device,
    plan: &Plan,
    asked: &Asked,
    found: &mut Found,
    bar: &Bar,
) -> Result<(), String> {
    let geometry = device.geometry();
    let write_bytes = WRITE_BYTES.min(geometry.max_io_bytes.into());
    let seed = asked.how.seed;
    let options = precondition::Options { write_bytes, depth: DEPTH, max_passes: MAX_PASSES, seed };
    let (clock, stop, mut rounds) = (drive::clock(), &asked.how.interrupt, Vec::new());
    let end_ns = clock.monotonic_ns().saturating_add(plan.fill_ns);
    let outcome = precondition::run(device, clock, &options, &mut |done, most, so_far| {
        bar.set(done, most, "of at most");
        so_far.iter().skip(rounds.len()).enumerate().for_each(|(more, round)| {
            bar.line(&words::round(rounds.len() + more + 1, round));
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
    /// A name for people.
    #[must_use]
    pub fn name(&self) -> String {
        let how = if self.room.placement { ", placed" } else { "" };
        format!("{}{how}", self.profile.name)
    }
}

impl Asked {
    /// The wish to stop, for whoever hears signals.
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
    use crate::evaluate::profile::{PROFILES, Room};
    use crate::evaluate::stages::{Lengths, WarmUp};

    /// The drive failed under the second of three profiles, and had passed.
    #[test]
    fn a_drive_that_fails_in_the_middle_does_not_pass() {
        let room = Room { flash_mib: 64, scale: 1, placement: false, workers: 1, checked: false };
        let jobs = PROFILES.each_ref().map(|profile| Job { profile, room });
        let mut found = Found::default();
        let ran = run_each(&jobs, &Stop::default(), &mut found, |number, job| match number {
            0 => Ok(measured(job.profile.name, false, Vec::new())),
            _ => Err("no such device".to_owned()),
        });
        assert_eq!((ran, found.measured.len()), (Ok(()), 1), "what was measured is not thrown away");
        assert_eq!(text::failures(&found, &asked()), ["cdn: no such device", "graph: not run"]);
    }

    fn asked() -> Asked {
        let second = std::time::Duration::from_secs(1);
        Asked {
            how: How {
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

    /// An interrupt was a failure, which it is not in `bench`.
    #[test]
    fn interrupt_is_no_failure_and_leaves_those_that_were_found() {
        let room = Room { flash_mib: 64, scale: 1, placement: false, workers: 1, checked: false };
        let jobs = PROFILES.each_ref().map(|profile| Job { profile, room });
        let mut found = Found {
            measured: vec![measured("kv", false, Vec::new()), measured("cdn", true, Vec::new())],
            interrupted: true,
            ..Found::default()
        };
        found.unfinished = unfinished(&jobs, &found.measured);
        assert_eq!(found.unfinished, ["cdn", "graph"]);
        assert_eq!(text::failures(&found, &asked()), [""; 0]);
        let verdict = text::verdict(&found, &asked());
        assert!(verdict.contains("interrupted: cdn and graph are not judged"), "{verdict}");
        found.measured[0].failures.push("3 checksum errors".to_owned());
        assert_eq!(text::failures(&found, &asked()), ["kv without placement: 3 checksum errors"]);
    }
}
