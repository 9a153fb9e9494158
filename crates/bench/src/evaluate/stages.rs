//! The stages of a run: filling until the drive is steady, as fast as it goes, and then one rate after another, each measured
//! for itself. One cache is filled once; rates change under it.

use std::collections::VecDeque;
use std::time::Duration;

use super::life::Life;
use super::profile::UNLIMITED;
use crate::moment::Moment;
use crate::run::model_drive::ModelDrive;
use crate::run::stop::{Stop, StopReason};
use crate::run::{Observable, Watcher};
use crate::steady::is_steady;

/// What is offered beside what the drive does at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Offer {
    /// As much as the rated endurance stands for the years that are asked for.
    Life,
    /// A share of the most.
    Share(f64),
    /// Operations a second.
    Rate(u64),
}

/// How long stages are, in one measure: drive capacities that the host has written, or seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lengths {
    /// Whether it is seconds.
    pub by_time: bool,
    /// Filling, at most.
    pub warm_up: f64,
    /// Every rate.
    pub stage: f64,
}

/// What was measured at a rate.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Operations a second that were offered; none was as fast as it goes.
    pub offered: Option<u64>,
    /// What was counted.
    pub counted: Moment,
}

/// How the filling ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WarmUp {
    /// Drive capacities that were written.
    pub capacities: f64,
    /// Whether the drive became steady.
    pub steady: bool,
}

/// Drive capacities of a round of filling: steadiness is judged over five.
const ROUND: f64 = 0.25;
/// Nothing is steady before the studies have it so: write amplification climbs so slowly to where it stays that five rounds
/// look steady long before.
const LEAST_WARM_UP: f64 = 5.0;
/// Of a stage, what passes before it is measured: the rate before may have left full buffers.
const SETTLING: f64 = 0.1;
/// A model is not watched for longer: next to nothing happens there.
const LONGEST_STAGE: Duration = Duration::from_secs(3600);
/// Below this share of what it can do, nobody would use a drive: no lower rate is offered for its life's sake.
const LEAST_SHARE: f64 = 0.001;
/// The rate that life allows is worked out from what another stage wrote; this one writes a little more or less.
const LIFE_MARGIN: f64 = 0.97;
/// How often it is worked out again from what it wrote itself, where that was too much.
const LIFE_TRIES: u32 = 2;

/// Leads a run through its stages.
pub struct Stages<'a> {
    /// How long they are.
    pub lengths: Lengths,
    /// What is offered.
    pub offers: &'a [Offer],
    /// What the drive is rated for.
    pub life: Life,
    /// Bytes of the drive as it runs.
    pub capacity_bytes: f64,
    /// The model, where it is one.
    pub drive: Option<ModelDrive>,
    /// The user's wish to stop.
    pub interrupt: Stop,
    /// Ends this run.
    pub stop: Stop,
    /// Told what share of it is done.
    pub advance: &'a dyn Fn(f64),
    /// What is under way.
    pub progress: Progress,
}

/// How far a run is.
#[derive(Default)]
pub struct Progress {
    phase: Phase,
    rounds: Vec<f64>,
    round: Point,
    warm_up: WarmUp,
    next: VecDeque<u64>,
    done: Vec<Stage>,
    /// The rate that was offered for life's sake, and how often it may be corrected.
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

/// A point of the run, in bytes and time.
#[derive(Debug, Clone, Copy, Default)]
struct Point {
    host_bytes: f64,
    media_bytes: Option<f64>,
    at: Duration,
}

impl Progress {
    /// What came of it.
    #[must_use]
    pub fn results(mut self) -> (WarmUp, Vec<Stage>) {
        // None, which is as fast as it goes, stands first.
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
        let flash = instances.first().and_then(|it| it.snapshot().flash).unwrap_or_default();
        let host_bytes = flash.host_bytes.unwrap_or(0) as f64;
        Point { host_bytes, media_bytes: flash.media_bytes.map(|bytes| bytes as f64), at }
    }

    fn counted(&self, instances: &[&dyn Observable], at: Duration) -> Moment {
        Moment::of(instances, at, self.drive.as_ref().and_then(ModelDrive::stats))
    }

    /// Between two points, in the measure of the lengths.
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
            // Write amplification where the drive tells it, else how fast it writes.
            let value = media.map_or(host_bytes / seconds, |(now, then)| (now - then) / host_bytes);
            progress.rounds.push(value);
            progress.round = *now;
        }
        let steady = written >= LEAST_WARM_UP && is_steady(&progress.rounds);
        progress.warm_up = WarmUp { capacities: written, steady };
        steady || self.passed(&Point::default(), now) >= self.lengths.warm_up
    }

    /// Offers the next rate, or ends.
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
        let too_long = self.drive.is_some() && now.at - from.at >= LONGEST_STAGE.mul_f64(share);
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

    /// What the drive lasts for, if every operation writes what those that were counted did.
    fn by_life(&self, counted: &Moment) -> Option<u64> {
        let lasts = self.life.rate(counted, self.drive.as_ref())?;
        let done = counted.counts.ops as f64 / counted.at.as_secs_f64().max(1e-9);
        // Who lasts at full speed is tried at all the other rates.
        (lasts < done).then(|| rounded((lasts * LIFE_MARGIN).max(self.most() * LEAST_SHARE)))
    }

    /// Operations a second when nothing held them back.
    fn most(&self) -> f64 {
        let first = self.progress.done.first().map(|stage| &stage.counted);
        first.map_or(0.0, |counted| counted.counts.ops as f64 / counted.at.as_secs_f64().max(1e-9))
    }

    /// Offers, rising, what is asked for, now that it is known what can be done.
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
        let is_asked = self.offers.contains(&Offer::Life);
        self.progress.for_life = by_life.filter(|_| is_asked).map(|rate| (rate, LIFE_TRIES));
    }

    fn tell(&self, now: &Point) {
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
        // A rate that is corrected for life's sake is a stage that nobody counted on.
        (self.advance)((done / whole).min(1.0));
    }
}

/// Two digits: what is offered is read by people.
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
                // Requests that a stall held up while settling are dropped, or the stage would do more than it is offered.
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
        self.tell(&now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_two_digits_and_are_never_nothing() {
        let rates = [0.2, 9.9, 123.9, 1000.0, 98_765.0, 412_345.0].map(rounded);
        assert_eq!(rates, [1, 9, 120, 1000, 98_000, 410_000]);
    }
}
