//! Decides when a failed write is retried, when all writes pause, and when a region is retired.
//!
//! A full file system, a burst of I/O errors and a disconnected device are temporary. So a failed write is retried after growing pauses,
//! while its items stay readable in memory. After two consecutive failures, the device is assumed to fail, and all region writes pause
//! together. A region is retired only if it fails alone: other regions were written between its failures. Retired regions are tested by a
//! write from time to time and return to service when it succeeds.
//!
//! Buckets pause in the same way. The content of a failed write stays in memory and is retried until it succeeds, fails alone, or has
//! failed for too long. Until then, few other writes are sent to a failing device.
//!
//! This module only decides: the engines keep the queues and write.

use std::sync::Arc;

use device::{Clock, IoError};
use event_listener::Event;
use parking_lot::Mutex;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Pause after the first failure; it doubles up to the longest.
const FIRST_PAUSE_NS: u64 = 50 * MS;
const LONGEST_PAUSE_NS: u64 = 5 * SECOND;

/// Time after which the items of a region that cannot be written are lost, so that its buffer is free again.
const GIVE_UP_NS: u64 = 30 * SECOND;

/// Time until a region retired in this run is tested; it doubles up to the longest.
const FIRST_TEST_NS: u64 = 10 * SECOND;
const LONGEST_TEST_NS: u64 = 3600 * SECOND;

/// Consecutive failures, of any regions, after which all writes pause.
const FAILURES_TO_PAUSE: u32 = 2;

/// The state of the device, derived from the results of region writes.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// Since the last success.
    failures_in_row: u32,
    /// Time at which writes may start again; 0 without a pause.
    resume_ns: u64,
    /// Number of successful writes.
    successes: u64,
    last_error: Option<String>,
}

/// Failed writes of one generation of a region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failures {
    since_ns: u64,
    count: u32,
    /// [`Outage::successes`] at the last failure.
    successes: u64,
}

/// Decision on a region after a failed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Retry the region, but not before this time.
    Retry {
        due_ns: u64,
        /// Whether other regions were written since its last failure.
        alone: bool,
    },
    /// The region has failed for too long, and others too: its items are lost.
    GiveUp,
}

/// The schedule of test writes to a retired region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestPlan {
    pub due_ns: u64,
    pause_ns: u64,
}

impl Outage {
    /// Whether the device is assumed to fail.
    pub fn is_failing(&self) -> bool {
        self.failures_in_row >= FAILURES_TO_PAUSE
    }

    /// Whether all writes pause now.
    pub fn pauses(&self, now_ns: u64) -> bool {
        now_ns < self.resume_ns
    }

    /// End of the pause of all writes; 0 without one.
    pub fn resume_ns(&self) -> u64 {
        self.resume_ns
    }

    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Records that a region was written. Returns whether that ends an outage.
    pub fn succeeded(&mut self) -> bool {
        let ends = self.is_failing();
        self.successes += 1;
        (self.failures_in_row, self.resume_ns) = (0, 0);
        ends
    }

    /// Records a failed write. After two in a row, all writes pause.
    pub fn note_failure(&mut self, error: String, now_ns: u64) {
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        self.last_error = Some(error);
        if self.is_failing() {
            self.resume_ns = now_ns.saturating_add(pause_ns(self.failures_in_row - FAILURES_TO_PAUSE));
        }
    }

    /// Decides on a region whose write failed; `failures` are those of its current generation.
    pub fn failed(&mut self, failures: &mut Option<Failures>, error: String, now_ns: u64) -> Verdict {
        self.note_failure(error, now_ns);
        self.verdict(failures, now_ns)
    }

    /// As [`failed`](Self::failed), for a failure that was already recorded.
    fn verdict(&self, failures: &mut Option<Failures>, now_ns: u64) -> Verdict {
        let successes = self.successes;
        let before = failures.unwrap_or(Failures { since_ns: now_ns, count: 0, successes });
        let now = Failures { count: before.count.saturating_add(1), successes, ..before };
        *failures = Some(now);
        if now_ns.saturating_sub(now.since_ns) >= GIVE_UP_NS {
            return Verdict::GiveUp;
        }
        let due_ns = now_ns.saturating_add(pause_ns(now.count - 1));
        Verdict::Retry { due_ns, alone: successes > before.successes }
    }
}

/// The pauses of an engine's writes while the device fails. Without a clock there are none.
#[derive(Default)]
pub(crate) struct WritePauses {
    outage: Mutex<Outage>,
    clock: Option<Arc<dyn Clock>>,
}

impl WritePauses {
    /// Pauses from 50 ms to 5 s by `clock`.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { outage: Mutex::default(), clock: Some(clock) }
    }

    /// Whether failed writes are followed by pauses.
    pub fn is_enabled(&self) -> bool {
        self.clock.is_some()
    }

    /// Whether writes currently fail.
    pub fn is_failing(&self) -> bool {
        self.clock.is_some() && self.outage.lock().is_failing()
    }

    /// The error of the last failed write.
    pub fn last_error(&self) -> Option<String> {
        self.outage.lock().last_error().map(str::to_owned)
    }

    /// Decides on a write that failed, after [`note_write`](Self::note_write). `None` without a clock.
    pub fn verdict(&self, failures: &mut Option<Failures>) -> Option<Verdict> {
        let now_ns = self.clock.as_ref()?.monotonic_ns();
        Some(self.outage.lock().verdict(failures, now_ns))
    }

    /// Whether `due_ns` has passed.
    pub fn is_over(&self, due_ns: u64) -> bool {
        self.clock.as_ref().is_none_or(|clock| due_ns <= clock.monotonic_ns())
    }

    /// Whether writes pause now.
    pub fn is_pause(&self) -> bool {
        self.clock.as_ref().is_some_and(|clock| self.outage.lock().pauses(clock.monotonic_ns()))
    }

    /// Notifies `work` if a pause has ended. Returns the end of the current pause.
    pub fn wake_if_due(&self, now_ns: u64, work: &Event) -> Option<u64> {
        let resume_ns = self.outage.lock().resume_ns();
        if resume_ns > 0 && resume_ns <= now_ns {
            work.notify(usize::MAX);
        }
        (resume_ns > now_ns).then_some(resume_ns)
    }

    /// Records the outcome of a write. Returns whether it ends an outage.
    pub fn note_write(&self, written: Result<(), &IoError>) -> bool {
        let mut outage = self.outage.lock();
        match (written, &self.clock) {
            (Err(error), Some(clock)) => {
                outage.note_failure(error.to_string(), clock.monotonic_ns());
                false
            }
            (Ok(()), _) => outage.succeeded(),
            (Err(_), None) => false,
        }
    }
}

impl TestPlan {
    /// The plan for a region that was retired now.
    pub fn after_retirement(now_ns: u64) -> Self {
        Self { due_ns: now_ns.saturating_add(FIRST_TEST_NS), pause_ns: FIRST_TEST_NS }
    }

    /// The plan for a region that an earlier run retired.
    pub fn after_restart() -> Self {
        Self { due_ns: 0, pause_ns: FIRST_TEST_NS / 2 }
    }

    /// The plan after a failed test.
    pub fn after_failure(self, now_ns: u64) -> Self {
        let pause_ns = (self.pause_ns * 2).min(LONGEST_TEST_NS);
        Self { due_ns: now_ns.saturating_add(pause_ns), pause_ns }
    }
}

fn pause_ns(earlier_pauses: u32) -> u64 {
    (FIRST_PAUSE_NS << earlier_pauses.min(16)).min(LONGEST_PAUSE_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due_ns(verdict: Verdict) -> u64 {
        match verdict {
            Verdict::Retry { due_ns, .. } => due_ns,
            Verdict::GiveUp => panic!("it is too early to give up"),
        }
    }

    #[test]
    fn pauses_double_from_50_ms_to_5_s() {
        let (mut outage, mut failures, mut now_ns) = (Outage::default(), None, 0);
        let pauses: Vec<u64> = std::iter::repeat_with(|| {
            let due_ns = due_ns(outage.failed(&mut failures, String::new(), now_ns));
            let pause_ns = due_ns - now_ns;
            now_ns = due_ns;
            pause_ns / MS
        })
        .take(10)
        .collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    }

    #[test]
    fn one_failure_pauses_its_own_region_and_two_in_a_row_pause_all() {
        let (mut outage, mut first, mut second) = (Outage::default(), None, None);
        outage.failed(&mut first, String::new(), 1000);
        assert!(!outage.is_failing() && !outage.pauses(1000));
        outage.failed(&mut second, "no space".into(), 1000);
        assert!(outage.is_failing() && outage.pauses(1000) && !outage.pauses(1000 + FIRST_PAUSE_NS));
        assert_eq!(outage.last_error(), Some("no space"));
        assert!(outage.succeeded() && !outage.is_failing() && !outage.pauses(1000));
    }

    #[test]
    fn region_is_at_fault_only_if_others_were_written_since_its_last_failure() {
        let (mut outage, mut failures) = (Outage::default(), None);
        let mut fails_alone = |outage: &mut Outage| {
            matches!(outage.failed(&mut failures, String::new(), 0), Verdict::Retry { alone: true, .. })
        };
        outage.succeeded();
        assert!(!fails_alone(&mut outage), "the first failure says nothing of the others");
        assert!(!fails_alone(&mut outage), "nothing was written in between");
        outage.succeeded();
        assert!(fails_alone(&mut outage));
        assert!(!fails_alone(&mut outage));
    }

    #[test]
    fn items_are_lost_after_30_seconds_of_failures() {
        let (mut outage, mut failures) = (Outage::default(), None);
        outage.failed(&mut failures, String::new(), SECOND);
        assert_ne!(outage.failed(&mut failures, String::new(), 30 * SECOND), Verdict::GiveUp);
        assert_eq!(outage.failed(&mut failures, String::new(), 31 * SECOND), Verdict::GiveUp);
    }

    #[test]
    fn interval_between_tests_of_a_retired_region_grows_to_an_hour() {
        let mut plan = TestPlan::after_retirement(0);
        assert_eq!(plan.due_ns, FIRST_TEST_NS);
        (0..20).for_each(|_| plan = plan.after_failure(0));
        assert_eq!(plan.due_ns, LONGEST_TEST_NS);
        assert_eq!(TestPlan::after_restart().due_ns, 0);
    }
}
