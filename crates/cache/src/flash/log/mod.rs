//! A log of small items whose regions are in hash order.
//!
//! Items collect in memory in an *open region*, where they are found by an exact table. A full region is *sealed*: its items are sorted by
//! hash, packed into pages and written front to back, [at the pace](pace) at which the next region fills. An index entry then needs the
//! region and a fingerprint, but no offset: the [fences](fences) of the region lead from the hash to the page ([`index`], [`page`]).
//! Regions are written in a ring, and the oldest region is evicted as a whole; items that were read since can be [readmitted](evict). The
//! drive is written in order, and each item once; the bytes written per byte admitted are in `docs/benchmarks.md`.
//!
//! Related designs: SILT's sorted stores (Lim et al., SOSP 2011), Kangaroo's log (McAllister et al., SOSP 2021), and maplets from
//! fingerprint to run as in SlimDB (Ren et al., VLDB 2017). An entry here costs about 23 bits, since runs are never merged.
//!
//! # Consistency
//! After [`commit`](HashLog::commit) or [`forget`](HashLog::forget), a lookup finds that version of the key, a later one, or nothing.
//! * Everything about a key happens under the lock of its shard: tables of items in memory, and lines of the index.
//! * A lookup reads candidate regions from new to old, and stops at a page that cannot be verified, since it may have held the key.
//! * The items of one region have different [addresses](index::Address): of several with the same, all but one move to the next region. So
//!   an entry leads to one item, and an item that is removed while its region is written gets no entry.
//! * `forget` removes every entry of the key's address, also those of other keys in other regions: such an item is lost, never stale. If
//!   callbacks must receive every item that leaves, a [recorded removal](removal) hides the key until the right entry is known.
//! * Sequence numbers of regions never recur, and a page names its region. A page that was overwritten is detected.
//!
//! Regions follow each other in a ring of pages, and one that is written early takes only the pages that it fills.
//!
//! Lock order: shard, then `filling`.

mod config;
mod evict;
mod fences;
mod flow;
mod hit_pages;
mod index;
mod keys;
mod lookup;
mod pace;
mod pack;
mod page;
mod persist;
mod recover;
mod removal;
mod table;
#[cfg(test)]
mod tests;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use device::counters::CounterTable;
use device::{Clock, Device, PlacementHandle};
use event_listener::Event;

pub use config::{LogConfig, LogConfigError, Shape};
pub use persist::snapshot_bytes;
pub(super) use recover::read_journal;

use super::journal::Journal;
use super::outage::WritePauses;
use super::soc::{ENTRY_OVERHEAD_BYTES, NotStaged, SocStats};
use super::{DestructorCallback, FlashItem, HashFilter, OnEviction};
use crate::KeyHash;
use crate::config::Removal;
use crate::flash::reports::Reports;
use crate::sync::{Mutex, RwLock, step};
use fences::Fences;
use hit_pages::HitPages;
use index::{Address, Lines, Live, SlotFormat};
use removal::PendingRemovals;
use table::{Buffered, Tables};

const SHARDS: usize = 64;
/// Sealed regions that may wait for their write before inserts wait.
const MAX_SEALED: usize = 1;
/// Share of the index that items may fill before the oldest region is evicted early.
const MAX_INDEX_LOAD: f64 = 0.97;

/// A small-item cache on a range of a device.
pub struct HashLog {
    device: Arc<dyn Device>,
    placement: PlacementHandle,
    config: LogConfig,
    shape: Shape,
    pages_offset: u64,
    shards: Box<[Mutex<Shard>]>,
    /// The written regions, by sequence number modulo their count.
    regions: RwLock<Box<[Option<Arc<Region>>]>>,
    /// Number of live items in each region.
    live_items: Box<[AtomicI64]>,
    /// Maximum number of live items.
    max_items: u64,
    /// The page of the ring at which the next region begins, counted from the first region.
    next_page: AtomicU64,
    /// The oldest and the newest live region; the newest is lower if there is none.
    oldest: AtomicU64,
    newest: AtomicU64,
    filling: Mutex<Filling>,
    /// Memory of the items that are not written yet.
    buffered_bytes: AtomicUsize,
    /// Whether a step is writing a region.
    is_writing: AtomicBool,
    /// The work that the next step continues.
    unfinished: Mutex<write::Work>,
    /// Whether reads of an eviction are in flight that no step waits for.
    has_reads: AtomicBool,
    /// Records removals and regions, if the log is recovered after a kill.
    journal: Option<Journal>,
    counters: Counters,
    /// If disabled, items of failed writes are lost.
    pauses: WritePauses,
    /// Notified when memory becomes free, a removal is completed or a destructor has run.
    room: Event,
    work: Event,
    on_eviction: Option<OnEviction>,
    wants_eviction: Option<HashFilter>,
    on_destructor: Option<DestructorCallback>,
    /// Items that were removed before they were written, and whose destructors are to be called.
    dropped: Mutex<Vec<(Buffered, Removal)>>,
    removals_recorded: AtomicU64,
    removals_pending: AtomicUsize,
    /// Destructor calls in progress.
    reports: Reports,
}

struct Shard {
    tables: Tables,
    lines: Lines,
    removals: PendingRemovals,
    stats: SocStats,
}

/// A written region.
#[derive(Debug)]
struct Region {
    sequence: u64,
    /// The page of the ring at which it begins, as [`HashLog::next_page`] counts.
    start_page: u64,
    fences: Fences,
    hit_pages: HitPages,
}

impl Region {
    /// A region none of whose items was read.
    fn new(sequence: u64, start_page: u64, fences: Fences) -> Self {
        let hit_pages = HitPages::none(fences.deviations().len());
        Self { sequence, start_page, fences, hit_pages }
    }

    fn pages(&self) -> u64 {
        self.fences.deviations().len() as u64
    }
}

/// The open region and the sealed ones.
#[derive(Debug)]
struct Filling {
    /// Sequence number of the open region.
    open: u64,
    /// Bytes of its items in pages, without headers and gaps.
    page_bytes: u64,
    items: u64,
    sealed: VecDeque<u64>,
    /// Progress of the write of the oldest sealed region, `None` before it begins.
    written: Option<pace::Written>,
    /// Regions up to this one are written even if they are not full.
    settle_through: u64,
    /// Recently written regions some of whose items were moved to the open region, as pairs of both. An item is moved if it does not fit,
    /// or if another item of its region has the same address.
    carries: VecDeque<(u64, u64)>,
    /// Unused bytes of a page, as measured in the last region of enough pages.
    waste_per_page: Option<u64>,
}

/// Counters that belong to no shard.
#[derive(Debug, Default)]
struct Counters {
    physical_written_bytes: AtomicU64,
    pages_written: AtomicU64,
    device_writes: AtomicU64,
    write_errors: AtomicU64,
    /// Items of regions that were evicted because the journal was full.
    lost_items: AtomicU64,
}

/// The number of the first region. At least `2^bits`, so that the low bits of every number can be decoded.
fn first_sequence(shape: &Shape) -> u64 {
    1 << shape.sequence_bits
}

/// An item copied to memory, not visible yet. Dropping it discards it.
#[must_use = "an item that is staged but not committed is never visible"]
pub struct Staged {
    item: Buffered,
}

impl HashLog {
    /// An empty log on `device`.
    ///
    /// # Errors
    /// The configuration does not fit the device.
    pub fn new(device: Arc<dyn Device>, config: LogConfig) -> Result<Self, LogConfigError> {
        config.check(&device.geometry())?;
        let shape = config.shape(SHARDS);
        Ok(Self::with_shape(device, config, shape))
    }

    fn with_shape(device: Arc<dyn Device>, config: LogConfig, shape: Shape) -> Self {
        let format = SlotFormat {
            sequence_bits: shape.sequence_bits,
            fingerprint_bits: shape.fingerprint_bits,
            hit_bits: shape.hit_bits,
        };
        let shard = || Shard {
            tables: Tables::default(),
            lines: Lines::new(shape.lines_per_shard, format),
            removals: PendingRemovals::default(),
            stats: SocStats::default(),
        };
        let first = first_sequence(&shape);
        let places = shape.max_regions as usize;
        let placement = device.allocate_handle("small item log");
        let journal =
            config.journal_place().map(|it| Journal::new(Arc::clone(&device), placement, it, first));
        Self {
            placement,
            journal,
            device,
            pages_offset: config.pages_offset(),
            config,
            shards: std::iter::repeat_with(|| Mutex::new(shard())).take(SHARDS).collect(),
            regions: RwLock::new(vec![None; places].into()),
            live_items: std::iter::repeat_with(AtomicI64::default).take(places).collect(),
            max_items: (shape.index_slots(SHARDS) as f64 * MAX_INDEX_LOAD) as u64,
            next_page: AtomicU64::new(0),
            shape,
            oldest: AtomicU64::new(first),
            newest: AtomicU64::new(first - 1),
            filling: Mutex::new(Filling {
                open: first,
                page_bytes: 0,
                items: 0,
                sealed: VecDeque::new(),
                written: None,
                settle_through: 0,
                carries: VecDeque::new(),
                waste_per_page: None,
            }),
            buffered_bytes: AtomicUsize::new(0),
            is_writing: AtomicBool::new(false),
            unfinished: Mutex::default(),
            has_reads: AtomicBool::new(false),
            counters: Counters::default(),
            pauses: WritePauses::default(),
            room: Event::new(),
            work: Event::new(),
            on_eviction: None,
            wants_eviction: None,
            on_destructor: None,
            dropped: Mutex::default(),
            removals_recorded: AtomicU64::new(0),
            removals_pending: AtomicUsize::new(0),
            reports: Reports::default(),
        }
    }

    /// Keeps the items of a region in memory while the device fails, and writes them again after a pause.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.pauses = WritePauses::with_clock(clock);
        self
    }

    /// Calls `on_eviction` with every evicted item whose key `wants` selects. Regions are then read before they are evicted, and a page is
    /// read for each key that is removed or replaced while flash may hold it.
    #[must_use]
    pub fn with_eviction_callback(mut self, on_eviction: OnEviction, wants: HashFilter) -> Self {
        self.on_eviction = Some(on_eviction);
        self.wants_eviction = Some(wants);
        self
    }

    /// Whether a key and a value fit a page.
    #[must_use]
    pub fn fits(&self, key_bytes: usize, value_bytes: usize) -> bool {
        self.config.fits(key_bytes, value_bytes)
    }

    /// The largest sum of key and value.
    #[must_use]
    pub fn max_item_bytes(&self) -> usize {
        self.config.max_item_bytes()
    }

    /// Copies an item to memory. It becomes visible by [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`NotStaged`], without effect.
    pub fn stage(&self, item: &FlashItem<'_>) -> Result<Staged, NotStaged> {
        let value_len = item.value_len();
        if !self.fits(item.key.len(), value_len) {
            return Err(NotStaged::TooLarge);
        }
        if !self.ready() {
            return Err(if self.is_failing() { NotStaged::Failing } else { NotStaged::Full });
        }
        let mut bytes = Vec::with_capacity(item.key.len() + value_len);
        bytes.extend_from_slice(item.key);
        item.value.iter().for_each(|piece| bytes.extend_from_slice(piece));
        Ok(Staged {
            item: Buffered {
                hash: item.hash,
                bytes: bytes.into(),
                key_len: u8::try_from(item.key.len()).expect("checked by `fits`"),
                tag: item.tag,
                expiry_seconds: item.expiry_seconds,
                is_on_flash: false,
            },
        })
    }

    /// Makes a staged item visible, in place of an older version of its key in memory. The caller holds the key's lock.
    pub fn commit(&self, staged: Staged) {
        let item = staged.item;
        let mut shard = self.shard(item.hash).lock();
        shard.stats.inserts += 1;
        shard.stats.logical_written_bytes += item.bytes.len() as u64;
        if self.remove_buffered(&mut shard, item.hash, item.key()).is_none() && self.reports_all() {
            self.record_removal(&mut shard, item.hash, item.key(), None);
        }
        self.buffer(&mut shard, item);
        drop(shard);
        if self.wants_step() {
            self.work.notify(1);
        }
    }

    /// Adds an item to the open region. The key is in no table.
    fn buffer(&self, shard: &mut Shard, item: Buffered) {
        self.buffered_bytes.fetch_add(item.memory_bytes(), Ordering::AcqRel);
        // The region is chosen under the shard's lock: a step that packs it takes this lock first.
        let sequence = {
            let mut filling = self.filling.lock();
            if self.is_full(&filling) && filling.sealed.len() < MAX_SEALED {
                filling.seal();
            }
            filling.page_bytes += item.page_bytes() as u64;
            filling.items += 1;
            filling.open
        };
        shard.tables.insert(sequence, item);
    }

    /// Removes a key from the tables. Returns its item.
    fn remove_buffered(&self, shard: &mut Shard, hash: KeyHash, key: &[u8]) -> Option<Buffered> {
        let (sequence, item) = shard.tables.remove(hash, key)?;
        shard.stats.replaced_bytes += item.bytes.len() as u64;
        self.buffered_bytes.fetch_sub(item.memory_bytes(), Ordering::AcqRel);
        let is_sealed = {
            let mut filling = self.filling.lock();
            if filling.open == sequence {
                filling.page_bytes -= item.page_bytes() as u64;
                filling.items -= 1;
            }
            filling.open > sequence
        };
        // The removal is recorded if flash has the item or will have it: in the page of a sealed region, or in the older page of a readmitted
        // item.
        if is_sealed || item.is_on_flash {
            self.journal_removal(hash);
        }
        Some(item)
    }

    /// Removes `key`. Returns whether there may have been an item. Never waits.
    pub fn forget(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.forget_with_destructor(hash, key, None)
    }

    /// As [`forget`](Self::forget). With a `reason`, the item's destructor must be called: by a later
    /// [step](Self::step), or by [`destroy_dropped`](Self::destroy_dropped) if the item is in memory.
    pub fn forget_with_destructor(&self, hash: KeyHash, key: &[u8], reason: Option<Removal>) -> bool {
        let mut shard = self.shard(hash).lock();
        let buffered = self.remove_buffered(&mut shard, hash, key);
        let was_buffered = buffered.is_some();
        let was_on_flash = if self.reports_all() {
            // An older version on flash is the same item, for which one destructor is called.
            let is_recorded = self.record_removal(&mut shard, hash, key, reason.filter(|_| !was_buffered));
            if is_recorded {
                self.journal_removal(hash);
            }
            is_recorded
        } else {
            self.remove_entries(&mut shard, hash) > 0
        };
        shard.stats.removes += u64::from(was_buffered || was_on_flash);
        drop(shard);
        if let (Some(item), Some(reason)) = (buffered, reason) {
            self.dropped.lock().push((item, reason));
        }
        if was_on_flash && self.reports_all() {
            self.work.notify(1);
        }
        was_buffered || was_on_flash
    }

    /// Removes all index entries of a key's address. Returns the number of live ones.
    fn remove_entries(&self, shard: &mut Shard, hash: KeyHash) -> usize {
        let mut removed = 0;
        shard.lines.remove(&self.address(hash), self.live(), |sequence| {
            self.live_items_of(sequence).fetch_sub(1, Ordering::Relaxed);
            removed += 1;
        });
        if removed > 0 {
            self.journal_removal(hash);
        }
        removed
    }

    /// Removes all items. No region is written: the entries of earlier ones are dead.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut freed = 0;
            let mut replaced_bytes = 0;
            shard.tables.clear(|sequence, item| {
                freed += item.memory_bytes();
                replaced_bytes += item.bytes.len() as u64;
                let mut filling = self.filling.lock();
                if filling.open == sequence {
                    filling.page_bytes -= item.page_bytes() as u64;
                    filling.items -= 1;
                }
            });
            shard.stats.replaced_bytes += replaced_bytes;
            shard.lines.clear();
            self.removals_pending.fetch_sub(shard.removals.clear(), Ordering::AcqRel);
            self.buffered_bytes.fetch_sub(freed, Ordering::AcqRel);
        }
        self.live_items.iter().for_each(|items| items.store(0, Ordering::Relaxed));
        if let Some(journal) = &self.journal {
            // Only the open region can hold items that were committed meanwhile.
            journal.raise_floor(self.filling.lock().open);
        }
        self.wake();
    }

    /// Whether an item with this hash may be here. False is certain. Takes no I/O.
    #[must_use]
    pub fn may_contain(&self, hash: KeyHash) -> bool {
        let address = self.address(hash);
        let shard = self.shard(hash).lock();
        let removed = shard.removals.removed_through(hash);
        shard.tables.contains_hash(hash)
            || !shard.lines.candidates(&address, self.live()).after(removed).as_slice().is_empty()
    }

    /// The most memory that the log takes: index, fences, items of the open and sealed regions, and reads of an eviction.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.index_bytes() + self.buffer_limit_bytes()
    }

    /// Bytes of the index and of the fences of all regions.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.shape.index_bytes(SHARDS) as usize
    }

    /// Memory for items that are not written, with the overhead of items of the expected size, and for reads of an eviction.
    #[must_use]
    pub fn buffer_limit_bytes(&self) -> usize {
        buffer_bytes(&self.config, &self.shape) as usize
    }

    /// Bytes of the log, and those of its written regions.
    #[must_use]
    pub fn room_bytes(&self) -> (u64, u64) {
        let page_bytes = u64::from(self.shape.page_bytes);
        (self.shape.log_pages * page_bytes, self.used_pages() * page_bytes)
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// The counters. Pages count as buckets.
    #[must_use]
    pub fn stats(&self) -> SocStats {
        let mut sum = SocStats::default();
        for shard in &self.shards {
            let shard = shard.lock();
            sum.add(&shard.stats);
            sum.pending_items += shard.tables.len() as u64;
        }
        sum.pending_entries = sum.pending_items;
        let overhead = sum.pending_items * table::OVERHEAD_BYTES as u64;
        let item_bytes = (self.buffered_bytes.load(Ordering::Acquire) as u64).saturating_sub(overhead);
        sum.pending_bytes = item_bytes + sum.pending_items * ENTRY_OVERHEAD_BYTES as u64;
        sum.items = self.live_item_count().cast_signed();
        sum.stored_items = sum.items.max(0).cast_unsigned() + sum.pending_items;
        let counters = &self.counters;
        sum.physical_written_bytes = counters.physical_written_bytes.load(Ordering::Relaxed);
        sum.bucket_writes = counters.pages_written.load(Ordering::Relaxed);
        sum.device_writes = counters.device_writes.load(Ordering::Relaxed);
        sum.write_errors = counters.write_errors.load(Ordering::Relaxed);
        let lost_items = counters.lost_items.load(Ordering::Relaxed);
        sum.lost_items += lost_items;
        sum.evictions += lost_items;
        sum
    }

    fn shard(&self, hash: KeyHash) -> &Mutex<Shard> {
        &self.shards[mix(hash) as usize % SHARDS]
    }

    /// The address of a key. Other bits of the hash choose shard and page.
    fn address(&self, hash: KeyHash) -> Address {
        let lines = self.shape.lines_per_shard;
        let line = (u128::from(mix(hash) >> 6) * u128::from(lines)) >> 58;
        let fingerprints = (1 << self.shape.fingerprint_bits) - 1;
        // The top bits of the hash choose the page, so the fingerprint takes the low ones.
        let fingerprint = (hash.0 as u32 ^ (hash.0 >> 16) as u32) % fingerprints + 1;
        Address::new(line as u32, fingerprint, lines)
    }

    /// The range of live regions. The newest is read first: it only grows, and a newer minimum only hides more.
    fn live(&self) -> Live {
        let max = self.newest.load(Ordering::Acquire);
        step();
        Live { min: self.oldest.load(Ordering::Acquire), max, bits: self.shape.sequence_bits }
    }

    fn place(&self, sequence: u64) -> usize {
        (sequence % u64::from(self.shape.max_regions)) as usize
    }

    fn live_items_of(&self, sequence: u64) -> &AtomicI64 {
        &self.live_items[self.place(sequence)]
    }

    fn live_item_count(&self) -> u64 {
        self.live_items.iter().map(|items| items.load(Ordering::Relaxed).max(0).cast_unsigned()).sum()
    }

    fn region(&self, sequence: u64) -> Option<Arc<Region>> {
        let regions = self.regions.read();
        let region = regions[self.place(sequence)].as_ref();
        region.filter(|region| region.sequence == sequence).cloned()
    }

    /// Pages of live regions.
    fn used_pages(&self) -> u64 {
        let next_page = self.next_page.load(Ordering::Acquire);
        let oldest = self.region(self.live().min);
        oldest.map_or(0, |region| next_page.saturating_sub(region.start_page))
    }

    fn page_offset(&self, page: u64) -> u64 {
        self.pages_offset + page % self.shape.log_pages * u64::from(self.shape.page_bytes)
    }

    fn identity(&self, region: &Region, page: u32) -> page::Identity {
        let (generation, sequence) = (self.config.generation, region.sequence);
        page::Identity { generation, sequence, page, scale_pages: region.fences.scale_pages() }
    }
}

/// Memory of a log: of its index, and of items that are not written and reads of an eviction. For a configuration that is [valid](LogConfig::check).
#[must_use]
pub fn memory_of(config: &LogConfig) -> (u64, u64) {
    let shape = config.shape(SHARDS);
    (shape.index_bytes(SHARDS), buffer_bytes(config, &shape))
}

fn buffer_bytes(config: &LogConfig, shape: &Shape) -> u64 {
    let items = shape.region_bytes() / u64::from(config.expected_item_bytes);
    let regions = (1 + MAX_SEALED as u64) * (shape.region_bytes() + items * table::OVERHEAD_BYTES as u64);
    regions + evict::read_bytes(config, shape)
}

/// Bits of a hash for shard and lines, independent of its top bits.
fn mix(hash: KeyHash) -> u64 {
    let mut x = hash.0 ^ 0x2545_f491_4f6c_dd1d;
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}
