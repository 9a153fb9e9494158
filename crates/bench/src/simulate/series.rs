//! Hits over time: the counts of a simulation in intervals of equal length.

use policy::simulate::{Access, Counts, Simulator};

use super::Batch;
use super::warmup::Warmed;

/// Length of the intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// A number of accesses, at least 1: gets, sets and deletes.
    Accesses(u64),
    /// Seconds of the trace's times, at least 1.
    Seconds(u32),
}

/// Counts of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Start: an access number, or seconds from the first access.
    pub start: u64,
    /// Counts from there to the next point.
    pub counts: Counts,
}

/// Intervals of one simulation. Those without an access are left out.
pub(super) struct Series {
    interval: Interval,
    /// Accesses so far.
    seen: u64,
    /// Start of each interval, and the counts at that time.
    starts: Vec<(u64, Counts)>,
}

impl Series {
    pub(super) fn new(interval: Interval) -> Self {
        Self { interval, seen: 0, starts: Vec::new() }
    }

    /// Runs the requests of a batch.
    pub(super) fn run(&mut self, simulator: &mut dyn Simulator, warmed: &mut Warmed, batch: &Batch) {
        warmed.run(&mut Splitting { simulator, series: self }, batch);
    }

    /// The intervals, of a simulation that ended with these counts.
    pub(super) fn points(&self, total: &Counts) -> Vec<Point> {
        let ends = self.starts.iter().skip(1).map(|(_, counts)| counts).chain([total]);
        let point =
            |(&(start, before), end): (&(u64, Counts), &Counts)| Point { start, counts: end.since(&before) };
        self.starts.iter().zip(ends).map(point).collect()
    }

    /// Start of the next access's interval, and the number of the given accesses that are in it.
    fn interval_of(&self, accesses: &[Access]) -> (u64, usize) {
        match self.interval {
            Interval::Accesses(length) => {
                let start = self.seen / length * length;
                (start, (start + length - self.seen).min(accesses.len() as u64) as usize)
            }
            Interval::Seconds(length) => {
                let number = accesses[0].now_seconds / length;
                let is_later = |access: &Access| access.now_seconds / length > number;
                let end = accesses.iter().position(is_later).unwrap_or(accesses.len());
                (u64::from(number) * u64::from(length), end)
            }
        }
    }
}

/// A simulator that records the counts at the start of each interval.
struct Splitting<'a> {
    simulator: &'a mut dyn Simulator,
    series: &'a mut Series,
}

impl Simulator for Splitting<'_> {
    fn run(&mut self, mut accesses: &[Access], mut next_uses: &[u64]) {
        while !accesses.is_empty() {
            let (start, len) = self.series.interval_of(accesses);
            if self.series.starts.last().is_none_or(|(last, _)| *last != start) {
                self.series.starts.push((start, self.simulator.counts()));
            }
            let (now, later) = accesses.split_at(len);
            let (now_uses, later_uses) = next_uses.split_at(len.min(next_uses.len()));
            self.simulator.run(now, now_uses);
            (accesses, next_uses) = (later, later_uses);
            self.series.seen += len as u64;
        }
    }

    super::forward_simulator!(simulator);
}

#[cfg(test)]
mod tests {
    use policy::eviction::Lru;
    use policy::simulate::Simulation;

    use super::*;
    use crate::simulate::Warmup;

    /// Second, object: an LRU of two objects hits 0 at 5 s and 2 at 33 s.
    const ACCESSES: [(u32, u32); 6] = [(0, 0), (1, 1), (5, 0), (7, 2), (32, 1), (33, 2)];

    /// Start, requests and hits of each interval.
    fn points(interval: Interval, in_batches_of: usize) -> Vec<(u64, u64, u64)> {
        let access = |(now_seconds, object)| Access {
            object,
            weight: 1,
            now_seconds,
            is_removal: false,
            is_set: false,
        };
        let mut simulation = Simulation::new(Lru::exact(), 2);
        let (mut series, mut warmed) = (Series::new(interval), Warmed::new(Warmup::Accesses(0)));
        for batch in ACCESSES.map(access).chunks(in_batches_of) {
            series.run(&mut simulation, &mut warmed, &Batch { accesses: batch.to_vec(), ..Batch::default() });
        }
        let points = series.points(&simulation.counts()).into_iter();
        points.map(|point| (point.start, point.counts.requests, point.counts.hits)).collect()
    }

    #[test]
    fn hits_over_time_equal_those_worked_by_hand() {
        for batch in [1, 2, 4, 6] {
            assert_eq!(points(Interval::Seconds(5), batch), [(0, 2, 0), (5, 2, 1), (30, 2, 1)]);
            assert_eq!(points(Interval::Seconds(100), batch), [(0, 6, 2)]);
            assert_eq!(points(Interval::Accesses(4), batch), [(0, 4, 1), (4, 2, 1)]);
            assert_eq!(points(Interval::Accesses(3), batch), [(0, 3, 1), (3, 3, 1)]);
        }
    }
}
