//! Blocks that the cache has in part, as a volume keeps them: a write of some sectors need not read the others from the disk.

use std::collections::HashMap;
use std::ops::Range;

use block::sets::{Geometry, Slot};
use block::volume::SECTOR_BYTES;
use block::volume::layout::partial_limit;
use block::volume::record::Sectors;

/// Which sectors are there of blocks that lack some.
pub(super) struct PartialBlocks {
    sectors: HashMap<Slot, Sectors>,
    /// What a request has written so far; it counts when all of it is there.
    written: Vec<(Slot, Option<Sectors>)>,
    /// Blocks that may lack some: a volume has room for no more.
    limit: usize,
    block_bytes: u64,
    sector_bytes: u64,
    whole: Sectors,
}

impl PartialBlocks {
    pub fn of(geometry: &Geometry) -> Self {
        // No volume has blocks so large that their sectors are too many to be told apart.
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

    /// The block in `slot` left, or all of it is there.
    pub fn forget(&mut self, slot: Slot) {
        self.sectors.remove(&slot);
    }

    /// Whether these bytes of the disk are there, of the block in `slot`.
    pub fn has(&self, slot: Slot, bytes: &Range<u64>) -> bool {
        self.sectors.get(&slot).is_none_or(|there| there.contains(self.touched(bytes)))
    }

    /// The block in `slot` is going to be written, on flash `alone` or on the disk too. The sectors that are there.
    pub fn begin_write(&mut self, slot: Slot, alone: bool) -> Sectors {
        let there = self.sectors.get(&slot).copied().unwrap_or(self.whole);
        // What the disk gets too, a volume takes out of the cache while it is written.
        if !alone {
            self.forget(slot);
        }
        there
    }

    /// Bytes of the block in `slot` are written, of which flash had `there`. Whether the disk has to be read first for the rest.
    pub fn write(&mut self, slot: Slot, there: Sectors, bytes: &Range<u64>) -> bool {
        let was_whole = there.contains(self.whole);
        let there = there.with(self.touched(bytes));
        let of_sectors = [bytes.start, bytes.end].iter().all(|byte| byte.is_multiple_of(self.sector_bytes));
        let is_whole = was_whole || (of_sectors && there.contains(self.whole));
        let stays = !is_whole && of_sectors && self.has_room();
        self.written.push((slot, stays.then_some(there)));
        !is_whole && !stays
    }

    /// Whether one block more may lack sectors: what the request itself brings in counts.
    fn has_room(&self) -> bool {
        let is_new =
            |(slot, there): &&(Slot, Option<Sectors>)| there.is_some() && !self.sectors.contains_key(slot);
        self.sectors.len() + self.written.iter().filter(is_new).count() < self.limit
    }

    /// The request has ended.
    pub fn end_writes(&mut self) {
        for (slot, there) in self.written.drain(..) {
            match there {
                Some(there) => drop(self.sectors.insert(slot, there)),
                None => drop(self.sectors.remove(&slot)),
            }
        }
    }

    /// The runs of bytes that are there of `block`, which is in `slot`.
    pub fn runs(&self, slot: Slot, block: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let there = self.sectors.get(&slot).copied();
        let (start, block_bytes, sector_bytes) =
            (block * self.block_bytes, self.block_bytes, self.sector_bytes);
        let byte = move |sector: u32| start + u64::from(sector) * sector_bytes;
        let parts = there.into_iter().flat_map(Sectors::runs).map(move |run| byte(run.start)..byte(run.end));
        parts.chain(there.is_none().then_some(start..start + block_bytes))
    }

    /// The sectors of a block that `bytes` of the disk, which lie within it, touch.
    fn touched(&self, bytes: &Range<u64>) -> Sectors {
        let start = bytes.start / self.block_bytes * self.block_bytes;
        let first = (bytes.start - start) / self.sector_bytes;
        Sectors::range(first as u32, (bytes.end - start).div_ceil(self.sector_bytes) as u32)
    }
}
