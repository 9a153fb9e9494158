//! The division of the flash.
//!
//! ```text
//!      0             128 KiB
//!      +-------------+---------+---------+---------+-------+--------+--------+---- ··· --+--------+
//!      | superblocks | table 0 | table 1 | journal | log   | page 0 | page 1 |           | unused |
//!      +-------------+---------+---------+---------+-------+--------+--------+---- ··· --+--------+
//!                    ^ tables_offset     ^ journal_offset  ^ pages_offset, a multiple of the block size
//! ```
//!
//! A *page* holds one block of the disk. There are more pages than slots (blocks that the cache can hold), because a write needs a
//! page that no metadata refers to. Sets form *groups* that share their pages; the last group may be smaller.

use std::ops::RangeInclusive;

use device::Geometry;

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::journal::block::{JOURNAL_BLOCK_BYTES, UNITS_PER_BLOCK};

/// Space for both superblocks, 64 KiB each, so that an erase block or stripe unit of usual size holds only one.
pub const SUPERBLOCKS_BYTES: u64 = 128 << 10;

/// Permitted block sizes in bytes; powers of two.
pub const BLOCK_BYTES: RangeInclusive<u32> = 4096..=65536;

/// Permitted numbers of blocks per set.
pub const WAYS: RangeInclusive<u32> = 1..=32768;

/// Slots per spare page. Spare pages are for writes between two commits.
const PAGES_PER_SPARE: u32 = 64;

/// Minimum of spare pages per group. A segment of a request allocates all of its pages together.
pub(crate) const MIN_SPARES: u32 = 128;

/// Maximum of pages per group: 16-bit numbers, with one value for "none".
const GROUP_PAGES: u32 = u16::MAX as u32;

/// Slots per block with missing sectors. Their sector masks take memory and space in the tables.
pub(crate) const SLOTS_PER_PARTIAL: u32 = 32;

/// Default journal size of a small flash, but at most 1/64 of it: space for a thousand short commits. Each table costs two flushes
/// for the superblock, which should be few compared with those of clients.
const USUAL_JOURNAL_BYTES: u64 = 4 << 20;

const MIN_JOURNAL_BYTES: u64 = 64 << 10;

/// Maximum size of the intent log. When it is full, a commit empties it; a flush per several thousand writes is cheap.
const MAX_INTENT_LOG_BYTES: u64 = 4 << 20;

const MIN_INTENT_LOG_BLOCKS: u64 = 8;
const MAX_JOURNAL_BYTES: u64 = 256 << 20;

/// Maximum of slots whose block lacks sectors.
#[must_use]
pub fn partial_limit(slots: u32) -> usize {
    (slots / SLOTS_PER_PARTIAL) as usize
}

/// The division of a flash device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Block size in bytes, of the disk and of pages.
    pub block_bytes: u32,
    /// Number of sets.
    pub sets: u32,
    /// Slots per set.
    pub ways: u32,
    /// Blocks of 4 KiB in each of the two tables.
    pub table_blocks: u64,
    /// Blocks of 4 KiB in the journal.
    pub journal_blocks: u64,
}

impl Layout {
    /// Divides a flash into as many sets as fit. `journal_bytes` is the size of the journal; by default at least the size of a table,
    /// so that writing tables at most doubles the journal's writes. An `ordered` volume has larger tables.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Config`] if it does not fit.
    pub fn compute(
        flash: &Geometry,
        block_bytes: u32,
        ways: u32,
        journal_bytes: Option<u64>,
        ordered: bool,
    ) -> Result<Self> {
        check_units(flash, block_bytes, ways)?;
        let fits = |sets: u32| {
            let layout = Self::with_sets(block_bytes, sets, ways, journal_bytes, ordered);
            (layout.end() <= flash.capacity_bytes).then_some(layout)
        };
        // Bisection: `below` sets are known to fit, `above` are known not to.
        let (mut below, mut above) = (0_u32, (u32::MAX - 1) / 65 * 64 / ways);
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if fits(middle).is_some() { below = middle } else { above = middle }
        }
        fits(below).filter(|layout| layout.sets > 0).ok_or_else(|| {
            let (theirs, needed) =
                (flash.capacity_bytes, Self::with_sets(block_bytes, 1, ways, journal_bytes, ordered).end());
            let why = format!(
                "a flash device of {theirs} bytes is too small: superblocks, tables, journal and one set of {ways} blocks of \
                 {block_bytes} bytes need {needed}"
            );
            VolumeError::new(VolumeErrorKind::Config, why)
        })
    }

    /// Whether this is a possible layout on a flash that has `capacity_bytes` now, and may have had more. Other layouts are treated as
    /// damage even if the superblock's checksum is right; the computations in this file would overflow.
    #[must_use]
    pub(crate) fn is_possible_on(&self, capacity_bytes: u64) -> bool {
        let units_fit = is_power_in(self.block_bytes, &BLOCK_BYTES) && WAYS.contains(&self.ways);
        let slots = u64::from(self.sets) * u64::from(self.ways);
        let spares = slots / u64::from(PAGES_PER_SPARE) + u64::from(2 * MIN_SPARES);
        let most_blocks = capacity_bytes / JOURNAL_BLOCK_BYTES as u64;
        units_fit
            && slots > 0
            && slots + spares <= u64::from(u32::MAX)
            && self.journal_blocks > 0
            && self.table_blocks <= most_blocks
            && self.journal_blocks <= most_blocks
    }

    /// The layout with this many sets.
    pub(crate) fn with_sets(
        block_bytes: u32,
        sets: u32,
        ways: u32,
        journal_bytes: Option<u64>,
        ordered: bool,
    ) -> Self {
        let mut layout = Self { block_bytes, sets, ways, table_blocks: 0, journal_blocks: 0 };
        // Each page may have one record. A partial block takes another unit, and an epoch of an ordered volume another.
        let per_page = if ordered { 2 } else { 1 };
        let partial = if ordered { layout.pages() as usize } else { layout.partial_limit() };
        let units = u64::from(layout.pages()) * per_page + partial as u64;
        layout.table_blocks = units.div_ceil(UNITS_PER_BLOCK as u64);
        let pages_bytes = u64::from(layout.pages()) * u64::from(block_bytes);
        let usual =
            (layout.table_blocks * JOURNAL_BLOCK_BYTES as u64).max(USUAL_JOURNAL_BYTES.min(pages_bytes / 64));
        let journal = journal_bytes.unwrap_or(usual).clamp(MIN_JOURNAL_BYTES, MAX_JOURNAL_BYTES);
        layout.journal_blocks = journal / JOURNAL_BLOCK_BYTES as u64;
        layout
    }

    /// Maximum of cached blocks.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.sets * self.ways
    }

    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> u32 {
        let whole = self.sets / self.sets_per_group();
        whole * pages_for(self.sets_per_group() * self.ways)
            + pages_for(self.sets % self.sets_per_group() * self.ways)
    }

    /// Sets per group. Limited because memory holds a page number within its group in two bytes.
    #[must_use]
    pub fn sets_per_group(&self) -> u32 {
        let most = (GROUP_PAGES / (PAGES_PER_SPARE + 1) * PAGES_PER_SPARE / self.ways).max(1);
        most.min(self.sets.max(1))
    }

    /// Pages of a complete group.
    #[must_use]
    pub fn pages_per_group(&self) -> u32 {
        pages_for(self.sets_per_group() * self.ways)
    }

    /// Offset of table `index` (0 or 1).
    #[must_use]
    pub fn table_offset(&self, index: u8) -> u64 {
        SUPERBLOCKS_BYTES + u64::from(index) * self.table_blocks * JOURNAL_BLOCK_BYTES as u64
    }

    /// Offset of the journal.
    #[must_use]
    pub fn journal_offset(&self) -> u64 {
        self.table_offset(2)
    }

    /// Blocks of 4 KiB in the intent log.
    #[must_use]
    pub fn intent_log_blocks(&self) -> u64 {
        (self.journal_blocks / 2)
            .clamp(MIN_INTENT_LOG_BLOCKS, MAX_INTENT_LOG_BYTES / JOURNAL_BLOCK_BYTES as u64)
    }

    /// Offset of the intent log.
    #[must_use]
    pub fn intent_log_offset(&self) -> u64 {
        self.journal_offset() + self.journal_blocks * JOURNAL_BLOCK_BYTES as u64
    }

    /// Offset of page 0.
    #[must_use]
    pub fn pages_offset(&self) -> u64 {
        let end = self.intent_log_offset() + self.intent_log_blocks() * JOURNAL_BLOCK_BYTES as u64;
        end.next_multiple_of(u64::from(self.block_bytes))
    }

    /// Offset of a page.
    #[must_use]
    pub fn page_offset(&self, page: u32) -> u64 {
        self.pages_offset() + u64::from(page) * u64::from(self.block_bytes)
    }

    /// Maximum of slots whose block lacks sectors.
    #[must_use]
    pub fn partial_limit(&self) -> usize {
        partial_limit(self.slots())
    }

    /// End of the last page.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.page_offset(self.pages())
    }
}

/// Pages of a group with this many slots.
fn pages_for(slots: u32) -> u32 {
    if slots == 0 { 0 } else { slots + (slots / PAGES_PER_SPARE).max(MIN_SPARES) }
}

fn check_units(flash: &Geometry, block_bytes: u32, ways: u32) -> Result<()> {
    let refuse = |why: String| Err(VolumeError::new(VolumeErrorKind::Config, why));
    if !is_power_in(block_bytes, &BLOCK_BYTES) {
        return refuse(format!(
            "a block of {block_bytes} bytes: must be a power of two {}",
            bounds(&BLOCK_BYTES)
        ));
    }
    if !WAYS.contains(&ways) {
        return refuse(format!("sets of {ways} blocks: must be {}", bounds(&WAYS)));
    }
    if flash.block_bytes > JOURNAL_BLOCK_BYTES as u32 {
        let theirs = flash.block_bytes;
        return refuse(format!(
            "the flash has blocks of {theirs} bytes; more than {JOURNAL_BLOCK_BYTES} is not supported"
        ));
    }
    Ok(())
}

fn is_power_in(number: u32, among: &RangeInclusive<u32>) -> bool {
    number.is_power_of_two() && among.contains(&number)
}

fn bounds(among: &RangeInclusive<u32>) -> String {
    format!("from {} to {}", among.start(), among.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flash(capacity_bytes: u64) -> Geometry {
        Geometry {
            capacity_bytes,
            block_bytes: 512,
            max_io_bytes: 1 << 20,
            indirection_bytes: 512,
            placement_handles: 0,
            buffered: false,
        }
    }

    #[test]
    fn areas_are_consecutive_and_fill_the_flash() {
        let sizes =
            [(4 << 20, 4096, 64), (64 << 20, 4096, 512), (100 << 30, 4096, 512), (1 << 30, 65536, 512)];
        for (capacity, block, ways) in sizes {
            let layout = Layout::compute(&flash(capacity), block, ways, None, false).unwrap();
            assert_eq!(layout.table_offset(0), SUPERBLOCKS_BYTES);
            assert!(layout.table_offset(1) > layout.table_offset(0));
            assert!(layout.pages_offset() >= layout.journal_offset() + MIN_JOURNAL_BYTES);
            assert!(layout.pages_offset().is_multiple_of(u64::from(block)));
            let (unused, set_bytes) = (capacity - layout.end(), u64::from(ways * block));
            assert!(unused < 2 * set_bytes, "{unused} of {capacity} are unused");
            assert!(u64::from(layout.slots()) * 16 * 33 / 32 <= layout.table_blocks * 4032);
            assert!(layout.pages_per_group() <= GROUP_PAGES);
        }
    }

    #[test]
    fn impossible_layouts_are_rejected_without_overflow() {
        let capacity = 64 << 20;
        let layout = Layout::compute(&flash(capacity), 4096, 64, None, true).unwrap();
        assert!(layout.is_possible_on(capacity) && layout.is_possible_on(layout.end() - 1));
        for impossible in [
            Layout { sets: u32::MAX, ..layout },
            Layout { sets: 0, ..layout },
            Layout { ways: u32::MAX, ..layout },
            Layout { ways: 0, ..layout },
            Layout { block_bytes: 0, ..layout },
            Layout { block_bytes: 1 << 31, ..layout },
            Layout { table_blocks: u64::MAX, ..layout },
            Layout { journal_blocks: 0, ..layout },
            Layout { journal_blocks: u64::MAX, ..layout },
        ] {
            assert!(!impossible.is_possible_on(capacity), "{impossible:?}");
        }
    }

    #[test]
    fn group_pages_fit_into_16_bits() {
        for ways in [1, 8, 48, 512, 1000, 4096, 32768] {
            let layout = Layout::with_sets(4096, 100_000, ways, None, false);
            let (group, more) = (layout.pages_per_group(), pages_for((layout.sets_per_group() + 2) * ways));
            assert!(group <= GROUP_PAGES && more > GROUP_PAGES - 200, "{ways} ways: {group}, {more}");
        }
    }

    #[test]
    fn metadata_of_100_gib_takes_less_than_3_percent() {
        let capacity = 100u64 << 30;
        let layout = Layout::compute(&flash(capacity), 4096, 512, None, false).unwrap();
        let held = u64::from(layout.slots()) * 4096;
        assert!(held > capacity * 97 / 100, "{held} of {capacity}");
    }

    #[test]
    fn compute_with_invalid_sizes_fails() {
        for (capacity, block) in [(1 << 18, 4096), (4 << 20, 65536), (1 << 30, 2048), (1 << 30, 5000)] {
            let error = Layout::compute(&flash(capacity), block, 64, None, false).unwrap_err();
            assert_eq!(error.kind(), VolumeErrorKind::Config);
        }
        assert!(Layout::compute(&flash(1 << 30), 4096, 0, None, false).is_err());
        assert!(Layout::compute(&flash(1 << 30), 4096, 32769, None, false).is_err());
    }
}
