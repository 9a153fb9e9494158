//! The blocks of the disk; splitting requests into segments, and segments into blocks.

use std::ops::Range;

use super::SECTOR_BYTES;
use super::error::{Result, VolumeError, VolumeErrorKind};
use super::layout::{Layout, MIN_SPARES};
use super::record::Sectors;

/// Maximum length of a segment. A write allocates all pages of a segment together, or waits without holding any.
pub(super) const SEGMENT_BLOCKS: u64 = MIN_SPARES as u64 / 2;

/// Maximum length of a segment of a read. It allocates only the pages that are free, so it can be longer than a segment of a write.
const READ_SEGMENT_BYTES: u64 = 4 << 20;

/// Minimum length of a stream whose requests are [sequential](Grid::is_sequential); an eighth of the cache if that is less.
/// Requests must have an eighth of that: small writes of a log are faster on flash, however many there are.
const SEQUENTIAL_BYTES: u64 = 512 << 10;

/// A range of bytes within one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) block: u64,
    /// Byte range within the block.
    pub(super) within: Range<usize>,
    /// Offset within the segment.
    pub(super) at: usize,
}

impl Part {
    /// The sectors of the part.
    pub(super) fn sectors(&self) -> Sectors {
        let sector = SECTOR_BYTES as usize;
        Sectors::range((self.within.start / sector) as u32, self.within.end.div_ceil(sector) as u32)
    }

    /// Byte range within the segment.
    pub(super) fn place(&self) -> Range<usize> {
        self.at..self.at + self.within.len()
    }
}

/// The disk as blocks of the cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    disk_bytes: u64,
    block_bytes: u64,
    ways: u32,
    cache_bytes: u64,
}

impl Grid {
    pub(super) fn new(layout: &Layout, disk_bytes: u64) -> Self {
        let block_bytes = u64::from(layout.block_bytes);
        Self {
            disk_bytes,
            block_bytes,
            ways: layout.ways,
            cache_bytes: u64::from(layout.slots()) * block_bytes,
        }
    }

    /// Fails for a range that is unaligned or outside the volume.
    pub(super) fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        let sector = u64::from(SECTOR_BYTES);
        let size = self.disk_bytes;
        let wrong = if !offset.is_multiple_of(sector) || !len.is_multiple_of(sector) {
            "not aligned to sectors of 512 bytes".to_owned()
        } else if offset.checked_add(len).is_none_or(|end| end > size) {
            format!("past the end at {size}")
        } else {
            return Ok(());
        };
        Err(VolumeError::new(VolumeErrorKind::Invalid, format!("{len} bytes at {offset}: {wrong}")))
    }

    /// Splits `len` bytes at `offset` into segments of at most [`SEGMENT_BLOCKS`] and at most one set: all blocks of a segment may
    /// fall into the same set and must find slots there together.
    pub(super) fn segments(&self, offset: u64, len: usize) -> impl Iterator<Item = Range<u64>> + use<> {
        let most = SEGMENT_BLOCKS.min(self.ways.into()) * self.block_bytes;
        cut(offset..offset + len as u64, most)
    }

    /// Splits a read of `len` bytes at `offset` into segments.
    pub(super) fn read_segments(offset: u64, len: usize) -> impl Iterator<Item = Range<u64>> {
        cut(offset..offset + len as u64, READ_SEGMENT_BYTES)
    }

    /// Whether a request of `len` bytes, in a stream of `stream_bytes`, must reach the disk in order and without gaps, because a head
    /// movement takes longer than the transfer.
    pub(super) fn is_sequential(&self, len: usize, stream_bytes: u64) -> bool {
        let least = SEQUENTIAL_BYTES.min(self.cache_bytes / 8);
        stream_bytes >= least && len as u64 >= least / 8
    }

    /// The blocks that overlap a segment.
    pub(super) fn blocks_of(&self, segment: &Range<u64>) -> Range<u64> {
        segment.start / self.block_bytes..segment.end.div_ceil(self.block_bytes)
    }

    /// The parts of a segment, one for each block.
    pub(super) fn parts(&self, segment: &Range<u64>) -> Vec<Part> {
        self.blocks_of(segment).map(|block| self.part_of(segment, block)).collect()
    }

    /// The part of a segment in one block.
    pub(super) fn part_of(&self, segment: &Range<u64>, block: u64) -> Part {
        let block_bytes = self.block_bytes;
        let (from, to) = (segment.start.max(block * block_bytes), segment.end.min((block + 1) * block_bytes));
        let within = (from - block * block_bytes) as usize..(to - block * block_bytes) as usize;
        Part { block, within, at: (from - segment.start) as usize }
    }

    /// Bytes of `block` on the disk: less than a block at the end of the disk.
    pub(super) fn bytes_of(&self, block: u64) -> usize {
        (self.disk_bytes - block * self.block_bytes).min(self.block_bytes) as usize
    }

    /// All sectors of `block`.
    pub(super) fn whole(&self, block: u64) -> Sectors {
        Sectors::range(0, (self.bytes_of(block) / SECTOR_BYTES as usize) as u32)
    }

    /// The sectors, or `None` if they are all sectors of the block.
    pub(super) fn unless_whole(&self, block: u64, sectors: Sectors) -> Option<Sectors> {
        (!sectors.contains(self.whole(block))).then_some(sectors)
    }

    /// Blocks that lie in `range` completely, as far as the disk has them.
    pub(super) fn whole_blocks(&self, range: &Range<u64>) -> Range<u64> {
        let block = self.block_bytes;
        let first = range.start.div_ceil(block);
        let end = if range.end == self.disk_bytes { range.end.div_ceil(block) } else { range.end / block };
        first..end.max(first)
    }
}

/// `range`, cut at the multiples of `most`.
fn cut(range: Range<u64>, most: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let from = at;
        at = range.end.min((from / most + 1) * most);
        (from < range.end).then_some(from..at)
    })
}

/// Maximal runs of adjacent items, as ranges of indices.
pub(super) fn runs<T>(items: &[T], follows: impl Fn(&T, &T) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for index in 0..items.len() {
        match runs.last_mut() {
            Some(run) if follows(&items[index - 1], &items[index]) => run.end = index + 1,
            _ => runs.push(index..index + 1),
        }
    }
    runs
}
