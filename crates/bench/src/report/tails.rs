//! Latencies of an interval, with less precision than those of the whole run, so that hundreds of intervals take little memory.

use hdrhistogram::Histogram as Hdr;

use crate::run::Observable;
use crate::run::latency::{Histogram, Latencies, Timed};

/// A kind of operation that intervals distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Gets, hits and misses alike.
    Get,
    /// Sets.
    Set,
    /// Reads of the flash device.
    DeviceRead,
    /// Writes of the flash device.
    DeviceWrite,
}

impl Layer {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Get, Self::Set, Self::DeviceRead, Self::DeviceWrite];
}

/// Latencies of all instances since the start of the run.
#[derive(Debug, Clone, Default)]
pub struct Timings([Histogram; Layer::ALL.len()]);

impl Timings {
    /// The current state.
    #[must_use]
    pub fn of(instances: &[&dyn Observable]) -> Self {
        let mut timings = Self::default();
        for instance in instances {
            let operations: Latencies = instance.latencies();
            for timed in [Timed::GetDram, Timed::GetFlash, Timed::GetMiss] {
                timings.add(Layer::Get, &operations.of(timed));
            }
            timings.add(Layer::Set, &operations.of(Timed::Set));
            if let Some((reads, writes)) = instance.device_latency() {
                timings.add(Layer::DeviceRead, &reads);
                timings.add(Layer::DeviceWrite, &writes);
            }
        }
        timings
    }

    fn add(&mut self, layer: Layer, histogram: &Histogram) {
        self.0[layer as usize].merge(histogram);
    }

    /// The latencies since `earlier`, a previous state.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Tails {
        let of = |layer: Layer| coarse(&self.0[layer as usize].since(&earlier.0[layer as usize]));
        Tails(Layer::ALL.map(of))
    }
}

/// The latencies of an interval with a relative error of 1/16, in one or two KiB per kind of operation that occurred.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tails([Option<Box<Hdr<u32>>>; Layer::ALL.len()]);

fn coarse(fine: &Histogram) -> Option<Box<Hdr<u32>>> {
    if fine.count() == 0 {
        return None;
    }
    let mut coarse = Hdr::new(1).expect("one digit is possible");
    for (latency_ns, count) in fine.recorded() {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        coarse.record_n(latency_ns, count).expect("the histogram grows to any u64");
    }
    Some(Box::new(coarse))
}

impl Tails {
    /// Adds the latencies of another interval.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            match (mine, theirs) {
                (Some(mine), Some(theirs)) => {
                    mine.add(&**theirs).expect("the histogram grows to any u64");
                }
                (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
                (_, None) => (),
            }
        }
    }

    /// The latency that `share` of the operations did not exceed, in nanoseconds; `None` if there were none.
    #[must_use]
    pub fn quantile_ns(&self, layer: Layer, share: f64) -> Option<u64> {
        self.0[layer as usize].as_ref().map(|it| it.value_at_quantile(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timings(of_gets: &[u64]) -> Timings {
        let mut gets = Histogram::default();
        of_gets.iter().for_each(|latency_ns| gets.record(*latency_ns));
        let mut timings = Timings::default();
        timings.add(Layer::Get, &gets);
        timings
    }

    #[test]
    fn interval_excludes_earlier_latencies() {
        let slow: Vec<u64> = (0..100).map(|_| 5_000_000).collect();
        let both: Vec<u64> = slow.iter().copied().chain((0..100).map(|_| 80_000)).collect();
        let tails = timings(&both).since(&timings(&slow));
        let p99 = tails.quantile_ns(Layer::Get, 0.99).expect("gets were recorded");
        assert!((80_000..85_500).contains(&p99), "{p99}");
        assert_eq!(tails.quantile_ns(Layer::Set, 0.99), None, "no sets were recorded");
        assert_eq!(timings(&both).since(&timings(&both)), Tails::default());
    }

    #[test]
    fn merge_adds_the_latencies_of_both_intervals() {
        let none = Timings::default();
        let mut tails = timings(&[100; 60]).since(&none);
        tails.merge(&Tails::default());
        tails.merge(&timings(&[9_000; 40]).since(&none));
        let at = |share: f64| tails.quantile_ns(Layer::Get, share).expect("gets were recorded");
        assert!(at(0.5) < 110 && (9_000..9_600).contains(&at(0.61)), "{} and {}", at(0.5), at(0.61));
        let mut empty = Tails::default();
        empty.merge(&tails);
        assert_eq!(empty, tails);
    }
}
