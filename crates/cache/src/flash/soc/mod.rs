//! The small-object cache: a hash table of buckets on the device, and one filter per bucket in memory. It has no index, so an item costs
//! memory only for its share of a filter.
//!
//! The design is that of CacheLib's BigHash (Berg et al., "The CacheLib Caching Engine", OSDI 2020, §4.3): a key's hash selects its bucket,
//! a bucket is read and written as a whole, and its oldest items are evicted for new ones. Deviation: an insert does not rewrite its
//! bucket. Items are pending in memory (`pending.rs`), where they are readable, and a background step ([`Soc::step`]) writes all pending
//! items of a bucket and its neighbours together. Fewer bytes are written per item, and no insert waits for the device.
//!
//! After [`commit`](Soc::commit) or [`forget`](Soc::forget), a lookup sees that version of the key, a later one, or nothing. Three rules
//! ensure this. Pending entries stay visible until the write that contains them has completed. A bucket is rewritten by one writer at a
//! time. A read is repeated if its bucket was rewritten meanwhile.
//!
//! A bucket is read only if it was written in this generation. Memory has one bit per bucket for that, which the snapshot of a clean close
//! keeps. Without the snapshot, a store begins a new generation, and all older buckets are empty; or it reads all buckets, if it has a
//! [journal](journal) of the removals.

mod bits;
mod bucket;
mod change;
mod completion;
mod config;
mod filter;
#[cfg(feature = "fuzzing")]
pub(in crate::flash) mod fuzzing;
mod held;
mod journal;
mod keys;

mod leaving;
mod lookup;
mod pending;
mod persist;
mod report;
mod settle;
mod stats;
mod write;
mod write_back;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::counters::CounterTable;
use device::{Clock, Device, IoBuffer, IoError, PlacementHandle, Request};
use event_listener::Event;
use parking_lot::Mutex;

pub use bucket::{ENTRY_BYTES, HEADER_BYTES as BUCKET_HEADER_BYTES};
pub use config::{SocConfig, SocConfigError};
pub(super) use journal::read_journal;
pub(super) use pending::ENTRY_OVERHEAD_BYTES;
pub use stats::SocStats;
pub use write::Progress;

use super::outage::WritePauses;
use super::{DestructorCallback, FlashItem, OnEviction, Waiting};
use crate::KeyHash;
use crate::config::Removal;
use crate::flash::reports::Reports;
use bits::Bits;
use bucket::{BucketId, Fingerprint, Identity, Unusable};
use filter::Filters;
use held::HeldWrites;
use journal::BucketJournal;
use pending::{Shard, Waiter};
use write::Write;

const SHARDS: usize = 64;

const _: () = assert!(pending::RUN == bits::BITS_PER_WORD, "a shard's buckets share no word with another's");

/// A small-object cache on a range of a device.
pub struct Soc {
    device: Arc<dyn Device>,
    placement: PlacementHandle,
    config: SocConfig,
    buckets: u32,
    /// Maximum number of buckets per device write.
    group_buckets: u32,
    filters: Filters,
    /// Buckets with content of this generation. Only these are read.
    written: Bits,
    shards: Box<[Mutex<Shard>]>,
    pending_bytes: AtomicUsize,
    /// Writes in flight whose step was dropped.
    left_over: Mutex<Vec<Write>>,
    held: HeldWrites,
    turn: AtomicUsize,
    /// Calls of `settle` and `drain` in progress.
    settling: AtomicUsize,
    room: Event,
    work: Event,
    on_eviction: Option<OnEviction>,
    pauses: WritePauses,
    journal: Option<BucketJournal>,
    on_destructor: Option<DestructorCallback>,
    /// Items removed before their buckets were written, whose destructors are still to be called.
    dropped: Mutex<Vec<(Waiter, Removal)>>,
    /// Steps that report evicted items.
    reports: Reports,
}

/// Why an item was not staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotStaged {
    /// Too many bytes are pending. [`Soc::wait_ready`] waits for space.
    #[error("the memory for items that wait to be written to flash is full")]
    Full,
    /// Too many bytes are pending, and writes fail: the caller should not wait.
    #[error("the device fails, and the memory for items that wait to be written to flash is full")]
    Failing,
    /// No bucket can hold the item ([`Soc::fits`]).
    #[error("the item is larger than a bucket can hold")]
    TooLarge,
}

/// An item copied to memory, not visible yet. Dropping it discards it.
#[must_use = "an item that is staged but not committed is never visible"]
pub struct Staged<'soc> {
    soc: &'soc Soc,
    address: Address,
    item: Option<Waiter>,
}

/// The bucket and fingerprint of a key.
#[derive(Debug, Clone, Copy)]
struct Address {
    bucket: BucketId,
    fingerprint: Fingerprint,
}

impl Soc {
    /// An empty cache on `device`.
    ///
    /// # Errors
    /// The configuration does not fit the device.
    pub fn new(device: Arc<dyn Device>, config: SocConfig) -> Result<Self, SocConfigError> {
        let geometry = device.geometry();
        config.check(&geometry)?;
        let buckets = config.buckets();
        Ok(Self {
            placement: device.allocate_handle("soc"),
            journal: BucketJournal::new(&device, &config),
            device,
            config,
            buckets,
            group_buckets: geometry.transfer_units(config.bucket_bytes.into(), config.max_write_bytes.into())
                as u32,
            filters: Filters::new(buckets, config.filter_bytes_per_bucket),
            written: Bits::new(buckets),
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect(),
            pending_bytes: AtomicUsize::new(0),
            left_over: Mutex::default(),
            held: HeldWrites::default(),
            turn: AtomicUsize::new(0),
            settling: AtomicUsize::new(0),
            room: Event::new(),
            work: Event::new(),
            on_eviction: None,
            pauses: WritePauses::default(),
            on_destructor: None,
            dropped: Mutex::default(),
            reports: Reports::default(),
        })
    }

    /// Calls `on_eviction` with every item evicted from its bucket to make space; not with items that expired, were removed, replaced or
    /// lost to a failing device.
    #[must_use]
    pub fn with_eviction_callback(mut self, on_eviction: OnEviction) -> Self {
        self.on_eviction = Some(on_eviction);
        self
    }

    /// Whether an item with this key and value length can be stored.
    #[must_use]
    pub fn fits(&self, key_bytes: usize, value_bytes: usize) -> bool {
        self.config.fits(key_bytes, value_bytes)
    }

    /// The largest sum of key and value that can be stored.
    #[must_use]
    pub fn max_item_bytes(&self) -> usize {
        self.config.max_item_bytes()
    }

    /// Copies an item to memory. It becomes visible by [`commit`](Self::commit).
    ///
    /// # Errors
    /// See [`NotStaged`]; nothing is stored then.
    pub fn stage(&self, item: &FlashItem<'_>) -> Result<Staged<'_>, NotStaged> {
        let value_len = item.value_len();
        if !self.fits(item.key.len(), value_len) {
            return Err(NotStaged::TooLarge);
        }
        let address = self.address(item.hash);
        let len = item.key.len() + value_len;
        // Includes the overhead of a bucket without pending entries. If the bucket has some, `commit` returns this part.
        self.take_room(pending::BUCKET_OVERHEAD_BYTES + pending::ENTRY_OVERHEAD_BYTES + len)?;
        let item = Waiter {
            fingerprint: address.fingerprint,
            expiry_seconds: item.expiry_seconds,
            tag: item.tag,
            key_len: u8::try_from(item.key.len()).expect("checked by `fits`"),
            bytes: Some(key_and_value(item, len)),
        };
        Ok(Staged { soc: self, address, item: Some(item) })
    }

    /// Makes a staged item visible, in place of an older version of its key. The caller holds the key's lock.
    pub fn commit(&self, mut staged: Staged<'_>) {
        let item = staged.item.take().expect("a staged item is committed once");
        let bucket = staged.address.bucket;
        let freed = {
            let mut shard = self.shard(bucket).lock();
            shard.stats.inserts += 1;
            shard.stats.logical_written_bytes += item.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
            shard.insert(bucket, item)
        };
        if freed > 0 {
            self.give_back(freed);
        }
        self.announce_work();
    }

    /// Discards a staged item; the same as dropping it.
    pub fn abandon(&self, staged: Staged<'_>) {
        drop(staged);
    }

    /// Removes `key`: lookups miss from now on. Returns whether there may have been an item. Never refused: a tombstone exceeds the pending
    /// limit if necessary, so a caller that removes many keys should [wait](Self::wait_ready) as inserts do.
    pub fn forget(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.forget_with_destructor(hash, key, None)
    }

    /// As [`forget`](Self::forget). With a `reason`, the item's destructor must be called: the callback of
    /// [`with_destructor`](Self::with_destructor) is called when the item's bucket is written, or by
    /// [`destroy_dropped`](Self::destroy_dropped) if the item is still pending.
    pub fn forget_with_destructor(&self, hash: KeyHash, key: &[u8], reason: Option<Removal>) -> bool {
        let Address { bucket, fingerprint } = self.address(hash);
        let removal = {
            let mut shard = self.shard(bucket).lock();
            let on_flash = self.may_be_on_flash(bucket, fingerprint);
            let removal = shard.remove(bucket, fingerprint, key, on_flash, reason);
            if removal.taken_bytes > 0 {
                self.record_removal(Address { bucket, fingerprint });
            }
            shard.stats.removes += u64::from(removal.was_known);
            // Under the lock: after its release, a step may settle the tombstone and subtract its memory.
            self.pending_bytes.fetch_add(removal.taken_bytes, Ordering::AcqRel);
            removal
        };
        if removal.taken_bytes > 0 {
            self.announce_work();
        }
        if removal.freed_bytes > 0 {
            self.give_back(removal.freed_bytes);
        }
        self.dropped.lock().extend(removal.dropped);
        removal.was_known
    }

    /// Empties every bucket and drops pending items. The device is not written; a bucket counts as never written until its next write.
    pub fn clear(&self) {
        let runs = self.buckets.div_ceil(pending::RUN) as usize;
        for (number, shard) in self.shards.iter().enumerate() {
            let mut shard = shard.lock();
            let words = || (number..runs).step_by(SHARDS);
            words().for_each(|run| self.written.clear_word(run));
            self.record_clear(words());
            shard.stats.items = 0;
            let freed = shard.clear();
            drop(shard);
            self.give_back(freed);
        }
    }

    /// Whether an item with this hash may be present. `false` is certain. Costs no I/O.
    #[must_use]
    pub fn may_contain(&self, hash: KeyHash) -> bool {
        let Address { bucket, fingerprint } = self.address(hash);
        // The table first: an entry leaves it only after the filter contains it.
        let waits = self.shard(bucket).lock().waits(bucket, fingerprint);
        waits.unwrap_or_else(|| self.may_be_on_flash(bucket, fingerprint))
    }

    /// Whether there is space to stage an item.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.pending_bytes() < self.config.pending_limit_bytes
    }

    /// Pauses writes while the device fails, for 50 ms to 5 s by this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.pauses = WritePauses::with_clock(clock);
        self
    }

    /// Whether writes fail.
    pub(in crate::flash) fn is_failing(&self) -> bool {
        self.pauses.is_failing()
    }

    /// The last failed write.
    pub(in crate::flash) fn last_error(&self) -> Option<String> {
        self.pauses.last_error()
    }

    /// Wakes [`wait_work`](Self::wait_work) if a pause has ended. Returns the end of the current pause.
    pub(in crate::flash) fn wake_if_due(&self, now_ns: u64) -> Option<u64> {
        let pause_ns = self.pauses.wake_if_due(now_ns, &self.work);
        let held_ns = self.held.next_due_ns().inspect(|&due_ns| {
            if due_ns <= now_ns {
                self.work.notify(usize::MAX);
            }
        });
        pause_ns.into_iter().chain(held_ns.filter(|&due_ns| due_ns > now_ns)).min()
    }

    fn note_write(&self, written: &Result<(), IoError>) {
        if self.pauses.note_write(written.as_ref().copied()) {
            self.wake();
        }
    }

    /// Waits until an item can be [staged](Self::ready), or writes fail. Another task must be stepping.
    pub async fn wait_ready(&self, waiting: Waiting) {
        waiting.until(&self.room, || self.ready() || self.is_failing()).await;
    }

    /// Whether a [`step`](Self::step) is worthwhile: half of the pending memory is in use, or a caller waits in [`settle`](Self::settle).
    /// The other half receives items during the step.
    #[must_use]
    pub fn wants_step(&self) -> bool {
        let is_waited_for = || {
            self.has_left_over()
                || self.held.is_any()
                || self.shards.iter().any(|shard| shard.lock().has_due())
        };
        let has_work = self.pending_bytes() >= self.config.pending_limit_bytes / 2
            || self.has_due_retry()
            || self.is_journal_half_full();
        (has_work && !self.pauses.is_pause())
            || (self.settling.load(Ordering::Acquire) > 0 && is_waited_for())
    }

    /// Waits until the cache [wants a step](Self::wants_step) that has work: some pending entries are not yet taken by other steps.
    pub async fn wait_work(&self, waiting: Waiting) {
        let has_work = || self.anything_to_take() || self.is_journal_half_full();
        waiting.until(&self.work, || self.wants_step() && has_work()).await;
    }

    /// Wakes all tasks in [`wait_work`](Self::wait_work) and [`wait_ready`](Self::wait_ready), to check their conditions again.
    pub fn wake(&self) {
        self.work.notify(usize::MAX);
        self.room.notify(usize::MAX);
    }

    /// Bytes of pending entries.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes.load(Ordering::Acquire)
    }

    /// Maximum memory of the cache: filters, bits and the pending limit, which only tombstones may exceed.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let journal_bytes = self.journal.as_ref().map_or(0, BucketJournal::bytes);
        self.filters.bytes() + self.written.bytes() + journal_bytes + self.config.pending_limit_bytes
    }

    /// Bytes of all buckets, and of the buckets that were written and not emptied since.
    #[must_use]
    pub fn room_bytes(&self) -> (u64, u64) {
        let written: u64 = self.written.words().map(|word| u64::from(word.count_ones())).sum();
        let bucket_bytes = u64::from(self.config.bucket_bytes);
        (u64::from(self.config.buckets()) * bucket_bytes, written * bucket_bytes)
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &SocConfig {
        &self.config
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> SocStats {
        let mut sum = SocStats::default();
        for shard in &self.shards {
            let shard = shard.lock();
            sum.add(&shard.stats);
            sum.pending_entries += shard.entries() as u64;
            sum.pending_items += shard.items() as u64;
            sum.pending_buckets += shard.buckets() as u64;
        }
        sum.pending_bytes = self.pending_bytes() as u64;
        sum.stored_items = sum.items.max(0).cast_unsigned() + sum.pending_items;
        sum
    }

    fn address(&self, hash: KeyHash) -> Address {
        // Multiply and shift: works for any number of buckets, and spreads hashes evenly.
        let bucket = (u128::from(hash.0) * u128::from(self.buckets)) >> 64;
        Address { bucket: BucketId(bucket as u32), fingerprint: Fingerprint::of(hash) }
    }

    fn shard(&self, bucket: BucketId) -> &Mutex<Shard> {
        &self.shards[(bucket.0 >> pending::RUN_BITS) as usize % SHARDS]
    }

    fn identity(&self, id: BucketId) -> Identity {
        Identity { generation: self.config.generation, id, is_numbered: self.journal.is_some() }
    }

    fn may_be_on_flash(&self, bucket: BucketId, fingerprint: Fingerprint) -> bool {
        self.written.get(bucket) && self.filters.may_contain(bucket, fingerprint)
    }

    fn offset(&self, bucket: BucketId) -> u64 {
        self.config.buckets_offset() + u64::from(bucket.0) * u64::from(self.config.bucket_bytes)
    }

    async fn read_bucket(&self, bucket: BucketId, waiting: Waiting) -> Option<IoBuffer> {
        let request = Request::read(self.offset(bucket), self.config.bucket_bytes as usize);
        waiting.start(&*self.device, request).await.ok()
    }

    /// Marks the bucket as empty in memory; the device is not written. The caller holds the lock of its shard or is its writer.
    fn mark_empty(&self, bucket: BucketId) {
        self.written.set(bucket, false);
        self.filters.clear(bucket);
    }

    fn announce_work(&self) {
        if self.wants_step() {
            self.work.notify(1);
        }
    }

    /// Takes pending memory if the limit is not reached yet. The last item may exceed the limit: otherwise a limit below the size of an
    /// item would always refuse it.
    fn take_room(&self, bytes: usize) -> Result<(), NotStaged> {
        let limit = self.config.pending_limit_bytes;
        let take = |pending: usize| (pending < limit).then_some(pending + bytes);
        let taken = self.pending_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        taken.map(|_| ()).map_err(|_| if self.is_failing() { NotStaged::Failing } else { NotStaged::Full })
    }

    fn give_back(&self, bytes: usize) {
        let before = self.pending_bytes.fetch_sub(bytes, Ordering::AcqRel);
        debug_assert!(before >= bytes, "more pending memory given back than was taken");
        self.room.notify(usize::MAX);
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.soc.give_back(pending::BUCKET_OVERHEAD_BYTES + item.memory_bytes());
        }
    }
}

impl SocStats {
    fn count_unusable(&mut self, why: Unusable) {
        match why {
            Unusable::Stale => self.stale_buckets += 1,
            Unusable::Checksum | Unusable::Malformed => self.checksum_errors += 1,
        }
    }
}

/// Key and value of an item in one allocation.
fn key_and_value(item: &FlashItem<'_>, len: usize) -> Arc<[u8]> {
    // Collecting an iterator of known length allocates the shared memory directly.
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
    let whole = Arc::get_mut(&mut bytes).expect("the buffer is not shared yet");
    let (key, value) = whole.split_at_mut(item.key.len());
    key.copy_from_slice(item.key);
    item.copy_value(value);
    bytes
}

#[cfg(test)]
mod tests;
