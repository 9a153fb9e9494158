//! Recording removals and regions in the [journal](crate::flash::journal), and rebuilding the index from it after a kill or a power cut.
//!
//! A record names the address of an entry that no longer counts, not its key. So the order of the records is not replayed: an item is
//! recovered if its region is recorded as written and not as emptied, and if its address is not recorded as removed. A removal that is
//! recorded after its region was filled again removes an item of the new content too, which is then lost.
//!
//! * A region is recorded once its write is complete, as emptied before its first item leaves it, and the journal is synced before a
//!   region is overwritten.
//! * The floor is the oldest region that is in memory or can be recovered. If the journal is full, the floor rises: the regions below it
//!   remain in use, but will not be recovered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Clock, Device, IoError, PlacementHandle, Request};
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::InsertionPoint;
use super::config::{RegionConfig, RegionConfigError};
use super::index::Found;
use super::layout::{Address, RegionId, SizeHint, StoreId};
use super::policy::Rank;
use super::stats::Counters;
use super::store::{Content, RegionStore};
use super::table::{Filling, Record};
use crate::flash::Waiting;
use crate::flash::journal::block::{self, RegionRecord, RemovedAddress};
use crate::flash::journal::{Chain, ChainError, Journal, JournalPlace, Position};

/// Sequence numbers that are skipped after a recovery: those of regions that were opened after the last record must not be used again.
const SKIPPED_SEQUENCES: u64 = 1 << 20;
/// Tables read concurrently.
const TABLES_AT_ONCE: usize = 32;

/// The journal of a store, and the regions that it protects.
pub(super) struct RegionJournal {
    journal: Journal,
    /// Sequence numbers of the regions in memory and of the recoverable regions.
    tracked: Mutex<BTreeSet<u64>>,
}

impl RegionJournal {
    fn new(journal: Journal) -> Self {
        Self { journal, tracked: Mutex::default() }
    }

    fn continued(device: &Arc<dyn Device>, place: JournalPlace, position: Position) -> Self {
        let placement = PlacementHandle::DEFAULT;
        Self::new(Journal::continued(Arc::clone(device), placement, place, position))
    }

    /// Regions below the floor cannot be recovered.
    fn forget_below(&self, floor: Option<u64>) {
        if let Some(floor) = floor {
            let mut tracked = self.tracked.lock();
            *tracked = tracked.split_off(&floor);
        }
    }
}

/// Reads the journal of a store on `device`.
///
/// # Errors
/// The journal cannot be used; the store must start empty, under another identity.
pub(in crate::flash) async fn read_journal(
    device: &Arc<dyn Device>,
    config: &RegionConfig,
    id: StoreId,
    waiting: Waiting,
) -> Result<Chain, ChainError> {
    let place = config.journal_place(id).ok_or(ChainError::Empty)?;
    Chain::read(device, &place, waiting).await
}

impl RegionStore {
    /// An empty journal, if the configuration has one.
    pub(super) fn new_journal(
        device: &Arc<dyn Device>,
        config: &RegionConfig,
        id: StoreId,
    ) -> Option<RegionJournal> {
        let place = config.journal_place(id)?;
        let journal = Journal::new(Arc::clone(device), PlacementHandle::DEFAULT, place, FIRST_SEQUENCE);
        Some(RegionJournal::new(journal))
    }

    /// Waits until the journal has all removals before the call, if there is a journal. To be called before a remove, an overwrite or a
    /// clear is acknowledged, with no lock held. Blocks the thread for a copy to the page cache, or for a write, and for a flush if
    /// removals are to survive a power cut.
    pub fn acknowledge(&self) {
        _ = self.sync_journal();
    }

    /// As [`acknowledge`](Self::acknowledge). A change that makes recorded content invalid must not be made after an error.
    pub(super) fn sync_journal(&self) -> Result<(), IoError> {
        let Some(RegionJournal { journal, .. }) = &self.journal else { return Ok(()) };
        let synced = journal.sync();
        if synced.is_err() {
            Counters::one(&self.counters.write_errors);
        }
        synced
    }

    /// Allocates the sequence number of a region that is being opened.
    pub(super) fn next_sequence(&self) -> u64 {
        let next = || self.next_sequence.fetch_add(1, Ordering::AcqRel);
        let Some(RegionJournal { tracked, .. }) = &self.journal else { return next() };
        // Under the lock: another thread must not raise the floor above a number that is not in `tracked` yet.
        let mut tracked = tracked.lock();
        let sequence = next();
        tracked.insert(sequence);
        sequence
    }

    fn newest_sequence(&self) -> u64 {
        self.next_sequence.load(Ordering::Acquire) - 1
    }

    /// Records that the item at an address was removed or replaced.
    pub(super) fn record_removal(&self, address: Address) {
        if let Some(journal) = &self.journal {
            let floor = journal.journal.remove(RemovedAddress(address.0), self.newest_sequence());
            journal.forget_below(floor);
        }
    }

    /// Makes a written region durable, if it is to survive a power cut.
    pub(super) async fn flush_written(&self, waiting: Waiting) -> Result<(), IoError> {
        if self.config.journal.is_some_and(|options| options.flushes) {
            waiting.start(&*self.device, Request::Flush).await?;
        }
        Ok(())
    }

    /// Records a region that is on flash. Must precede its hand-over to the policy.
    pub(super) fn record_written(
        &self,
        region: RegionId,
        filling: Filling,
        entries: u32,
        point: InsertionPoint,
    ) {
        let Some(journal) = &self.journal else { return };
        let record = RegionRecord {
            sequence: filling.sequence,
            start: u64::from(region.0),
            len: entries,
            detail: u32::from(point.0),
        };
        journal.forget_below(journal.journal.add_region(&record, self.newest_sequence()));
        self.acknowledge();
    }

    /// Records that the items of a region are removed. Must precede their removal from the index.
    pub(super) fn record_emptied(&self, region: RegionId, sequence: u64) {
        let Some(journal) = &self.journal else { return };
        if journal.tracked.lock().contains(&sequence) {
            let record = RegionRecord { sequence, start: u64::from(region.0), len: 0, detail: 0 };
            journal.forget_below(journal.journal.add_region(&record, self.newest_sequence()));
            self.untrack(sequence);
        }
    }

    /// Records that a region is neither in memory nor recoverable.
    pub(super) fn untrack(&self, sequence: u64) {
        let Some(RegionJournal { journal, tracked }) = &self.journal else { return };
        let mut tracked = tracked.lock();
        tracked.remove(&sequence);
        let floor = tracked.first().copied();
        journal.raise_floor(floor.unwrap_or_else(|| self.next_sequence.load(Ordering::Acquire)));
    }

    /// Records that all items committed before the call are removed.
    pub(super) fn record_clear(&self) {
        let Some(RegionJournal { journal, tracked }) = &self.journal else { return };
        let mut tracked = tracked.lock();
        tracked.clear();
        journal.raise_floor(self.next_sequence.load(Ordering::Acquire));
    }

    /// The position of the journal for a snapshot, as bytes. Call it after the store's own snapshot.
    pub(in crate::flash) fn journal_position(&self) -> Option<Vec<u8>> {
        let RegionJournal { journal, .. } = self.journal.as_ref()?;
        journal.complete_block();
        self.acknowledge();
        Some(journal.closed_position().to_bytes())
    }

    /// Bytes of the journal's section in a snapshot, at most.
    pub(in crate::flash) fn journal_section_bytes(&self) -> u64 {
        /// Name, length and checksum.
        const FRAME_BYTES: u64 = 64;
        match self.config.journal_position_bytes() {
            0 => 0,
            bytes => bytes + FRAME_BYTES,
        }
    }

    /// [Restores](Self::restore) a store with its journal, if it has one. `None` if the snapshot or the position of the journal cannot be
    /// used.
    pub(in crate::flash) async fn restore_journaled(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: RegionConfig,
        snapshot: &[u8],
        position: &[u8],
        waiting: Waiting,
    ) -> Option<Self> {
        let restored = Self::restore_regions(device, clock, config, snapshot, waiting).await;
        let (mut store, dropped) = restored.ok()?;
        let Some(place) = store.config.journal_place(store.id) else { return Some(store) };
        let position = Position::from_bytes(position, place.blocks)?;
        let floor = position.floor;
        let journal = RegionJournal::continued(&store.device, place, position);
        let on_flash = store.regions.iter().filter_map(|region| match &*region.content.lock() {
            Content::Flash { filling, .. } => Some(filling.sequence),
            _ => None,
        });
        let recorded = on_flash.chain(dropped.iter().map(|held| held.sequence));
        journal.tracked.lock().extend(recorded.filter(|sequence| *sequence >= floor));
        store.journal = Some(journal);
        // Dropped regions are recorded as empty, because removals of their items will not be recorded.
        dropped.iter().for_each(|held| store.record_emptied(held.id, held.sequence));
        Some(store)
    }
}

/// The sequence number of a new store's first region.
pub(super) const FIRST_SEQUENCE: u64 = 1;

/// A region that a journal records as written.
struct Recorded {
    id: RegionId,
    record: RegionRecord,
    /// Units at which removed items begin, in order.
    removed: Vec<u32>,
}

/// The live regions of a journal, oldest first.
fn recorded_regions(chain: &Chain, store: &RegionStore) -> Vec<Recorded> {
    let mut newest: BTreeMap<u64, RegionRecord> = BTreeMap::new();
    for record in chain.records() {
        if let block::Record::Region(region) = record
            && region.sequence >= chain.floor()
            && region.start < store.regions.len() as u64
        {
            newest.insert(region.sequence, region);
        }
    }
    let mut by_region: HashMap<RegionId, Recorded> = HashMap::new();
    for record in newest.into_values() {
        let id = RegionId(record.start as u32);
        by_region.insert(id, Recorded { id, record, removed: Vec::new() });
    }
    by_region.retain(|_, region| region.record.len > 0);
    let addresses = store.layout.units_per_region() * store.regions.len() as u64;
    for record in chain.records() {
        if let block::Record::Removal { address, through } = record
            && address.0 < addresses
        {
            let (region, unit) = store.layout.place(Address(address.0));
            let recorded = by_region.get_mut(&region).filter(|it| it.record.sequence <= through);
            recorded.into_iter().for_each(|it| it.removed.push(unit));
        }
    }
    let mut regions: Vec<Recorded> = by_region.into_values().collect();
    regions.sort_unstable_by_key(|it| it.record.sequence);
    regions.iter_mut().for_each(|it| it.removed.sort_unstable());
    regions
}

impl RegionStore {
    /// Recovers the store of the same identity that wrote a journal. A region whose table cannot be read is lost.
    ///
    /// # Errors
    /// The configuration does not fit the device.
    ///
    /// # Panics
    /// If the configuration has no journal.
    pub(in crate::flash) async fn recover(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: RegionConfig,
        id: StoreId,
        chain: &Chain,
        waiting: Waiting,
    ) -> Result<Self, RegionConfigError> {
        let place = config.journal_place(id).expect("the journal was read");
        let mut store = Self::assemble(device, clock, config, id)?;
        let recorded = recorded_regions(chain, &store);
        let newest = recorded.last().map_or(0, |it| it.record.sequence).max(chain.through());
        store.next_sequence.store(newest + 1 + SKIPPED_SEQUENCES, Ordering::Release);
        let journal = RegionJournal::continued(&store.device, place, chain.position());
        journal.tracked.lock().extend(recorded.iter().map(|it| it.record.sequence));
        store.journal = Some(journal);
        let mut in_order = Vec::with_capacity(recorded.len());
        for some in recorded.chunks(TABLES_AT_ONCE) {
            let tables = join_all(some.iter().map(|it| store.read_recorded(it, waiting))).await;
            for (region, records) in some.iter().zip(tables) {
                match records {
                    Some(records) => in_order.push((region.id, store.take_recorded(region, &records))),
                    // Its items may be readable later, although their removals are no longer recorded.
                    None => store.record_emptied(region.id, region.record.sequence),
                }
            }
        }
        store.policy.lock().restore(&in_order);
        let is_clean = |id: &RegionId| matches!(*store.region(*id).content.lock(), Content::Clean);
        let clean: Vec<_> = (0..store.layout.region_count).map(RegionId).filter(is_clean).collect();
        clean.into_iter().for_each(|region| store.supply.give_region(region));
        store.acknowledge();
        Ok(store)
    }

    async fn read_recorded(&self, region: &Recorded, waiting: Waiting) -> Option<Vec<Record>> {
        let filling = Filling { store: self.id.0, sequence: region.record.sequence };
        self.read_table(region.id, region.record.len, filling, waiting).await
    }

    /// Inserts the items of a region into the index. Returns the priority of the region.
    fn take_recorded(&self, region: &Recorded, records: &[Record]) -> u8 {
        let point = InsertionPoint(region.record.detail as u8).min(self.last_point());
        let live = |record: &&Record| record.live && region.removed.binary_search(&record.unit).is_err();
        let mut restored = 0;
        let mut policy = self.policy.lock();
        for record in records.iter().filter(live) {
            let address = self.layout.address(region.id, record.unit);
            let size = SizeHint::of_units(record.units);
            let found = Found { address, size, hits: 0, rank: Rank::NONE };
            let rank = policy.reenter(&self.resident(found));
            // An older version is recorded as removed, so this replaces none.
            if let Some(before) = self.index.insert(record.hash, Found { rank, ..found }) {
                policy.left(&self.resident(before));
            }
            restored += 1;
        }
        drop(policy);
        Counters::add(&self.counters.items_restored, restored);
        let filling = Filling { store: self.id.0, sequence: region.record.sequence };
        *self.region(region.id).content.lock() =
            Content::Flash { filling, entries: region.record.len, point };
        point.0
    }
}
