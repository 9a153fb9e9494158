//! Ending a run before its operations are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Why a run ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Somebody interrupted it.
    Interrupt,
    /// Its time was over.
    Timeout,
    /// Too many values were wrong.
    Inconsistencies,
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "interrupted",
            Self::Timeout => "by its time limit",
            Self::Inconsistencies => "too many inconsistencies",
        })
    }
}

/// A flag that all threads of all instances look at.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Set from a signal handler too, which may touch nothing else.
    interrupted: Arc<AtomicBool>,
    /// 0 is none.
    reason: AtomicU8,
    inconsistencies: AtomicU64,
}

impl Stop {
    /// The flag that a signal handler sets.
    #[must_use]
    pub fn interrupt_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.interrupted)
    }

    /// Ends the run; the first reason stays.
    pub fn set(&self, reason: StopReason) {
        let code = match reason {
            StopReason::Interrupt => 1,
            StopReason::Timeout => 2,
            StopReason::Inconsistencies => 3,
        };
        let _ = self.0.reason.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
        self.0.interrupted.store(true, Ordering::Relaxed);
    }

    /// Whether to end.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.interrupted.load(Ordering::Relaxed)
    }

    /// Why, where the run was ended.
    #[must_use]
    pub fn reason(&self) -> Option<StopReason> {
        match self.0.reason.load(Ordering::Relaxed) {
            2 => Some(StopReason::Timeout),
            3 => Some(StopReason::Inconsistencies),
            _ => self.is_set().then_some(StopReason::Interrupt),
        }
    }

    /// Counts an inconsistency and ends the run at `limit`.
    pub fn count_inconsistency(&self, limit: u64) {
        if self.0.inconsistencies.fetch_add(1, Ordering::Relaxed) + 1 >= limit {
            self.set(StopReason::Inconsistencies);
        }
    }
}
