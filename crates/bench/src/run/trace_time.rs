//! Progress of a replay in the trace's own time. A warm-up may end by it, and a cache's clock may show it (`useTraceTimeStamp`):
//! items then expire and age as they did when the trace was recorded, at any speed of replay.
//!
//! The clock shows the latest timestamp among the requests taken so far. So it never runs backwards, and no thread waits for another.
//! In CacheBench, threads meet at every step of the trace's time, and wait forever for a thread that has no request in a step. With
//! several threads, a request may see the clock of a thread that is ahead, by at most the rows in the queues (some thousands per
//! thread). With one thread, each request sees its own time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::Clock;
use workload::{Request, Source, Workload, WorkloadError};

const SECOND_NS: u64 = 1_000_000_000;

/// The trace's time, in whole seconds.
#[derive(Debug, Default)]
pub struct TraceTime(AtomicU64);

impl TraceTime {
    /// A clock that shows `time_ns`; `None` beyond the range of a cache's clock, which ends in 2106.
    #[must_use]
    pub fn starting_at(time_ns: u64) -> Option<Self> {
        let seconds = time_ns / SECOND_NS;
        (seconds < u64::from(u32::MAX)).then(|| Self(seconds.into()))
    }

    /// The current time.
    pub(super) fn seconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Advances the clock; an earlier time is ignored.
    fn advance_to(&self, time_ns: u64) {
        let seconds = time_ns / SECOND_NS;
        // Most requests have the current second: the check avoids contention for the cache line.
        if seconds > self.seconds() {
            self.0.fetch_max(seconds, Ordering::Relaxed);
        }
    }
}

/// A cache's clock: seconds from the trace, monotonic time from the real or simulated world.
pub struct CacheClock {
    /// The real or virtual clock.
    pub world: Arc<dyn Clock>,
    /// The trace's time.
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

/// A workload that advances the trace's time with each request.
pub struct TimeTracking {
    /// The workload.
    pub workload: Box<dyn Workload>,
    /// The trace's time.
    pub time: Arc<TraceTime>,
}

impl Workload for TimeTracking {
    fn sources(&self, workers: usize, seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError> {
        let tracking =
            |source| Box::new(TimeTrackingSource { source, time: Arc::clone(&self.time) }) as Box<dyn Source>;
        Ok(self.workload.sources(workers, seed)?.into_iter().map(tracking).collect())
    }

    fn key_count(&self) -> Option<u64> {
        self.workload.key_count()
    }
}

struct TimeTrackingSource {
    source: Box<dyn Source>,
    time: Arc<TraceTime>,
}

impl Source for TimeTrackingSource {
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
    fn clock_shows_the_latest_timestamp_and_never_runs_backwards() {
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
