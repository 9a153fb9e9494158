//! A range of a device as a device, so that engines can share a drive.

use std::ops::Range;
use std::sync::Arc;

use crate::tally::Tally;
use crate::{
    Completion, Counters, Device, ErrorKind, Geometry, IoBuffer, IoError, IoSlice, Outcome, PlacementHandle,
    Request,
};

/// A range of another device. Offsets are relative to its start, and bytes outside are not accessible.
pub struct SliceDevice {
    whole: Arc<dyn Device>,
    start_bytes: u64,
    geometry: Geometry,
    places: bool,
    tally: Arc<Tally>,
}

impl SliceDevice {
    /// The range `range` of `whole`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the range is empty, exceeds the device, or is not in whole blocks.
    pub fn new(whole: Arc<dyn Device>, range: Range<u64>) -> Result<Self, IoError> {
        let geometry = whole.geometry();
        let (block, capacity) = (u64::from(geometry.block_bytes), geometry.capacity_bytes);
        let in_blocks = range.start.is_multiple_of(block) && range.end.is_multiple_of(block);
        if !in_blocks || range.start >= range.end || range.end > capacity {
            let context = format!(
                "bytes {range:?} are not a slice of a device of {capacity} bytes in blocks of {block}"
            );
            return Err(IoError::new(ErrorKind::Invalid, context));
        }
        let geometry = Geometry { capacity_bytes: range.end - range.start, ..geometry };
        Ok(Self { whole, start_bytes: range.start, geometry, places: true, tally: Arc::default() })
    }

    /// This slice without placement: it has only the default handle.
    #[must_use]
    pub fn without_placement(self) -> Self {
        Self { places: false, geometry: Geometry { placement_handles: 0, ..self.geometry }, ..self }
    }

    fn translate(&self, mut request: Request) -> Result<Request, IoError> {
        self.geometry.check(&request)?;
        match &mut request {
            Request::Read { offset, .. } | Request::Write { offset, .. } | Request::Trim { offset, .. } => {
                *offset += self.start_bytes;
            }
            Request::Flush => {}
        }
        Ok(request)
    }
}

impl Device for SliceDevice {
    crate::forward_device!(whole: trims_to_zeros, engine);

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, request: Request, completion: Completion) {
        let completion = self.tally.counting(&request, completion);
        match self.translate(request) {
            Ok(request) => self.whole.submit(request, completion),
            Err(error) => completion.complete(Err(error)),
        }
    }

    fn execute(&self, request: Request) -> Outcome {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = self.translate(request).and_then(|request| self.whole.execute(request));
        self.tally.count(kind, bytes, &outcome);
        outcome
    }

    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        let request = Request::write(offset, data.clone());
        let absorbed = match self.geometry.check(&request) {
            Ok(()) => self.whole.absorb(self.start_bytes + offset, data)?,
            Err(error) => Err(error),
        };
        let outcome = absorbed.map(|()| IoBuffer::empty());
        self.tally.count(request.kind(), request.len_bytes(), &outcome);
        Some(outcome.map(drop))
    }

    fn hole_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        let start = self.start_bytes;
        let hole = self.whole.hole_in(start + range.start..start + range.end)?;
        Some(hole.start - start..hole.end - start)
    }

    /// Traffic of the slice. Its share of the media writes is unknown.
    fn counters(&self) -> Counters {
        self.tally.counters()
    }

    fn allocate_handle(&self, consumer: &str) -> PlacementHandle {
        if self.places { self.whole.allocate_handle(consumer) } else { PlacementHandle::DEFAULT }
    }
}

impl std::fmt::Debug for SliceDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SliceDevice({} bytes from {})", self.geometry.capacity_bytes, self.start_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoBuffer, MemoryDevice};

    #[test]
    fn slice_accesses_its_bytes_and_counts_its_traffic() {
        let whole: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
        let slice = SliceDevice::new(Arc::clone(&whole), 8192..16384).unwrap();
        let data = IoBuffer::copy_of(&[9; 8192]);
        slice.execute(Request::write(0, data)).unwrap();
        let read = whole.execute(Request::read(0, 32768)).unwrap();
        for (at, &byte) in read.iter().enumerate() {
            assert_eq!(byte == 9, (8192..16384).contains(&at), "byte {at}");
        }
        assert_eq!(slice.counters().written_bytes, 8192);
        assert_eq!(slice.counters().reads, 0, "the read was not through the slice");
    }

    #[test]
    fn absorbed_write_reaches_its_bytes_and_no_byte_outside_the_slice() {
        let whole: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20).absorbing(true));
        let slice = SliceDevice::new(Arc::clone(&whole), 8192..16384).unwrap();
        let data = IoBuffer::copy_of(&[9; 4096]).into();
        slice.absorb(4096, &data).expect("there is a page cache").unwrap();
        let read = whole.execute(Request::read(0, 32768)).unwrap();
        assert!((0..).zip(&read[..]).all(|(at, &byte)| (byte == 9) == (12288..16384).contains(&at)));
        let outside = slice.absorb(8192, &data).expect("there is a page cache").unwrap_err();
        assert_eq!(outside.kind(), ErrorKind::Invalid);
        assert_eq!((slice.counters().writes, slice.counters().written_bytes), (1, 4096));
        let without = SliceDevice::new(Arc::new(MemoryDevice::new(1 << 20)), 8192..16384).unwrap();
        assert!(without.absorb(0, &data).is_none(), "there is no page cache");
    }

    #[test]
    fn invalid_range_is_refused() {
        let whole: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
        for range in [0..0, 100..8192, 0..8100, 0..(1 << 20) + 512, 1 << 20..(1 << 20) + 512] {
            let refused = SliceDevice::new(Arc::clone(&whole), range.clone());
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid, "{range:?}");
        }
    }
}
