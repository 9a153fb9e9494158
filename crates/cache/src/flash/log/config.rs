//! The configuration of a [`HashLog`](super::HashLog), and the sizes computed from it.

use device::Geometry;

use super::page;
use crate::flash::journal::{self, JournalOptions, JournalPlace};

/// Slots of the index per expected item: buckets of the index are then 95 % full.
const SLOTS_PER_ITEM: f64 = 1.05;
const FINGERPRINT_BITS: u32 = 11;
/// One bit: the item was read since it was written.
const HIT_BITS: u32 = 1;
const LINE_BITS: u32 = 512;
/// Above this a region no longer fits the memory of a usual host, so there are more regions instead.
const MAX_DEFAULT_REGION_BYTES: u64 = 512 << 20;
const MIN_DEFAULT_REGION_BYTES: u64 = 1 << 20;
const DEFAULT_REGIONS: u64 = 448;
const MAX_REGIONS: u64 = 3584;
/// A log of fewer regions loses a large share of its items with each eviction.
pub const MIN_REGIONS: u64 = 4;

/// Configuration of a [`HashLog`](super::HashLog).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogConfig {
    /// Offset of the log on the device, in bytes; a multiple of the device's block.
    pub offset_bytes: u64,
    /// Bytes of the device for the log and its journal. The remainder of a division into pages stays unused.
    pub log_bytes: u64,
    /// Bytes of a page, the unit of a read: a power of two, at least the device's block, 512 to 32,768.
    pub page_bytes: u32,
    /// Number of full regions that fit the log. `None`: 448, or such that a region has 1 to 512 MiB. More regions need less memory for
    /// the open ones and more bits per item.
    pub regions: Option<u32>,
    /// Expected mean of key and value, which sizes the index. With smaller items, the index is full before the log is, and the
    /// oldest items leave earlier.
    pub expected_item_bytes: u32,
    /// Bytes of one transfer of a region, at most. Reads of items may wait for one.
    pub max_write_bytes: u32,
    /// Share of each new region for items that were read since their last write. 0 disables readmission.
    pub readmission_share: f64,
    /// The journal with which the log is [recovered](super::HashLog::recover) after a kill; `None` for recovery after a clean close only.
    pub journal: Option<JournalOptions>,
    /// Distinguishes the contents of this store from those of all earlier ones on the device
    /// ([`Superblock::generation_mark`](crate::flash::superblock::Superblock::generation_mark)).
    pub generation: u64,
    /// Seed of the cache's [key hash](crate::KeyHash).
    pub hash_seed: u64,
}

/// Blocks of a journal beside those for removals of the expected items.
const LEAST_JOURNAL_BLOCKS: u64 = 16;

/// The sizes of a log, computed from a checked [`LogConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of a region.
    pub pages_per_region: u32,
    /// Pages of the log.
    pub log_pages: u64,
    /// Maximum number of live regions. It exceeds the number of full regions that fit the log, since a region written early is shorter.
    pub max_regions: u32,
    /// Bits of a region's sequence number in an index slot.
    pub sequence_bits: u32,
    /// Bits of a key's fingerprint in a slot.
    pub fingerprint_bits: u32,
    /// Bits of a slot that count reads.
    pub hit_bits: u32,
    /// Lines of the index in each shard.
    pub lines_per_shard: u32,
    /// Lines to sweep in each shard per region written, so that a slot is swept before its sequence number recurs.
    pub sweep_lines: u32,
}

impl LogConfig {
    /// A configuration with the defaults: pages of 4 KiB, items of 256 bytes, readmission into at most a quarter of each region.
    #[must_use]
    pub fn new(offset_bytes: u64, log_bytes: u64, generation: u64) -> Self {
        Self {
            offset_bytes,
            log_bytes,
            page_bytes: 4096,
            regions: None,
            expected_item_bytes: 256,
            max_write_bytes: 64 << 10,
            readmission_share: 0.25,
            journal: None,
            generation,
            hash_seed: 0,
        }
    }

    /// Checks the configuration against the device.
    ///
    /// # Errors
    /// The first setting that does not fit, with the numbers.
    pub fn check(&self, device: &Geometry) -> Result<(), LogConfigError> {
        use LogConfigError as E;
        let page_bytes = u64::from(self.page_bytes);
        if !page::PAGE_BYTES.contains(&self.page_bytes)
            || !self.page_bytes.is_power_of_two()
            || self.page_bytes < device.block_bytes
            || self.page_bytes > device.max_io_bytes
        {
            let (block_bytes, max_io_bytes) = (device.block_bytes, device.max_io_bytes);
            return Err(E::PageBytes { page_bytes, block_bytes, max_io_bytes });
        }
        let unit_bytes = self.journal.map_or(device.block_bytes, |options| options.block_bytes);
        if !self.offset_bytes.is_multiple_of(u64::from(device.block_bytes))
            || !unit_bytes.is_multiple_of(device.block_bytes)
        {
            return Err(E::Offset { offset_bytes: self.offset_bytes, block_bytes: device.block_bytes });
        }
        if self.offset_bytes.checked_add(self.log_bytes).is_none_or(|end| end > device.capacity_bytes) {
            let (offset_bytes, log_bytes) = (self.offset_bytes, self.log_bytes);
            return Err(E::BeyondDevice { offset_bytes, log_bytes, device_bytes: device.capacity_bytes });
        }
        let regions = self.region_count();
        let pages_per_region = (self.pages_bytes() / page_bytes).checked_div(regions).unwrap_or(0);
        if !(MIN_REGIONS..=MAX_REGIONS).contains(&regions)
            || pages_per_region == 0
            || pages_per_region > u64::from(u32::MAX / super::fences::UNITS_PER_PAGE)
        {
            return Err(E::Regions { regions, log_bytes: self.log_bytes, page_bytes });
        }
        if self.expected_item_bytes == 0 || self.max_write_bytes == 0 {
            return Err(E::Zero);
        }
        if !(0.0..=0.9).contains(&self.readmission_share) {
            return Err(E::Readmission);
        }
        Ok(())
    }

    fn region_count(&self) -> u64 {
        let default = || {
            let log_bytes = self.pages_bytes();
            let pages = log_bytes / u64::from(self.page_bytes.max(1));
            let by_size = (log_bytes / MIN_DEFAULT_REGION_BYTES).clamp(16, DEFAULT_REGIONS);
            let large = log_bytes.div_ceil(MAX_DEFAULT_REGION_BYTES).min(MAX_REGIONS);
            by_size.max(large).min(pages / 2)
        };
        self.regions.map_or_else(default, u64::from)
    }

    /// The sizes of a checked configuration, with `shards` shards of the index.
    #[must_use]
    pub(super) fn shape(&self, shards: usize) -> Shape {
        let regions = self.region_count() as u32;
        let log_bytes = self.pages_bytes();
        let pages_per_region = (log_bytes / u64::from(self.page_bytes) / u64::from(regions)) as u32;
        // Live, open and sealed regions have different numbers; an eighth more gives the sweep time for one pass.
        let numbers = regions + regions / 8 + 8;
        let sequence_bits = u32::BITS - (numbers - 1).leading_zeros();
        let max_regions = regions + (regions / 16).max(2);
        let spare = (1 << sequence_bits) - max_regions - 4;
        let slot_bits = sequence_bits + FINGERPRINT_BITS + HIT_BITS;
        let slots = log_bytes as f64 / f64::from(self.expected_item_bytes) * SLOTS_PER_ITEM;
        let lines = (slots / f64::from(LINE_BITS / slot_bits)).ceil();
        let lines_per_shard = (lines / shards as f64).ceil().max(1.0) as u32;
        Shape {
            page_bytes: self.page_bytes,
            pages_per_region,
            log_pages: log_bytes / u64::from(self.page_bytes),
            max_regions,
            sequence_bits,
            fingerprint_bits: FINGERPRINT_BITS,
            hit_bits: HIT_BITS,
            lines_per_shard,
            sweep_lines: lines_per_shard.div_ceil(spare - 1),
        }
    }

    /// Bytes of the pages: all that the journal leaves.
    fn pages_bytes(&self) -> u64 {
        self.log_bytes.saturating_sub(self.journal_bytes())
    }

    /// Offset of the first page.
    pub(super) fn pages_offset(&self) -> u64 {
        self.offset_bytes + self.journal_bytes()
    }

    fn journal_bytes(&self) -> u64 {
        let journal = self.journal_place();
        journal.map_or(0, |place| place.bytes().next_multiple_of(journal::alignment_bytes(self.page_bytes)))
    }

    /// The place of the journal. It has space for a removal of each expected item.
    pub(in crate::flash) fn journal_place(&self) -> Option<JournalPlace> {
        let options = self.journal?;
        let items = self.log_bytes / u64::from(self.expected_item_bytes.max(1));
        let blocks = items.div_ceil(journal::words_per_block(options.block_bytes)) + LEAST_JOURNAL_BLOCKS;
        Some(JournalPlace { offset_bytes: self.offset_bytes, blocks, generation: self.generation, options })
    }

    /// Whether a key and a value fit a page.
    #[must_use]
    pub fn fits(&self, key_bytes: usize, value_bytes: usize) -> bool {
        page::fits(self.page_bytes as usize, key_bytes, value_bytes)
    }

    /// The largest sum of key and value that [`fits`](Self::fits), apart from the key's own limit.
    #[must_use]
    pub fn max_item_bytes(&self) -> usize {
        page::max_item_bytes(self.page_bytes as usize)
    }
}

impl Shape {
    /// Bytes of a region.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        u64::from(self.pages_per_region) * u64::from(self.page_bytes)
    }

    /// Bytes of the index, and of the fences and hit pages of all regions.
    #[must_use]
    pub fn index_bytes(&self, shards: usize) -> u64 {
        let lines = shards as u64 * u64::from(self.lines_per_shard) * u64::from(LINE_BITS / 8);
        lines + self.log_pages * 2 + self.log_pages / 8 + u64::from(self.max_regions) * 88
    }

    /// Bits of an index slot.
    #[must_use]
    pub fn slot_bits(&self) -> u32 {
        self.sequence_bits + self.fingerprint_bits + self.hit_bits
    }

    /// Entries of the index, at most.
    #[must_use]
    pub fn index_slots(&self, shards: usize) -> u64 {
        shards as u64 * u64::from(self.lines_per_shard) * u64::from(self.slots_per_line())
    }

    /// Slots of a line.
    #[must_use]
    pub fn slots_per_line(&self) -> u32 {
        LINE_BITS / self.slot_bits()
    }
}

/// The reason why a [`LogConfig`] is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum LogConfigError {
    #[error(
        "page_bytes: {page_bytes} bytes; must be a power of two from 512 to 32,768, not below the device's block \
         ({block_bytes}) nor above its largest transfer ({max_io_bytes})"
    )]
    PageBytes { page_bytes: u64, block_bytes: u32, max_io_bytes: u32 },
    #[error("offset {offset_bytes} of the log is not a multiple of the device's block ({block_bytes})")]
    Offset { offset_bytes: u64, block_bytes: u32 },
    #[error("{log_bytes} bytes from offset {offset_bytes} reach past the device's end ({device_bytes})")]
    BeyondDevice { offset_bytes: u64, log_bytes: u64, device_bytes: u64 },
    #[error(
        "{regions} regions in {log_bytes} bytes of pages of {page_bytes}: the log needs 4 to 3,584 regions of at least one page; \
         give small items more space, or choose sets for them"
    )]
    Regions { regions: u64, log_bytes: u64, page_bytes: u64 },
    #[error("the expected item size and the size of a device write must not be 0")]
    Zero,
    #[error("readmission_share must be between 0 and 0.9")]
    Readmission,
}
