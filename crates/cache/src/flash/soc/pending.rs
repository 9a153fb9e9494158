//! Pending entries, items and tombstones, that wait for a write of their bucket: one list per bucket, newest last.
//!
//! An entry is visible to lookups from its commit until the write that contains it has completed. A lookup that searches the pending
//! entries first and the device second never misses a committed item and never finds a removed one. A bucket that is being written keeps
//! the entries of the write (`frozen`) apart from newer ones (`fresh`).
//!
//! Buckets are spread over shards in runs of [`RUN`] neighbours, so that one lock finds neighbours that can be written together. A shard
//! queues its buckets by their number of fresh entries, since a write of three entries costs the drive as much as a write of one. An
//! entry that waits long stays readable, and its bucket rises in the queues as further entries arrive.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::bucket::{BucketId, Fingerprint};
use super::leaving::{Leaving, LeavingState};
use super::stats::SocStats;
use crate::config::Removal as Reason;

/// Adjacent buckets that share a shard, which limits the buckets of one write.
pub const RUN: u32 = 1 << RUN_BITS;
pub const RUN_BITS: u32 = 6;

/// Memory of a pending entry beside its key and value: the entry, the two reference counts, and the allocator's overhead.
pub const ENTRY_OVERHEAD_BYTES: usize =
    size_of::<Waiter>() + 2 * size_of::<usize>() + ALLOCATION_OVERHEAD_BYTES;

/// Memory of a bucket with pending entries: its slot in the map, of which more than half may be empty, its place in a queue, and the
/// allocator's overhead of its list. On a large device most entries are alone in their bucket, and this is far more than their own.
pub const BUCKET_OVERHEAD_BYTES: usize =
    2 * (size_of::<(BucketId, Waitlist)>() + 1) + 2 * size_of::<BucketId>() + ALLOCATION_OVERHEAD_BYTES;

/// Approximate overhead of an allocator per allocation.
const ALLOCATION_OVERHEAD_BYTES: usize = 16;

/// Queues by number of fresh entries: 1, 2, 3, and 4 or more.
const LEVELS: usize = 4;

/// A pending item or tombstone.
#[derive(Debug, Clone)]
pub struct Waiter {
    pub fingerprint: Fingerprint,
    pub expiry_seconds: u32,
    pub tag: u16,
    pub key_len: u8,
    /// Key and value in one allocation; `None` is a tombstone. A tombstone has only the fingerprint and needs no allocation. It also
    /// removes a key with the same 32 bits (one in four billion), which then misses.
    pub bytes: Option<Arc<[u8]>>,
}

impl Waiter {
    /// A tombstone. `destructor_reason` is the reason for the destructor call of the item that it removes, `None` for no call; it is kept
    /// in the tag.
    pub fn tombstone(fingerprint: Fingerprint, destructor_reason: Option<Reason>) -> Self {
        let tag = DESTRUCTOR_REASONS.iter().position(|why| *why == destructor_reason).unwrap_or(0) as u16;
        Self { fingerprint, expiry_seconds: 0, tag, key_len: 0, bytes: None }
    }

    /// The reason for the destructor call of the item that a tombstone removes.
    pub fn destructor_reason(&self) -> Option<Reason> {
        DESTRUCTOR_REASONS.get(usize::from(self.tag)).copied().flatten()
    }

    /// Memory of the entry, without the overhead of its bucket.
    pub fn memory_bytes(&self) -> usize {
        ENTRY_OVERHEAD_BYTES + self.item_bytes()
    }

    /// Size of key and value; 0 for a tombstone.
    fn item_bytes(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len())
    }

    fn is_item(&self, fingerprint: Fingerprint, key: &[u8]) -> bool {
        let len = usize::from(self.key_len);
        self.fingerprint == fingerprint
            && self.bytes.as_ref().is_some_and(|bytes| len == key.len() && &bytes[..len] == key)
    }

    fn concerns(&self, fingerprint: Fingerprint, key: &[u8]) -> bool {
        self.fingerprint == fingerprint && (self.bytes.is_none() || self.is_item(fingerprint, key))
    }
}

/// Reasons of destructor calls, by the tag of their tombstones.
const DESTRUCTOR_REASONS: [Option<Reason>; 3] = [None, Some(Reason::Removed), Some(Reason::Replaced)];

/// The pending version of a key.
pub enum Known {
    /// The newest version is pending.
    Item(Waiter),
    /// The key was removed.
    Removed,
    /// Not pending: the bucket must be searched.
    Nothing(BucketVersion),
}

/// A bucket's state. If it is the same before and after a read, the read returned one consistent content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketVersion {
    /// How often the bucket (or one that shares its counter) was written back.
    writes: u32,
    /// Whether it was being written.
    pub writing: bool,
}

impl BucketVersion {
    /// Whether a write-back ended between `self` and `later`.
    pub fn overtaken(self, later: Self) -> bool {
        self.writes != later.writes
    }
}

/// Adjacent buckets that one device write settles. Its owner has the exclusive right to write them.
pub struct Group {
    pub first: BucketId,
    pub frozen: Vec<Arc<Vec<Waiter>>>,
    /// The number of the write; 0 without a journal.
    pub write_number: u64,
}

/// The pending entries of the buckets of one shard, and their counters.
#[derive(Default)]
pub struct Shard {
    buckets: HashMap<BucketId, Waitlist>,
    queues: [VecDeque<BucketId>; LEVELS],
    /// Buckets that `settle` waits for, ahead of all queues. Some may already be written.
    due: VecDeque<BucketId>,
    settles: SettleNumber,
    writes: Vec<u32>,
    /// Items that are no longer in their buckets and may still be in the cache.
    leaving: Leaving,
    pub stats: SocStats,
}

/// The number of earlier calls of [`begin_settle`](Shard::begin_settle), as a timestamp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SettleNumber(u64);

#[derive(Default)]
struct Waitlist {
    fresh: Vec<Waiter>,
    /// The time of the oldest fresh entry.
    fresh_since: SettleNumber,
    /// The time of the oldest entry that is being written.
    frozen_since: SettleNumber,
    state: State,
    /// The number of the bucket's queue, from 1; 0 is none. Entries of the bucket in other queues are stale.
    queued: usize,
}

#[derive(Default)]
enum State {
    #[default]
    Resting,
    /// A write with these entries is in flight.
    Writing(Arc<Vec<Waiter>>),
    /// A write is in flight, but the cache was cleared since: its entries are not found, and the bucket is empty when the write ends.
    Cleared(Arc<Vec<Waiter>>),
}

impl Shard {
    pub fn new() -> Self {
        Self { writes: vec![0; RUN as usize], ..Self::default() }
    }

    /// Searches the pending entries of `bucket` for `key`.
    pub fn find(&self, bucket: BucketId, fingerprint: Fingerprint, key: &[u8]) -> Known {
        let list = self.buckets.get(&bucket);
        match list.and_then(|list| list.newest(|waiter| waiter.concerns(fingerprint, key))) {
            Some(waiter) if waiter.bytes.is_some() => Known::Item(waiter.clone()),
            Some(_) => Known::Removed,
            None => Known::Nothing(self.bucket_version(bucket)),
        }
    }

    /// Whether the newest pending entry with this fingerprint is an item (`true`) or a tombstone (`false`); `None` without such an entry.
    pub fn waits(&self, bucket: BucketId, fingerprint: Fingerprint) -> Option<bool> {
        let newest = self.buckets.get(&bucket)?.newest(|waiter| waiter.fingerprint == fingerprint)?;
        Some(newest.bytes.is_some())
    }

    /// The keys of the pending items of `bucket`.
    pub fn waiting_keys(&self, bucket: BucketId) -> Vec<Box<[u8]>> {
        let Some(list) = self.buckets.get(&bucket) else { return Vec::new() };
        let key = |waiter: &Waiter| {
            let newest = list.newest(|other| other.fingerprint == waiter.fingerprint)?;
            // No bytes: the newest entry of the key is a tombstone, so the key is absent.
            newest.bytes.as_ref()?;
            Some(waiter.bytes.as_ref()?[..usize::from(waiter.key_len)].into())
        };
        list.fresh.iter().chain(list.frozen()).filter_map(key).collect()
    }

    /// Appends an item, replacing an older fresh one of the same key. The caller has taken memory for the item and for a bucket; returns
    /// the part that was not needed or became free.
    pub fn insert(&mut self, bucket: BucketId, item: Waiter) -> usize {
        let spare = if self.buckets.contains_key(&bucket) { BUCKET_OVERHEAD_BYTES } else { 0 };
        let list = self.buckets.entry(bucket).or_default();
        let key = item.bytes.as_ref().map_or(&[][..], |bytes| &bytes[..usize::from(item.key_len)]);
        let dropped = list.drop_fresh(item.fingerprint, key, &mut self.stats);
        let freed = spare + dropped.map_or(0, |dropped| dropped.memory_bytes());
        self.leaving.change(bucket, item.fingerprint, LeavingState::StoredAgain);
        list.push(item, self.settles);
        self.enqueue(bucket);
        freed
    }

    /// Ensures that `key` is not found from now on. `on_flash` is whether the bucket may contain it, determined under the shard's lock: the
    /// filter then describes the content without the frozen entries.
    pub fn remove(
        &mut self,
        bucket: BucketId,
        fingerprint: Fingerprint,
        key: &[u8],
        on_flash: bool,
        mut destructor_reason: Option<Reason>,
    ) -> Removal {
        let mut removal = Removal::default();
        let needed = match self.buckets.get_mut(&bucket) {
            None => on_flash,
            Some(list) => {
                let dropped = list.drop_fresh(fingerprint, key, &mut self.stats);
                removal.freed_bytes = dropped.as_ref().map_or(0, Waiter::memory_bytes);
                // An older version below it is the same item, written twice: its destructor is called once, with this value.
                removal.dropped = dropped.and_then(|dropped| Some((dropped, destructor_reason.take()?)));
                list.needs_tombstone(fingerprint, key, on_flash)
            }
        };
        let was_leaving =
            self.leaving.change(bucket, fingerprint, LeavingState::Forgotten(destructor_reason));
        removal.was_known = needed || removal.freed_bytes > 0 || was_leaving;
        if needed {
            let tombstone = Waiter::tombstone(fingerprint, destructor_reason);
            let is_first = !self.buckets.contains_key(&bucket);
            removal.taken_bytes = tombstone.memory_bytes() + if is_first { BUCKET_OVERHEAD_BYTES } else { 0 };
            self.buckets.entry(bucket).or_default().push(tombstone, self.settles);
            self.enqueue(bucket);
        } else {
            removal.freed_bytes += self.forget_if_idle(bucket);
        }
        removal
    }

    /// Moves all pending buckets ahead of the others. Returns the time for [`has_older_than`](Self::has_older_than).
    pub fn begin_settle(&mut self) -> SettleNumber {
        self.settles.0 += 1;
        let waiting = self.buckets.keys().copied().filter(|&bucket| self.can_be_taken(bucket));
        self.due = waiting.collect();
        self.settles
    }

    /// Whether an entry older than this settle number is pending or being written.
    pub fn has_older_than(&self, number: SettleNumber) -> bool {
        self.buckets.values().any(|list| list.is_older_than(number))
    }

    /// Whether `settle` waits for a bucket that is still pending.
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes a bucket that `settle` waits for, otherwise the one with the most entries, and its pending neighbours, up to `most` buckets.
    pub fn take_group(&mut self, most: u32) -> Option<Group> {
        let seed = self.pop_due().or_else(|| self.pop_fullest())?;
        let (run_start, run_end) = (seed.0 & !(RUN - 1), seed.0 | (RUN - 1));
        let (mut first, mut last) = (seed.0, seed.0);
        while last < run_end && last - first + 1 < most && self.can_be_taken(BucketId(last + 1)) {
            last += 1;
        }
        while first > run_start && last - first + 1 < most && self.can_be_taken(BucketId(first - 1)) {
            first -= 1;
        }
        let frozen = (first..=last).map(|bucket| self.freeze(BucketId(bucket))).collect();
        Some(Group { first: BucketId(first), frozen, write_number: 0 })
    }

    /// Removes all pending entries. Entries of a write in flight keep their memory until it completes. Returns the freed memory.
    pub fn clear(&mut self) -> usize {
        let mut freed = 0;
        let stats = &mut self.stats;
        self.buckets.retain(|_, list| {
            stats.replaced_bytes += list.fresh.iter().map(Waiter::item_bytes).sum::<usize>() as u64;
            freed += list.fresh.drain(..).map(|waiter| waiter.memory_bytes()).sum::<usize>();
            if let State::Writing(frozen) = &list.state {
                list.state = State::Cleared(Arc::clone(frozen));
            }
            let stays = !matches!(list.state, State::Resting);
            freed += if stays { 0 } else { BUCKET_OVERHEAD_BYTES };
            stays
        });
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.due.clear();
        self.leaving.clear();
        freed
    }

    /// An item was evicted from `bucket`. Entries of its key since the bucket was taken decide its fate, otherwise those that follow until
    /// [`end_leaving`](Self::end_leaving).
    pub fn begin_leaving(&mut self, bucket: BucketId, fingerprint: Fingerprint) {
        let fresh = self.buckets.get(&bucket).map_or(&[][..], |list| &list.fresh);
        self.leaving.add(bucket, fingerprint, LeavingState::among(fresh, fingerprint));
    }

    /// Takes the state of an item that left its bucket; `None` if the cache was cleared since.
    pub fn end_leaving(&mut self, bucket: BucketId, fingerprint: Fingerprint) -> Option<LeavingState> {
        self.leaving.take(bucket, fingerprint)
    }

    /// Whether the cache was [cleared](Self::clear) while `bucket` was being written.
    pub fn is_cleared(&self, bucket: BucketId) -> bool {
        self.buckets.get(&bucket).is_some_and(|list| matches!(list.state, State::Cleared(_)))
    }

    /// The write of `bucket` has completed or failed: its entries are no longer pending. Returns the freed memory.
    pub fn release(&mut self, bucket: BucketId) -> usize {
        self.writes[(bucket.0 % RUN) as usize] = self.writes[(bucket.0 % RUN) as usize].wrapping_add(1);
        let settled: usize = match self.change_state(bucket, State::Resting) {
            State::Writing(frozen) | State::Cleared(frozen) => frozen.iter().map(Waiter::memory_bytes).sum(),
            _ => 0,
        };
        let freed = settled + self.forget_if_idle(bucket);
        self.enqueue(bucket);
        freed
    }

    /// The write of `bucket` was not submitted: its entries are pending again, ahead of newer ones. Returns the memory freed by a
    /// concurrent clear.
    pub fn put_back(&mut self, bucket: BucketId) -> usize {
        let mut freed = 0;
        match self.change_state(bucket, State::Resting) {
            State::Writing(frozen) => {
                let list = self.buckets.entry(bucket).or_default();
                let fresh = std::mem::take(&mut list.fresh);
                list.fresh = frozen.iter().cloned().chain(fresh).collect();
                list.fresh_since = list.frozen_since;
            }
            State::Cleared(frozen) => freed = frozen.iter().map(Waiter::memory_bytes).sum(),
            _ => {}
        }
        freed += self.forget_if_idle(bucket);
        self.enqueue(bucket);
        freed
    }

    /// The bucket's state for comparing before and after a read.
    pub fn bucket_version(&self, bucket: BucketId) -> BucketVersion {
        let writing = self.buckets.get(&bucket).is_some_and(|list| !matches!(list.state, State::Resting));
        BucketVersion { writes: self.writes[(bucket.0 % RUN) as usize], writing }
    }

    /// Number of buckets with pending entries.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Number of pending entries, including those being written.
    pub fn entries(&self) -> usize {
        self.buckets.values().map(|list| list.fresh.len() + list.in_writing()).sum()
    }

    /// Number of pending items that can be read.
    pub fn items(&self) -> usize {
        let items = |waiters: &[Waiter]| waiters.iter().filter(|waiter| waiter.bytes.is_some()).count();
        let of = |list: &Waitlist| match &list.state {
            State::Writing(frozen) => items(&list.fresh) + items(frozen),
            State::Resting | State::Cleared(_) => items(&list.fresh),
        };
        self.buckets.values().map(of).sum()
    }

    /// The pending removals.
    pub fn tombstones(&self) -> impl Iterator<Item = (BucketId, Fingerprint)> + '_ {
        self.buckets.iter().flat_map(|(bucket, list)| {
            let waiters = list.fresh.iter().chain(list.frozen()).filter(|waiter| waiter.bytes.is_none());
            waiters.map(|waiter| (*bucket, waiter.fingerprint))
        })
    }

    /// Whether any bucket has entries that no write contains yet.
    pub fn has_takeable(&self) -> bool {
        self.buckets.keys().any(|&bucket| self.can_be_taken(bucket))
    }

    fn pop_due(&mut self) -> Option<BucketId> {
        while let Some(bucket) = self.due.pop_front() {
            if self.can_be_taken(bucket) {
                return Some(bucket);
            }
        }
        None
    }

    fn pop_fullest(&mut self) -> Option<BucketId> {
        for level in (0..LEVELS).rev() {
            while let Some(bucket) = self.queues[level].pop_front() {
                let current = self.buckets.get(&bucket).is_some_and(|list| list.queued == level + 1);
                if current && self.can_be_taken(bucket) {
                    return Some(bucket);
                }
            }
        }
        None
    }

    fn can_be_taken(&self, bucket: BucketId) -> bool {
        let list = self.buckets.get(&bucket);
        list.is_some_and(|list| matches!(list.state, State::Resting) && !list.fresh.is_empty())
    }

    fn freeze(&mut self, bucket: BucketId) -> Arc<Vec<Waiter>> {
        let list = self.buckets.get_mut(&bucket).expect("only buckets that wait are taken");
        let frozen = Arc::new(std::mem::take(&mut list.fresh));
        list.frozen_since = list.fresh_since;
        list.state = State::Writing(Arc::clone(&frozen));
        list.queued = 0;
        frozen
    }

    fn change_state(&mut self, bucket: BucketId, to: State) -> State {
        let list = self.buckets.get_mut(&bucket).expect("a bucket that is being written is in the table");
        std::mem::replace(&mut list.state, to)
    }

    /// Removes the list of a bucket without entries. Returns the freed memory.
    fn forget_if_idle(&mut self, bucket: BucketId) -> usize {
        if let Entry::Occupied(entry) = self.buckets.entry(bucket)
            && entry.get().fresh.is_empty()
            && matches!(entry.get().state, State::Resting)
        {
            entry.remove();
            return BUCKET_OVERHEAD_BYTES;
        }
        0
    }

    fn enqueue(&mut self, bucket: BucketId) {
        let Some(list) = self.buckets.get_mut(&bucket) else { return };
        let level = list.fresh.len().min(LEVELS);
        if !matches!(list.state, State::Resting) || level <= list.queued {
            return;
        }
        // The bucket was being written when `begin_settle` was called.
        if list.queued == 0 && list.fresh_since < self.settles {
            self.due.push_back(bucket);
        }
        list.queued = level;
        let queue = &mut self.queues[level - 1];
        queue.push_back(bucket);
        // Stale entries are dropped when popped. A lower queue may never be popped, so it is swept when most of it must be stale.
        if queue.len() > 64 + 2 * self.buckets.len() {
            let buckets = &self.buckets;
            queue.retain(|bucket| buckets.get(bucket).is_some_and(|list| list.queued == level));
            let mut seen = hashbrown::HashSet::new();
            queue.retain(|bucket| seen.insert(*bucket));
        }
    }
}

/// The effects of a removal on the table.
#[derive(Debug, Default)]
pub struct Removal {
    /// Whether the key may have been present.
    pub was_known: bool,
    /// Memory of the dropped pending item.
    pub freed_bytes: usize,
    /// Memory of the added tombstone.
    pub taken_bytes: usize,
    /// The dropped pending item with its reason, if its destructor must be called.
    pub dropped: Option<(Waiter, Reason)>,
}

impl Waitlist {
    fn frozen(&self) -> &[Waiter] {
        match &self.state {
            State::Writing(frozen) => frozen,
            _ => &[],
        }
    }

    fn push(&mut self, waiter: Waiter, now: SettleNumber) {
        if self.fresh.is_empty() {
            self.fresh_since = now;
        }
        // Grows by few entries: most lists have one, and a vector would start with capacity for four.
        if self.fresh.len() == self.fresh.capacity() {
            self.fresh.reserve_exact(1 + self.fresh.len() / 4);
        }
        self.fresh.push(waiter);
    }

    fn is_older_than(&self, number: SettleNumber) -> bool {
        let is_being_written = matches!(self.state, State::Writing(_));
        (!self.fresh.is_empty() && self.fresh_since < number)
            || (is_being_written && self.frozen_since < number)
    }

    /// Entries of the write in flight, cleared or not.
    fn in_writing(&self) -> usize {
        match &self.state {
            State::Writing(frozen) | State::Cleared(frozen) => frozen.len(),
            _ => 0,
        }
    }

    fn newest(&self, wanted: impl Fn(&Waiter) -> bool) -> Option<&Waiter> {
        self.fresh.iter().rev().chain(self.frozen().iter().rev()).find(|waiter| wanted(waiter))
    }

    /// Removes and returns the fresh item of `key`. Tombstones stay: one of another key with the same fingerprint is still needed.
    fn drop_fresh(&mut self, fingerprint: Fingerprint, key: &[u8], stats: &mut SocStats) -> Option<Waiter> {
        let found = self.fresh.iter().position(|waiter| waiter.is_item(fingerprint, key))?;
        let dropped = self.fresh.remove(found);
        stats.replaced_bytes += dropped.item_bytes() as u64;
        Some(dropped)
    }

    /// Whether the removal of `key`, which has no fresh item, needs a tombstone.
    fn needs_tombstone(&self, fingerprint: Fingerprint, key: &[u8], on_flash: bool) -> bool {
        // A tombstone that is pending, or in a write with nothing after it, suffices. An item that is being written will be on flash,
        // even if the filter finds the key in the old content.
        match self.newest(|waiter| waiter.concerns(fingerprint, key)) {
            Some(waiter) => waiter.bytes.is_some(),
            None => on_flash,
        }
    }
}
