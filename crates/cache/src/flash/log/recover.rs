//! Recording removals and regions in the [journal](crate::flash::journal), and rebuilding the index from it after a kill or a power cut.
//!
//! The journal is replayed in order: at a region's record, the region is read and its items are inserted into the index; a removal
//! removes entries. The removal of an item of a region that was still being written precedes that region's record, and is kept until
//! then. Items of regions without a record were in memory only and are lost, except readmitted ones: the region from which they were
//! read is used until it is overwritten. The items of a page that cannot be read or verified are lost.
//!
//! With callbacks, a region is lost as soon as its eviction begins, since its items may have been reported.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Device, Outcome};

use super::fences::{self, Fences};
use super::index::{Address, Inserted, WhenFull};
use super::page::{self, Page};
use super::{HashLog, LogConfig, Region, SHARDS, first_sequence, mix};
use crate::KeyHash;
use crate::flash::Waiting;
use crate::flash::journal::block::{Record, RegionRecord, RemovedAddress};
use crate::flash::journal::{Chain, ChainError, Journal};
use crate::flash::read_ahead::read_all;

/// Bytes of one read, and reads in flight.
const READ_BYTES: u64 = 1 << 20;
const READS: usize = 8;

const FINGERPRINT_SHIFT: u32 = 32;
const SHARD_SHIFT: u32 = 48;

/// Removed addresses whose regions are not replayed yet, each with its last region.
type Ahead = HashMap<RemovedAddress, u64>;

/// Reads the journal of a log on `device`.
///
/// # Errors
/// The journal cannot be used; the log must start empty, in another generation.
pub(in crate::flash) async fn read_journal(
    device: &Arc<dyn Device>,
    config: &LogConfig,
    waiting: Waiting,
) -> Result<Chain, ChainError> {
    let place = config.journal_place().ok_or(ChainError::Empty)?;
    let chain = Chain::read(device, &place, waiting).await?;
    let is_of_log = chain.floor() >= first_sequence(&config.shape(SHARDS)) && has_all_regions(&chain);
    if is_of_log { Ok(chain) } else { Err(ChainError::Damaged) }
}

/// Whether the live regions follow each other from the floor on.
fn has_all_regions(chain: &Chain) -> bool {
    let floor = chain.floor();
    let regions = chain.records().filter_map(|record| match record {
        Record::Region(region) if region.sequence >= floor => Some(region),
        _ => None,
    });
    let live: Vec<RegionRecord> = regions.collect();
    live.iter().zip(floor..).all(|(region, sequence)| region.sequence == sequence)
        && live.windows(2).all(|pair| pair[0].start + u64::from(pair[0].len) == pair[1].start)
}

/// An address in the journal: shard (6 bits), fingerprint (16) and line (32).
fn removed_address(hash: KeyHash, address: &Address) -> RemovedAddress {
    let (shard, fingerprint) = (shard_number(hash) as u64, u64::from(address.fingerprint()));
    RemovedAddress(shard << SHARD_SHIFT | fingerprint << FINGERPRINT_SHIFT | u64::from(address.line()))
}

impl HashLog {
    /// Waits until the journal has all removals before the call, if there is a journal. To be called before a remove, an overwrite or a
    /// clear is acknowledged, with no lock held. Blocks the thread for a copy to the page cache, or for a write, and for a flush if
    /// removals are to survive a power cut.
    pub fn acknowledge(&self) {
        if let Some(journal) = &self.journal
            && let Err(error) = journal.sync()
        {
            self.counters.write_errors.fetch_add(1, Ordering::Relaxed);
            self.pauses.note_write(Err(&error));
        }
    }

    /// Records and bytes that the journal wrote since the log was opened.
    #[must_use]
    pub fn journal_written(&self) -> (u64, u64) {
        self.journal.as_ref().map_or((0, 0), Journal::written)
    }

    /// Records that all entries of a key's address are removed, as well as items of the address in regions that are being written.
    pub(super) fn journal_removal(&self, hash: KeyHash) {
        if self.journal.is_some() {
            self.journal_removal_of(hash, &self.address(hash), self.filling.lock().open - 1);
        }
    }

    /// As [`journal_removal`](Self::journal_removal), for an address in the shard of `hash`, and regions up to `through`.
    pub(super) fn journal_removal_of(&self, hash: KeyHash, address: &Address, through: u64) {
        let Some(journal) = &self.journal else { return };
        if let Some(floor) = journal.remove(removed_address(hash, address), through) {
            self.lose_regions_below(floor);
        }
    }

    /// Records a region whose pages are written.
    pub(super) fn journal_region(&self, region: &Region) {
        let Some(journal) = &self.journal else { return };
        let record = RegionRecord {
            sequence: region.sequence,
            start: region.start_page,
            len: region.pages() as u32,
            detail: region.fences.scale_pages(),
        };
        let through = self.filling.lock().open - 1;
        if let Some(floor) = journal.add_region(&record, through) {
            self.lose_regions_below(floor);
        }
        self.acknowledge();
    }

    /// Evicts the regions below `floor` without reading them, because the journal is full.
    fn lose_regions_below(&self, floor: u64) {
        let live = self.live();
        let end = floor.min(live.max + 1);
        self.oldest.fetch_max(end, Ordering::AcqRel);
        for sequence in live.min..end {
            let place = self.place(sequence);
            let mut regions = self.regions.write();
            if regions[place].as_ref().is_some_and(|region| region.sequence == sequence) {
                regions[place] = None;
                let lost = self.live_items[place].swap(0, Ordering::Relaxed).max(0);
                self.counters.lost_items.fetch_add(lost.cast_unsigned(), Ordering::Relaxed);
            }
        }
    }

    /// Rebuilds the index of a new log of the generation in which the journal was written. Must be called before any item is stored.
    pub(in crate::flash) async fn recover(&mut self, chain: &Chain, waiting: Waiting) {
        let place = self.config.journal_place().expect("the log has a journal");
        let journal = Journal::continued(Arc::clone(&self.device), self.placement, place, chain.position());
        let floor = journal.position().floor;
        self.journal = Some(journal);
        self.oldest.store(floor, Ordering::Release);
        self.newest.store(floor - 1, Ordering::Release);
        let mut ahead = Ahead::new();
        for record in chain.records() {
            match record {
                Record::Removal { address, through } if through >= floor => {
                    self.replay_removal(address, through, &mut ahead);
                }
                Record::Region(region) if region.sequence >= floor => {
                    self.replay_region(&region, &ahead, waiting).await;
                    ahead.retain(|_, through| *through > region.sequence);
                }
                Record::Region(region) => self.set_next_page(&region),
                Record::Removal { .. } => {}
            }
        }
        self.begin_after(chain.through());
    }

    fn set_next_page(&self, region: &RegionRecord) {
        self.next_page.store(region.start + u64::from(region.len), Ordering::Release);
    }

    fn replay_removal(&self, removed: RemovedAddress, through: u64, ahead: &mut Ahead) {
        let lines = self.shape.lines_per_shard;
        let (line, fingerprint) = (removed.0 as u32, u32::from((removed.0 >> FINGERPRINT_SHIFT) as u16));
        let shard_number = (removed.0 >> SHARD_SHIFT) as usize;
        if line >= lines {
            return;
        }
        let address = Address::new(line, fingerprint, lines);
        let mut shard = self.shards[shard_number].lock();
        shard.lines.remove(&address, self.live(), |sequence| {
            self.live_items_of(sequence).fetch_sub(1, Ordering::Relaxed);
        });
        if through > self.live().max {
            // Stored under the line that the items' addresses have.
            let line = u64::from(address.line());
            ahead.insert(RemovedAddress(removed.0 >> 32 << 32 | line), through);
        }
    }

    /// Enters the items of a region into the index.
    async fn replay_region(&self, record: &RegionRecord, ahead: &Ahead, waiting: Waiting) {
        let RegionRecord { sequence, start: start_page, len: pages, detail: scale_pages } = *record;
        self.set_next_page(record);
        let is_valid =
            pages <= self.shape.pages_per_region && (1..=self.shape.pages_per_region).contains(&scale_pages);
        let pages = if is_valid { pages } else { 0 };
        let place = self.place(sequence);
        self.live_items[place].store(0, Ordering::Relaxed);
        self.newest.store(sequence, Ordering::Release);
        let page_bytes = self.shape.page_bytes as usize;
        let mut firsts = Vec::with_capacity(pages as usize);
        let replay = |pages: Range<u64>, read: Outcome| {
            for (at, page) in pages.enumerate() {
                let page = page as u32;
                let identity =
                    page::Identity { generation: self.config.generation, sequence, page, scale_pages };
                let bytes = read.as_ref().ok().map(|bytes| &bytes[at * page_bytes..][..page_bytes]);
                let opened = bytes.and_then(|bytes| Page::open(bytes, identity).ok());
                firsts.push(opened.and_then(|page| self.replay_page(page, sequence, scale_pages, ahead)));
            }
        };
        let reads = self.reads(start_page, pages.into(), READ_BYTES);
        read_all(&*self.device, waiting, READS, reads, replay).await;
        let region = Region::new(sequence, start_page, Fences::rebuilt(scale_pages.max(1), &firsts));
        self.regions.write()[place] = Some(Arc::new(region));
    }

    /// Enters the items of a page. Returns the position of the first one.
    fn replay_page(&self, page: Page<'_>, sequence: u64, scale_pages: u32, ahead: &Ahead) -> Option<u64> {
        let mut first = None;
        for entry in page.entries() {
            let hash = self.hash_of(entry.key);
            first = first.or_else(|| Some(fences::position(hash, scale_pages)));
            let address = self.address(hash);
            let removed = removed_address(hash, &address);
            if ahead.get(&removed).is_none_or(|&through| through < sequence) {
                self.replay_item(hash, &address, sequence);
            }
        }
        first
    }

    fn replay_item(&self, hash: KeyHash, address: &Address, sequence: u64) {
        let mut shard = self.shard(hash).lock();
        match shard.lines.insert(address, sequence, self.live(), WhenFull::ReplaceOldest) {
            Inserted::Kept => {}
            Inserted::Replaced { oldest, address } => {
                shard.stats.lost_items += 1;
                self.live_items_of(oldest).fetch_sub(1, Ordering::Relaxed);
                self.journal_removal_of(hash, &address, oldest);
            }
            Inserted::Full => {
                shard.stats.lost_items += 1;
                self.journal_removal_of(hash, address, sequence);
                return;
            }
        }
        self.live_items_of(sequence).fetch_add(1, Ordering::Relaxed);
    }

    /// Opens the next region. The region after the last recorded one may be on flash in part, so its number is not used again.
    fn begin_after(&mut self, through: u64) {
        let live = self.live();
        let open = (live.max + 2).max(through + 1);
        let journal = self.journal.as_ref().expect("the log has a journal");
        // With more unused numbers than regions, all regions would be evicted.
        if live.min > live.max || open - live.max > u64::from(self.shape.max_regions) {
            self.lose_regions_below(open);
            journal.raise_floor(open);
            self.oldest.store(open, Ordering::Release);
            self.newest.store(open - 1, Ordering::Release);
        } else {
            for sequence in live.max + 1..open {
                self.add_empty_region(sequence);
            }
        }
        self.filling.lock().open = open;
        self.acknowledge();
    }

    /// Sequence numbers of live regions have no gaps, so unused ones get regions without pages.
    fn add_empty_region(&self, sequence: u64) {
        let journal = self.journal.as_ref().expect("the log has a journal");
        while sequence - self.live().min >= u64::from(self.shape.max_regions) {
            let floor = self.live().min + 1;
            journal.raise_floor(floor);
            self.lose_regions_below(floor);
        }
        let start_page = self.next_page.load(Ordering::Acquire);
        let region = Region::new(sequence, start_page, Fences::rebuilt(1, &[]));
        let record = RegionRecord { sequence, start: start_page, len: 0, detail: 1 };
        if let Some(floor) = journal.add_region(&record, sequence) {
            self.lose_regions_below(floor);
        }
        let place = self.place(sequence);
        self.live_items[place].store(0, Ordering::Relaxed);
        self.regions.write()[place] = Some(Arc::new(region));
        self.newest.store(sequence, Ordering::Release);
    }
}

fn shard_number(hash: KeyHash) -> usize {
    mix(hash) as usize % SHARDS
}
