//! When a drive, or a run, has settled.
//!
//! The rule of SNIA's Solid State Storage Performance Test Specification: over five rounds, no value strays from
//! their mean by more than 20 % in all (largest less smallest), and the best line through them climbs or falls by less than
//! 10 % of the mean from the first round to the last.

use crate::run::counts::{Counts, ratio};
use crate::run::target::{Settled, Snapshot};

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
    settled: Settled,
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
            settled: flash.and_then(|it| it.settled).unwrap_or_default(),
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
        let settled = now.settled.since(before.settled);
        self.app_amplifications.push(of(settled.host, settled.items));
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
    use crate::run::target::FlashCounts;

    #[test]
    fn five_alike_are_steady_and_four_are_not() {
        assert!(is_steady(&[7.0, 1.0, 1.0, 1.0, 1.0, 1.0]), "what came before does not count");
        assert!(!is_steady(&[1.0; 4]));
        assert!(!is_steady(&[0.0; 5]), "nothing moved");
    }

    #[test]
    fn a_wide_range_or_a_slope_is_not_steady() {
        // The ranges are 19.8 % and 20.2 % of the mean, without a slope to speak of.
        assert!(is_steady(&[300.0, 329.7, 270.3, 329.7, 270.3]));
        assert!(!is_steady(&[300.0, 330.3, 269.7, 330.3, 269.7]));
        // Lines that fall and climb by 9.6 % and by 10.4 % of the mean from first to last.
        assert!(is_steady(&[314.4, 307.2, 300.0, 292.8, 285.6]));
        assert!(!is_steady(&[315.6, 307.8, 300.0, 292.2, 284.4]));
        assert!(!is_steady(&[284.4, 292.2, 300.0, 307.8, 315.6]));
    }

    /// What a round adds.
    #[derive(Clone, Copy)]
    struct Round {
        seconds: f64,
        hits: u64,
        host_bytes: u64,
        settled_bytes: u64,
        media_bytes: u64,
    }

    const ROUND: Round =
        Round { seconds: 1.0, hits: 70, host_bytes: 1000, settled_bytes: 500, media_bytes: 1200 };

    impl Round {
        fn plus(self, other: Self, times: u64) -> Self {
            Self {
                seconds: self.seconds + other.seconds * times as f64,
                hits: self.hits + other.hits * times,
                host_bytes: self.host_bytes + other.host_bytes * times,
                settled_bytes: self.settled_bytes + other.settled_bytes * times,
                media_bytes: self.media_bytes + other.media_bytes * times,
            }
        }
    }

    /// Whether a run on flash of so many bytes is steady after these rounds, of 100 gets each or a multiple of them.
    fn is_steady_after(capacity_bytes: Option<u64>, rounds: &[(Round, u64)]) -> bool {
        let mut all = Rounds::default();
        let mut sum = Round { seconds: 0.0, hits: 0, host_bytes: 0, settled_bytes: 0, media_bytes: 0 };
        let mut gets = 0;
        for (round, times) in rounds {
            sum = sum.plus(*round, *times);
            gets += 100 * times;
            let flash = FlashCounts {
                capacity_bytes,
                settled: Some(Settled { items: sum.settled_bytes, host: sum.host_bytes }),
                host_bytes: Some(sum.host_bytes),
                media_bytes: Some(sum.media_bytes),
                ..FlashCounts::default()
            };
            let counts = Counts { ops: gets, gets, get_misses: gets - sum.hits, ..Counts::default() };
            all.end(sum.seconds, counts, &Snapshot { flash: Some(flash), ..Snapshot::default() });
        }
        all.is_steady()
    }

    #[test]
    fn a_run_is_steady_when_all_its_figures_are_however_long_its_rounds_take() {
        // Rounds that are longer have more of everything, and the same figures.
        let alike = [1, 2, 1, 3].map(|times| (ROUND, times));
        let then = |last: Round| is_steady_after(Some(1), &[&alike[..], &[(last, 1)]].concat());
        assert!(then(ROUND) && !is_steady_after(Some(1), &alike));
        assert!(!then(Round { hits: 20, ..ROUND }), "fewer hits");
        assert!(!then(Round { seconds: 0.5, ..ROUND }), "faster writes");
        assert!(!then(Round { settled_bytes: 900, ..ROUND }), "less is written for a byte that is taken");
        assert!(!then(Round { media_bytes: 2000, ..ROUND }), "the medium writes more");
        let still = Round { host_bytes: 0, settled_bytes: 0, media_bytes: 0, ..ROUND };
        assert!(!then(still), "no writes after some");
        assert!(is_steady_after(Some(0), &[(still, 1); ROUNDS]), "no writes at all");
    }

    #[test]
    fn rounds_in_which_flash_fills_do_not_count_unless_nobody_knows_its_size() {
        let rounds = [(ROUND, 1); 7];
        assert!(is_steady_after(Some(3000), &rounds) && !is_steady_after(Some(3001), &rounds));
        assert!(is_steady_after(None, &rounds[..5]) && !is_steady_after(None, &rounds[..4]));
    }

    #[test]
    fn a_round_is_over_when_its_operations_are_done_since_the_one_before_ended() {
        let done = |ops: u64| Counts { ops, ..Counts::default() };
        let mut rounds = Rounds::default();
        assert!(!rounds.is_over(&done(99), 100) && rounds.is_over(&done(100), 100));
        rounds.end(1.0, done(130), &Snapshot::default());
        assert!(!rounds.is_over(&done(229), 100) && rounds.is_over(&done(230), 100));
    }
}
