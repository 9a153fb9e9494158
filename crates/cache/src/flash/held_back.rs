//! Records of admitted items that wait for space on flash.
//!
//! An item that is held back stays in DRAM and is offered again. It does not pass the admission policy again: a random policy would
//! eventually reject it, so fewer items would be admitted the longer flash writes are behind.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::KeyHash;

/// Number of slots: many more than threads that evict.
const PLACES: usize = 1024;

/// Hashes, each in a slot that it determines. A hash that another one has replaced is offered to the admission policy again.
pub(super) struct HeldBack(Box<[AtomicU64]>);

/// An empty slot. An item with this hash is not recorded.
const ABSENT: u64 = 0;

impl HeldBack {
    pub(super) fn new() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(ABSENT)).collect())
    }

    /// Records that the item was admitted and waits for space.
    pub(super) fn remember(&self, hash: KeyHash) {
        self.place(hash).store(hash.0, Ordering::Relaxed);
    }

    /// Whether the item was admitted before. Removes the record, so a later offer passes the admission policy again.
    pub(super) fn take(&self, hash: KeyHash) -> bool {
        let place = self.place(hash);
        hash.0 != ABSENT
            && place.load(Ordering::Relaxed) == hash.0
            && place.compare_exchange(hash.0, ABSENT, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn place(&self, hash: KeyHash) -> &AtomicU64 {
        &self.0[hash.remix() as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_back_item_is_admitted_once() {
        let held_back = HeldBack::new();
        let [one, other] = [b"one", b"two"].map(|key| KeyHash::of(key));
        held_back.remember(one);
        assert!(!held_back.take(other) && held_back.take(one) && !held_back.take(one));
        assert!(!held_back.take(KeyHash(ABSENT)), "no entry has this hash");
    }
}
