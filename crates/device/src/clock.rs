//! Sources of time.

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of time. The engine reads the time only from a `Clock`.
pub trait Clock: Send + Sync {
    /// Nanoseconds since a fixed moment; never decreases.
    fn monotonic_ns(&self) -> u64;

    /// Seconds since 1970, the unit of expiry times. Cheap enough to read on every request.
    fn unix_seconds(&self) -> u32;

    /// Microseconds since 1970, with the resolution of the clock: by default a second.
    fn unix_microseconds(&self) -> u64 {
        u64::from(self.unix_seconds()) * 1_000_000
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn monotonic_ns(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    }

    fn unix_seconds(&self) -> u32 {
        // The coarse clock costs a quarter of the exact one, and seconds suffice.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        u32::try_from(now.tv_sec).unwrap_or(u32::MAX)
    }

    fn unix_microseconds(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let (seconds, nanoseconds) = (now.tv_sec.max(0).unsigned_abs(), now.tv_nsec.max(0).unsigned_abs());
        seconds * 1_000_000 + nanoseconds / 1000
    }
}

/// A clock that advances only when the test sets it.
#[derive(Debug, Default)]
pub struct VirtualClock {
    now_ns: AtomicU64,
}

impl VirtualClock {
    /// Unix time of virtual nanosecond 0: 2020-01-01, so that expiry times are realistic.
    pub const EPOCH_UNIX_SECONDS: u32 = 1_577_836_800;

    /// Advances the clock to `now_ns`; an earlier time is ignored.
    pub fn advance_to(&self, now_ns: u64) {
        self.now_ns.fetch_max(now_ns, Ordering::SeqCst);
    }

    /// Advances the clock by `delta_ns`.
    pub fn advance_by(&self, delta_ns: u64) {
        self.now_ns.fetch_add(delta_ns, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn monotonic_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }

    fn unix_seconds(&self) -> u32 {
        let seconds = self.monotonic_ns() / 1_000_000_000;
        Self::EPOCH_UNIX_SECONDS.saturating_add(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    fn unix_microseconds(&self) -> u64 {
        u64::from(Self::EPOCH_UNIX_SECONDS) * 1_000_000 + self.monotonic_ns() / 1000
    }
}

/// A clock whose monotonic time advances by a fixed step at each reading, so that pauses of a test end. Its Unix time is constant.
#[derive(Debug)]
pub struct TickingClock {
    now_ns: AtomicU64,
    step_ns: u64,
}

impl TickingClock {
    /// A clock at nanosecond 0.
    #[must_use]
    pub fn new(step_ns: u64) -> Self {
        Self { now_ns: AtomicU64::new(0), step_ns }
    }
}

impl Clock for TickingClock {
    fn monotonic_ns(&self) -> u64 {
        self.now_ns.fetch_add(self.step_ns, Ordering::Relaxed)
    }

    fn unix_seconds(&self) -> u32 {
        VirtualClock::EPOCH_UNIX_SECONDS
    }
}
