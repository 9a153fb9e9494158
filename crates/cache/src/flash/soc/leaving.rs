//! Items that are no longer in their buckets but may still be in the cache.
//!
//! A bucket's write ends under the lock of its shard. Whether an item that the write removed from the bucket has left the cache is
//! decided later, under the lock of the item's key, because DRAM may hold it. In between, the key may be removed or stored again. This
//! module records which event came first, so that the item's destructor is called exactly once.

use super::Soc;
use super::bucket::{Bucket, BucketId, Entry, Fingerprint};
use super::pending::Waiter;
use super::write_back::Left;
use crate::KeyHash;
use crate::config::Removal;
use crate::flash::{DestructorCallback, FlashItem};

/// The state of an item that is no longer in its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeavingState {
    /// The item leaves the cache unless DRAM holds it.
    Leaves,
    /// The item's key was stored on flash again.
    StoredAgain,
    /// Its key was removed or replaced. Contains the reason if the destructor must still be called; `None` if it was called for a copy in
    /// DRAM.
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

impl Soc {
    /// Calls `on_destructor` with each item that is [forgotten for a reason](Self::forget_with_destructor), and reports expired items to
    /// the eviction callback too.
    #[must_use]
    pub fn with_destructor(mut self, on_destructor: DestructorCallback) -> Self {
        self.on_destructor = Some(on_destructor);
        self
    }

    /// Calls the destructors of items that were forgotten before their buckets were written. The caller holds no key's lock.
    pub fn destroy_dropped(&self) {
        let Some(on_destructor) = &self.on_destructor else { return };
        let dropped = std::mem::take(&mut *self.dropped.lock());
        for (waiter, why) in dropped {
            let Some(left) = Left::of_waiter(&waiter) else { continue };
            on_destructor(&left.item(self.config.hash_seed, &[&left.value]), why);
        }
    }

    /// Whether an item that is no longer in its bucket has left the cache; `false` if it was stored again or removed. If removed,
    /// `reason` is set to the reason for its destructor call, if any.
    pub(super) fn take_out(&self, id: BucketId, left: &Left, reason: &mut Option<Removal>) -> bool {
        let mut shard = self.shard(id).lock();
        if self.on_destructor.is_none() {
            return shard.waits(id, left.fingerprint).is_none();
        }
        match shard.end_leaving(id, left.fingerprint) {
            Some(LeavingState::Leaves) => true,
            Some(LeavingState::Forgotten(why)) => {
                *reason = why;
                false
            }
            Some(LeavingState::StoredAgain) | None => false,
        }
    }

    /// Reports the items that have left the cache.
    pub(super) fn report_left(&self, id: BucketId, left: &[Left]) {
        for left in left {
            let mut destructor_reason = left.destructor_reason;
            let value: &[&[u8]] = &[&left.value];
            if destructor_reason.is_none()
                && let Some(on_eviction) = &self.on_eviction
            {
                on_eviction(&left.item(self.config.hash_seed, value), &mut || {
                    self.take_out(id, left, &mut destructor_reason)
                });
            }
            if let (Some(why), Some(on_destructor)) = (destructor_reason, &self.on_destructor) {
                on_destructor(&left.item(self.config.hash_seed, value), why);
            }
        }
    }
}

impl Left {
    pub(super) fn item<'a>(&'a self, hash_seed: u64, value: &'a [&'a [u8]]) -> FlashItem<'a> {
        let (key, hash) = (&*self.key, KeyHash::seeded(&self.key, hash_seed));
        FlashItem { key, hash, value, expiry_seconds: self.expiry_seconds, tag: self.tag }
    }
}

/// Selects the reported items.
#[derive(Debug, Clone, Copy)]
pub struct ReportedRemovals {
    /// Items evicted to make space.
    pub evictions: bool,
    /// Items that expire or are removed, in addition to evicted ones.
    pub all: bool,
}

impl ReportedRemovals {
    /// An entry that the bucket drops before the `later` waiters settle, if it must be reported.
    pub fn left(self, entry: &Entry<'_>, later: &[Waiter]) -> Option<Left> {
        match LeavingState::among(later, entry.fingerprint) {
            LeavingState::Leaves => self.evictions.then(|| Left::of(entry, None)),
            LeavingState::Forgotten(Some(why)) => self.all.then(|| Left::of(entry, Some(why))),
            LeavingState::Forgotten(None) | LeavingState::StoredAgain => None,
        }
    }

    /// The entries that have expired.
    pub fn expired(self, bucket: &Bucket<'_>, now_seconds: u32, later: &[Waiter]) -> Vec<Left> {
        if !self.all {
            return Vec::new();
        }
        let expired = bucket.entries().filter(|entry| entry.expired(now_seconds));
        expired.filter_map(|entry| self.left(&entry, later)).collect()
    }
}
