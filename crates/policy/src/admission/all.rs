//! A combination of several policies.

use crate::{Admission, Candidate};

/// Admits entries that all policies admit. They are called in order until the first rejection, so a policy with state (reject-first, a
/// write rate) sees only entries admitted by the earlier ones.
pub struct All {
    policies: Vec<Box<dyn Admission>>,
}

impl All {
    /// Combines the policies in this order.
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
