//! Flush: a sealed region is written to flash.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{IoError, Request};

use crate::flash::Waiting;

use super::buffer::RegionBuffer;
use super::layout::Layout;
use super::sealed::{Flush, Piece, Writing};
use super::stats::Counters;
use super::store::{Content, RegionStore};
use super::table::Record;
use crate::flash::outage::Verdict;

/// What happens to a region whose write failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Persistence {
    /// It is written again later.
    Retry,
    /// Its items are lost: the store is being closed.
    Lose,
}

/// A flush in progress. If it is dropped, the region returns to the queue.
struct Unflushed<'a> {
    store: &'a RegionStore,
    flush: Option<Flush>,
    /// Whether the region's previous write had failed.
    had_failed: bool,
}

impl Drop for Unflushed<'_> {
    fn drop(&mut self) {
        if let Some(flush) = self.flush.take() {
            self.store.supply.put_back(flush);
        }
        self.store.supply.flush_ended(self.had_failed);
    }
}

impl RegionStore {
    /// Writes a sealed region. If the write fails, the region returns to the queue, or its items are lost.
    pub(super) async fn flush(&self, flush: Flush, waiting: Waiting, persistence: Persistence) {
        let (buffer, records) = (Arc::clone(&flush.buffer), flush.buffer.records());
        let live = records.iter().any(|record| record.live);
        let had_failed = flush.failures.is_some();
        let mut unflushed = Unflushed { store: self, flush: Some(flush), had_failed };
        let written = match &mut unflushed.flush {
            Some(flush) if live => self.write_durably(flush, &records, waiting).await,
            _ => Ok(()),
        };
        if let (Err(error), Some(flush)) = (&written, &mut unflushed.flush)
            && self.is_retried(flush, error, persistence)
        {
            Counters::one(&self.counters.flushes_postponed);
            return;
        }
        unflushed.flush = None;
        match written {
            Ok(()) if live => self.settle_region(&buffer, &records),
            Ok(()) => self.give_back(&buffer),
            Err(_) => self.drop_unwritten(&buffer, &records),
        }
    }

    /// Whether a region whose write failed is retried. A region that failed alone too often is marked, and [`lose`](Self::lose) retires
    /// it.
    fn is_retried(&self, flush: &mut Flush, error: &IoError, persistence: Persistence) -> bool {
        let region = self.region(flush.buffer.region);
        match self.supply.write_failed(flush, error.to_string(), self.clock.monotonic_ns()) {
            Verdict::GiveUp => false,
            Verdict::Retry { alone, .. } => {
                let is_broken = alone && region.count_failure() >= self.config.retire_after_failures;
                persistence == Persistence::Retry && !is_broken
            }
        }
    }

    /// Writes a region, and flushes the device if the region must survive a power cut.
    async fn write_durably(
        &self,
        flush: &mut Flush,
        records: &[Record],
        waiting: Waiting,
    ) -> Result<(), IoError> {
        self.write(flush, records, waiting).await?;
        self.flush_written(waiting).await
    }

    /// Writes entries and table in concurrent parts; repeats failed parts as often as configured.
    async fn write(&self, flush: &mut Flush, records: &[Record], waiting: Waiting) -> Result<(), IoError> {
        let Flush { buffer, writing, .. } = flush;
        let writing = match writing {
            Some(writing) => writing,
            None => {
                // The earlier content of the region must not be recovered once it is overwritten.
                self.sync_journal()?;
                writing.insert(self.begin_writing(buffer, records))
            }
        };
        loop {
            self.attempt(buffer, writing, waiting).await;
            match writing.last_error.take() {
                None => return Ok(()),
                Some(error) if writing.attempts_left == 0 => {
                    writing.left = std::mem::take(&mut writing.failed);
                    writing.attempts_left = u32::from(self.config.write_attempts) - 1;
                    return Err(error);
                }
                Some(_) => writing.left = std::mem::take(&mut writing.failed),
            }
            writing.attempts_left -= 1;
        }
    }

    fn begin_writing(&self, buffer: &RegionBuffer, records: &[Record]) -> Writing {
        let ranges = buffer.finish(records, self.config.write_whole);
        let max_bytes = self.layout.max_write_bytes;
        Writing {
            left: ranges.into_iter().flat_map(|range| Layout::pieces(range, max_bytes)).collect(),
            in_flight: Vec::new(),
            failed: VecDeque::new(),
            last_error: None,
            attempts_left: u32::from(self.config.write_attempts) - 1,
        }
    }

    /// Writes all remaining parts, at most the configured number concurrently, and waits for all of them.
    async fn attempt(&self, buffer: &Arc<RegionBuffer>, writing: &mut Writing, waiting: Waiting) {
        loop {
            writing.wait(waiting).await;
            for Piece { range, outcome, .. } in writing.in_flight.drain(..) {
                match outcome.expect("all were waited for") {
                    Ok(_) => {
                        Counters::add(&self.counters.written_bytes, range.len());
                        buffer.written_bytes.fetch_add(range.len(), Ordering::Relaxed);
                    }
                    Err(error) => {
                        Counters::one(&self.counters.write_errors);
                        writing.failed.push_back(range);
                        writing.last_error = Some(error);
                    }
                }
            }
            if writing.left.is_empty() {
                return;
            }
            let some = self.at_once(writing.left.len());
            writing.in_flight.extend(writing.left.drain(..some).map(|range| self.begin_piece(buffer, range)));
        }
    }

    fn begin_piece(&self, buffer: &RegionBuffer, range: Range<usize>) -> Piece {
        let offset = self.layout.region_offset(buffer.region) + range.start as u64;
        let (data, placement) = (buffer.slice(range.clone()), self.placement(buffer.point));
        let (completion, written) = self.supply.begin_change(buffer.region);
        self.device.submit(Request::Write { offset, data, placement }, completion);
        Piece { range, written, outcome: None }
    }

    /// Number of background transfers to start together, of `most` possible ones.
    pub(super) fn at_once(&self, most: usize) -> usize {
        match self.config.transfers_at_once as usize {
            0 => most.max(1),
            limit => limit.min(most).max(1),
        }
    }

    /// Publishes a written region: readers use flash from now on, and the policy may choose it.
    fn settle_region(&self, buffer: &RegionBuffer, records: &[Record]) {
        self.supply.write_succeeded();
        self.region(buffer.region).reset_failures();
        // Counted before the region's content becomes `Flash`: when no item waits in memory, the counters are complete.
        let written_bytes = buffer.written_bytes.load(Ordering::Relaxed);
        Counters::add(&self.counters.settled_written_bytes, written_bytes);
        self.count_settled(buffer);
        let entries = u32::try_from(records.len()).expect("a region has less than 2^32 entries");
        let content = Content::Flash { filling: buffer.filling, entries, point: buffer.point };
        *self.region(buffer.region).content.lock() = content;
        self.record_written(buffer.region, buffer.filling, entries, buffer.point);
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

    /// Drops the items of a region that could not be written, and frees its buffer. Readers must not find them afterwards.
    fn drop_unwritten(&self, buffer: &RegionBuffer, records: &[Record]) {
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
        Counters::add(&self.counters.unwritten_bytes, buffer.payload_bytes.load(Ordering::Relaxed));
        Counters::add(&self.counters.unwritten_items, buffer.new_items.load(Ordering::Relaxed));
        if self.region(buffer.region).failures() >= self.config.retire_after_failures {
            self.untrack(buffer.filling.sequence);
            self.retire(buffer.region);
        } else {
            self.give_back(buffer);
        }
    }

    fn count_settled(&self, buffer: &RegionBuffer) {
        Counters::add(&self.counters.settled_bytes, buffer.payload_bytes.load(Ordering::Relaxed));
    }

    /// Returns the region to the clean ones.
    fn give_back(&self, buffer: &RegionBuffer) {
        let region = buffer.region;
        self.untrack(buffer.filling.sequence);
        *self.region(region).content.lock() = Content::Clean;
        self.supply.give_region(region);
    }
}
