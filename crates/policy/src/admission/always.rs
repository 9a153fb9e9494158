//! Admits every entry.

use crate::{Admission, Candidate};

/// Admits every entry.
#[derive(Debug, Default, Clone, Copy)]
pub struct Always;

impl Admission for Always {
    fn admit(&self, _candidate: &Candidate, _now_ns: u64) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "always"
    }
}
