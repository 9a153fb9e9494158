//! Reads and writes of pages on flash.

use std::ops::Range;
use std::sync::Arc;

use device::checksum::crc32c;
use device::{IoBuffer, IoError, IoSlice, Request};

use super::SECTOR_BYTES;
use super::error::{Result, VolumeError, VolumeErrorKind};
use super::page_map::FlashCopy;
use super::segment::{Part, runs};
use super::shared::Shared;
use super::state::Written;
use super::work::Work;

/// A part that is read from its flash page.
#[derive(Debug, Clone)]
pub(super) struct Hit {
    pub(super) part: Part,
    pub(super) copy: FlashCopy,
}

impl Shared {
    /// Reads whole pages, adjacent ones together, and verifies their checksums if known. Clean blocks with damaged pages are
    /// dropped when `work` ends.
    pub(super) async fn read_pages(&self, work: &Arc<Work>, hits: &[Hit]) -> Result<Vec<(Hit, IoSlice)>> {
        let block_bytes = self.layout.block_bytes as usize;
        let most = self.flash.geometry().transfer_units(block_bytes as u64, u64::MAX) as u32;
        let runs = runs(hits, |one, next| {
            one.copy.page + 1 == next.copy.page && !next.copy.page.is_multiple_of(most)
        });
        self.state.lock().sets.counters_mut().ssd_reads += hits.len() as u64;
        let start = |run: Range<usize>| {
            let offset = self.layout.page_offset(hits[run.start].copy.page);
            let pending = work.start(&*self.flash, Request::read(offset, run.len() * block_bytes));
            (run, pending)
        };
        let pending: Vec<_> = runs.into_iter().map(start).collect();
        let (mut pages, mut result) = (Vec::with_capacity(hits.len()), Ok(()));
        for (run, pending) in pending {
            let data = match pending.await {
                Ok(data) => IoSlice::from(data),
                Err(error) => {
                    result = result.and(Err(self.flash_read_failed(work, &hits[run], error)));
                    continue;
                }
            };
            for (number, hit) in hits[run].iter().enumerate() {
                let page = data.part(number * block_bytes..(number + 1) * block_bytes);
                if hit.copy.crc.is_some_and(|crc| crc != crc32c(&page)) {
                    result = result.and(Err(self.bad_page(work, hit)));
                }
                pages.push((hit.clone(), page));
            }
        }
        result.map(|()| pages)
    }

    /// Reads one page for a write that keeps some of its sectors.
    pub(super) async fn read_copy(&self, work: &Arc<Work>, part: &Part, copy: FlashCopy) -> Result<IoSlice> {
        let hit = Hit { part: part.clone(), copy };
        Ok(self.read_pages(work, &[hit]).await?.remove(0).1)
    }

    /// Reads the pages of several blocks, in order.
    pub(super) async fn read_copies_of(
        &self,
        work: &Arc<Work>,
        blocks: Vec<(Part, FlashCopy)>,
    ) -> Result<Vec<IoSlice>> {
        let hits: Vec<Hit> = blocks.into_iter().map(|(part, copy)| Hit { part, copy }).collect();
        Ok(self.read_pages(work, &hits).await?.into_iter().map(|(_, page)| page).collect())
    }

    /// Write requests for whole pages, one for each run of adjacent pages.
    pub(super) fn page_writes(&self, pages: &[(Written, IoSlice)]) -> Vec<Request> {
        let geometry = self.flash.geometry();
        let block_bytes = self.layout.block_bytes as usize;
        let most = geometry.transfer_units(block_bytes as u64, u64::MAX) as u32;
        let runs =
            runs(pages, |(one, _), (next, _)| one.page + 1 == next.page && !next.page.is_multiple_of(most));
        let request = |run: Range<usize>| {
            let offset = self.layout.page_offset(pages[run.start].0.page);
            let data = match &pages[run] {
                [(_, data)] if data.as_ptr().addr().is_multiple_of(geometry.block_bytes as usize) => {
                    data.clone()
                }
                run => {
                    let mut together = IoBuffer::zeroed(run.len() * block_bytes);
                    for ((_, data), into) in run.iter().zip(together.chunks_exact_mut(block_bytes)) {
                        into.copy_from_slice(data);
                    }
                    together.into()
                }
            };
            Request::write(offset, data)
        };
        runs.into_iter().map(request).collect()
    }

    /// Handles a failed read of pages. Clean blocks are dropped, since the disk has them. Dirty blocks stay: a later read may succeed.
    fn flash_read_failed(&self, work: &Arc<Work>, hits: &[Hit], error: IoError) -> VolumeError {
        self.state.lock().io.ssd_read_errors += 1;
        for hit in hits {
            work.report_damaged(hit.part.block, hit.copy.page);
        }
        VolumeError::flash("reading the flash", error)
    }

    fn bad_page(&self, work: &Arc<Work>, hit: &Hit) -> VolumeError {
        self.state.lock().io.checksum_errors += 1;
        work.report_damaged(hit.part.block, hit.copy.page);
        let why = format!("block {} on flash, page {}: its checksum is wrong", hit.part.block, hit.copy.page);
        VolumeError::new(VolumeErrorKind::Flash, why)
    }

    pub(super) fn flash_write_failed(&self, error: IoError) -> VolumeError {
        let error = VolumeError::flash("writing the flash", error);
        self.state.lock().fail_flash(error.clone(), self.timer.monotonic_ns());
        error
    }
}

/// Copies the sectors of a page over a block.
pub(super) fn overlay(block: &mut [u8], page: &[u8], copy: FlashCopy) {
    let sector = SECTOR_BYTES as usize;
    let Some(sectors) = copy.partial else { return block.copy_from_slice(page) };
    for run in sectors.runs() {
        let bytes = run.start as usize * sector..(run.end as usize * sector).min(block.len());
        block[bytes.clone()].copy_from_slice(&page[bytes]);
    }
}
