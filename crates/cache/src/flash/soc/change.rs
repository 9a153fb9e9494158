//! The changes that a write makes to a bucket, and the items that it removes.

use super::bucket::{self, Bucket, BucketMut, Entry, Fingerprint, NewEntry, Unusable};
use super::leaving::LeavingState;
use super::pending::Waiter;
use super::stats::SocStats;
use crate::KeyHash;
use crate::config::Removal;
use crate::flash::FlashItem;

/// The changes to one bucket of a group.
#[derive(Default)]
pub struct Change {
    pub has_content: bool,
    pub read_failed: bool,
    pub unusable: Option<Unusable>,
    /// Whether its items have changed.
    pub is_changed: bool,
    pub items_before: usize,
    pub items_after: usize,
    pub evicted: u32,
    pub expired: u32,
    /// The items that are no longer in the bucket and must be reported.
    pub left: Vec<Left>,
}

/// An item that is no longer in its bucket.
pub struct Left {
    pub fingerprint: Fingerprint,
    pub expiry_seconds: u32,
    pub tag: u16,
    pub key: Box<[u8]>,
    pub value: Box<[u8]>,
    /// The reason for its destructor call; `None` if it was evicted or expired.
    pub destructor_reason: Option<Removal>,
}

impl Left {
    pub fn item<'a>(&'a self, hash_seed: u64, value: &'a [&'a [u8]]) -> FlashItem<'a> {
        let (key, hash) = (&*self.key, KeyHash::seeded(&self.key, hash_seed));
        FlashItem { key, hash, value, expiry_seconds: self.expiry_seconds, tag: self.tag }
    }

    pub fn of(entry: &Entry<'_>, destructor_reason: Option<Removal>) -> Self {
        let Entry { fingerprint, expiry_seconds, tag, key, value, .. } = *entry;
        Self { fingerprint, expiry_seconds, tag, key: key.into(), value: value.into(), destructor_reason }
    }

    /// The pending item; `None` for a tombstone.
    pub fn of_waiter(waiter: &Waiter) -> Option<Self> {
        let (key, value) = waiter.bytes.as_ref()?.split_at(usize::from(waiter.key_len));
        let Waiter { fingerprint, expiry_seconds, tag, .. } = *waiter;
        Some(Self {
            fingerprint,
            expiry_seconds,
            tag,
            key: key.into(),
            value: value.into(),
            destructor_reason: None,
        })
    }
}

impl Change {
    pub fn of(has_content: bool) -> Self {
        Self { has_content, ..Self::default() }
    }

    /// Whether flash must get the new content.
    ///
    /// A bucket whose content does not change, because the filter had a false positive for the removed key, is on flash already. One that
    /// becomes empty is marked in memory as never written; with a journal it is written, because a recovery reads flash.
    pub fn must_be_written(&self, has_journal: bool) -> bool {
        if self.items_after > 0 {
            return self.is_changed;
        }
        let had_content = self.items_before > 0 || self.read_failed || self.unusable.is_some();
        has_journal && had_content
    }

    /// Records a concurrent clear: the bucket counts as empty.
    pub fn clear(&mut self) {
        let Self { has_content, read_failed, unusable, .. } = *self;
        let left = std::mem::take(&mut self.left);
        *self = Self { has_content, read_failed, unusable, left, ..Self::default() };
        self.keep_pending_destructors();
    }

    /// Keeps only the items whose destructors must be called.
    pub fn keep_pending_destructors(&mut self) {
        self.left.retain(|left| left.destructor_reason.is_some());
    }

    pub fn unreadable(&mut self) {
        self.has_content = false;
        self.read_failed = true;
    }

    pub fn settle(
        &mut self,
        bucket: &mut BucketMut<'_>,
        waiter: &Waiter,
        later: &[Waiter],
        now_seconds: u32,
        wanted: ReportedRemovals,
    ) {
        let Some(bytes) = &waiter.bytes else {
            if let Some(why) = waiter.destructor_reason() {
                let view = bucket.view();
                let removed = view.entries().filter(|entry| entry.fingerprint == waiter.fingerprint);
                self.left.extend(removed.map(|entry| Left::of(&entry, Some(why))));
            }
            self.is_changed |= bucket.remove(waiter.fingerprint, None) > 0;
            return;
        };
        let (key, value) = bytes.split_at(usize::from(waiter.key_len));
        self.is_changed |= bucket.remove(waiter.fingerprint, Some(key)) > 0;
        if bucket::expired(waiter.expiry_seconds, now_seconds) {
            self.expired += 1;
            if wanted.all && LeavingState::among(later, waiter.fingerprint) == LeavingState::Leaves {
                self.left.extend(Left::of_waiter(waiter));
            }
            return;
        }
        let Waiter { fingerprint, expiry_seconds, tag, .. } = *waiter;
        let new = NewEntry { fingerprint, expiry_seconds, tag, key, value };
        self.is_changed = true;
        self.evicted += bucket.insert(&new, |entry| self.left.extend(wanted.left(entry, later)));
    }

    pub fn count(&self, stats: &mut SocStats) {
        stats.read_errors += u64::from(self.read_failed);
        if let Some(why) = self.unusable {
            stats.count_unusable(why);
        }
        stats.evictions += u64::from(self.evicted);
        stats.evictions_expired += u64::from(self.expired);
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
