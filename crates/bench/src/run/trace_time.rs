//! How far a replay is in the trace's own time. A warm-up may end by it, and a cache's clock may show it (`useTraceTimeStamp`):
//! items then expire and grow old as they did when the trace was recorded, however fast it is replayed.
//!
//! The clock shows the time of the request that is farthest in the trace among those that were begun. So it never goes back, and
//! no thread waits for another: CacheBench lets threads meet at every step of the trace's time, and they wait for one another
//! for ever where one has nothing to ask in a step. With several threads a request may see the clock of one that is ahead
//! of it, by as much as queues hold (some thousands of rows of each thread); with one thread each sees its own time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::Clock;
use workload::{Request, Source, Workload, WorkloadError};

const SECOND_NS: u64 = 1_000_000_000;

/// The trace's time, in whole seconds.
#[derive(Debug, Default)]
pub struct TraceTime(AtomicU64);

impl TraceTime {
    /// A clock that shows `time_ns`. None if that is beyond what a cache's clock shows, the year 2106.
    #[must_use]
    pub fn starting_at(time_ns: u64) -> Option<Self> {
        let seconds = time_ns / SECOND_NS;
        (seconds < u64::from(u32::MAX)).then(|| Self(seconds.into()))
    }

    /// What it shows.
    pub(super) fn seconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A time that is not ahead is ignored.
    fn advance_to(&self, time_ns: u64) {
        let seconds = time_ns / SECOND_NS;
        // Most requests are of the same second: asking first spares the threads a line of cache that they would fight for.
        if seconds > self.seconds() {
            self.0.fetch_max(seconds, Ordering::Relaxed);
        }
    }
}

/// A cache's clock: seconds by the trace, the rest by its world.
pub struct CacheClock {
    /// The world's.
    pub world: Arc<dyn Clock>,
    /// The trace's.
    pub time: Arc<TraceTime>,
}

impl Clock for CacheClock {
    fn monotonic_ns(&self) -> u64 {
        self.world.monotonic_ns()
    }

    fn unix_seconds(&self) -> u32 {
        u32::try_from(self.time.seconds()).unwrap_or(u32::MAX)
    }
}

/// A workload whose requests move the time on as they are taken.
pub struct Followed {
    /// The workload.
    pub workload: Box<dyn Workload>,
    /// The time.
    pub time: Arc<TraceTime>,
}

impl Workload for Followed {
    fn sources(&self, workers: usize, seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError> {
        let follow =
            |source| Box::new(FollowedSource { source, time: Arc::clone(&self.time) }) as Box<dyn Source>;
        Ok(self.workload.sources(workers, seed)?.into_iter().map(follow).collect())
    }

    fn key_count(&self) -> Option<u64> {
        self.workload.key_count()
    }
}

struct FollowedSource {
    source: Box<dyn Source>,
    time: Arc<TraceTime>,
}

impl Source for FollowedSource {
    fn next(&mut self) -> Option<Request<'_>> {
        let request = self.source.next()?;
        if let Some(time_ns) = request.time_ns {
            self.time.advance_to(time_ns);
        }
        Some(request)
    }

    fn upcoming(&self) -> Option<&[u8]> {
        self.source.upcoming()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::VirtualClock;

    #[test]
    fn the_clock_goes_with_the_farthest_and_never_back() {
        let time = Arc::new(TraceTime::starting_at(7 * SECOND_NS).unwrap());
        let clock = CacheClock { world: Arc::new(VirtualClock::default()), time: Arc::clone(&time) };
        for (time_ns, seconds) in
            [(0, 7), (9 * SECOND_NS - 1, 8), (100 * SECOND_NS, 100), (99 * SECOND_NS, 100)]
        {
            time.advance_to(time_ns);
            assert_eq!((clock.unix_seconds(), clock.monotonic_ns()), (seconds, 0));
        }
        time.advance_to(u64::MAX);
        assert_eq!(clock.unix_seconds(), u32::MAX);
        assert!(TraceTime::starting_at(u64::MAX).is_none());
    }
}
