//! Controls the stages of a run: fill until the drive is steady, run at full speed, then measure each rate. The cache is filled
//! once; the rates change while it runs.

use std::collections::VecDeque;
use std::time::Duration;

use super::life::Life;
use super::profile::UNLIMITED;
use crate::drive::forecast::{Forecast, Known, forecast};
use crate::drive::log::{DriveLog, LogSample};
use crate::moment::Moment;
use crate::run::model_drive::ModelDrive;
use crate::run::stop::{Stop, StopReason};
use crate::run::{Observable, Watcher};
use crate::steady::is_steady;

/// A rate to measure, in addition to full speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Offer {
    /// The rate at which the rated endurance lasts for the required lifetime.
    Life,
    /// A share of the full speed.
    Share(f64),
    /// Operations per second.
    Rate(u64),
}

/// Lengths of stages, either in drive capacities written by the host or in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lengths {
    /// Whether the lengths are in seconds.
    pub by_time: bool,
    /// Maximum length of the fill.
    pub warm_up: f64,
    /// Length of each measured rate.
    pub stage: f64,
}

/// Measurement of one rate.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Offered operations per second; `None` is unlimited.
    pub offered: Option<u64>,
    /// Counters of the stage.
    pub counted: Moment,
}

/// Result of the fill.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WarmUp {
    /// Drive capacities written.
    pub capacities: f64,
    /// Whether the drive became steady.
    pub steady: bool,
    /// Forecast of the final write amplification at the end of the fill, if the drive reports media writes.
    pub forecast: Option<Forecast>,
}

/// Drive capacities in a round of the fill; steadiness is judged over five rounds.
const ROUND: f64 = 0.25;
/// Minimum capacities of the fill. Write amplification rises slowly to its final value, so that five rounds can look steady
/// long before.
const MIN_WARM_UP: f64 = 5.0;
/// Part of a stage before its measurement starts: the previous rate may have left full buffers.
const SETTLING: f64 = 0.1;
/// Time limit of a model's stage. Reached only if almost nothing is written.
const MAX_STAGE: Duration = Duration::from_secs(3600);
/// Minimum rate for the required lifetime, relative to full speed; a lower rate is of no practical use.
const MIN_SHARE: f64 = 0.001;
/// Safety margin of the rate for the required lifetime: it is derived from the writes of another stage.
const LIFE_MARGIN: f64 = 0.97;
/// RunOptions often that rate is corrected if the stage itself wrote too much.
const MAX_CORRECTIONS: u32 = 2;

/// Controller of the stages of a run.
pub struct Stages<'a> {
    /// Lengths of the stages.
    pub lengths: Lengths,
    /// Offered rates.
    pub offers: &'a [Offer],
    /// Rated endurance and required lifetime.
    pub life: Life,
    /// Whether the fill ends when a forecast proves that the write amplification is final, and not before.
    pub stop_early: bool,
    /// Capacity of the drive after scaling.
    pub capacity_bytes: f64,
    /// The model drive; `None` for a real one.
    pub drive: Option<ModelDrive>,
    /// Flag that interrupts the evaluation.
    pub interrupt: Stop,
    /// Stops this run.
    pub stop: Stop,
    /// Receives the completed share of the run.
    pub advance: &'a dyn Fn(f64),
    /// Current state.
    pub progress: Progress,
}

/// State of a run.
#[derive(Default)]
pub struct Progress {
    phase: Phase,
    rounds: Vec<f64>,
    samples: Vec<LogSample>,
    forecast: Option<Forecast>,
    round: Point,
    warm_up: WarmUp,
    next: VecDeque<u64>,
    done: Vec<Stage>,
    /// The offered rate for the required lifetime, and the remaining number of corrections.
    for_life: Option<(u64, u32)>,
}

#[derive(Default)]
enum Phase {
    #[default]
    WarmUp,
    Settling(Option<u64>, Point),
    Measuring(Option<u64>, Point, Box<Moment>),
    Over,
}

/// Bytes and time at a point of the run.
#[derive(Debug, Clone, Copy, Default)]
struct Point {
    host_bytes: f64,
    media_bytes: Option<f64>,
    at: Duration,
}

impl Progress {
    /// Adds a sample of the drive's counters and forecasts from all of them.
    fn foresee(&mut self, now: &Point, capacity_bytes: u64) -> Option<Forecast> {
        let media_bytes = now.media_bytes? as u64;
        if self.samples.is_empty() {
            self.samples.push(LogSample { host_bytes: 0, media_bytes: 0 });
        }
        self.samples.push(LogSample { host_bytes: now.host_bytes as u64, media_bytes });
        let log = DriveLog { samples: self.samples.clone(), warnings: Vec::new() };
        Some(forecast(&log, Known { capacity_bytes, op_ratio: None, wrap_capacities: None }))
    }

    /// The results of the run.
    #[must_use]
    pub fn results(mut self) -> (WarmUp, Vec<Stage>) {
        // Unlimited (`None`) sorts first.
        self.done.sort_by_key(|stage| stage.offered);
        (self.warm_up, self.done)
    }
}

impl Stages<'_> {
    fn point(&self, instances: &[&dyn Observable], at: Duration) -> Point {
        if let Some(drive) = &self.drive {
            let stats = drive.stats().unwrap_or_default();
            let media_bytes = stats.media_pages() as f64 * f64::from(drive.card().space.page_bytes);
            return Point { host_bytes: stats.host_bytes as f64, media_bytes: Some(media_bytes), at };
        }
        let flash = instances.first().and_then(|it| it.flash_stats()).unwrap_or_default();
        let host_bytes = flash.device.written_bytes as f64;
        Point { host_bytes, media_bytes: flash.device.media_written_bytes.map(|bytes| bytes as f64), at }
    }

    fn counted(&self, instances: &[&dyn Observable], at: Duration) -> Moment {
        Moment::of(instances, at, self.drive.as_ref().and_then(ModelDrive::stats))
    }

    /// Distance between two points, in the unit of the lengths.
    fn passed(&self, from: &Point, to: &Point) -> f64 {
        if self.lengths.by_time {
            (to.at - from.at).as_secs_f64()
        } else {
            (to.host_bytes - from.host_bytes) / self.capacity_bytes
        }
    }

    fn warm_up(&mut self, now: &Point) -> bool {
        let written = now.host_bytes / self.capacity_bytes;
        let progress = &mut self.progress;
        if (now.host_bytes - progress.round.host_bytes) / self.capacity_bytes >= ROUND {
            let host_bytes = now.host_bytes - progress.round.host_bytes;
            let media = now.media_bytes.zip(progress.round.media_bytes.or(Some(0.0)));
            let seconds = (now.at - progress.round.at).as_secs_f64();
            // Write amplification if the drive reports media writes, otherwise the write rate.
            let value = media.map_or(host_bytes / seconds, |(now, then)| (now - then) / host_bytes);
            progress.rounds.push(value);
            progress.round = *now;
            progress.forecast = progress.foresee(now, self.capacity_bytes as u64);
        }
        let steady = match &progress.forecast {
            Some(forecast) if self.stop_early => forecast.is_steady,
            _ => written >= MIN_WARM_UP && is_steady(&progress.rounds),
        };
        progress.warm_up = WarmUp { capacities: written, steady, forecast: progress.forecast.clone() };
        steady || self.passed(&Point::default(), now) >= self.lengths.warm_up
    }

    /// Starts the next rate, or ends the run.
    fn begin_next(&mut self, instances: &[&dyn Observable], now: Point) {
        let Some(rate) = self.progress.next.pop_front() else {
            self.progress.phase = Phase::Over;
            self.stop.set(StopReason::Timeout);
            return;
        };
        instances.iter().for_each(|instance| instance.set_rate(rate));
        self.progress.phase = Phase::Settling((rate < UNLIMITED).then_some(rate), now);
    }

    fn has_passed(&self, share: f64, from: &Point, now: &Point) -> bool {
        let too_long = self.drive.is_some() && now.at - from.at >= MAX_STAGE.mul_f64(share);
        self.passed(from, now) >= share * self.lengths.stage || too_long
    }

    fn end(&mut self, offered: Option<u64>, counted: Moment) {
        let most = self.progress.done.is_empty();
        if let (Some(rate), Some((for_life, tries))) = (offered, self.progress.for_life)
            && rate == for_life
            && tries > 0
            && let Some(again) = self.by_life(&counted).filter(|again| *again < rate)
        {
            self.progress.for_life = Some((again, tries - 1));
            self.progress.next.push_front(again);
        }
        self.progress.done.push(Stage { offered, counted });
        if most {
            self.offer();
        }
    }

    /// Rate at which the drive lasts as long as required, if each operation writes as many bytes as the counted ones did.
    fn by_life(&self, counted: &Moment) -> Option<u64> {
        let lasts = self.life.rate(counted, self.drive.as_ref())?;
        let done = counted.counts.ops as f64 / counted.at.as_secs_f64().max(1e-9);
        // If the drive lasts long enough at full speed, it does at every lower rate.
        (lasts < done).then(|| rounded((lasts * LIFE_MARGIN).max(self.most() * MIN_SHARE)))
    }

    /// Operations per second at full speed.
    fn most(&self) -> f64 {
        let first = self.progress.done.first().map(|stage| &stage.counted);
        first.map_or(0.0, |counted| counted.counts.ops as f64 / counted.at.as_secs_f64().max(1e-9))
    }

    /// Determines the offered rates in ascending order, after the full speed is known.
    fn offer(&mut self) {
        let by_life = self.progress.done.first().and_then(|stage| self.by_life(&stage.counted));
        let most = self.most();
        let rate = |offer: &Offer| match offer {
            Offer::Rate(rate) => Some(*rate),
            Offer::Share(share) => Some(rounded(most * share)),
            Offer::Life => by_life,
        };
        let mut rates: Vec<u64> = self.offers.iter().filter_map(rate).collect();
        rates.sort_unstable();
        rates.dedup();
        self.progress.next = rates.into();
        let is_requested = self.offers.contains(&Offer::Life);
        self.progress.for_life = by_life.filter(|_| is_requested).map(|rate| (rate, MAX_CORRECTIONS));
    }

    fn report_progress(&self, now: &Point) {
        let Lengths { warm_up, stage, .. } = self.lengths;
        let settling = SETTLING * stage;
        let begun = warm_up + self.progress.done.len() as f64 * (settling + stage);
        let whole = warm_up + (self.offers.len() as f64 + 1.0) * (settling + stage);
        let done = match &self.progress.phase {
            Phase::WarmUp => self.passed(&Point::default(), now),
            Phase::Settling(_, from) => begun + self.passed(from, now).min(settling),
            Phase::Measuring(_, from, _) => begun + settling + self.passed(from, now),
            Phase::Over => whole,
        };
        // A correction adds a stage that was not planned, hence the limit of 1.
        (self.advance)((done / whole).min(1.0));
    }
}

/// Rounds down to two digits, for readable rates.
fn rounded(rate: f64) -> u64 {
    let digits = 10_f64.powf((rate.max(1.0).log10().floor() - 1.0).max(0.0));
    ((rate / digits).floor() * digits).max(1.0) as u64
}

impl Watcher for Stages<'_> {
    fn refresh(&mut self, _instances: &[&dyn Observable], _elapsed: Duration) {
        if self.interrupt.is_set() {
            self.stop.set(StopReason::Interrupt);
        }
    }

    fn sample(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        if self.stop.is_set() {
            return;
        }
        let now = self.point(instances, elapsed);
        match std::mem::take(&mut self.progress.phase) {
            Phase::WarmUp => {
                if self.warm_up(&now) {
                    self.progress.next.push_back(UNLIMITED);
                    self.begin_next(instances, now);
                }
            }
            Phase::Settling(offered, from) if self.has_passed(SETTLING, &from, &now) => {
                // Setting the rate again drops the backlog of the settling phase; otherwise the stage would complete more than
                // it is offered.
                let rate = offered.unwrap_or(UNLIMITED);
                instances.iter().for_each(|instance| instance.set_rate(rate));
                let counted = self.counted(instances, elapsed);
                self.progress.phase = Phase::Measuring(offered, now, Box::new(counted));
            }
            Phase::Measuring(offered, from, before) if self.has_passed(1.0, &from, &now) => {
                self.end(offered, self.counted(instances, elapsed).since(&before));
                self.begin_next(instances, now);
            }
            other => self.progress.phase = other,
        }
        self.report_progress(&now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_rate_has_two_digits_and_is_at_least_1() {
        let rates = [0.2, 9.9, 123.9, 1000.0, 98_765.0, 412_345.0].map(rounded);
        assert_eq!(rates, [1, 9, 120, 1000, 98_000, 410_000]);
    }
}
