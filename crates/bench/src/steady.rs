//! Steady state of a drive or a run.
//!
//! The rule is that of SNIA's Solid State Storage Performance Test Specification: over five rounds, the largest and smallest
//! value differ by at most 20 % of the mean, and the best-fit line changes by at most 10 % of the mean from the first round to
//! the last.

use crate::run::counts::{CounterTable, Counts, ratio};
use crate::run::target::Snapshot;

/// Number of rounds in the window.
pub const ROUNDS: usize = 5;

const MAX_RANGE: f64 = 0.20;
const MAX_SLOPE: f64 = 0.10;

/// Whether the last [`ROUNDS`] of `values` are steady; false with fewer values.
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

/// Figures of a run by rounds of operations.
#[derive(Debug, Default)]
pub struct Rounds {
    ended: Ended,
    hit_ratios: Vec<f64>,
    write_rates: Vec<f64>,
    app_amplifications: Vec<f64>,
    drive_amplifications: Vec<f64>,
}

/// Counters at the end of a round.
#[derive(Debug, Default)]
struct Ended {
    seconds: f64,
    counts: Counts,
    host_bytes: u64,
    /// Completed writes of buckets and regions: bytes of items, and bytes written.
    settled: (u64, u64),
    media_bytes: u64,
}

impl Rounds {
    /// Whether the round has `ops` operations.
    #[must_use]
    pub fn is_over(&self, counts: &Counts, ops: u64) -> bool {
        counts.ops - self.ended.counts.ops >= ops
    }

    /// Ends a round. Rounds before flash has been overwritten once are ignored: a cache that fills up writes at a constant
    /// rate, but is not in steady state.
    pub fn end(&mut self, seconds: f64, counts: Counts, snapshot: &Snapshot) {
        let flash = snapshot.stats.flash.clone().unwrap_or_default();
        let now = Ended {
            seconds,
            counts,
            host_bytes: flash.device.written_bytes,
            settled: flash.settled_bytes(),
            media_bytes: flash.device.media_written_bytes.unwrap_or(0),
        };
        if snapshot.is_filled_by(now.host_bytes) != Some(false) {
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
        let settled = now.settled.0.saturating_sub(before.settled.0);
        self.app_amplifications.push(of(now.settled.1.saturating_sub(before.settled.1), settled));
        self.drive_amplifications.push(of(now.media_bytes.saturating_sub(before.media_bytes), written));
    }

    /// Whether all figures were steady over the last rounds. A figure that was 0 in all of them counts as steady: there is no
    /// flash, or the drive does not report media writes.
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
    use cache::stats::{FlashStats, SocStats};

    use super::*;
    use crate::run::target::FlashDevice;

    #[test]
    fn is_steady_needs_five_similar_values() {
        assert!(is_steady(&[7.0, 1.0, 1.0, 1.0, 1.0, 1.0]), "earlier values do not count");
        assert!(!is_steady(&[1.0; 4]));
        assert!(!is_steady(&[0.0; 5]), "zeros are not steady");
    }

    #[test]
    fn is_steady_is_false_for_wide_range_or_slope() {
        // The ranges are 19.8 % and 20.2 % of the mean, with almost no slope.
        assert!(is_steady(&[300.0, 329.7, 270.3, 329.7, 270.3]));
        assert!(!is_steady(&[300.0, 330.3, 269.7, 330.3, 269.7]));
        // Slopes of 9.6 % and 10.4 % of the mean from first to last.
        assert!(is_steady(&[314.4, 307.2, 300.0, 292.8, 285.6]));
        assert!(!is_steady(&[315.6, 307.8, 300.0, 292.2, 284.4]));
        assert!(!is_steady(&[284.4, 292.2, 300.0, 307.8, 315.6]));
    }

    /// Counters that a round adds.
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

    /// Whether a run on flash of this capacity is steady after these rounds, of 100 gets each or a multiple.
    fn is_steady_after(capacity_bytes: Option<u64>, rounds: &[(Round, u64)]) -> bool {
        let mut all = Rounds::default();
        let mut sum = Round { seconds: 0.0, hits: 0, host_bytes: 0, settled_bytes: 0, media_bytes: 0 };
        let mut gets = 0;
        for (round, times) in rounds {
            sum = sum.plus(*round, *times);
            gets += 100 * times;
            let soc = SocStats {
                settled_bytes: sum.settled_bytes,
                physical_written_bytes: sum.host_bytes,
                ..SocStats::default()
            };
            let mut flash = FlashStats { soc: Some(soc), ..FlashStats::default() };
            flash.device.written_bytes = sum.host_bytes;
            flash.device.media_written_bytes = Some(sum.media_bytes);
            let stats = cache::Stats { flash: Some(flash), ..cache::Stats::default() };
            let device =
                capacity_bytes.map(|capacity_bytes| FlashDevice { capacity_bytes, ..FlashDevice::default() });
            let counts = Counts { ops: gets, gets, get_misses: gets - sum.hits, ..Counts::default() };
            all.end(sum.seconds, counts, &Snapshot { stats, device, item_limit: None });
        }
        all.is_steady()
    }

    #[test]
    fn rounds_of_different_length_are_steady_if_all_figures_are() {
        // Longer rounds have larger counters and the same figures.
        let alike = [1, 2, 1, 3].map(|times| (ROUND, times));
        let then = |last: Round| is_steady_after(Some(1), &[&alike[..], &[(last, 1)]].concat());
        assert!(then(ROUND) && !is_steady_after(Some(1), &alike));
        assert!(!then(Round { hits: 20, ..ROUND }), "fewer hits");
        assert!(!then(Round { seconds: 0.5, ..ROUND }), "faster writes");
        assert!(!then(Round { settled_bytes: 900, ..ROUND }), "less write amplification of the cache");
        assert!(!then(Round { media_bytes: 2000, ..ROUND }), "more media writes");
        let still = Round { host_bytes: 0, settled_bytes: 0, media_bytes: 0, ..ROUND };
        assert!(!then(still), "no writes after some");
        assert!(is_steady_after(Some(0), &[(still, 1); ROUNDS]), "no writes at all");
    }

    #[test]
    fn rounds_before_flash_is_full_count_only_if_capacity_is_unknown() {
        let rounds = [(ROUND, 1); 7];
        assert!(is_steady_after(Some(3000), &rounds) && !is_steady_after(Some(3001), &rounds));
        assert!(is_steady_after(None, &rounds[..5]) && !is_steady_after(None, &rounds[..4]));
    }

    #[test]
    fn round_is_over_after_its_operations_since_the_last_end() {
        let done = |ops: u64| Counts { ops, ..Counts::default() };
        let mut rounds = Rounds::default();
        assert!(!rounds.is_over(&done(99), 100) && rounds.is_over(&done(100), 100));
        rounds.end(1.0, done(130), &Snapshot::default());
        assert!(!rounds.is_over(&done(229), 100) && rounds.is_over(&done(230), 100));
    }
}
