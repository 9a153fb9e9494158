//! Callers that wait until all blocks are clean.

use super::error::VolumeError;

#[derive(Default)]
pub(super) struct Drains {
    callers: usize,
    /// Runs with a block [to be drained](crate::sets::Sets::start_drain) that could not be cleaned.
    failures: u64,
    /// The error of the last one.
    last_failure: Option<VolumeError>,
}

impl Drains {
    /// Adds a caller. Returns the number of failures so far.
    pub(super) fn begin(&mut self) -> u64 {
        self.callers += 1;
        self.failures
    }

    /// Removes a caller. Returns whether none is left.
    pub(super) fn end(&mut self) -> bool {
        self.callers -= 1;
        self.callers == 0
    }

    pub(super) fn have_callers(&self) -> bool {
        self.callers > 0
    }

    pub(super) fn fail(&mut self, error: Option<VolumeError>) {
        self.failures += 1;
        self.last_failure = error;
    }

    /// The last error, if there were more than `before` failures.
    pub(super) fn failure_after(&self, before: u64) -> Option<VolumeError> {
        self.last_failure.clone().filter(|_| self.failures > before)
    }
}
