//! Time, from outside.

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of time. The engine reads the time from a `Clock` only, never from the machine.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed moment; never goes back.
    fn monotonic_ns(&self) -> u64;

    /// Whole seconds since 1970: what expiry times are kept in. Cheap enough to ask on every request.
    fn unix_seconds(&self) -> u32;
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
        // The coarse clock costs a quarter of the exact one, and seconds are all that is asked.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        u32::try_from(now.tv_sec).unwrap_or(u32::MAX)
    }
}

/// A clock that advances only when the test sets it.
#[derive(Debug, Default)]
pub struct VirtualClock {
    now_ns: AtomicU64,
}

impl VirtualClock {
    /// Unix time of virtual nanosecond 0: 2020-01-01, so that expiry times look like expiry times.
    pub const EPOCH_UNIX_SECONDS: u32 = 1_577_836_800;

    /// Moves the clock to `now_ns`; moving it back is ignored.
    pub fn advance_to(&self, now_ns: u64) {
        self.now_ns.fetch_max(now_ns, Ordering::SeqCst);
    }

    /// Moves the clock forward by `delta_ns`.
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
}
