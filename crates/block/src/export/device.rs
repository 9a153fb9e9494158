//! Serves a device in its own blocks.

use std::ops::Range;
use std::sync::Arc;

use device::{Completion, Device, ErrorKind, Geometry, IoBuffer, IoError, IoSlice, Request};

use super::extents::Extents;
use super::transfers::{self, Transfer};
use super::{Context, Export, Extent, Operation, OperationResult, Reply, Shape};

/// Serves a device as it is.
pub struct DeviceExport {
    device: Arc<dyn Device>,
    geometry: Geometry,
    zeros: Arc<IoBuffer>,
}

/// Zeros per write.
const ZEROS_BYTES: usize = 1 << 20;

/// Limit of bytes per query of extents; the client queries the rest.
const EXTENTS_BYTES: u64 = 1 << 30;

/// Preferred request size if the device has smaller blocks: that of file systems and databases.
const PREFERRED_BYTES: u32 = 4096;

impl DeviceExport {
    /// Serves `device`.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Self {
        let geometry = device.geometry();
        let zeros_bytes = ZEROS_BYTES.clamp(geometry.block_bytes as usize, geometry.max_io_bytes as usize);
        Self { device, geometry, zeros: Arc::new(IoBuffer::zeroed(zeros_bytes)) }
    }

    /// The device that is served.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn read(&self, offset: u64, len: u32, reply: Reply) {
        let completion = Completion::new(move |outcome| reply.send(outcome.map(|data| Some(data.into()))));
        if len <= self.geometry.max_io_bytes {
            return self.device.submit(Request::read(offset, len as usize), completion);
        }
        let transfers = self.geometry.transfers(0..len.into()).map(move |part| {
            let range = part.start as usize..part.end as usize;
            (Request::read(offset + part.start, range.len()), range)
        });
        transfers::run(Arc::clone(&self.device), transfers, IoBuffer::zeroed(len as usize), completion);
    }

    fn write(&self, offset: u64, data: IoSlice, reply: Reply) {
        let completion = completion_of(reply);
        if data.len() as u64 <= u64::from(self.geometry.max_io_bytes) {
            return self.device.submit(Request::write(offset, data), completion);
        }
        let transfers = self.geometry.transfers(0..data.len() as u64).map(move |part| {
            let range = part.start as usize..part.end as usize;
            (Request::write(offset + part.start, data.part(range)), 0..0)
        });
        transfers::run(Arc::clone(&self.device), transfers, IoBuffer::empty(), completion);
    }

    /// Zeroes a range by a trim if the device reads trimmed blocks as zeros, otherwise by writing.
    fn zero(&self, offset: u64, len: u64, may_trim: bool, reply: Reply) {
        let zeros = Zeros { device: Arc::clone(&self.device), zeros: Arc::clone(&self.zeros), offset, len };
        if !may_trim || !self.device.trims_to_zeros() {
            return zeros.write(reply);
        }
        let write_if_unsupported = Reply::new(move |result: OperationResult| match result {
            Err(error) if error.kind() == ErrorKind::Unsupported => zeros.write(reply),
            result => reply.send(result),
        });
        self.device.submit(Request::Trim { offset, len }, completion_of(write_if_unsupported));
    }

    /// Trims a range. The contents are undefined afterwards, so a device without trim needs to do nothing.
    fn trim(&self, offset: u64, len: u64, reply: Reply) {
        let lenient = Reply::new(move |result: OperationResult| {
            reply.send(match result {
                Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
                result => result,
            });
        });
        self.device.submit(Request::Trim { offset, len }, completion_of(lenient));
    }

    fn allocation(&self, range: &Range<u64>, most: usize) -> Vec<Extent> {
        let mut extents = Extents::default();
        let mut at = range.start;
        while let (true, Some(hole)) = (extents.len() < most, self.device.hole_in(at..range.end)) {
            extents.push_allocation(&(at..hole.end), [hole.clone()]);
            at = hole.end;
        }
        extents.push_allocation(&(at..range.end), []);
        extents.first(most)
    }

    /// Makes `reply` flush the device first, if the operation is `durable`.
    fn then_flush(&self, durable: bool, reply: Reply) -> Reply {
        if !durable {
            return reply;
        }
        let device = Arc::clone(&self.device);
        Reply::new(move |result| match result {
            Ok(_) => device.submit(Request::Flush, completion_of(reply)),
            Err(error) => reply.send(Err(error)),
        })
    }
}

impl Export for DeviceExport {
    fn shape(&self) -> Shape {
        let block_bytes = self.geometry.block_bytes;
        Shape {
            size_bytes: self.geometry.capacity_bytes,
            block_bytes,
            sector_bytes: block_bytes,
            preferred_bytes: block_bytes.max(PREFERRED_BYTES),
            read_only: false,
        }
    }

    fn submit(&self, operation: Operation, reply: Reply) {
        match operation {
            Operation::Read { offset, len } => self.read(offset, len, reply),
            Operation::Write { offset, data, durable } => {
                self.write(offset, data, self.then_flush(durable, reply));
            }
            Operation::Zero { only_if_fast: true, may_trim, .. }
                if !(may_trim && self.device.trims_to_zeros()) =>
            {
                let message = "zeroing is not faster than writing zeros on this device";
                reply.send(Err(IoError::new(ErrorKind::Unsupported, message)));
            }
            Operation::Zero { offset, len, may_trim, durable, .. } => {
                self.zero(offset, len, may_trim, self.then_flush(durable, reply));
            }
            Operation::Trim { offset, len, durable } => {
                self.trim(offset, len, self.then_flush(durable, reply));
            }
            Operation::Prefetch { .. } => reply.send(Ok(None)),
            Operation::Flush => self.device.submit(Request::Flush, completion_of(reply)),
        }
    }

    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError> {
        match context {
            Context::Allocation => Ok(self.allocation(&(offset..offset + len.min(EXTENTS_BYTES)), most)),
            Context::Dirty | Context::Cached => Err(IoError::new(
                ErrorKind::Unsupported,
                format!("a disk without a cache has no context {}", context.name()),
            )),
        }
    }
}

/// A range to write zeros to.
struct Zeros {
    device: Arc<dyn Device>,
    zeros: Arc<IoBuffer>,
    offset: u64,
    len: u64,
}

impl Zeros {
    fn write(self, reply: Reply) {
        let Self { device, zeros, offset, len } = self;
        let geometry = device.geometry();
        let limit_bytes = zeros.len() as u64;
        let parts = geometry.transfers_of(geometry.block_bytes.into(), limit_bytes, offset..offset + len);
        let transfers = parts.map(move |part| -> Transfer {
            let data = IoSlice::new(Arc::clone(&zeros), 0..(part.end - part.start) as usize);
            (Request::write(part.start, data), 0..0)
        });
        transfers::run(device, transfers, IoBuffer::empty(), completion_of(reply));
    }
}

/// A completion that passes the result of a request without data to `reply`.
fn completion_of(reply: Reply) -> Completion {
    Completion::new(move |outcome| reply.send(outcome.map(|_| None)))
}
