//! Latency histograms: one set per thread, merged on demand.

use hdrhistogram::Histogram as Hdr;

/// A histogram of nanoseconds with a relative error of at most 1 %.
///
/// It takes 36 KiB for values of up to an hour. An open loop may fall behind by more; its histograms then grow, by 1 KiB per
/// doubling, or 8 KiB for a week.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram(Hdr<u64>);

/// The range that is allocated initially.
const USUALLY_LONGEST_NS: u64 = 3_600_000_000_000;

impl Default for Histogram {
    fn default() -> Self {
        let mut empty = Hdr::new_with_bounds(1, USUALLY_LONGEST_NS, 2)
            .expect("the bounds are in order and two digits are possible");
        empty.auto(true);
        Self(empty)
    }
}

impl Histogram {
    /// Records one operation.
    pub fn record(&mut self, latency_ns: u64) {
        self.0.record(latency_ns.max(1)).expect("the histogram grows to any u64");
    }

    /// Adds `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the histogram grows to any u64");
    }

    /// The difference to `earlier`, a previous state.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        difference.0.subtract(&earlier.0).expect("the earlier state is contained in the later");
        difference
    }

    /// The recorded latencies in nanoseconds, with their counts.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter_recorded().map(|it| (it.value_iterated_to(), it.count_since_last_iteration()))
    }

    /// Number of recorded operations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `share` of all operations did not exceed, in nanoseconds; `None` if empty.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.0.value_at_quantile(share).min(self.0.max()))
    }

    /// The mean in nanoseconds; `None` if empty.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.mean())
    }

    /// The maximum in nanoseconds; `None` if empty.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.0.max())
    }
}

/// The kind of a timed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    /// A get that hit in DRAM.
    GetDram,
    /// A get that hit on flash.
    GetFlash,
    /// A get that missed.
    GetMiss,
    /// A set, including the copy of the value.
    Set,
    /// A delete.
    Delete,
    /// The addition of a chained item.
    AddChained,
    /// A check whether a key could exist.
    CouldExist,
}

impl Timed {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::GetDram,
        Self::GetFlash,
        Self::GetMiss,
        Self::Set,
        Self::Delete,
        Self::AddChained,
        Self::CouldExist,
    ];

    /// Its name in the result.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GetDram => "get_dram",
            Self::GetFlash => "get_flash",
            Self::GetMiss => "get_miss",
            Self::Set => "set",
            Self::Delete => "delete",
            Self::AddChained => "add_chained",
            Self::CouldExist => "could_exist",
        }
    }
}

/// One histogram per kind of operation; a kind that never occurred takes no memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Latencies([Option<Box<Histogram>>; Timed::ALL.len()]);

impl Latencies {
    /// Records one operation.
    pub fn record(&mut self, what: Timed, latency_ns: u64) {
        self.0[what as usize].get_or_insert_default().record(latency_ns);
    }

    /// Adds `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            if let Some(theirs) = theirs {
                mine.get_or_insert_default().merge(theirs);
            }
        }
    }

    /// The difference to `earlier`, a previous state.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        for (mine, theirs) in difference.0.iter_mut().zip(&earlier.0) {
            if let (Some(mine), Some(theirs)) = (mine, theirs) {
                **mine = mine.since(theirs);
            }
        }
        difference
    }

    /// The histogram of `what`; empty if it never occurred.
    #[must_use]
    pub fn of(&self, what: Timed) -> Histogram {
        self.0[what as usize].as_deref().cloned().unwrap_or_default()
    }

    /// All gets: hits in DRAM, hits on flash, and misses.
    #[must_use]
    pub fn gets(&self) -> Histogram {
        let mut all = self.of(Timed::GetDram);
        all.merge(&self.of(Timed::GetFlash));
        all.merge(&self.of(Timed::GetMiss));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_histogram_has_no_quantiles() {
        let empty = Histogram::default();
        assert_eq!((empty.quantile_ns(0.99), empty.max_ns()), (None, None));
        assert_eq!(empty.mean_ns(), None);
    }

    #[test]
    fn quantiles_are_precise_to_two_digits_and_at_most_the_maximum() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|ns| histogram.record(ns * 100));
        let p50 = histogram.quantile_ns(0.5).unwrap();
        assert!((495_000..=505_000).contains(&p50), "{p50}");
        assert_eq!(histogram.quantile_ns(1.0), histogram.max_ns());
    }

    #[test]
    fn latencies_beyond_an_hour_are_recorded() {
        const WEEK_NS: u64 = 7 * 24 * 3_600_000_000_000;
        let mut late = Histogram::default();
        for latency_ns in [1000, WEEK_NS, 2 * WEEK_NS] {
            late.record(latency_ns);
        }
        let is_about = |found: Option<u64>, expected: u64| {
            let (found, expected) = (found.unwrap() as f64, expected as f64);
            assert!((0.99..1.01).contains(&(found / expected)), "{found} instead of {expected}");
        };
        is_about(late.quantile_ns(0.5), WEEK_NS);
        is_about(late.max_ns(), 2 * WEEK_NS);
        assert!(late.mean_ns().unwrap() > 0.99 * WEEK_NS as f64);
        // Histograms of different ranges can be added and subtracted.
        let mut punctual = Histogram::default();
        punctual.record(1000);
        let early = punctual.clone();
        punctual.merge(&late);
        late.merge(&early);
        assert_eq!((&punctual, punctual.count()), (&late, 4));
        is_about(late.since(&early).quantile_ns(0.5), WEEK_NS);
        assert_eq!(late.since(&late.clone()).count(), 0);
        late.record(u64::MAX);
        is_about(late.max_ns(), u64::MAX);
    }

    #[test]
    fn interval_is_the_difference_of_two_states() {
        let mut latencies = Latencies::default();
        latencies.record(Timed::Set, 1_000);
        let earlier = latencies.clone();
        latencies.record(Timed::Set, 9_000);
        latencies.record(Timed::GetMiss, 70);
        let interval = latencies.since(&earlier);
        assert_eq!(interval.of(Timed::Set).count(), 1);
        assert!(interval.of(Timed::Set).quantile_ns(0.5).unwrap() >= 8_900);
        assert_eq!(interval.gets().count(), 1);
    }
}
