//! Ending a run before its operations are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Why a run ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The user interrupted it.
    Interrupt,
    /// The time limit was reached.
    Timeout,
    /// Too many inconsistent reads.
    Inconsistencies,
    /// The limit of flash writes was reached.
    FlashWritten,
    /// The figures became steady.
    Steady,
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "interrupted",
            Self::Timeout => "time limit reached",
            Self::Inconsistencies => "too many inconsistencies",
            Self::FlashWritten => "flash write limit reached",
            Self::Steady => "figures became steady",
        })
    }
}

/// The stop flag of a run, which all threads poll, combined with that of one instance.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    of_run: Arc<State>,
    of_instance: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Also set by a signal handler, which may access nothing else.
    interrupted: Arc<AtomicBool>,
    /// The reason of the stop; 0 if there is none.
    reason: AtomicU8,
    inconsistencies: AtomicU64,
}

impl Stop {
    /// The stop flag of a new instance of this run.
    #[must_use]
    pub fn for_instance(&self) -> Self {
        Self { of_run: Arc::clone(&self.of_run), of_instance: Arc::default() }
    }

    /// Ends the instance only; the first reason is kept.
    pub fn end_instance(&self, reason: StopReason) {
        self.of_instance.set(reason);
    }

    /// The flag that a signal handler sets.
    #[must_use]
    pub fn interrupt_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.of_run.interrupted)
    }

    /// Ends the run; the first reason is kept.
    pub fn set(&self, reason: StopReason) {
        self.of_run.set(reason);
    }

    /// Whether the run or the instance is to end.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.of_run.is_set() || self.of_instance.is_set()
    }

    /// The reason, if the run or the instance was ended.
    #[must_use]
    pub fn reason(&self) -> Option<StopReason> {
        self.of_instance.reason().or_else(|| self.of_run.reason())
    }

    /// Counts an inconsistency of the instance and ends it at `limit`.
    pub fn count_inconsistency(&self, limit: u64) {
        if self.of_instance.inconsistencies.fetch_add(1, Ordering::Relaxed) + 1 >= limit {
            self.end_instance(StopReason::Inconsistencies);
        }
    }
}

impl State {
    fn set(&self, reason: StopReason) {
        let code = match reason {
            StopReason::Interrupt => 1,
            StopReason::Timeout => 2,
            StopReason::Inconsistencies => 3,
            StopReason::FlashWritten => 4,
            StopReason::Steady => 5,
        };
        let _ = self.reason.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
        self.interrupted.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn is_set(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn reason(&self) -> Option<StopReason> {
        match self.reason.load(Ordering::Relaxed) {
            2 => Some(StopReason::Timeout),
            3 => Some(StopReason::Inconsistencies),
            4 => Some(StopReason::FlashWritten),
            5 => Some(StopReason::Steady),
            _ => self.is_set().then_some(StopReason::Interrupt),
        }
    }
}
