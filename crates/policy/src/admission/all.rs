//! Several policies that must agree.

use crate::{Admission, Candidate};

/// Admits what all of them admit. They are asked in order and the first refusal ends it, so what a later one remembers
/// or counts (reject-first, a write rate) is only what the earlier ones let through.
pub struct All {
    policies: Vec<Box<dyn Admission>>,
}

impl All {
    /// Asks these, in this order.
    #[must_use]
    pub fn new(policies: Vec<Box<dyn Admission>>) -> Self {
        Self { policies }
    }
}

impl Admission for All {
    fn admit(&self, candidate: &Candidate, now_ns: u64) -> bool {
        self.policies.iter().all(|policy| policy.admit(candidate, now_ns))
    }

    fn observe(&self, written_bytes: u64, now_ns: u64) {
        self.policies.iter().for_each(|policy| policy.observe(written_bytes, now_ns));
    }

    fn name(&self) -> &'static str {
        "all"
    }
}
