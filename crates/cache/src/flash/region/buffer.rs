//! A region in memory. Several threads fill it and read it concurrently; then it is written to flash.
//!
//! Space is reserved under a short lock, in order; each writer copies to its own part outside of the lock. A region is written when it is
//! full *and* every writer has committed or abandoned its entry.
#![allow(
    unsafe_code,
    reason = "threads fill disjoint parts of one buffer, and read finished parts, without a lock"
)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use device::{IoBuffer, IoSlice};
use parking_lot::Mutex;

use crate::KeyHash;

use super::InsertionPoint;
use super::entry::Seal;
use super::layout::{Layout, RegionId};
use super::supply::Supply;
use super::table::{self, Filling, Record};

/// See the module.
pub(crate) struct RegionBuffer {
    pub(crate) region: RegionId,
    pub(crate) point: InsertionPoint,
    pub(crate) filling: Filling,
    pub(crate) seal: Seal,
    layout: Layout,
    /// `None` only during drop.
    bytes: Option<Arc<IoBuffer>>,
    /// The first byte, for writes while the `Arc` is not shared outside this type.
    start: *mut u8,
    state: Mutex<State>,
    /// Keys and values of new items, for the statistics.
    pub(crate) payload_bytes: AtomicUsize,
    /// Bytes of the region written to the device so far.
    pub(crate) written_bytes: AtomicUsize,
    /// Number of new items.
    pub(crate) new_items: AtomicUsize,
    supply: Arc<Supply>,
}

struct State {
    slots: Vec<Slot>,
    units: u32,
    /// Reservations that are neither committed nor abandoned.
    pending: u32,
    full: bool,
    /// Whether the table is in place.
    finished: bool,
}

#[derive(Clone, Copy)]
struct Slot {
    record: Record,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A writer is filling it.
    Pending,
    /// Complete; may be read.
    Committed,
    /// Abandoned.
    Dead,
}

/// A part of a buffer that one writer owns until it is committed or abandoned. Dropping it abandons it.
pub(crate) struct Reservation {
    buffer: Arc<RegionBuffer>,
    slot: usize,
    pub(crate) unit: u32,
    pub(crate) units: u32,
    settled: bool,
}

impl RegionBuffer {
    pub(crate) fn new(
        region: RegionId,
        point: InsertionPoint,
        filling: Filling,
        layout: Layout,
        mut bytes: IoBuffer,
        supply: Arc<Supply>,
    ) -> Arc<Self> {
        let start = bytes.as_mut_ptr();
        let state = State { slots: Vec::new(), units: 0, pending: 0, full: false, finished: false };
        Arc::new(Self {
            region,
            point,
            filling,
            seal: Seal::of(filling.store, filling.sequence),
            layout,
            bytes: Some(Arc::new(bytes)),
            start,
            state: Mutex::new(state),
            payload_bytes: AtomicUsize::new(0),
            written_bytes: AtomicUsize::new(0),
            new_items: AtomicUsize::new(0),
            supply,
        })
    }

    /// Reserves `units`. `None` if they do not fit beside the table; the buffer is then full permanently.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        hash: KeyHash,
        units: u32,
        expiry_seconds: u32,
    ) -> Option<Reservation> {
        let reservation = self.reserve_if_fits(hash, units, expiry_seconds);
        if reservation.is_none() {
            self.close();
        }
        reservation
    }

    /// As [`reserve`](Self::reserve), but if the units do not fit, the buffer stays open for smaller items.
    pub(crate) fn reserve_if_fits(
        self: &Arc<Self>,
        hash: KeyHash,
        units: u32,
        expiry_seconds: u32,
    ) -> Option<Reservation> {
        let mut state = self.state.lock();
        let end = (state.units as usize + units as usize) * self.layout.unit_bytes as usize;
        let fits = end + table::table_bytes(state.slots.len() + 1) <= self.layout.region_bytes as usize;
        if state.full || !fits {
            return None;
        }
        let unit = state.units;
        let record = Record { hash, unit, units, expiry_seconds, live: true };
        state.slots.push(Slot { record, phase: Phase::Pending });
        state.units += units;
        state.pending += 1;
        let slot = state.slots.len() - 1;
        Some(Reservation { buffer: Arc::clone(self), slot, unit, units, settled: false })
    }

    /// Closes the buffer for new entries. It is sealed now, or when its last pending entry settles.
    pub(crate) fn close(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let was_full = std::mem::replace(&mut state.full, true);
        let complete = !was_full && state.pending == 0;
        drop(state);
        if complete {
            self.supply.seal(Arc::clone(self));
        }
    }

    fn settle(self: &Arc<Self>, slot: usize, phase: Phase) {
        let mut state = self.state.lock();
        state.slots[slot].phase = phase;
        state.slots[slot].record.live = phase == Phase::Committed;
        state.pending -= 1;
        let complete = state.full && state.pending == 0;
        drop(state);
        if complete {
            self.supply.seal(Arc::clone(self));
        }
    }

    /// Calls `show` with the committed entry of `hash` that begins at `unit`, if there is one. An address may be older than this filling
    /// of the region; then no entry, or one of another key, begins there.
    pub(crate) fn entry<T>(&self, unit: u32, hash: KeyHash, show: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let state = self.state.lock();
        let at = state.slots.binary_search_by_key(&unit, |slot| slot.record.unit).ok()?;
        let Slot { record, phase } = state.slots[at];
        drop(state);
        if phase != Phase::Committed || record.hash != hash {
            return None;
        }
        let range = self.byte_range(record.unit, record.units);
        // SAFETY: a committed entry lies inside the buffer and is no longer written (its reservation is consumed), and the commit happened
        // before the lock above was taken.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) };
        Some(show(bytes))
    }

    /// Records of all entries.
    pub(crate) fn records(&self) -> Vec<Record> {
        self.state.lock().slots.iter().map(|slot| slot.record).collect()
    }

    /// Completes a sealed region with its table. Returns the byte ranges to write: entries and table, and the unused part between them if
    /// the region is written whole.
    pub(crate) fn finish(&self, records: &[Record], write_whole: bool) -> Vec<Range<usize>> {
        let mut state = self.state.lock();
        assert!(state.full && state.pending == 0, "only complete regions are flushed");
        assert!(!std::mem::replace(&mut state.finished, true), "a region is finished once");
        let region_bytes = self.layout.region_bytes as usize;
        let data_end = state.units as usize * self.layout.unit_bytes as usize;
        let table_start = region_bytes - table::table_bytes(records.len());
        // SAFETY: no byte from `data_end` on was ever reserved, a full buffer allows no reservation, and committed entries, which other
        // threads may read, end before it. The state's lock and `finished` ensure that this runs once, before the device reads the bytes.
        let tail =
            unsafe { std::slice::from_raw_parts_mut(self.start.add(data_end), region_bytes - data_end) };
        let data = self.layout.covering_blocks(&(0..data_end));
        let table = self.layout.covering_blocks(&(table_start..region_bytes));
        let data = if write_whole { 0..table.start } else { data };
        // Stale bytes of the buffer's previous use must not reach flash.
        tail[..data.end.max(data_end) - data_end].fill(0);
        tail[table.start.max(data_end) - data_end..table_start - data_end].fill(0);
        table::encode(records, self.filling, &mut tail[table_start - data_end..]);
        let whole = Range { start: 0, end: region_bytes };
        if table.start <= data.end { vec![whole] } else { vec![data, table] }
    }

    /// A part of a finished region as a device buffer.
    pub(crate) fn slice(&self, range: Range<usize>) -> IoSlice {
        IoSlice::new(Arc::clone(self.bytes.as_ref().expect("present until dropped")), range)
    }

    fn byte_range(&self, unit: u32, units: u32) -> Range<usize> {
        let unit_bytes = self.layout.unit_bytes as usize;
        let start = unit as usize * unit_bytes;
        start..start + units as usize * unit_bytes
    }
}

impl Drop for RegionBuffer {
    fn drop(&mut self) {
        let bytes = self.bytes.take().and_then(Arc::into_inner);
        self.supply.give_buffer(bytes);
    }
}

// SAFETY: `start` points into the heap buffer that `bytes` owns and keeps in place. Each access through it is to a part that its
// reservation, its phase or the state's lock grants to one writer or to readers only.
unsafe impl Send for RegionBuffer {}
// SAFETY: as above.
unsafe impl Sync for RegionBuffer {}

impl Reservation {
    /// The reserved bytes, to be filled.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let range = self.buffer.byte_range(self.unit, self.units);
        // SAFETY: `reserve` gives each part to one reservation, which is borrowed exclusively here; no reader accesses the part before the
        // commit, which consumes the reservation.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.start.add(range.start), range.len()) }
    }

    pub(crate) fn buffer(&self) -> &Arc<RegionBuffer> {
        &self.buffer
    }

    /// Commits the entry; it counts if `publish` returns true. Readers may access it during `publish`, so it is readable before.
    pub(crate) fn commit(mut self, publish: impl FnOnce() -> bool) -> bool {
        self.buffer.state.lock().slots[self.slot].phase = Phase::Committed;
        let counts = publish();
        self.settle(if counts { Phase::Committed } else { Phase::Dead });
        counts
    }

    fn settle(&mut self, phase: Phase) {
        self.settled = true;
        self.buffer.settle(self.slot, phase);
    }
}

impl Drop for Reservation {
    /// A dropped reservation leaves dead space. Otherwise its region would never be complete.
    fn drop(&mut self) {
        if !self.settled {
            self.settle(Phase::Dead);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::FlashItem;
    use crate::flash::region::entry;

    const LAYOUT: Layout = Layout {
        offset_bytes: 0,
        region_bytes: 4096,
        region_count: 1,
        unit_bytes: 64,
        block_bytes: 512,
        max_read_bytes: 4096,
        max_write_bytes: 4096,
    };

    fn buffer() -> Arc<RegionBuffer> {
        let supply = Arc::new(Supply::new(4096, 1, 0, 1, 1));
        supply.give_region(RegionId(0));
        let (region, bytes) = supply.take(super::super::supply::Claim::New).expect("one of each");
        let filling = Filling { store: 1, sequence: 1 };
        RegionBuffer::new(region, InsertionPoint::NEW, filling, LAYOUT, bytes, supply)
    }

    /// For Miri: several threads fill and read the same raw memory.
    #[test]
    fn concurrent_threads_fill_and_read_one_region() {
        let buffer = buffer();
        std::thread::scope(|scope| {
            for number in 0..3_u8 {
                let buffer = &buffer;
                scope.spawn(move || {
                    for at in 0..4 {
                        put_and_read(buffer, KeyHash(u64::from(number) << 8 | at), &[number; 70]);
                    }
                });
            }
        });
        buffer.close();
        let records = buffer.records();
        assert_eq!(records.len(), 12);
        let ranges = buffer.finish(&records, false);
        // Readers may still use the buffer while the device writes it.
        let first = buffer.entry(records[0].unit, records[0].hash, <[u8]>::len);
        assert_eq!(first, Some(records[0].units as usize * 64));
        assert!(ranges.iter().all(|range| buffer.slice(range.clone()).len() == range.len()));
    }

    fn put_and_read(buffer: &Arc<RegionBuffer>, hash: KeyHash, value: &[u8]) {
        let item = FlashItem { key: b"key", hash, value: &[value], expiry_seconds: 0, tag: 0 };
        let units = LAYOUT.units(entry::entry_bytes(3, value.len()));
        let mut reservation = buffer.reserve(hash, units, 0).expect("twelve of them fit");
        let unit = reservation.unit;
        entry::encode(&item, true, buffer.seal, reservation.bytes());
        assert!(buffer.entry(unit, hash, |_| ()).is_none(), "not before it is committed");
        assert!(reservation.commit(|| true));
        let found = buffer.entry(unit, hash, |bytes| {
            entry::Entry::decode(bytes, buffer.seal).map(|entry| bytes[entry.value].to_vec())
        });
        assert_eq!(found, Some(Ok(value.to_vec())));
    }
}
