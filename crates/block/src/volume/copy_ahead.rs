//! Copying of cached blocks to another flash while the volume is open, so that only later changes are copied while it is closed.
//!
//! A page is written once per allocation, so its copy is valid until the page is allocated again.

use std::sync::Arc;

use device::{Device, Request};

use super::Volume;
use super::create::config_error;
use super::error::{Result, VolumeError};
use super::layout::Layout;
use super::page_copy::{Move, PAGES_AT_ONCE, copy_pages};
use super::pages::Pages;
use super::replace::{moved_superblock, wipe};
use super::shared::Shared;
use super::superblock::Superblock;
use crate::sets::{Sets, SetsConfig, Slot};

/// Passes over the cache. Each copies the pages that changed during the one before.
const MAX_PASSES: u32 = 16;

/// A pass that copies fewer pages is the last: copying as many again takes little time.
const FEW_PAGES: usize = 64;

/// Slots examined per lock of the state.
const SLOTS_PER_LOCK: u32 = 4096;

/// Marks a page without a copy.
const NONE: u32 = u32::MAX;

/// The place of each page on another flash.
pub(super) struct Places {
    layout: Layout,
    sets: Sets,
    pages: Pages,
    /// The page on the new flash for each page of the old one.
    copy_of: Vec<u32>,
}

/// Pages of an open volume that were copied to another flash.
pub struct CopiedAhead {
    source: Arc<Shared>,
    places: Places,
}

impl Volume {
    /// Copies the cached blocks to `new`, whose contents are lost, while requests continue. Close the volume afterwards, and pass the
    /// result to [`replace_flash`](Self::replace_flash).
    ///
    /// # Errors
    /// [`VolumeErrorKind::Config`](super::VolumeErrorKind::Config) if `new` is too small, and failures of `new`.
    pub async fn copy_ahead(&self, new: &Arc<dyn Device>) -> Result<CopiedAhead> {
        let known = self.superblock();
        let superblock = moved_superblock(&known, &**new)?;
        let places = Places::new(&known.layout, &superblock)?;
        wipe(&**new, &superblock).await?;
        self.inner.shared.state.lock().pages.record_allocations(true);
        let mut ahead = CopiedAhead { source: Arc::clone(&self.inner.shared), places };
        let copied = ahead.copy_all(&**new).await;
        if copied.is_err() {
            self.inner.shared.state.lock().pages.record_allocations(false);
        }
        copied.map(|()| ahead)
    }
}

impl CopiedAhead {
    /// The copies that are still valid, for a move to the layout of `superblock`. The volume must be closed.
    pub(super) fn into_places(mut self, superblock: &Superblock) -> Result<Places> {
        if self.places.layout != superblock.layout {
            return Err(config_error("the size of the new flash has changed".into()));
        }
        let mut state = self.source.state.lock();
        for page in 0..self.source.layout.pages() {
            if state.pages.was_allocated(page) {
                self.places.drop_copy(page);
            }
        }
        Ok(self.places)
    }

    async fn copy_all(&mut self, new: &dyn Device) -> Result<()> {
        for _ in 0..MAX_PASSES {
            if self.copy_changed(new).await? < FEW_PAGES {
                break;
            }
        }
        let flushed = new.start(Request::Flush).await;
        flushed.map(drop).map_err(|error| VolumeError::flash("copying to the new flash", error))
    }

    /// Copies the pages without a valid copy. Returns their number.
    async fn copy_changed(&mut self, new: &dyn Device) -> Result<usize> {
        let layouts = [self.source.layout, self.places.layout];
        let (mut next, mut copied) = (0, 0);
        while next < self.source.layout.slots() {
            let batch = self.next_batch(&mut next);
            copied += batch.len();
            for (step, _) in copy_pages([&*self.source.flash, new], layouts, &batch).await? {
                self.places.drop_copy(step.from);
            }
        }
        Ok(copied)
    }

    /// The next pages to copy, from slot `next` on.
    fn next_batch(&mut self, next: &mut u32) -> Vec<Move> {
        let mut state = self.source.state.lock();
        let end = self.source.layout.slots().min(*next + SLOTS_PER_LOCK);
        let mut batch = Vec::new();
        while *next < end && batch.len() < PAGES_AT_ONCE {
            let slot = Slot(*next);
            *next += 1;
            let word = state.sets.word(slot);
            let (Some(copy), Some(block)) = (state.map.copy(slot), word.block()) else { continue };
            let from = copy.page;
            if state.pages.was_allocated(from) {
                self.places.drop_copy(from);
            }
            if self.places.has_copy(from) {
                continue;
            }
            if let Some(to) = self.places.place(from, block) {
                batch.push(Move { block, dirty: word.is_dirty(), from, to, crc: copy.crc });
            }
        }
        batch
    }
}

impl Places {
    /// No copies, for a move from the layout `old` to that of `superblock`.
    pub(super) fn new(old: &Layout, superblock: &Superblock) -> Result<Self> {
        let config = SetsConfig { geometry: superblock.geometry(), tuning: superblock.tuning };
        let sets = Sets::new(config).map_err(|error| config_error(error.to_string()))?;
        let layout = superblock.layout;
        Ok(Self { layout, sets, pages: Pages::new(&layout), copy_of: vec![NONE; old.pages() as usize] })
    }

    /// The set of `block` on the new flash.
    pub(super) fn set_of(&self, block: u64) -> u32 {
        self.sets.set_of(block)
    }

    pub(super) fn has_copy(&self, page: u32) -> bool {
        self.copy_of[page as usize] != NONE
    }

    /// The place of `page`, which holds `block`. It is allocated if there is none yet; `None` if the group is full.
    pub(super) fn place(&mut self, page: u32, block: u64) -> Option<u32> {
        if !self.has_copy(page) {
            let group = self.set_of(block) / self.layout.sets_per_group();
            self.copy_of[page as usize] = self.pages.take(group)?;
        }
        Some(self.copy_of[page as usize])
    }

    /// Frees the place of `page`.
    pub(super) fn drop_copy(&mut self, page: u32) {
        let to = std::mem::replace(&mut self.copy_of[page as usize], NONE);
        if to != NONE {
            self.pages.free(to);
        }
    }

    /// Frees the places of all pages but those in `kept`.
    pub(super) fn keep_only(&mut self, kept: &[u32]) {
        let mut is_kept = vec![false; self.copy_of.len()];
        kept.iter().for_each(|&page| is_kept[page as usize] = true);
        for (page, _) in (0..).zip(&is_kept).filter(|(_, is_kept)| !**is_kept) {
            self.drop_copy(page);
        }
    }
}
