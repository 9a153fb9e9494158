//! Which page holds the block of each slot, and with which contents.

use std::collections::HashMap;

use super::layout::Layout;
use super::record::Sectors;
use crate::sets::Slot;

/// Marks a slot without a page.
const NO_PAGE: u16 = u16::MAX;

/// The location of a block on flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlashCopy {
    pub(super) page: u32,
    /// Checksum of the page, if known.
    pub(super) crc: Option<u32>,
    /// The sectors on the page; `None` means all.
    pub(super) partial: Option<Sectors>,
}

/// The pages of all slots.
pub(super) struct PageMap {
    /// Reserved entries for blocks with missing sectors.
    reserved_partials: usize,
    layout: Layout,
    /// Page of each slot, relative to its group.
    page_of: Vec<u16>,
    /// Checksum of each slot's page, if checksums are kept.
    crc_of: Option<Vec<u32>>,
    /// Expected checksums of pages that recovery found damaged, in a volume without checksums: reading one fails.
    damaged: HashMap<u32, u32>,
    /// Valid sectors of the slots whose block lacks sectors.
    partial: HashMap<u32, Sectors>,
}

impl PageMap {
    /// A map in which no slot has a page.
    pub(super) fn new(layout: Layout, keeps_checksums: bool) -> Self {
        let slots = layout.slots() as usize;
        Self {
            reserved_partials: 0,
            layout,
            page_of: vec![NO_PAGE; slots],
            crc_of: keeps_checksums.then(|| vec![0; slots]),
            damaged: HashMap::new(),
            partial: HashMap::new(),
        }
    }

    /// The page of the block in `slot`; `None` while the block is being inserted.
    pub(super) fn page(&self, slot: Slot) -> Option<u32> {
        let page = self.page_of[slot.0 as usize];
        (page != NO_PAGE).then(|| self.first_page(slot) + u32::from(page))
    }

    /// The location of the block in `slot`; `None` while the block is being inserted.
    pub(super) fn copy(&self, slot: Slot) -> Option<FlashCopy> {
        self.page(slot).map(|page| {
            let crc = self.crc_of.as_ref().map(|crcs| crcs[slot.0 as usize]);
            FlashCopy {
                page,
                crc: crc.or_else(|| self.damaged_crc(page)),
                partial: self.partial.get(&slot.0).copied(),
            }
        })
    }

    /// The expected checksum of a page that recovery found damaged.
    pub(super) fn damaged_crc(&self, page: u32) -> Option<u32> {
        if self.damaged.is_empty() { None } else { self.damaged.get(&page).copied() }
    }

    /// Sets the pages that recovery found damaged, with their expected checksums.
    pub(super) fn set_damaged(&mut self, damaged: HashMap<u32, u32>) {
        self.damaged = damaged;
    }

    /// Whether recovery found damaged pages.
    pub(super) fn has_damaged(&self) -> bool {
        !self.damaged.is_empty()
    }

    /// Sets the page of a slot.
    pub(super) fn place(&mut self, slot: Slot, page: u32, crc: u32, partial: Option<Sectors>) {
        self.damaged.remove(&page);
        let within = page - self.first_page(slot);
        self.page_of[slot.0 as usize] = u16::try_from(within).expect("a group has fewer than 2^16 pages");
        if let Some(crcs) = &mut self.crc_of {
            crcs[slot.0 as usize] = crc;
        }
        match partial {
            Some(sectors) => self.partial.insert(slot.0, sectors),
            None => self.partial.remove(&slot.0),
        };
    }

    /// Removes the page of a slot. Returns its location.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<FlashCopy> {
        let copy = self.copy(slot)?;
        self.page_of[slot.0 as usize] = NO_PAGE;
        self.partial.remove(&slot.0);
        Some(copy)
    }

    /// Whether there is space to record one more block with missing sectors.
    pub(super) fn has_space_for_partials(&self) -> bool {
        self.partial.len() + self.reserved_partials < self.layout.partial_limit()
    }

    /// Reserves space for one block with missing sectors.
    pub(super) fn reserve_partial(&mut self) {
        self.reserved_partials += 1;
    }

    /// Releases space for blocks with missing sectors.
    pub(super) fn release_partials(&mut self, partials: usize) {
        self.reserved_partials -= partials;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.page_of.capacity() * 2
            + self.crc_of.as_ref().map_or(0, |crcs| crcs.capacity() * 4)
            + self.partial.capacity() * 40
    }

    /// The first page of the slot's group.
    fn first_page(&self, slot: Slot) -> u32 {
        slot.0 / self.layout.ways / self.layout.sets_per_group() * self.layout.pages_per_group()
    }
}
