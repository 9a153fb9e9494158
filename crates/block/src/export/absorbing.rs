//! Copies writes into memory that outlives the process, instead of waiting for the device.
//!
//! A copy takes at most half the time of a drive's write. It helps a client with one write in flight. The flush that makes the write
//! durable includes it, like all earlier writes, and transfers it together with the intent log's entry, which is copied too. If a read
//! of the same data follows every few writes, it would have to wait for the drive instead, so writes are transferred then.
//!
//! If the drive fails such a write, the next flush fails, and with it the volume, as for a failed write; until then reads return
//! the old data. A volume without checksums does not notice this before the flush.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use device::{Device, IoBuffer, Outcome, PlacementHandle, Request};

/// Consecutive transferred writes, without a read of a copied write, after which writes are copied.
const WRITES_BEFORE: u32 = 8;

/// Number of copied writes that are remembered, to detect reads of them.
const LATEST: usize = 16;

/// Decides which writes are copied.
#[derive(Default)]
pub(super) struct WriteAbsorber {
    writes: AtomicU32,
    /// Offsets of the latest copied writes plus one; 0 if none.
    latest: [AtomicU64; LATEST],
    copies: AtomicUsize,
}

impl WriteAbsorber {
    /// Counts a request that is submitted to the device.
    pub(super) fn count(&self, request: &Request) {
        match request {
            // After the flush, reads of copied writes do not wait.
            Request::Flush => self.latest.iter().for_each(|latest| latest.store(0, Ordering::Relaxed)),
            Request::Write { .. } => {
                self.writes.fetch_add(1, Ordering::Relaxed);
            }
            Request::Read { offset, .. } if self.was_copied(*offset) => {
                self.writes.store(0, Ordering::Relaxed);
            }
            Request::Read { .. } | Request::Trim { .. } => {}
        }
    }

    /// Copies a write, if it qualifies. A write with a placement handle does not: the copy would lose the handle.
    pub(super) fn absorb(&self, device: &dyn Device, request: &Request) -> Option<Outcome> {
        match request {
            Request::Write { offset, data, placement: PlacementHandle::DEFAULT }
                if self.writes.load(Ordering::Relaxed) > WRITES_BEFORE =>
            {
                let absorbed = device.absorb(*offset, data)?;
                let place = self.copies.fetch_add(1, Ordering::Relaxed) % LATEST;
                self.latest[place].store(offset + 1, Ordering::Relaxed);
                Some(absorbed.map(|()| IoBuffer::empty()))
            }
            _ => None,
        }
    }

    fn was_copied(&self, offset: u64) -> bool {
        self.latest.iter().any(|latest| latest.load(Ordering::Relaxed) == offset + 1)
    }
}

#[cfg(test)]
mod tests {
    use device::{IoBuffer, MemoryDevice};

    use super::*;

    fn write(placement: PlacementHandle) -> Request {
        Request::Write { offset: 512, data: IoBuffer::zeroed(512).into(), placement }
    }

    /// Number of copied writes among `writes` in a row.
    fn copied(absorbing: &WriteAbsorber, device: &dyn Device, writes: u32) -> usize {
        let write = write(PlacementHandle::DEFAULT);
        let copied = (0..writes).filter(|_| {
            absorbing.count(&write);
            absorbing.absorb(device, &write).is_some()
        });
        copied.count()
    }

    #[test]
    fn writes_are_absorbed_after_several_even_if_flushes_follow() {
        let (absorbing, device) = (WriteAbsorber::default(), MemoryDevice::new(4096).absorbing(true));
        assert_eq!(copied(&absorbing, &device, WRITES_BEFORE), 0);
        assert_eq!(copied(&absorbing, &device, 20), 20);
        assert_eq!(device.counters().writes, 20);
        absorbing.count(&Request::Flush);
        assert_eq!(copied(&absorbing, &device, 1), 1);
    }

    /// Such a read would wait for the drive twice: for the write, and for itself.
    #[test]
    fn read_of_an_absorbed_write_stops_absorbing() {
        let (absorbing, device) = (WriteAbsorber::default(), MemoryDevice::new(4096).absorbing(true));
        assert_eq!(copied(&absorbing, &device, WRITES_BEFORE + 3), 3);
        absorbing.count(&Request::read(1024, 512));
        assert_eq!(copied(&absorbing, &device, 1), 1, "other data was read");
        absorbing.count(&Request::read(512, 512));
        assert_eq!(copied(&absorbing, &device, WRITES_BEFORE), 0);
        assert_eq!(copied(&absorbing, &device, 1), 1);
        absorbing.count(&Request::Flush);
        absorbing.count(&Request::read(512, 512));
        assert_eq!(copied(&absorbing, &device, 1), 1, "a read of flushed data does not wait");
    }

    #[test]
    fn placed_writes_and_flushes_are_not_absorbed() {
        let (absorbing, device) = (WriteAbsorber::default(), MemoryDevice::new(4096).absorbing(true));
        copied(&absorbing, &device, WRITES_BEFORE);
        let placed = write(PlacementHandle(1));
        absorbing.count(&placed);
        assert!(absorbing.absorb(&device, &placed).is_none(), "a copy has no placement");
        assert!(absorbing.absorb(&device, &Request::Flush).is_none());
        assert_eq!(copied(&absorbing, &MemoryDevice::new(4096), 20), 0, "the device does not absorb writes");
    }
}
