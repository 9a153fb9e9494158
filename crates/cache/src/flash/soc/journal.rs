//! Recording removals in the [journal](crate::flash::journal), and finding the items of all buckets after a kill or a power cut.
//!
//! Each bucket names the number of the write that contains it, and a removal is recorded with the number of the newest write. Both are
//! determined under the lock of the bucket's shard. So a recorded removal concerns a bucket if the bucket's number is not larger: a bucket
//! with a larger number was written with the removal. After a kill all buckets are read, and their removed items become pending removals.
//!
//! * After a power cut, a bucket may have the content of any write since the last flush. Its removals since then are still in the journal.
//! * When half of the journal is in use, the pending removals are recorded again, and all earlier records are dropped. Before that, the
//!   device is flushed if records are to survive a power cut.
//! * A bucket whose content on flash is unknown, because its write failed or because it could not be read, counts as empty. That is
//!   recorded as well, until it is written.
//! * The floor is the number of the first write after the last clear. If the journal is full, the floor rises: the older buckets remain in
//!   use, but will not be recovered.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::{Device, IoError, Outcome, PlacementHandle, Request};

use super::bits::Bits;
use super::bucket::{Bucket, BucketId, Fingerprint, Unusable};
use super::persist::{RestoreError, words_of};
use super::{Address, Soc, SocConfig};
use crate::flash::Waiting;
use crate::flash::journal::block::{Record, RemovedAddress};
use crate::flash::journal::{Chain, ChainError, Journal, Position};
use crate::flash::read_ahead::read_all;

/// Bytes of one read, and reads in flight.
const READ_BYTES: u64 = 1 << 20;
const READS: usize = 8;

/// The number of a new cache's first write.
const FIRST_WRITE: u64 = 1;
/// Write numbers that are skipped after a recovery: those of writes that the device lost must not be used again.
const SKIPPED_WRITES: u64 = 1 << 20;

/// A removed address: the bucket (32 bits), whether all of its items are removed (1), and bits of the fingerprint (21).
const BUCKET_SHIFT: u32 = 22;
const WHOLE_BUCKET: u64 = 1 << 21;
const FINGERPRINT_SHIFT: u32 = 11;

/// The journal of a cache.
pub(super) struct BucketJournal {
    journal: Journal,
    /// The number of the newest write that was begun.
    newest_write: AtomicU64,
    /// Empty buckets whose content on flash is unknown.
    lost: Bits,
    /// Whether the pending removals must be recorded again, to drop earlier records.
    is_half_full: AtomicBool,
    /// Whether a bucket was written since the last flush.
    is_unflushed: AtomicBool,
}

impl BucketJournal {
    fn of(journal: Journal, newest_write: u64, buckets: u32) -> Self {
        Self {
            is_half_full: AtomicBool::new(journal.is_half_full()),
            journal,
            newest_write: AtomicU64::new(newest_write),
            lost: Bits::new(buckets),
            is_unflushed: AtomicBool::new(false),
        }
    }

    /// An empty journal, if the configuration has one.
    pub(super) fn new(device: &Arc<dyn Device>, config: &SocConfig) -> Option<Self> {
        let place = config.journal_place()?;
        let journal = Journal::new(Arc::clone(device), PlacementHandle::DEFAULT, place, FIRST_WRITE);
        Some(Self::of(journal, FIRST_WRITE - 1, config.buckets()))
    }

    fn continued(
        device: &Arc<dyn Device>,
        config: &SocConfig,
        position: Position,
        newest_write: u64,
    ) -> Self {
        let place = config.journal_place().expect("the cache has a journal");
        let journal = Journal::continued(Arc::clone(device), PlacementHandle::DEFAULT, place, position);
        Self::of(journal, newest_write, config.buckets())
    }

    fn newest_write(&self) -> u64 {
        self.newest_write.load(Ordering::Acquire)
    }

    /// The caller holds the lock of the bucket's shard.
    fn record(&self, address: RemovedAddress) {
        // A full ring raises the floor. The older buckets remain in use.
        _ = self.journal.remove(address, self.newest_write());
        if self.journal.is_half_full() {
            self.is_half_full.store(true, Ordering::Release);
        }
    }

    fn record_lost(&self, bucket: BucketId) {
        self.lost.set(bucket, true);
        self.record(RemovedAddress(u64::from(bucket.0) << BUCKET_SHIFT | WHOLE_BUCKET));
    }

    pub(super) fn bytes(&self) -> usize {
        self.lost.bytes()
    }
}

/// The address of all items of a bucket with this fingerprint, or with one that differs in its last bits only.
fn removed_address(bucket: BucketId, fingerprint: Fingerprint) -> RemovedAddress {
    RemovedAddress(u64::from(bucket.0) << BUCKET_SHIFT | u64::from(fingerprint.0 >> FINGERPRINT_SHIFT))
}

/// Reads the journal of a cache on `device`.
///
/// # Errors
/// The journal cannot be used; the cache must start empty, in another generation.
pub(in crate::flash) async fn read_journal(
    device: &Arc<dyn Device>,
    config: &SocConfig,
    waiting: Waiting,
) -> Result<Chain, ChainError> {
    let place = config.journal_place().ok_or(ChainError::Empty)?;
    Chain::read(device, &place, waiting).await
}

impl Soc {
    /// Waits until the journal has all removals before the call, if there is a journal. To be called before a remove, an overwrite or a
    /// clear is acknowledged, with no lock held. Blocks the thread for a copy to the page cache, or for a write, and for a flush if
    /// removals are to survive a power cut.
    pub fn acknowledge(&self) {
        _ = self.sync_journal();
    }

    fn sync_journal(&self) -> Result<(), IoError> {
        let Some(BucketJournal { journal, .. }) = &self.journal else { return Ok(()) };
        let synced = journal.sync();
        self.note_journal_write(&synced);
        synced
    }

    fn note_journal_write(&self, written: &Result<(), IoError>) {
        if written.is_err() {
            self.shards[0].lock().stats.write_errors += 1;
            self.note_write(written);
        }
    }

    /// The number of a write whose entries are being taken, under the lock of their shard.
    pub(super) fn next_write_number(&self) -> u64 {
        self.journal.as_ref().map_or(0, |it| it.newest_write.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Records a removal that is pending, under the lock of its shard.
    pub(super) fn record_removal(&self, address: Address) {
        if let Some(journal) = &self.journal {
            journal.record(removed_address(address.bucket, address.fingerprint));
        }
    }

    /// Records that the content of a bucket on flash is unknown, under the lock of its shard.
    pub(super) fn record_lost(&self, bucket: BucketId) {
        if let Some(journal) = &self.journal {
            journal.record_lost(bucket);
        }
    }

    /// Notes that a bucket has been written.
    pub(super) fn note_written(&self, bucket: BucketId) {
        if let Some(journal) = &self.journal {
            journal.lost.set(bucket, false);
            journal.is_unflushed.store(true, Ordering::Release);
        }
    }

    /// Records that all buckets are empty. To be called for each shard under its lock, with the buckets of the shard as words of [`Bits`].
    pub(super) fn record_clear(&self, words: impl Iterator<Item = usize>) {
        if let Some(journal) = &self.journal {
            words.for_each(|word| journal.lost.clear_word(word));
            journal.journal.raise_floor(self.next_write_number());
        }
    }

    /// Flushes the buckets written since the last flush, if they are to survive a power cut.
    pub(super) async fn flush_written(&self, waiting: Waiting) {
        let Some(journal) = self.journal.as_ref().filter(|it| it.journal.flushes()) else { return };
        if journal.is_unflushed.swap(false, Ordering::AcqRel) {
            let flushed = waiting.start(&*self.device, Request::Flush).await.map(drop);
            if flushed.is_err() {
                journal.is_unflushed.store(true, Ordering::Release);
                self.note_journal_write(&flushed);
            }
        }
    }

    /// Whether half of the journal is in use, so that a [`step`](Self::step) is worthwhile.
    pub(super) fn is_journal_half_full(&self) -> bool {
        self.journal.as_ref().is_some_and(|it| it.is_half_full.load(Ordering::Acquire))
    }

    /// Records the pending removals again and drops all earlier records, if half of the journal is in use.
    pub(super) fn shorten_journal(&self) {
        let Some(it) = self.journal.as_ref().filter(|_| self.is_journal_half_full()) else { return };
        let pending: usize = self.shards.iter().map(|shard| shard.lock().tombstones().count()).sum();
        if pending as u64 > it.journal.max_words() / 4 {
            // Most records are still needed: their buckets are written first.
            self.shards.iter().for_each(|shard| _ = shard.lock().begin_settle());
            return;
        }
        it.is_half_full.store(false, Ordering::Release);
        let first_needed = self.next_write_number();
        for shard in &self.shards {
            let shard = shard.lock();
            for (bucket, fingerprint) in shard.tombstones() {
                it.record(removed_address(bucket, fingerprint));
            }
        }
        it.lost.iter().for_each(|bucket| {
            let _shard = self.shard(bucket).lock();
            if it.lost.get(bucket) {
                it.record_lost(bucket);
            }
        });
        // Synced before the floor rises, even if nothing was recorded: writes of buckets whose removals are dropped are flushed by it.
        it.journal.complete_block();
        if self.sync_journal().is_ok() {
            it.journal.raise_removals_floor(first_needed);
        }
        it.is_half_full.store(it.journal.is_half_full(), Ordering::Release);
    }

    /// The journal's part of a snapshot; empty without a journal.
    pub(super) fn journal_snapshot(&self) -> Vec<u8> {
        let Some(BucketJournal { journal, lost, .. }) = &self.journal else { return Vec::new() };
        journal.complete_block();
        self.acknowledge();
        let mut bytes: Vec<u8> = lost.words().flat_map(u64::to_le_bytes).collect();
        bytes.extend(self.journal.iter().flat_map(|it| it.newest_write().to_le_bytes()));
        bytes.extend(journal.closed_position().to_bytes());
        let max_bytes = self.config.journal_place().map_or(0, |place| Position::max_bytes(place.blocks));
        bytes.resize(lost.bytes() + size_of::<u64>() + max_bytes as usize, 0);
        bytes
    }

    /// Restores the [journal's part](Self::journal_snapshot) of a snapshot.
    pub(super) fn restore_journal(&mut self, bytes: &[u8]) -> Result<(), RestoreError> {
        let Some(place) = self.config.journal_place() else { return Ok(()) };
        let (lost, rest) = bytes.split_at(self.written.bytes());
        let newest_write = words_of(rest).next().filter(|number| *number < u64::MAX / 4);
        let position = Position::from_bytes(&rest[size_of::<u64>()..], place.blocks);
        let (newest_write, position) = newest_write.zip(position).ok_or(RestoreError::Journal)?;
        let journal = BucketJournal::continued(&self.device, &self.config, position, newest_write);
        words_of(lost).enumerate().for_each(|(index, word)| journal.lost.restore_word(index, word));
        self.journal = Some(journal);
        Ok(())
    }
}

/// A recorded removal.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Removal {
    bucket: BucketId,
    /// Bits of the fingerprint, or [`WHOLE_BUCKET`].
    items: u64,
    /// The largest number of a write without the removal.
    through: u64,
}

/// The removals of a journal, in order of their buckets.
fn recorded_removals(chain: &Chain) -> Vec<Removal> {
    let removal = |record| match record {
        Record::Removal { address, through } => {
            let bucket = BucketId((address.0 >> BUCKET_SHIFT) as u32);
            Some(Removal { bucket, items: address.0 & ((1 << BUCKET_SHIFT) - 1), through })
        }
        Record::Region(_) => None,
    };
    let mut removals: Vec<Removal> = chain.records().filter_map(removal).collect();
    removals.sort_unstable();
    removals
}

/// The state of the recovery.
struct Scan {
    removals: Vec<Removal>,
    /// Buckets of smaller write numbers were cleared.
    floor: u64,
    /// The largest write number found.
    newest_write: u64,
    items: i64,
    /// Buckets whose content is unknown.
    lost: Vec<BucketId>,
}

impl Soc {
    /// Finds the items of all buckets, in a new cache of the generation in which the journal was written. Must be called before any item
    /// is stored.
    pub(in crate::flash) async fn recover(&mut self, chain: &Chain, waiting: Waiting) {
        let mut journal = BucketJournal::continued(&self.device, &self.config, chain.position(), 0);
        let floor = journal.journal.position().floor;
        let newest_write = chain.through().max(floor);
        let removals = recorded_removals(chain);
        let mut scan = Scan { removals, floor, newest_write, items: 0, lost: Vec::new() };
        self.scan_buckets(&mut scan, waiting).await;
        journal.newest_write = AtomicU64::new(scan.newest_write + SKIPPED_WRITES);
        scan.lost.iter().for_each(|bucket| journal.record_lost(*bucket));
        self.journal = Some(journal);
        self.shards[0].lock().stats.items += scan.items;
        self.acknowledge();
    }

    async fn scan_buckets(&self, scan: &mut Scan, waiting: Waiting) {
        let bucket_bytes = self.config.bucket_bytes as usize;
        let buckets_per_read =
            self.device.geometry().transfer_units(self.config.bucket_bytes.into(), READ_BYTES) as u32;
        let reads = (0..self.buckets).step_by(buckets_per_read as usize).map(|first| {
            let end = self.buckets.min(first + buckets_per_read);
            let request = Request::read(self.offset(BucketId(first)), (end - first) as usize * bucket_bytes);
            (first..end, request)
        });
        let mut unread = Vec::new();
        let visit = |buckets: Range<u32>, read: Outcome| match read {
            Ok(bytes) => {
                for (bucket, bytes) in buckets.zip(bytes.chunks_exact(bucket_bytes)) {
                    self.recover_bucket(BucketId(bucket), Some(bytes), scan);
                }
            }
            Err(_) => unread.extend(buckets),
        };
        read_all(&*self.device, waiting, READS, reads, visit).await;
        // A bad block must not lose the items of adjacent buckets.
        for bucket in unread.into_iter().map(BucketId) {
            let bytes = self.read_bucket(bucket, waiting).await;
            self.recover_bucket(bucket, bytes.as_deref(), scan);
        }
    }

    /// Enters the items of a bucket; `None` if it cannot be read.
    fn recover_bucket(&self, id: BucketId, bytes: Option<&[u8]>, scan: &mut Scan) {
        let Some(bytes) = bytes else {
            scan.lost.push(id);
            self.shards[0].lock().stats.read_errors += 1;
            return;
        };
        let bucket = match Bucket::open(bytes, self.identity(id)) {
            Ok(bucket) => bucket,
            Err(Unusable::Stale) => return,
            Err(_) => {
                // Otherwise it was never written.
                if Bucket::has_generation(bytes, self.config.generation) {
                    scan.lost.push(id);
                }
                return;
            }
        };
        let number = bucket.write_number();
        scan.newest_write = scan.newest_write.max(number);
        if number < scan.floor {
            return;
        }
        let of_bucket = &scan.removals[scan.removals.partition_point(|it| it.bucket < id)..];
        let removals = || of_bucket.iter().take_while(|it| it.bucket == id).filter(|it| it.through >= number);
        if removals().any(|it| it.items == WHOLE_BUCKET) {
            scan.lost.push(id);
            return;
        }
        let is_removed = |fingerprint: &Fingerprint| {
            removals().any(|it| it.items == u64::from(fingerprint.0 >> FINGERPRINT_SHIFT))
        };
        let items = bucket.fingerprints().count();
        if items > 0 {
            self.filters.rebuild(id, &bucket.fingerprints());
            self.written.set(id, true);
            scan.items += items as i64;
        }
        let mut shard = self.shard(id).lock();
        for fingerprint in bucket.fingerprints().filter(is_removed) {
            let removal = shard.remove(id, fingerprint, &[], true, None);
            self.pending_bytes.fetch_add(removal.taken_bytes, Ordering::AcqRel);
        }
    }
}
