//! An open loop: requests that do not wait for earlier completions.
//!
//! A closed loop sends a request after the previous answer, so a slow phase suppresses the requests that would have measured it. Here each
//! request has a due time, independent of all others. A latency measured from the due time includes the wait.
//!
//! Each worker has its own arrivals. `n` independent Poisson processes at an n-th of the rate are together one process at the full rate;
//! uniform arrivals are assigned to the workers in turn.

use rand_distr::{Distribution, Exp1};

use crate::generate::{Stream, stream};

/// The due times of one worker's requests.
#[derive(Debug)]
pub struct Arrivals {
    start_ns: u64,
    gaps: Gaps,
    /// Due time of the next request.
    due_ns: u64,
}

#[derive(Debug)]
enum Gaps {
    /// The number of the worker's next request among all workers' requests.
    Uniform { next: u64, workers: u64, per_second: u64 },
    /// Time from the start to the next request; a float, so that rounding errors do not add up.
    Poisson { since_start_ns: f64, mean_gap_ns: f64, random: Box<Stream> },
}

/// Separates the arrivals' random stream from the requests', which has the same seed.
const OF_ARRIVALS: u64 = 0x6172_7269_7661_6c73;

impl Arrivals {
    /// Evenly spaced arrivals of worker number `worker` of `workers`, which make `per_second` together.
    ///
    /// # Panics
    /// If the rate or the number of workers is 0.
    #[must_use]
    pub fn uniform(per_second: u64, worker: usize, workers: usize, start_ns: u64) -> Self {
        assert!(per_second > 0 && workers > 0, "the rate and the number of workers must be above 0");
        let gaps = Gaps::Uniform { next: worker as u64, workers: workers as u64, per_second };
        Self::of(gaps, start_ns)
    }

    /// Random arrivals: the interval to the next is independent of earlier intervals.
    ///
    /// # Panics
    /// As [`uniform`](Self::uniform).
    #[must_use]
    pub fn poisson(per_second: u64, worker: usize, workers: usize, start_ns: u64, seed: u64) -> Self {
        assert!(per_second > 0 && workers > 0, "the rate and the number of workers must be above 0");
        let mean_gap_ns = 1e9 * workers as f64 / per_second as f64;
        let random = Box::new(stream(seed ^ OF_ARRIVALS, worker));
        Self::of(Gaps::Poisson { since_start_ns: 0.0, mean_gap_ns, random }, start_ns)
    }

    fn of(gaps: Gaps, start_ns: u64) -> Self {
        let mut arrivals = Self { start_ns, gaps, due_ns: start_ns };
        arrivals.due_ns = arrivals.draw();
        arrivals
    }

    /// Due time of the next request; each call advances by one request.
    pub fn next_due_ns(&mut self) -> u64 {
        let next = self.draw();
        std::mem::replace(&mut self.due_ns, next)
    }

    /// The number of requests due by `now_ns` and not made; for random arrivals, its expected value.
    #[must_use]
    pub fn overdue(&self, now_ns: u64) -> u64 {
        let Some(late_ns) = now_ns.checked_sub(self.due_ns) else { return 0 };
        let gap_ns = match &self.gaps {
            Gaps::Uniform { workers, per_second, .. } => 1e9 * *workers as f64 / *per_second as f64,
            Gaps::Poisson { mean_gap_ns, .. } => *mean_gap_ns,
        };
        ((late_ns as f64 / gap_ns) as u64).saturating_add(1)
    }

    fn draw(&mut self) -> u64 {
        let since_start_ns = match &mut self.gaps {
            Gaps::Uniform { next, workers, per_second } => {
                let due_ns = u128::from(*next) * 1_000_000_000 / u128::from(*per_second);
                *next = next.saturating_add(*workers);
                u64::try_from(due_ns).unwrap_or(u64::MAX)
            }
            Gaps::Poisson { since_start_ns, mean_gap_ns, random } => {
                let gap: f64 = Exp1.sample(random);
                *since_start_ns += gap * *mean_gap_ns;
                *since_start_ns as u64
            }
        };
        self.start_ns.saturating_add(since_start_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn due(mut all: Vec<Arrivals>, each: usize) -> Vec<u64> {
        let mut due: Vec<u64> =
            all.iter_mut().flat_map(|one| (0..each).map(|_| one.next_due_ns()).collect::<Vec<_>>()).collect();
        due.sort_unstable();
        due
    }

    #[test]
    fn uniform_arrivals_of_all_workers_are_evenly_spaced_without_drift() {
        let all = (0..3).map(|worker| Arrivals::uniform(3_000_000, worker, 3, 7)).collect();
        let due = due(all, 1_000_000);
        assert_eq!((due[0], due[1], due[2], due[3]), (7, 7 + 333, 7 + 666, 7 + 1000));
        assert_eq!(due[2_999_999], 7 + SECOND_NS - 334);
    }

    /// Intervals of a Poisson process are exponential: their deviation equals their mean, and consecutive ones are independent.
    #[test]
    fn poisson_arrivals_of_all_workers_form_one_poisson_process() {
        for (workers, seed) in [(1, 1), (4, 2), (7, 3)] {
            let all =
                (0..workers).map(|worker| Arrivals::poisson(1_000_000, worker, workers, 0, seed)).collect();
            let due = due(all, 210_000 / workers);
            // Only the time during which all workers have arrivals.
            let gaps: Vec<f64> =
                due[..200_000].windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1000.0).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let together = gaps.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>();
            let correlation = together / gaps.len() as f64 / variance;
            let beyond_two = gaps.iter().filter(|gap| **gap > 2.0).count() as f64 / gaps.len() as f64;
            assert!((mean - 1.0).abs() < 0.01, "mean gap {mean}, {workers} workers");
            assert!((variance - 1.0).abs() < 0.02, "variance {variance}, {workers} workers");
            assert!(correlation.abs() < 0.01, "correlation {correlation}, {workers} workers");
            assert!((beyond_two - (-2.0_f64).exp()).abs() < 0.005, "{beyond_two}, {workers} workers");
        }
    }

    #[test]
    fn overdue_counts_from_the_first_request_not_made() {
        let mut arrivals = Arrivals::uniform(1000, 0, 1, 0);
        assert_eq!((arrivals.next_due_ns(), arrivals.next_due_ns()), (0, 1_000_000));
        assert_eq!(arrivals.overdue(1_999_999), 0);
        assert_eq!((arrivals.overdue(2_000_000), arrivals.overdue(4_500_000)), (1, 3));
    }

    #[test]
    fn overdue_of_one_worker_is_its_share_of_the_rate() {
        let mut even = Arrivals::uniform(1000, 1, 4, 0);
        assert_eq!((even.next_due_ns(), even.next_due_ns()), (1_000_000, 5_000_000));
        assert_eq!((even.overdue(9_000_000), even.overdue(8 * SECOND_NS + 9_000_000)), (1, 2001));
        let mut random = Arrivals::poisson(1000, 1, 4, 0, 5);
        random.next_due_ns();
        let due_ns = random.due_ns;
        assert_eq!((random.overdue(due_ns), random.overdue(due_ns + 8 * SECOND_NS)), (1, 2001));
    }

    #[test]
    fn different_seeds_give_different_arrivals() {
        let first = |seed| Arrivals::poisson(1000, 0, 1, 0, seed).next_due_ns();
        let all: std::collections::BTreeSet<u64> = (0..256).map(first).collect();
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        let mut fast = Arrivals::uniform(u64::MAX, 0, 1, u64::MAX - 5);
        assert_eq!((fast.next_due_ns(), fast.next_due_ns()), (u64::MAX - 5, u64::MAX - 5));
        let mut slow = Arrivals::uniform(1, usize::MAX, usize::MAX, 0);
        assert_eq!((slow.next_due_ns(), slow.next_due_ns()), (u64::MAX, u64::MAX));
        let mut slow = Arrivals::poisson(1, 0, usize::MAX, u64::MAX / 2, 4);
        assert!(slow.next_due_ns() >= u64::MAX / 2);
    }

    #[test]
    fn overdue_count_saturates() {
        let arrivals = Arrivals::uniform(u64::MAX, 0, 1, 0);
        assert_eq!(arrivals.overdue(1000 * SECOND_NS), u64::MAX);
    }
}
