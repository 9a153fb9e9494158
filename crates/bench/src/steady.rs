//! When a drive, or a run, has settled.
//!
//! The rule of SNIA's Solid State Storage Performance Test Specification: over five rounds, no value strays from
//! their mean by more than 20 % in all (largest less smallest), and the best line through them climbs or falls by less than
//! 10 % of the mean from the first round to the last.

use crate::run::counts::{Counts, ratio};
use crate::run::target::{FlashCounts, Snapshot};

/// Rounds that are looked at.
pub const ROUNDS: usize = 5;

const MAX_RANGE: f64 = 0.20;
const MAX_SLOPE: f64 = 0.10;

/// Whether the last [`ROUNDS`] of `values` are steady. Fewer never are.
#[must_use]
pub fn is_steady(values: &[f64]) -> bool {
    let Some(window) = values.last_chunk::<ROUNDS>() else { return false };
    let mean = window.iter().sum::<f64>() / ROUNDS as f64;
    let (low, high) =
        window.iter().fold((f64::MAX, f64::MIN), |(low, high), &it| (low.min(it), high.max(it)));
    let middle = (ROUNDS - 1) as f64 / 2.0;
    let places = (0..ROUNDS).map(|round| round as f64 - middle);
    let (rise, run) = places
        .zip(window)
        .fold((0.0, 0.0), |(rise, run), (place, value)| (rise + place * (value - mean), run + place * place));
    let excursion = (rise / run * (ROUNDS - 1) as f64).abs();
    mean > 0.0 && high - low <= MAX_RANGE * mean && excursion <= MAX_SLOPE * mean
}

/// Figures of a run in rounds of so many operations, and whether the last of them are alike.
#[derive(Debug, Default)]
pub struct Rounds {
    ended: Ended,
    hit_ratios: Vec<f64>,
    write_rates: Vec<f64>,
    app_amplifications: Vec<f64>,
    drive_amplifications: Vec<f64>,
}

/// What was counted by the end of a round.
#[derive(Debug, Default)]
struct Ended {
    seconds: f64,
    counts: Counts,
    host_bytes: u64,
    settled_bytes: u64,
    media_bytes: u64,
}

impl Rounds {
    /// Whether a round of `ops` operations is over.
    #[must_use]
    pub fn is_over(&self, counts: &Counts, ops: u64) -> bool {
        counts.ops - self.ended.counts.ops >= ops
    }

    /// Ends a round. Until flash was written over once none counts: a cache that fills writes each byte once, as steadily as
    /// can be.
    pub fn end(&mut self, seconds: f64, counts: Counts, snapshot: &Snapshot) {
        let flash = snapshot.flash.as_ref();
        let now = Ended {
            seconds,
            counts,
            host_bytes: flash.and_then(|it| it.host_bytes).unwrap_or(0),
            settled_bytes: flash.and_then(FlashCounts::settled_bytes).unwrap_or(0),
            media_bytes: flash.and_then(|it| it.media_bytes).unwrap_or(0),
        };
        if flash.is_none_or(|it| it.is_filled_by(now.host_bytes) != Some(false)) {
            self.take(&now);
        }
        self.ended = now;
    }

    fn take(&mut self, now: &Ended) {
        let before = &self.ended;
        let written = now.host_bytes - before.host_bytes;
        let of = |part: u64, whole: u64| ratio(part, whole).unwrap_or(0.0);
        self.hit_ratios.push(now.counts.since(&before.counts).hit_ratio().unwrap_or(0.0));
        self.write_rates.push(written as f64 / (now.seconds - before.seconds).max(1e-9));
        self.app_amplifications.push(of(written, now.settled_bytes.saturating_sub(before.settled_bytes)));
        self.drive_amplifications.push(of(now.media_bytes.saturating_sub(before.media_bytes), written));
    }

    /// Whether each figure was steady over the last rounds. One that is nothing in all of them is: there is no flash, or
    /// its medium does not tell.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        let all = [&self.hit_ratios, &self.write_rates, &self.app_amplifications, &self.drive_amplifications];
        let is_nothing =
            |values: &[f64]| values.last_chunk::<ROUNDS>().is_some_and(|it| *it == [0.0; ROUNDS]);
        all.iter().all(|values| is_steady(values) || is_nothing(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_alike_are_steady_and_four_are_not() {
        assert!(is_steady(&[7.0, 1.0, 1.0, 1.0, 1.0, 1.0]), "what came before does not count");
        assert!(!is_steady(&[1.0; 4]));
        assert!(!is_steady(&[0.0; 5]), "nothing moved");
    }

    #[test]
    fn a_wide_range_or_a_slope_is_not_steady() {
        // The ranges are 18 % and 22 % of the mean, without a slope to speak of.
        assert!(is_steady(&[1.0, 1.09, 0.91, 1.09, 0.91]));
        assert!(!is_steady(&[1.0, 1.11, 0.89, 1.11, 0.89]));
        // Lines that fall by 8 % and by 12 % of the mean from first to last.
        assert!(is_steady(&[1.04, 1.02, 1.0, 0.98, 0.96]));
        assert!(!is_steady(&[1.06, 1.03, 1.0, 0.97, 0.94]));
    }
}
