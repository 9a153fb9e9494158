//! Fits a card to logs of a drive's write counters: over-provisioning and victim policy.
//!
//! Each log comes with the jobs that ran, which run on the model until the host has written as much as in the log. For each victim policy,
//! the over-provisioning is the one whose write amplification is on average that of the logs; the policy with the smallest residual is
//! taken. Units that the drive keeps free lower the over-provisioning that the fit finds: counters of bytes cannot distinguish the two.

use std::num::NonZero;

use parking_lot::Mutex;
use ssd::card::{Collection, Learned};
use ssd::{Card, VictimPolicy};
use statrs::distribution::{ContinuousCDF as _, StudentsT};
use workload::fio::JobFile;

use super::log::DriveLog;
use crate::jobs::replay::{Replay, Replayed, smallest_scale};
use crate::run::stop::Stop;
use crate::side_by_side::Progress;

/// A log and the jobs that ran.
pub struct Observed {
    /// Its name, for messages.
    pub name: String,
    /// The counters, from an empty drive on.
    pub log: DriveLog,
    /// The jobs.
    pub file: JobFile,
}

/// Settings of a fit.
pub struct Settings<'a> {
    /// The card to start from: everything that is not learned is taken from it.
    pub base: &'a Card,
    /// Victim policies to try.
    pub policies: &'a [VictimPolicy],
    /// Seed of all random draws.
    pub seed: u64,
}

/// A fitted card.
pub struct Fit {
    /// The card, with the fit's figures.
    pub card: Card,
    /// The fits by policy, best first.
    pub policies: Vec<PolicyFit>,
    /// The logs beside the fitted model.
    pub logs: Vec<LogFit>,
    /// Problems that do not prevent the fit.
    pub warnings: Vec<String>,
}

/// The best fit with one victim policy.
#[derive(Debug, Clone, Copy)]
pub struct PolicyFit {
    /// The policy.
    pub victims: VictimPolicy,
    /// Its over-provisioning, (P - S) / S.
    pub op_ratio: f64,
    /// Mean relative difference between model and logs.
    pub residual: f64,
}

/// A log beside the model.
#[derive(Debug, Clone)]
pub struct LogFit {
    /// Its name.
    pub name: String,
    /// Host writes that were compared, in capacities.
    pub capacities: f64,
    /// Write amplification of the last tenth of them in the log.
    pub logged: f64,
    /// Write amplification of the same part in the model.
    pub modelled: f64,
    /// Mean relative difference of write amplification over all of them.
    pub residual: f64,
}

/// The reason why no card was learned.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// The logs or jobs do not suffice.
    #[error("{0}")]
    Invalid(String),
    /// The fit was stopped.
    #[error("interrupted: nothing was learned yet")]
    Interrupted,
}

/// Range of over-provisioning that a fit searches.
const LEAST_OP: f64 = 0.02;
const MOST_OP: f64 = 0.6;

/// Trials with one policy.
const TRIALS: usize = 5;

/// Trials with a policy end when the bias is below this.
const CLOSE: f64 = 0.01;

/// Assumed slope of the logarithm of write amplification over that of over-provisioning, until two trials determine it;
/// and the flattest slope that is accepted.
const USUAL_SLOPE: f64 = -0.6;
const FLATTEST_SLOPE: f64 = -0.1;

/// Largest change of the logarithm of over-provisioning between two trials.
const LARGEST_STEP: f64 = 0.7;

/// Parts of a log whose write amplification is compared.
const PARTS: usize = 40;

/// Below this write amplification, a drive relocates nothing that could be compared.
const RELOCATES: f64 = 1.02;

/// Smallest half width of the interval of a modelled value. The model differs by up to this much from an independent FTL.
const LEAST_ERROR: f64 = 0.05;

/// Probability that a value lies in its interval.
const COVERAGE: f64 = 0.8;

/// A run of a log's jobs compared with the log, as logarithms of the ratio of model to log.
#[derive(Clone, Copy, Default)]
pub(super) struct Compared {
    capacities: f64,
    logged: f64,
    modelled: f64,
    /// Mean over the parts, and the mean of the absolute values.
    bias: f64,
    pub(super) distance: f64,
}

impl Compared {
    fn last(&self) -> f64 {
        (self.modelled / self.logged).ln()
    }
}

/// All logs compared with the model at one over-provisioning.
struct Trial {
    ln_op: f64,
    logs: Vec<Compared>,
}

impl Trial {
    /// The whole curve and its end have equal weight.
    fn bias(&self) -> f64 {
        mean(self.logs.iter().map(|log| f64::midpoint(log.bias, log.last())))
    }

    fn residual(&self) -> f64 {
        mean(self.logs.iter().map(|log| f64::midpoint(log.distance, log.last().abs())))
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len();
    values.sum::<f64>() / count.max(1) as f64
}

/// Fits the card of `settings` to the logs.
///
/// # Errors
/// The logs show no relocation, a job does not fit the drive, or the fit was stopped.
pub fn learn(
    observed: &[Observed],
    settings: &Settings<'_>,
    stop: &Stop,
    progress: &Progress,
) -> Result<Fit, LearnError> {
    let capacity = settings.base.space.usable_bytes as f64;
    let relocates = |it: &Observed| it.log.dlwa_between(0.0, it.log.host_bytes() as f64) > 1.001;
    if !observed.iter().any(relocates) {
        let text = "the logs show no relocation: the drive was not full yet, or the workload needs none, so nothing can be learned";
        return Err(LearnError::Invalid(text.into()));
    }
    if let Some(short) = observed.iter().find(|it| (it.log.host_bytes() as f64) < 0.05 * capacity) {
        let text =
            format!("{}: the host wrote less than 5 % of the capacity of {}", short.name, settings.base.name);
        return Err(LearnError::Invalid(text));
    }
    let search = Search { observed, settings, stop, progress };
    let mut found = Vec::new();
    for &victims in settings.policies {
        let (best, slope) = search.best(victims)?;
        found.push((victims, best, slope));
    }
    found.sort_by(|a, b| a.1.residual().total_cmp(&b.1.residual()));
    Ok(fit(observed, settings.base, &found))
}

struct Search<'a> {
    observed: &'a [Observed],
    settings: &'a Settings<'a>,
    stop: &'a Stop,
    progress: &'a Progress,
}

impl Search<'_> {
    /// The trial with the smallest residual near the zero of the bias, and the slope of the bias over the logarithm of the
    /// over-provisioning. The search begins at the card's over-provisioning.
    fn best(&self, victims: VictimPolicy) -> Result<(Trial, f64), LearnError> {
        let (least, most) = (LEAST_OP.ln(), MOST_OP.ln());
        let at_card = self.settings.base.shape(false).op_ratio().ln().clamp(least, most);
        let mut trials = vec![self.trial(at_card, victims)?];
        let mut slope = USUAL_SLOPE;
        while let [.., last] = &trials[..]
            && trials.len() < TRIALS
            && last.bias().abs() > CLOSE
        {
            let next = last.ln_op + (-last.bias() / slope).clamp(-LARGEST_STEP, LARGEST_STEP);
            let next = next.clamp(least, most);
            if (next - last.ln_op).abs() < 0.01 {
                break;
            }
            let next = self.trial(next, victims)?;
            // More spare space relocates less: a slope of the wrong sign is noise, and is not used.
            let between = (next.bias() - last.bias()) / (next.ln_op - last.ln_op);
            slope = between.min(FLATTEST_SLOPE);
            trials.push(next);
        }
        let best = trials.into_iter().min_by(|a, b| a.residual().total_cmp(&b.residual()));
        Ok((best.unwrap_or_else(|| unreachable!("one trial at least")), slope))
    }

    fn trial(&self, ln_op: f64, victims: VictimPolicy) -> Result<Trial, LearnError> {
        let mut card = with_op(self.settings.base, ln_op.exp());
        card.collection = Some(Collection { victims });
        let results: Vec<Mutex<Compared>> = self.observed.iter().map(|_| Mutex::default()).collect();
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        self.progress.each(threads, results.len(), |number, advance| {
            *results[number].lock() = self.compare(&self.observed[number], &card, advance)?;
            Ok(())
        })?;
        Ok(Trial { ln_op, logs: results.into_iter().map(Mutex::into_inner).collect() })
    }

    fn compare(
        &self,
        observed: &Observed,
        card: &Card,
        advance: &dyn Fn(f64),
    ) -> Result<Compared, LearnError> {
        let capacity = card.space.usable_bytes as f64;
        let capacities = observed.log.host_bytes() as f64 / capacity;
        let replay = Replay {
            card,
            file: &observed.file,
            scale: smallest_scale(card, &observed.file),
            capacities,
            seed: self.settings.seed,
        };
        let invalid = |error| LearnError::Invalid(format!("{}: {error}", observed.name));
        let replayed = replay.run(self.stop, advance).map_err(invalid)?.ok_or(LearnError::Interrupted)?;
        compared(&observed.log, capacity, &replayed)
            .ok_or_else(|| invalid("the jobs write nothing to the drive".to_owned()))
    }
}

/// The card with another over-provisioning, in whole units. The host's space stays.
fn with_op(base: &Card, op_ratio: f64) -> Card {
    let mut card = base.clone();
    let raw_bytes = card.space.usable_bytes as f64 * (1.0 + op_ratio);
    let units = (raw_bytes / card.space.unit_bytes as f64).round() as u64;
    let least = card.space.usable_bytes / card.space.unit_bytes + 1;
    card.space.raw_bytes = units.max(least) * card.space.unit_bytes;
    card
}

pub(super) fn compared(log: &DriveLog, capacity: f64, replayed: &Replayed) -> Option<Compared> {
    let capacities = (log.host_bytes() as f64 / capacity).min(replayed.capacities());
    if capacities <= 0.0 {
        return None;
    }
    let of_log = |from: f64, to: f64| log.dlwa_between(from * capacity, to * capacity).max(1.0);
    let part = capacities / PARTS as f64;
    let ratios: Vec<f64> = (0..PARTS)
        .map(|number| (number as f64 * part, (number + 1) as f64 * part))
        .map(|(from, to)| (of_log(from, to), replayed.dlwa(from, to).max(1.0)))
        .filter(|&(logged, modelled)| logged.max(modelled) >= RELOCATES)
        .map(|(logged, modelled)| (modelled / logged).ln())
        .collect();
    Some(Compared {
        capacities,
        logged: of_log(0.9 * capacities, capacities),
        modelled: replayed.dlwa(0.9 * capacities, capacities).max(1.0),
        bias: mean(ratios.iter().copied()),
        distance: mean(ratios.iter().map(|ratio| ratio.abs())),
    })
}

fn fit(observed: &[Observed], base: &Card, found: &[(VictimPolicy, Trial, f64)]) -> Fit {
    let (victims, best, slope) = &found[0];
    let op_ratio = best.ln_op.exp();
    let residual = best.residual();
    // The change of over-provisioning that moves the model by one residual.
    let margin = if *slope < 0.0 { residual / -slope } else { f64::INFINITY };
    let [op_low, op_high] =
        [best.ln_op - margin, best.ln_op + margin].map(|ln_op| ln_op.exp().clamp(LEAST_OP, MOST_OP));
    let mut card = with_op(base, op_ratio);
    card.collection = Some(Collection { victims: *victims });
    let logs = observed.len() as u32;
    card.learned = Some(Learned { logs, residual, op_low, op_high, dlwa_error: dlwa_error(&best.logs) });
    let source = format!("fitted to {logs} log(s) of the drive's write counters");
    for key in ["space.raw_bytes", "collection.victims"] {
        card.sources.insert(key.to_owned(), source.clone());
    }
    let mut warnings = Vec::new();
    if best.bias().abs() > 0.1 {
        warnings.push(format!(
            "no over-provisioning from {:.0} to {:.0} % meets the logs: on average the model differs by {:+.0} %; check the jobs and the card's capacity",
            LEAST_OP * 100.0,
            MOST_OP * 100.0,
            best.bias().exp_m1() * 100.0
        ));
    }
    let logs = observed.iter().zip(&best.logs).map(|(it, log)| LogFit {
        name: it.name.clone(),
        capacities: log.capacities,
        logged: log.logged,
        modelled: log.modelled,
        residual: log.distance,
    });
    Fit {
        card,
        policies: found
            .iter()
            .map(|(victims, trial, _)| PolicyFit {
                victims: *victims,
                op_ratio: trial.ln_op.exp(),
                residual: trial.residual(),
            })
            .collect(),
        logs: logs.collect(),
        warnings,
    }
}

/// Half width of the interval of another workload's write amplification, as a share of it: Student's t of the errors of the fitted logs.
/// The error of a log is that of its curve or of its end, whichever is larger: the over-provisioning was fitted to both. It uses one degree
/// of freedom.
fn dlwa_error(logs: &[Compared]) -> f64 {
    let square = mean(logs.iter().map(|log| log.last().abs().max(log.distance).powi(2)));
    let freedom = (logs.len().max(2) - 1) as f64;
    let quantile = StudentsT::new(0.0, 1.0, freedom)
        .map_or(f64::INFINITY, |t| t.inverse_cdf(f64::midpoint(1.0, COVERAGE)));
    (quantile * square.sqrt() * (1.0 + 1.0 / logs.len() as f64).sqrt()).max(LEAST_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOBS: &str = "[random]\nrw=randwrite\nnorandommap\nbs=4k\nfilename=/dev/x\nio_size=600%\n";

    /// The counters of a model drive stand for a log: the fit finds the over-provisioning that the drive was built with. Under uniform writes
    /// greedy and fifo relocate about the same, so that either policy may fit best.
    #[test]
    fn fit_to_a_log_of_the_model_finds_its_over_provisioning() {
        let file = JobFile::parse(JOBS, |_| None).unwrap();
        let base = Card::load("test").unwrap();
        let mut drive = with_op(&base, 0.25);
        drive.collection = Some(Collection { victims: VictimPolicy::Fifo });
        let stop = Stop::default();
        let replay = Replay { card: &drive, file: &file, scale: 1, capacities: 6.0, seed: 9 };
        let replayed = replay.run(&stop, &|_| ()).unwrap().unwrap();
        let observed = [Observed { name: "log".into(), log: replayed.log, file }];
        let settings = Settings {
            base: &base,
            policies: &[VictimPolicy::Greedy, VictimPolicy::Fifo, VictimPolicy::DChoices(2)],
            seed: 1,
        };
        let fit = learn(&observed, &settings, &stop, &Progress::new(true)).unwrap();
        let learned = fit.card.learned.unwrap();
        assert!(learned.residual < 0.02, "{:?}", fit.policies);
        let op_ratio = fit.card.shape(false).op_ratio();
        assert!((op_ratio / 0.25 - 1.0).abs() < 0.1, "{op_ratio}, {learned:?}");
        assert!((learned.op_low..=learned.op_high).contains(&fit.policies[0].op_ratio), "{learned:?}");
        let text = fit.card.to_toml();
        assert_eq!(Card::parse("learned", &text).unwrap(), fit.card, "{text}");
    }

    #[test]
    fn log_without_relocation_is_refused() {
        let file = JobFile::parse(JOBS, |_| None).unwrap();
        let log = DriveLog::parse("host_bytes,media_bytes\n0,0\n9999999999,9999999999\n", None).unwrap();
        let observed = [Observed { name: "log".into(), log, file }];
        let base = Card::load("test").unwrap();
        let settings = Settings { base: &base, policies: VictimPolicy::ALL, seed: 1 };
        let error = learn(&observed, &settings, &Stop::default(), &Progress::new(true)).err().unwrap();
        assert!(error.to_string().contains("the logs show no relocation"), "{error}");
    }
}
