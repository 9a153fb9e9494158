//! Writes that are copied into memory that outlives the process instead of being transferred.
//!
//! A write that somebody waits for alone takes a copy then, and not a drive's time: a third of it. The flush that makes
//! it durable takes it along, as it does everything that was written before. Where a flush follows every few writes, it
//! would wait for what the writes did not, so there they are transferred.

use std::sync::atomic::{AtomicU32, Ordering};

use device::{Device, Outcome, PlacementHandle, Request};

/// Writes in a row, with no flush between, after which the next are copied.
const WRITES_BEFORE: u32 = 8;

/// What has been written since the last flush.
#[derive(Default)]
pub(super) struct Absorbing {
    writes: AtomicU32,
}

impl Absorbing {
    /// Counts a request on its way to the device.
    pub(super) fn count(&self, request: &Request) {
        match request {
            Request::Flush => self.writes.store(0, Ordering::Relaxed),
            Request::Write { .. } => {
                self.writes.fetch_add(1, Ordering::Relaxed);
            }
            Request::Read { .. } | Request::Trim { .. } => {}
        }
    }

    /// Makes a write by a copy, if it is to be one. A copy cannot say where a device with placement is to put it.
    pub(super) fn absorb(&self, device: &dyn Device, request: &Request) -> Option<Outcome> {
        match request {
            Request::Write { offset, data, placement: PlacementHandle::DEFAULT }
                if self.writes.load(Ordering::Relaxed) > WRITES_BEFORE =>
            {
                Some(device.absorb(*offset, data)?.map(|()| None))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use device::{IoBuffer, MemoryDevice};

    use super::*;

    fn write(placement: PlacementHandle) -> Request {
        Request::Write { offset: 512, data: IoBuffer::zeroed(512).into(), placement }
    }

    /// How many of `writes` in a row are copied.
    fn copied(absorbing: &Absorbing, device: &dyn Device, writes: u32) -> usize {
        let write = write(PlacementHandle::DEFAULT);
        let copied = (0..writes).filter(|_| {
            absorbing.count(&write);
            absorbing.absorb(device, &write).is_some()
        });
        copied.count()
    }

    #[test]
    fn writes_are_copied_until_the_next_flush_once_a_few_were_not() {
        let (absorbing, device) = (Absorbing::default(), MemoryDevice::new(4096).absorbing(true));
        assert_eq!(copied(&absorbing, &device, WRITES_BEFORE), 0);
        assert_eq!(copied(&absorbing, &device, 20), 20);
        assert_eq!(device.counters().writes, 20);
        absorbing.count(&Request::Flush);
        assert_eq!(copied(&absorbing, &device, WRITES_BEFORE + 1), 1);
    }

    #[test]
    fn what_cannot_be_copied_is_left_to_the_device() {
        let (absorbing, device) = (Absorbing::default(), MemoryDevice::new(4096).absorbing(true));
        copied(&absorbing, &device, WRITES_BEFORE);
        let placed = write(PlacementHandle(1));
        absorbing.count(&placed);
        assert!(absorbing.absorb(&device, &placed).is_none(), "a copy has no placement");
        assert!(absorbing.absorb(&device, &Request::Flush).is_none());
        assert_eq!(copied(&absorbing, &MemoryDevice::new(4096), 20), 0, "there is no such memory");
    }
}
