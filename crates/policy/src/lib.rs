//! Eviction and admission policies.
//!
//! A policy receives events and returns a decision: a victim, or yes or no. It does no I/O, reads no clock and stores no data. Entries are
//! [`Slot`]s, small dense numbers assigned by the caller, so the same code serves the DRAM tier, flash regions, block sets and the
//! simulator.
//!
//! This crate does not depend on keys, devices or caches. Each file implements one paper, under [`eviction`] and [`admission`].

use std::sync::Arc;

/// The place of an entry: a small dense number handed out by the caller, unique among the entries of one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// What a policy learns of an entry when it comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Hash of the key: what ghosts and sketches remember an entry by.
    pub hash: u64,
    /// What the entry counts against the capacity: 1 where slots are counted, its size where bytes are.
    pub weight: u32,
}

/// Decides which entry leaves.
///
/// # Contract
/// * A slot is inserted once, then leaves by [`evict`](Self::evict) or [`remove`](Self::remove); only then can it be inserted again.
/// * `evict` answers `None` only when the policy holds nothing, and never a slot that it does not hold.
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

    /// A request for an entry missed, and the caller does not insert it.
    fn refuse(&mut self, entry: Entry) {
        let _ = entry;
    }

    /// The entry in `slot` was used. Which hits a policy must hear of is its [`hit_rule`](Self::hit_rule).
    fn hit(&mut self, slot: Slot, now_seconds: u32);

    /// Chooses the next to leave and takes it out.
    fn evict(&mut self, now_seconds: u32) -> Option<Slot>;

    /// The entry in `slot` left for another reason than eviction.
    fn remove(&mut self, slot: Slot);

    /// Reinserts a victim that cannot be evicted (it is pinned), as if it had been hit.
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.insert(slot, entry, now_seconds);
    }

    /// The sum of weights the policy may count on from now on. Segments are shares of it.
    fn set_capacity(&mut self, capacity_weight: u64);

    /// Entries held.
    fn len(&self) -> usize;

    /// Whether the policy holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry that would be the next to leave if nothing were hit, where the policy can tell cheaply: its age is
    /// what pools are rebalanced by.
    fn oldest(&self) -> Option<Slot>;

    /// The entry that will probably leave next, so that its memory can be fetched by then; `None` where a guess would mostly be
    /// wrong. It decides nothing. Policies have fetched what they will need of it themselves.
    fn likely_victim(&self) -> Option<Slot> {
        self.oldest()
    }

    /// A new entry comes in soon: has the memory fetched that this begins with, while room is made for it.
    fn foresee(&self, entry: Entry) {
        let _ = entry;
    }

    /// Which hits the caller must report, and how.
    fn hit_rule(&self) -> HitRule;

    /// The caller keeps the counters of [`HitRule::Mark`] from now on, beside what hits come to anyway. Called while the policy is
    /// empty. A policy with that rule must read these and name them in its rule; others have nothing to do.
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

    /// The entry in `slot`, which is held, weighs this much from now on. Policies that never ask what entries weigh
    /// have nothing to do.
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

/// How hits reach a policy. A reader holds no lock on the policy, so most policies settle for less than every hit.
#[derive(Clone)]
pub enum HitRule {
    /// Hits do not matter (FIFO).
    Ignore,
    /// Hits are counted in `marks`, without a lock, and read when a victim is chosen (S3-FIFO, SIEVE).
    Mark {
        /// The counters.
        marks: Arc<dyn HitMarks>,
        /// Hits that are worth counting, at most [`marks::MOST_HITS`].
        at_most: u8,
    },
    /// A hit counts only if the last one that counted is at least `refresh_seconds` old (CacheLib's LRU family);
    /// the caller keeps that time and calls [`Eviction::hit`].
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
pub mod list;
pub mod marks;
pub mod name;
pub mod prefetch;
mod segments;
pub mod simulate;
pub mod sketch;
mod weights;

pub use marks::{HitMarks, Marks};
pub use name::UnknownName;

/// What an admission policy is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Hash of the key.
    pub hash: u64,
    /// Key and value, bytes.
    pub size_bytes: u64,
    /// The entry's remaining TTL in seconds; `None` never expires.
    pub ttl_seconds: Option<u32>,
    /// Seconds since the entry was last used.
    pub idle_seconds: u32,
}

/// Decides which entries are admitted. Shared by all threads; a decision takes no lock that is held during a device transfer.
pub trait Admission: Send + Sync {
    /// Whether the candidate may enter.
    fn admit(&self, candidate: &Candidate, now_ns: u64) -> bool;

    /// Bytes the flash side has written since it was opened, as the device counts them. Called every second or so.
    fn observe(&self, written_bytes: u64, now_ns: u64) {
        let _ = (written_bytes, now_ns);
    }

    /// The policy's name in results.
    fn name(&self) -> &'static str;
}
