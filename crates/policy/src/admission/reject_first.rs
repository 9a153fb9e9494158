//! Rejects a key's first offer and remembers it; a second offer soon after is admitted. An entry that is used only once costs no flash
//! write.
//!
//! Rejected keys are kept as hashes in several segments. When the newest segment is full, the oldest is dropped. Memory is therefore
//! bounded, and a key is remembered for at least the length of all segments but one.

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;

use crate::hashed::Hashed;
use crate::{Admission, Candidate};

/// Size of the set of remembered keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectFirstConfig {
    /// Largest number of remembered keys.
    pub keys: usize,
    /// Segments of the set.
    pub parts: usize,
}

impl Default for RejectFirstConfig {
    fn default() -> Self {
        Self { keys: 10_000_000, parts: 10 }
    }
}

/// The set of recent keys.
pub struct RejectFirst {
    seen: Mutex<VecDeque<Part>>,
    part_keys: usize,
    parts: usize,
}

type Part = HashSet<u64, Hashed>;

impl RejectFirst {
    /// Creates an empty set.
    ///
    /// # Panics
    /// If there are no segments, or fewer keys than segments.
    #[must_use]
    pub fn new(config: RejectFirstConfig) -> Self {
        let RejectFirstConfig { keys, parts } = config;
        assert!(parts > 0 && keys >= parts, "{keys} keys cannot be remembered in {parts} parts");
        Self { seen: Mutex::new(VecDeque::from([Part::default()])), part_keys: keys / parts, parts }
    }
}

impl Admission for RejectFirst {
    fn admit(&self, candidate: &Candidate, _now_ns: u64) -> bool {
        let mut seen = self.seen.lock();
        if seen.iter().any(|part| part.contains(&candidate.hash)) {
            return true;
        }
        if seen[0].len() >= self.part_keys {
            // The oldest segment is cleared and reused as the newest.
            let mut part = if seen.len() < self.parts { None } else { seen.pop_back() }.unwrap_or_default();
            part.clear();
            seen.push_front(part);
        }
        seen[0].insert(candidate.hash);
        false
    }

    fn name(&self) -> &'static str {
        "reject-first"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(policy: &RejectFirst, hash: u64) -> bool {
        policy.admit(&Candidate { hash, size_bytes: 1, ttl_seconds: None, idle_seconds: 0 }, 0)
    }

    #[test]
    fn first_offer_is_rejected_and_second_admitted() {
        let policy = RejectFirst::new(RejectFirstConfig::default());
        assert_eq!([7, 8, 7, 7, 8].map(|key| offer(&policy, key)), [false, false, true, true, true]);
    }

    #[test]
    fn keys_are_forgotten_one_segment_at_a_time() {
        let policy = RejectFirst::new(RejectFirstConfig { keys: 6, parts: 3 });
        // Segments of two, oldest first: [0 1] [2 3] [4 5].
        assert!((0..6).all(|key| !offer(&policy, key)));
        assert!((0..6).all(|key| offer(&policy, key)));
        // 6 starts a new segment, and [0 1] is dropped.
        assert!(!offer(&policy, 6));
        assert!((2..7).all(|key| offer(&policy, key)));
        assert!(!offer(&policy, 0));
        assert!(!offer(&policy, 1));
        assert!(!offer(&policy, 2), "[2 3] went when 1 opened a new part");
    }
}
