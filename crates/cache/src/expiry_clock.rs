//! The clock for expiry: it follows the system's wall clock forward, but never goes back.
//!
//! Expiry times are wall-clock times, because they outlive a restart. But an operator, NTP or a host that resumes from a snapshot can set
//! the wall clock back, and items that had expired would be returned again. So the wall clock is used only while it is ahead of the time
//! computed from the monotonic clock since the wall clock was last used; otherwise the computed time is used. When a suspended machine
//! resumes, its wall clock jumps forward, so a suspend counts as elapsed time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::Clock;
use parking_lot::Mutex;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// A clock whose [`unix_seconds`](Clock::unix_seconds) never decrease.
pub(crate) struct ExpiryClock {
    inner: Arc<dyn Clock>,
    /// The last wall-clock reading and the seconds to add to it, so that a call in the same second takes one load.
    latest: AtomicU64,
    base: Mutex<Base>,
}

/// The last time at which the wall clock was ahead of the computed time.
struct Base {
    unix_seconds: u32,
    monotonic_ns: u64,
}

impl Base {
    fn now_seconds(&self, monotonic_ns: u64) -> u32 {
        let passed = monotonic_ns.saturating_sub(self.monotonic_ns) / NS_PER_SECOND;
        self.unix_seconds.saturating_add(u32::try_from(passed).unwrap_or(u32::MAX))
    }
}

impl ExpiryClock {
    pub(crate) fn new(inner: Arc<dyn Clock>) -> Self {
        let (unix_seconds, monotonic_ns) = (inner.unix_seconds(), inner.monotonic_ns());
        let latest = AtomicU64::new(packed(unix_seconds, 0));
        Self { inner, latest, base: Mutex::new(Base { unix_seconds, monotonic_ns }) }
    }

    /// Sets a lower limit of the time: the time at which the last run closed.
    pub(crate) fn not_before(&self, unix_seconds: u32) {
        let mut base = self.base.lock();
        let monotonic_ns = self.inner.monotonic_ns();
        if base.now_seconds(monotonic_ns) < unix_seconds {
            *base = Base { unix_seconds, monotonic_ns };
        }
        let date = self.inner.unix_seconds();
        self.advance(&mut base, date);
    }

    /// Returns the time for the wall-clock reading `date`, which may be behind the computed time.
    fn advance(&self, base: &mut Base, date: u32) -> u32 {
        let monotonic_ns = self.inner.monotonic_ns();
        let by_passed_time = base.now_seconds(monotonic_ns);
        if date > by_passed_time {
            *base = Base { unix_seconds: date, monotonic_ns };
        }
        let now = date.max(by_passed_time);
        self.latest.store(packed(date, now - date), Ordering::Release);
        now
    }
}

impl Clock for ExpiryClock {
    fn monotonic_ns(&self) -> u64 {
        self.inner.monotonic_ns()
    }

    fn unix_seconds(&self) -> u32 {
        let date = self.inner.unix_seconds();
        let latest = self.latest.load(Ordering::Acquire);
        if (latest >> 32) as u32 == date {
            return date.saturating_add(latest as u32);
        }
        self.advance(&mut self.base.lock(), date)
    }
}

fn packed(date: u32, ahead_seconds: u32) -> u64 {
    u64::from(date) << 32 | u64::from(ahead_seconds)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use device::{SystemClock, VirtualClock};

    use super::*;

    const START: u32 = 1_000_000;

    /// A wall clock and a monotonic clock that can be set independently.
    struct Set {
        date: AtomicU32,
        monotonic_ns: AtomicU64,
    }

    impl Set {
        fn new() -> (Arc<Self>, ExpiryClock) {
            let set = Arc::new(Self { date: AtomicU32::new(START), monotonic_ns: AtomicU64::new(0) });
            (Arc::clone(&set), ExpiryClock::new(set))
        }

        /// Advances the monotonic clock, and sets the wall clock to `date` seconds after the start.
        fn after(&self, seconds: u64, date: i32) {
            self.monotonic_ns.fetch_add(seconds * NS_PER_SECOND, Ordering::SeqCst);
            self.date.store(START.saturating_add_signed(date), Ordering::SeqCst);
        }
    }

    impl Clock for Set {
        fn monotonic_ns(&self) -> u64 {
            self.monotonic_ns.load(Ordering::SeqCst)
        }

        fn unix_seconds(&self) -> u32 {
            self.date.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn wall_clock_set_back_leaves_the_time_advancing_monotonically() {
        let (set, clock) = Set::new();
        set.after(100, 100);
        assert_eq!(clock.unix_seconds(), START + 100);
        set.after(0, -5000);
        assert_eq!(clock.unix_seconds(), START + 100);
        set.after(10, -4990);
        assert_eq!(clock.unix_seconds(), START + 110);
        set.after(0, -900_000);
        assert_eq!(clock.unix_seconds(), START + 110, "set back twice");
    }

    #[test]
    fn wall_clock_that_catches_up_is_followed_again() {
        let (set, clock) = Set::new();
        set.after(0, -60);
        assert_eq!(clock.unix_seconds(), START);
        set.after(30, -30);
        assert_eq!(clock.unix_seconds(), START + 30);
        set.after(1, 31);
        assert_eq!(clock.unix_seconds(), START + 31, "it was put right");
        set.after(1, 32);
        assert_eq!(clock.unix_seconds(), START + 32);
    }

    #[test]
    fn suspend_counts_as_elapsed_time() {
        let (set, clock) = Set::new();
        // The monotonic clock stands while the machine is suspended.
        set.after(0, 3600);
        assert_eq!(clock.unix_seconds(), START + 3600);
    }

    #[test]
    fn time_starts_where_the_last_run_closed() {
        let (set, clock) = Set::new();
        clock.not_before(START + 500);
        assert_eq!(clock.unix_seconds(), START + 500);
        set.after(20, 20);
        assert_eq!(clock.unix_seconds(), START + 520);
        clock.not_before(START + 100);
        assert_eq!(clock.unix_seconds(), START + 520, "it is later already");
    }

    #[test]
    fn clock_that_is_never_set_back_equals_the_wall_clock() {
        let virtual_clock = Arc::new(VirtualClock::default());
        virtual_clock.advance_by(NS_PER_SECOND / 2);
        let clock = ExpiryClock::new(Arc::clone(&virtual_clock) as _);
        for _ in 0..1000 {
            virtual_clock.advance_by(NS_PER_SECOND / 7);
            assert_eq!(clock.unix_seconds(), virtual_clock.unix_seconds());
        }
        assert!(ExpiryClock::new(Arc::new(SystemClock)).unix_seconds() > VirtualClock::EPOCH_UNIX_SECONDS);
    }
}
