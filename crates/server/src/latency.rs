//! Histograms of the latency of requests.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::meta::MetaCommand;
use crate::protocol::{Meta, Request};

/// Upper bounds of the buckets, nanoseconds; a last bucket has no bound.
pub const BOUNDS_NS: [u64; 19] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
];

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads an item.
    Get,
    /// Stores an item.
    Set,
    /// Any other request.
    Other,
}

impl Kind {
    /// All kinds with their names.
    pub const ALL: [(Self, &str); 3] = [(Self::Get, "get"), (Self::Set, "set"), (Self::Other, "other")];

    /// The kind of a request.
    pub fn of(request: &Request<'_>) -> Self {
        match request {
            Request::Get { .. } | Request::Meta(Meta { command: MetaCommand::Get, .. }) => Self::Get,
            Request::Store(_) | Request::Meta(Meta { command: MetaCommand::Set { .. }, .. }) => Self::Set,
            _ => Self::Other,
        }
    }
}

/// A histogram for each kind of request.
#[derive(Debug, Default)]
pub struct Latency {
    histograms: [Histogram; Kind::ALL.len()],
}

impl Latency {
    /// Adds a request.
    pub fn record(&self, kind: Kind, nanoseconds: u64) {
        let histogram = &self.histograms[kind as usize];
        let bucket = BOUNDS_NS.partition_point(|&bound| bound < nanoseconds);
        histogram.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        histogram.sum_ns.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// The histogram of one kind.
    pub fn of(&self, kind: Kind) -> &Histogram {
        &self.histograms[kind as usize]
    }
}

/// Counts of requests by latency.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// Number of requests up to each bound; the last element counts all.
    pub fn cumulative(&self) -> [u64; BOUNDS_NS.len() + 1] {
        let mut sum = 0;
        self.buckets.each_ref().map(|bucket| {
            sum += bucket.load(Ordering::Relaxed);
            sum
        })
    }

    /// The sum of all times.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_up_to_their_bound() {
        let latency = Latency::default();
        for nanoseconds in [0, 1_000, 1_001, 2_000_000_000] {
            latency.record(Kind::Get, nanoseconds);
        }
        let counts = latency.of(Kind::Get).cumulative();
        assert_eq!((counts[0], counts[1], counts[18], counts[19]), (2, 3, 3, 4));
        assert_eq!(latency.of(Kind::Get).sum_ns(), 2_000_002_001);
        assert_eq!(latency.of(Kind::Set).cumulative()[19], 0);
    }
}
