//! A sealed region goes to flash.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{IoError, Pending, Request};
use futures_util::future::join_all;

use crate::flash::Waiting;

use super::buffer::RegionBuffer;
use super::layout::{Layout, RegionId};
use super::stats::Counters;
use super::store::{Content, RegionStore};
use super::table::Record;

/// A flush under way. Puts the region back in the queue if it is dropped half way.
struct Unflushed<'a> {
    store: &'a RegionStore,
    buffer: Option<Arc<RegionBuffer>>,
}

impl Drop for Unflushed<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.store.supply.seal(buffer);
        }
        self.store.supply.flush_ended();
    }
}

impl RegionStore {
    /// Writes a sealed region. If the device refuses to the end, its items are forgotten.
    pub(super) async fn flush(&self, buffer: Arc<RegionBuffer>, waiting: Waiting) {
        let mut guard = Unflushed { store: self, buffer: Some(Arc::clone(&buffer)) };
        let records = buffer.records();
        let live = records.iter().any(|record| record.live);
        let written = if live { self.write(&buffer, &records, waiting).await } else { Ok(()) };
        guard.buffer = None;
        match written {
            Ok(()) if live => self.settle_region(&buffer, &records),
            Ok(()) => self.give_back(buffer.region),
            Err(_) => self.lose(&buffer, &records),
        }
    }

    /// Entries and table, in pieces side by side; failed pieces again, as often as configured.
    async fn write(
        &self,
        buffer: &Arc<RegionBuffer>,
        records: &[Record],
        waiting: Waiting,
    ) -> Result<(), IoError> {
        let ranges = buffer.finish(records, self.config.write_whole);
        let max_bytes = self.layout.max_write_bytes;
        let mut pieces: Vec<_> =
            ranges.into_iter().flat_map(|range| Layout::pieces(range, max_bytes)).collect();
        let mut attempts_left = self.config.write_attempts;
        loop {
            attempts_left -= 1;
            let (failed, last_error) = self.write_pieces(buffer, &pieces, waiting).await;
            match last_error {
                None => return Ok(()),
                Some(error) if attempts_left == 0 => return Err(error),
                Some(_) => pieces = failed,
            }
        }
    }

    /// Writes all pieces, as many side by side as configured; answers those that failed, and one of the errors.
    async fn write_pieces(
        &self,
        buffer: &Arc<RegionBuffer>,
        pieces: &[Range<usize>],
        waiting: Waiting,
    ) -> (Vec<Range<usize>>, Option<IoError>) {
        let base = self.layout.region_offset(buffer.region);
        let placement = self.placement(buffer.point);
        let start = |piece: &Range<usize>| {
            let (offset, data) = (base + piece.start as u64, buffer.slice(piece.clone()));
            let (completion, written) = self.supply.begin_change(buffer.region);
            self.device.submit(Request::Write { offset, data, placement }, completion);
            written
        };
        let mut outcomes = Vec::with_capacity(pieces.len());
        for some in pieces.chunks(self.at_once(pieces.len())) {
            let started: Vec<Pending> = some.iter().map(start).collect();
            match waiting {
                Waiting::Thread => outcomes.extend(started.into_iter().map(Pending::wait)),
                Waiting::Task => outcomes.extend(join_all(started).await),
            }
        }
        let mut failed = Vec::new();
        let mut last_error = None;
        for (piece, outcome) in pieces.iter().zip(outcomes) {
            match outcome {
                Ok(_) => Counters::add(&self.counters.written_bytes, piece.len()),
                Err(error) => {
                    Counters::one(&self.counters.write_errors);
                    failed.push(piece.clone());
                    last_error = Some(error);
                }
            }
        }
        (failed, last_error)
    }

    /// Transfers of background work to start together, of `most` that could be.
    pub(super) fn at_once(&self, most: usize) -> usize {
        match self.config.transfers_at_once as usize {
            0 => most.max(1),
            limit => limit.min(most).max(1),
        }
    }

    /// The region is on flash: readers go there from now on, and the policy may choose it.
    fn settle_region(&self, buffer: &RegionBuffer, records: &[Record]) {
        // First: whoever sees that nothing is in memory any more finds it counted.
        self.count_settled(buffer);
        let entries = u32::try_from(records.len()).expect("a region has less than 2^32 entries");
        let content = Content::Flash { filling: buffer.filling, entries, point: buffer.point };
        *self.region(buffer.region).content.lock() = content;
        self.policy.lock().written(buffer.region, buffer.point);
        self.supply.work.notify(usize::MAX);

        let unit_bytes = self.layout.unit_bytes as usize;
        let entry_bytes: usize = records.iter().map(|record| record.units as usize * unit_bytes).sum();
        let table_bytes = super::table::table_bytes(records.len());
        Counters::one(&self.counters.regions_flushed);
        Counters::add(&self.counters.written_entry_bytes, entry_bytes);
        let hole = self.layout.region_bytes as usize - entry_bytes - table_bytes;
        Counters::add(&self.counters.hole_bytes, hole);
    }

    /// The region could not be written. What readers find must be on flash or in memory, and memory is needed.
    fn lose(&self, buffer: &RegionBuffer, records: &[Record]) {
        let lost = records
            .iter()
            .filter(|record| {
                let address = self.layout.address(buffer.region, record.unit);
                record.live && self.take_out(|index| index.remove_at(record.hash, address)).is_some()
            })
            .count();
        Counters::add(&self.counters.items_lost, lost);
        Counters::one(&self.counters.regions_lost);
        self.count_settled(buffer);
        if self.region(buffer.region).count_failure() >= self.config.retire_after_failures {
            *self.region(buffer.region).content.lock() = Content::Retired;
            Counters::one(&self.counters.regions_retired);
            self.supply.retire_region();
        } else {
            self.give_back(buffer.region);
        }
    }

    fn count_settled(&self, buffer: &RegionBuffer) {
        Counters::add(&self.counters.settled_bytes, buffer.payload_bytes.load(Ordering::Relaxed));
    }

    /// The region is clean from now on.
    pub(super) fn give_back(&self, region: RegionId) {
        *self.region(region).content.lock() = Content::Clean;
        self.supply.give_region(region);
    }
}
