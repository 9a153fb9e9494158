//! The final write amplification of a test, by a run of its jobs on the model drive, checked against the log so far.

use ssd::Card;
use workload::fio::JobFile;

use super::learn::compared;
use super::log::DriveLog;
use crate::jobs::replay::{Replay, smallest_scale};
use crate::run::stop::Stop;

/// A test that has begun.
pub struct Test<'a> {
    /// The drive.
    pub card: &'a Card,
    /// The jobs of the test.
    pub file: &'a JobFile,
    /// Host writes of the whole test, in capacities.
    pub capacities: f64,
    /// Seed of all random draws.
    pub seed: u64,
}

/// The final write amplification by the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// Write amplification of the last tenth of the test.
    pub value: f64,
    /// Bounds of the value.
    pub interval: (f64, f64),
    /// Mean relative difference between the model and the log so far.
    pub difference: f64,
}

/// Half width of the interval, as a share of the value, for a card that was not learned from logs of the drive: 24 of 25 logs of known drives
/// end within it.
const UNLEARNED_ERROR: f64 = 0.12;

impl Test<'_> {
    /// Runs the whole test on the model; `None` if `stop` was set. The interval is at least as wide as the difference so far.
    ///
    /// # Errors
    /// A job does not fit the drive, or writes nothing.
    pub fn expected(&self, log: &DriveLog, stop: &Stop) -> Result<Option<Expected>, String> {
        let Self { card, file, capacities, seed } = *self;
        let replay = Replay { card, file, scale: smallest_scale(card, file), capacities, seed };
        let Some(replayed) = replay.run(stop, &|_| ())? else { return Ok(None) };
        let capacity = card.space.usable_bytes as f64;
        let so_far = compared(log, capacity, &replayed).ok_or("the jobs write nothing to the drive")?;
        let end = capacities.min(replayed.capacities());
        let value = replayed.dlwa(0.9 * end, end).max(1.0);
        let error = card.learned.map_or(UNLEARNED_ERROR, |learned| learned.dlwa_error).max(so_far.distance);
        let interval = ((value * (1.0 - error)).max(1.0), value * (1.0 + error));
        Ok(Some(Expected { value, interval, difference: so_far.distance }))
    }
}
