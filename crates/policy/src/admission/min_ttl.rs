//! Rejects entries that expire soon, because they are not worth a flash write.

use crate::{Admission, Candidate};

/// Rejects entries with a shorter remaining TTL.
#[derive(Debug, Clone, Copy)]
pub struct MinTtl {
    min_ttl_seconds: u32,
}

impl MinTtl {
    /// Admits entries whose TTL is at least this long, and entries without a TTL.
    #[must_use]
    pub fn new(min_ttl_seconds: u32) -> Self {
        Self { min_ttl_seconds }
    }
}

impl Admission for MinTtl {
    fn admit(&self, candidate: &Candidate, _now_ns: u64) -> bool {
        candidate.ttl_seconds.is_none_or(|ttl_seconds| ttl_seconds >= self.min_ttl_seconds)
    }

    fn name(&self) -> &'static str {
        "min-ttl"
    }
}
