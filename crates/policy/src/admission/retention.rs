//! Rejects entries that were idle for long before they left DRAM, because they are not worth a flash write.

use crate::{Admission, Candidate};

/// Rejects entries idle for longer than this.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    idle_at_most_seconds: u32,
}

impl Retention {
    /// Admits entries used within this time.
    #[must_use]
    pub fn new(idle_at_most_seconds: u32) -> Self {
        Self { idle_at_most_seconds }
    }
}

impl Admission for Retention {
    fn admit(&self, candidate: &Candidate, _now_ns: u64) -> bool {
        candidate.idle_seconds <= self.idle_at_most_seconds
    }

    fn name(&self) -> &'static str {
        "retention"
    }
}
