//! Partially cached blocks, as in a volume: a write of some sectors does not read the other sectors from the disk.

use std::collections::HashMap;
use std::ops::Range;

use block::sets::{Geometry, Slot};
use block::volume::SECTOR_BYTES;
use block::volume::layout::partial_limit;
use block::volume::record::Sectors;

/// The valid sectors of partially cached blocks.
pub(super) struct PartialBlocks {
    sectors: HashMap<Slot, Sectors>,
    /// Changes of the current request, which are applied when all its writes are done.
    written: Vec<(Slot, Option<Sectors>)>,
    /// Maximum number of partial blocks of a volume.
    limit: usize,
    block_bytes: u64,
    sector_bytes: u64,
    whole: Sectors,
}

impl PartialBlocks {
    pub fn of(geometry: &Geometry) -> Self {
        // Sectors are enlarged if a block has more than the bitmap has bits. Volumes do not have such blocks.
        let sector_bytes = SECTOR_BYTES.max(geometry.block_bytes / u128::BITS);
        let limit = if sector_bytes > SECTOR_BYTES { 0 } else { partial_limit(geometry.slots()) };
        Self {
            sectors: HashMap::new(),
            written: Vec::new(),
            limit,
            block_bytes: geometry.block_bytes.into(),
            sector_bytes: sector_bytes.into(),
            whole: Sectors::range(0, geometry.block_bytes / sector_bytes),
        }
    }

    /// Drops the partial state of `slot`: the block was removed or is complete.
    pub fn forget(&mut self, slot: Slot) {
        self.sectors.remove(&slot);
    }

    /// Whether these bytes of the disk are valid in `slot`.
    pub fn has(&self, slot: Slot, bytes: &Range<u64>) -> bool {
        self.sectors.get(&slot).is_none_or(|there| there.contains(self.touched(bytes)))
    }

    /// Returns the valid sectors of `slot` before a write. `alone`: the write goes only to flash.
    pub fn begin_write(&mut self, slot: Slot, alone: bool) -> Sectors {
        let there = self.sectors.get(&slot).copied().unwrap_or(self.whole);
        // A write that also goes to the disk invalidates the cached block until it completes.
        if !alone {
            self.forget(slot);
        }
        there
    }

    /// Records a write to `slot`, which had the valid sectors `there`. Returns whether the rest of the block must be read from
    /// the disk first.
    pub fn write(&mut self, slot: Slot, there: Sectors, bytes: &Range<u64>) -> bool {
        let was_whole = there.contains(self.whole);
        let there = there.with(self.touched(bytes));
        let of_sectors = [bytes.start, bytes.end].iter().all(|byte| byte.is_multiple_of(self.sector_bytes));
        let is_whole = was_whole || (of_sectors && there.contains(self.whole));
        let stays = !is_whole && of_sectors && self.has_room();
        self.written.push((slot, stays.then_some(there)));
        !is_whole && !stays
    }

    /// Whether one more block can be partial, including those of this request.
    fn has_room(&self) -> bool {
        let is_new =
            |(slot, there): &&(Slot, Option<Sectors>)| there.is_some() && !self.sectors.contains_key(slot);
        self.sectors.len() + self.written.iter().filter(is_new).count() < self.limit
    }

    /// Applies the changes of the request.
    pub fn end_writes(&mut self) {
        for (slot, there) in self.written.drain(..) {
            match there {
                Some(there) => drop(self.sectors.insert(slot, there)),
                None => drop(self.sectors.remove(&slot)),
            }
        }
    }

    /// The valid byte ranges of `block` in `slot`.
    pub fn runs(&self, slot: Slot, block: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let there = self.sectors.get(&slot).copied();
        let (start, block_bytes, sector_bytes) =
            (block * self.block_bytes, self.block_bytes, self.sector_bytes);
        let byte = move |sector: u32| start + u64::from(sector) * sector_bytes;
        let parts = there.into_iter().flat_map(Sectors::runs).map(move |run| byte(run.start)..byte(run.end));
        parts.chain(there.is_none().then_some(start..start + block_bytes))
    }

    /// The sectors of a block that overlap `bytes` of the disk, which lie within the block.
    fn touched(&self, bytes: &Range<u64>) -> Sectors {
        let start = bytes.start / self.block_bytes * self.block_bytes;
        let first = (bytes.start - start) / self.sector_bytes;
        Sectors::range(first as u32, (bytes.end - start).div_ceil(self.sector_bytes) as u32)
    }
}
