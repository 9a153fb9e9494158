//! Cutting requests into pieces, and pieces into blocks.

use std::ops::Range;

use super::layout::MIN_SPARES;
use super::record::Sectors;
use super::{SECTOR_BYTES, Shared};

/// Blocks of a piece, at most: a write of one finds all of its pages at once, or waits holding none.
pub(super) const PIECE_BLOCKS: u64 = MIN_SPARES as u64 / 2;

/// A range of bytes within one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) block: u64,
    /// Within the block.
    pub(super) within: Range<usize>,
    /// Within the piece.
    pub(super) at: usize,
}

impl Part {
    /// The sectors it touches.
    pub(super) fn sectors(&self) -> Sectors {
        let sector = SECTOR_BYTES as usize;
        Sectors::range((self.within.start / sector) as u32, self.within.end.div_ceil(sector) as u32)
    }

    /// Where it lies within the piece.
    pub(super) fn place(&self) -> Range<usize> {
        self.at..self.at + self.within.len()
    }
}

impl Shared {
    /// The pieces of `len` bytes at `offset`, each within [`PIECE_BLOCKS`], and no larger than a set: where none of it may go
    /// around the cache, all of it must find slots at once, and it may be that all lies in one set.
    pub(super) fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = Range<u64>> + use<> {
        let most = PIECE_BLOCKS.min(self.layout.ways.into()) * u64::from(self.layout.block_bytes);
        let end = offset + len as u64;
        let mut at = offset;
        std::iter::from_fn(move || {
            let from = at;
            at = end.min((from / most + 1) * most);
            (from < end).then_some(from..at)
        })
    }

    /// The blocks that a piece touches.
    pub(super) fn blocks_of(&self, piece: &Range<u64>) -> Range<u64> {
        let block = u64::from(self.layout.block_bytes);
        piece.start / block..piece.end.div_ceil(block)
    }

    /// What a piece is of each block that it touches.
    pub(super) fn parts(&self, piece: &Range<u64>) -> Vec<Part> {
        self.blocks_of(piece).map(|block| self.part_of(piece, block)).collect()
    }

    /// What a piece is of one block that it touches.
    pub(super) fn part_of(&self, piece: &Range<u64>, block: u64) -> Part {
        let block_bytes = u64::from(self.layout.block_bytes);
        let (from, to) = (piece.start.max(block * block_bytes), piece.end.min((block + 1) * block_bytes));
        let within = (from - block * block_bytes) as usize..(to - block * block_bytes) as usize;
        Part { block, within, at: (from - piece.start) as usize }
    }

    /// Bytes of `block` that the disk has: fewer than a block where the disk ends.
    pub(super) fn bytes_of(&self, block: u64) -> usize {
        let start = block * u64::from(self.layout.block_bytes);
        (self.disk_bytes - start).min(u64::from(self.layout.block_bytes)) as usize
    }

    /// All sectors of `block`.
    pub(super) fn whole(&self, block: u64) -> Sectors {
        Sectors::range(0, (self.bytes_of(block) / SECTOR_BYTES as usize) as u32)
    }

    /// The same sectors, or `None` if they are all of the block.
    pub(super) fn unless_whole(&self, block: u64, sectors: Sectors) -> Option<Sectors> {
        (!sectors.contains(self.whole(block))).then_some(sectors)
    }
}

/// Maximal runs of neighbours in `items`, as ranges of indices.
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
