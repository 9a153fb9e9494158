//! Eviction and admission policies.
//!
//! A policy receives events and returns a decision: a victim, or yes or no. It does no I/O, reads no clock and stores no data. Entries are
//! [`Slot`]s, small dense numbers assigned by the caller, so the same code serves the DRAM tier, flash regions, block sets and the
//! simulator.
//!
//! This crate does not depend on keys, devices or caches. Each file implements one paper, under [`eviction`] and [`admission`].

use std::sync::Arc;

/// The place of an entry: a small dense number assigned by the caller, unique among the entries of one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// Properties of an entry at its insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Hash of the key, by which ghosts and sketches identify an entry.
    pub hash: u64,
    /// Weight against the capacity: 1 if slots are counted, the size if bytes are.
    pub weight: u32,
}

/// Selects the victims for eviction.
///
/// # Contract
/// * A slot is inserted once, then leaves by [`evict`](Self::evict) or [`remove`](Self::remove); only then can it be inserted again.
/// * `evict` returns `None` only if the policy is empty, and never a slot without an entry.
/// * Times are whole seconds and never go back.
/// * Memory: list nodes, marks and ghosts only; it grows with the highest slot seen.
pub trait Eviction: Send {
    /// A new entry took `slot`.
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32);

    /// A request for an entry missed, and the caller inserts it after the evictions that make room. Policies with ghosts whose choice of
    /// a victim depends on the new entry look its ghost up here. A caller may omit the announcement: then `insert` does so.
    fn announce(&mut self, entry: Entry) {
        let _ = entry;
    }

    /// Whether a ghost of the last announced entry existed.
    fn had_ghost(&self) -> bool {
        false
    }

    /// A request for an entry missed, and the caller does not insert it.
    fn refuse(&mut self, entry: Entry) {
        let _ = entry;
    }

    /// The entry in `slot` was used. [`hit_rule`](Self::hit_rule) defines the hits to report.
    fn hit(&mut self, slot: Slot, now_seconds: u32) {
        let _ = (slot, now_seconds);
    }

    /// Selects the next victim and removes it.
    fn evict(&mut self, now_seconds: u32) -> Option<Slot>;

    /// As [`evict`](Self::evict), to make room for `entry`. One call instead of two, with [`foresee`](Self::foresee).
    fn evict_for(&mut self, entry: Entry, now_seconds: u32) -> Option<Slot> {
        self.foresee(entry);
        self.evict(now_seconds)
    }

    /// As [`insert`](Self::insert); returns the [likely victim](Self::likely_victim) of the next eviction. One call instead of two.
    fn insert_and_foresee(&mut self, slot: Slot, entry: Entry, now_seconds: u32) -> Option<Slot> {
        self.insert(slot, entry, now_seconds);
        self.likely_victim()
    }

    /// The entry in `slot` was removed for another reason than eviction.
    fn remove(&mut self, slot: Slot);

    /// Reinserts a victim that cannot be evicted (it is pinned), as if it had been hit.
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.insert(slot, entry, now_seconds);
    }

    /// Sets the total weight of entries; segments are shares of it.
    fn set_capacity(&mut self, capacity_weight: u64) {
        let _ = capacity_weight;
    }

    /// Number of entries.
    fn len(&self) -> usize;

    /// Whether there are no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry that would be evicted next without further hits, if it is known cheaply: pools are rebalanced by its age.
    fn oldest(&self) -> Option<Slot>;

    /// The entry that will probably be evicted next, so that its memory can be prefetched; `None` if a prediction would mostly be wrong. It
    /// has no effect on decisions. Policies prefetch their own data.
    fn likely_victim(&self) -> Option<Slot> {
        self.oldest()
    }

    /// Announces an insertion: prefetches the memory it needs, while the caller evicts.
    fn foresee(&self, entry: Entry) {
        let _ = entry;
    }

    /// Which hits the caller must report, and how.
    fn hit_rule(&self) -> HitRule;

    /// Uses the caller's counters for [`HitRule::Mark`], which are stored beside data that hits access anyway. Called while the policy is
    /// empty. A policy with that rule must read these counters and return them in its rule; others ignore the call.
    fn keep_marks_in(&mut self, marks: Arc<dyn HitMarks>) {
        let _ = marks;
    }

    /// The maximum memory in bytes per slot, including the policy's ghosts. Memory budgets are computed from it.
    fn bytes_per_slot(&self) -> u32 {
        16
    }

    /// Whether an entry should be evicted although all fit, because a hit moved others to a full segment. The caller may then evict until
    /// this is false. Only policies made for such callers return true.
    fn is_overfull(&self) -> bool {
        false
    }

    /// Changes the weight of the entry in `slot`. Policies that do not use weights ignore it.
    fn reweigh(&mut self, slot: Slot, weight: u32) {
        let _ = (slot, weight);
    }

    /// Announces that these slots, held or not, are accessed next. A caller that makes millions of requests announces dozens ahead, so that
    /// their memory is fetched in parallel. Changes no state.
    fn look_ahead(&self, slots: &[Slot]) {
        let _ = slots;
    }
}

impl<E: Eviction + ?Sized> Eviction for Box<E> {
    fn announce(&mut self, entry: Entry) {
        (**self).announce(entry);
    }
    fn had_ghost(&self) -> bool {
        (**self).had_ghost()
    }
    fn refuse(&mut self, entry: Entry) {
        (**self).refuse(entry);
    }
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        (**self).insert(slot, entry, now_seconds);
    }
    fn hit(&mut self, slot: Slot, now_seconds: u32) {
        (**self).hit(slot, now_seconds);
    }
    fn evict(&mut self, now_seconds: u32) -> Option<Slot> {
        (**self).evict(now_seconds)
    }
    fn evict_for(&mut self, entry: Entry, now_seconds: u32) -> Option<Slot> {
        (**self).evict_for(entry, now_seconds)
    }
    fn insert_and_foresee(&mut self, slot: Slot, entry: Entry, now_seconds: u32) -> Option<Slot> {
        (**self).insert_and_foresee(slot, entry, now_seconds)
    }
    fn remove(&mut self, slot: Slot) {
        (**self).remove(slot);
    }
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        (**self).restore(slot, entry, now_seconds);
    }
    fn set_capacity(&mut self, capacity_weight: u64) {
        (**self).set_capacity(capacity_weight);
    }
    fn len(&self) -> usize {
        (**self).len()
    }
    fn oldest(&self) -> Option<Slot> {
        (**self).oldest()
    }
    fn likely_victim(&self) -> Option<Slot> {
        (**self).likely_victim()
    }
    fn foresee(&self, entry: Entry) {
        (**self).foresee(entry);
    }
    fn hit_rule(&self) -> HitRule {
        (**self).hit_rule()
    }
    fn keep_marks_in(&mut self, marks: Arc<dyn HitMarks>) {
        (**self).keep_marks_in(marks);
    }
    fn bytes_per_slot(&self) -> u32 {
        (**self).bytes_per_slot()
    }
    fn is_overfull(&self) -> bool {
        (**self).is_overfull()
    }
    fn reweigh(&mut self, slot: Slot, weight: u32) {
        (**self).reweigh(slot, weight);
    }
    fn look_ahead(&self, slots: &[Slot]) {
        (**self).look_ahead(slots);
    }
}

/// The way in which hits are reported. Readers hold no lock on the policy, so most policies do not require every hit.
#[derive(Clone)]
pub enum HitRule {
    /// Hits are ignored (FIFO).
    Ignore,
    /// Hits are counted in `marks` without a lock, and read when a victim is selected (S3-FIFO, SIEVE).
    Mark {
        /// The counters.
        marks: Arc<dyn HitMarks>,
        /// Number of hits counted, at most [`marks::MOST_HITS`].
        at_most: u8,
    },
    /// A hit counts only if the last counted one is at least `refresh_seconds` old (CacheLib's LRU family); the caller stores that time and
    /// calls [`Eviction::hit`].
    Refresh {
        /// Age in seconds below which a hit is not reported.
        refresh_seconds: u32,
    },
    /// Every hit must be reported (SLRU-K, GDSF, exact LRU).
    Every,
}

pub mod admission;
pub mod contract;
pub mod eviction;
pub mod ghost;
pub mod ghost_queue;
pub mod growing;
mod hashed;
mod lehmer;
pub mod list;
pub mod marks;
pub mod name;
mod pool;
pub mod prefetch;
mod requests;
mod segments;
pub mod simulate;
pub mod sketch;
mod weights;

pub use marks::{HitMarks, Marks};
pub use name::UnknownName;

/// An entry offered for admission.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Hash of the key.
    pub hash: u64,
    /// Bytes of key and value.
    pub size_bytes: u64,
    /// The entry's remaining TTL in seconds; `None` never expires.
    pub ttl_seconds: Option<u32>,
    /// Seconds since the entry was last used.
    pub idle_seconds: u32,
}

/// Decides which entries are admitted. Shared by all threads; a decision takes no lock that is held during a device transfer.
pub trait Admission: Send + Sync {
    /// Whether to admit the candidate.
    fn admit(&self, candidate: &Candidate, now_ns: u64) -> bool;

    /// Bytes written to flash since it was opened, as counted by the device. Called about every second.
    fn observe(&self, written_bytes: u64, now_ns: u64) {
        let _ = (written_bytes, now_ns);
    }

    /// The policy's name in results.
    fn name(&self) -> &'static str;
}
