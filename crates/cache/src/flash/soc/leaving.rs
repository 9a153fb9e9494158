//! Items that are no longer in their buckets but may still be in the cache.
//!
//! A bucket's write ends under the lock of its shard. Whether an item that the write removed from the bucket has left the cache is
//! decided later, under the lock of the item's key, because DRAM may hold it. In between, the key may be removed or stored again. This
//! module records which event came first, so that the item's destructor is called exactly once.

use super::bucket::{BucketId, Fingerprint};
use super::pending::Waiter;
use crate::config::Removal;

/// The state of an item that is no longer in its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeavingState {
    /// The item leaves the cache unless DRAM holds it.
    Leaves,
    /// The item's key was stored on flash again.
    StoredAgain,
    /// The item's key was removed or replaced. Holds the reason if the destructor must still be called, and `None` if it was called for a
    /// copy in DRAM.
    Forgotten(Option<Removal>),
}

impl LeavingState {
    /// The state caused by the first of `waiters` with this fingerprint.
    pub fn among(waiters: &[Waiter], fingerprint: Fingerprint) -> Self {
        match waiters.iter().find(|waiter| waiter.fingerprint == fingerprint) {
            None => Self::Leaves,
            Some(waiter) if waiter.bytes.is_some() => Self::StoredAgain,
            Some(tombstone) => Self::Forgotten(tombstone.destructor_reason()),
        }
    }
}

/// The undecided items of one shard's buckets; few at a time.
#[derive(Default)]
pub struct Leaving(Vec<(BucketId, Fingerprint, LeavingState)>);

impl Leaving {
    pub fn add(&mut self, bucket: BucketId, fingerprint: Fingerprint, fate: LeavingState) {
        self.0.push((bucket, fingerprint, fate));
    }

    /// Changes the state of an undecided item; `false` if there is none.
    pub fn change(&mut self, bucket: BucketId, fingerprint: Fingerprint, fate: LeavingState) -> bool {
        let undecided = (bucket, fingerprint, LeavingState::Leaves);
        let found = self.0.iter_mut().find(|item| **item == undecided);
        found.map(|item| item.2 = fate).is_some()
    }

    pub fn take(&mut self, bucket: BucketId, fingerprint: Fingerprint) -> Option<LeavingState> {
        let at = self.0.iter().position(|item| (item.0, item.1) == (bucket, fingerprint))?;
        Some(self.0.swap_remove(at).2)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
