//! Block devices and their wrappers.
//!
//! A [`Device`] is a flat range of bytes that is read, written, trimmed and flushed asynchronously. Memory, a [file](mod@file) or block
//! device, an [`nvme`] namespace, a [`stripe`] of several and a [slice](mod@slice) of one implement it; measuring, throttling, faults and
//! crash images are wrappers ([`wrap`]). One [`conformance`] suite runs on every implementation and wrapper. Authors of another device find
//! the contract's rules in [`check`] and the counters in [`tally`]. Work can be batched over many requests with [`coalesce`].
//!
//! ```
//! use flashwright_device::{Device, IoBuffer, MemoryDevice};
//!
//! let device: Box<dyn Device> = Box::new(MemoryDevice::new(1 << 20));
//! let write = device.write(4096, IoBuffer::copy_of(&[7; 512]));
//! write.wait()?; // or `.await` it
//! let read = device.read(4096, 512).wait()?;
//! assert_eq!(read[..], [7; 512]);
//! # Ok::<(), flashwright_device::IoError>(())
//! ```
//!
//! This crate depends on no cache, policy or workload. It also contains the other parts of a simulation: the [`clock`], the [`timer`] and
//! the seeded scheduler ([`sim`]).

pub mod buffer;
pub mod check;
pub mod checksum;
pub mod clock;
pub mod coalesce;
pub mod conformance;
pub mod contents;
pub mod counters;
pub mod error;
pub mod event_fd;
pub mod event_loop;
pub mod file;
mod io_paths;
mod join;
pub mod memory;
pub mod names;
pub mod nvme;
pub mod open;
pub mod pending;
pub mod placement;
pub mod prometheus;
pub mod request;
pub mod sim;
pub mod size;
pub mod slice;
pub mod stripe;
pub mod tally;
pub mod timer;
pub mod wrap;

use std::ops::Range;

pub use buffer::{IoBuffer, IoSlice};
pub use clock::{Clock, SystemClock, TickingClock, VirtualClock};
pub use error::{ErrorKind, IoError};
pub use file::{Engine, FileDevice};
pub use memory::MemoryDevice;
pub use nvme::PassthroughDevice;
pub use open::DeviceSpec;
pub use pending::Pending;
pub use request::{Completion, Outcome, Request, RequestKind};
pub use sim::{SimulatedDevice, Simulation};
pub use slice::SliceDevice;
pub use stripe::StripeDevice;

/// A range of bytes that can be read, written, trimmed and flushed.
///
/// # Contract
///
/// * **Alignment.** Offsets and lengths of reads and writes are multiples of [`Geometry::block_bytes`]. Buffers are aligned to it or,
///   where blocks are larger than a page, to a page ([`IoBuffer`] is). A request does not exceed [`Geometry::max_io_bytes`] or
///   [`Geometry::capacity_bytes`]. Any other request fails with [`ErrorKind::Invalid`] and has no effect. Callers split requests; a
///   device never does so silently.
/// * **Completion.** Every submitted request completes exactly once, on any thread, possibly before `submit` returns. `submit` never
///   waits for the medium. A read is complete when its whole buffer is filled, a write when all of its data is taken: the device
///   continues short transfers, and a transfer that cannot be continued is an error.
/// * **Cancellation.** The request owns its buffer until it completes. A caller that loses interest drops the [`Pending`]; the
///   transfer still completes, and the buffer is freed then.
/// * **Ordering.** None between requests in flight together. A request submitted after another completed sees its effect.
/// * **Torn writes.** A write interrupted by a crash may have written any subset of its blocks, each block whole.
/// * **Durability.** A completed write survives the end of the process, and survives a power cut once a later [`Request::Flush`]
///   has completed.
/// * **Trim.** Aligned and inside the device like a write, but of any length. A trimmed range reads as zeros or as any earlier content;
///   it never fails a read. Where [`trims_to_zeros`](Device::trims_to_zeros) is true, it reads as zeros.
/// * **Holes.** A range returned by [`hole_in`](Device::hole_in) reads as zeros. It contains no data of a write that completed before
///   the call, unless that data was trimmed since.
/// * **Unwritten space** reads as zeros on files and in memory, and as anything on a raw block device.
pub trait Device: Send + Sync {
    /// Properties of the device. Constant, but for a capacity that [`refresh_capacity`](Self::refresh_capacity) changes.
    fn geometry(&self) -> Geometry;

    /// Sets the capacity to the present size of the file or block device below, at most `limit_bytes`, and returns it. The capacity is
    /// otherwise that at opening. By default it does not change. No request past `limit_bytes` may be in flight.
    ///
    /// # Errors
    /// If the size cannot be determined.
    fn refresh_capacity(&self, limit_bytes: u64) -> Result<u64, IoError> {
        let _ = limit_bytes;
        Ok(self.geometry().capacity_bytes)
    }

    /// Submits `request`; `completion` receives its outcome.
    fn submit(&self, request: Request, completion: Completion);

    /// Runs `request` to completion on the calling thread. By default it submits and waits; a device with a cheaper blocking call (`pread`
    /// for a file) uses that.
    fn execute(&self, request: Request) -> Outcome {
        let (completion, pending) = Completion::pair();
        self.submit(request, completion);
        pending.wait()
    }

    /// Writes synchronously, on the calling thread, into memory that outlives this process and that the next [`Request::Flush`] covers:
    /// the operating system's page cache of a file. It is as durable as any other write and costs a copy instead of a transfer; reading the
    /// data back costs another. For small, latency-critical writes that are not read soon. Returns `None` where there is no such memory:
    /// then nothing is written, and the caller submits a write.
    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        let _ = (offset, data);
        None
    }

    /// The first part of `range` that is known to be a hole: it takes no space and reads as zeros until the next write to it. The result is
    /// in whole blocks and may be shorter than the hole. `None` means unknown, never "no hole": all of the range may contain data. A file
    /// asks its file system, which may have to read.
    fn hole_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        let _ = range;
        None
    }

    /// Whether a trimmed range reads as zeros. `false` means unknown.
    fn trims_to_zeros(&self) -> bool {
        false
    }

    /// The engine that carries submitted requests to the kernel; `None` if there is none, as in memory. For several devices, the slower
    /// one.
    fn engine(&self) -> Option<Engine> {
        None
    }

    /// Bytes and requests so far.
    fn counters(&self) -> Counters;

    /// Allocates a placement handle for a consumer, whose name is for reports. A device without placement or free handles returns
    /// [`PlacementHandle::DEFAULT`].
    fn allocate_handle(&self, consumer: &str) -> PlacementHandle {
        let _ = consumer;
        PlacementHandle::DEFAULT
    }
}

/// Longest write of `write_zeros`.
const ZEROS_BYTES: u64 = 1 << 20;

/// Shorthands for the usual requests; all are [`Device::submit`] or [`Device::execute`].
impl dyn Device + '_ {
    /// Starts a read of `len` bytes at `offset` into a new buffer.
    pub fn read(&self, offset: u64, len: usize) -> Pending {
        self.start(Request::read(offset, len))
    }

    /// Starts a write of `data` at `offset`, with the default placement.
    pub fn write(&self, offset: u64, data: impl Into<IoSlice>) -> Pending {
        self.start(Request::write(offset, data))
    }

    /// Writes zeros to `range`, one request after the other.
    ///
    /// # Errors
    /// That of the first failed write.
    pub async fn write_zeros(&self, range: Range<u64>) -> Result<(), IoError> {
        let geometry = self.geometry();
        let block_bytes = u64::from(geometry.block_bytes);
        let len = geometry.transfer_units(block_bytes, ZEROS_BYTES) * block_bytes;
        let zeros: IoSlice = IoBuffer::zeroed(len as usize).into();
        for part in geometry.transfers_of(block_bytes, ZEROS_BYTES, range) {
            self.write(part.start, zeros.part(0..(part.end - part.start) as usize)).await?;
        }
        Ok(())
    }

    /// Starts `request`.
    pub fn start(&self, request: Request) -> Pending {
        let (completion, pending) = Completion::pair();
        self.submit(request, completion);
        pending
    }
}

/// Properties of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes that can be addressed; a multiple of `block_bytes`.
    pub capacity_bytes: u64,
    /// Unit of offsets, lengths and, up to a page, of buffer alignment: a power of two, at least 512.
    pub block_bytes: u32,
    /// Longest single read or write; a multiple of `block_bytes`.
    pub max_io_bytes: u32,
    /// The unit in which the medium rewrites data (indirection unit); smaller writes cost more. Equal to `block_bytes` if unknown.
    pub indirection_bytes: u32,
    /// Placement handles beside the default one; 0 without placement.
    pub placement_handles: u16,
    /// Whether transfers go through the page cache: figures then measure memory as well as the device.
    pub buffered: bool,
}

impl Geometry {
    /// Splits `range` into parts of at most [`max_io_bytes`](Self::max_io_bytes).
    pub fn transfers(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Send + use<> {
        self.transfers_of(self.block_bytes.into(), u64::MAX, range)
    }

    /// Splits `range` into parts of at most `limit_bytes` and [`max_io_bytes`](Self::max_io_bytes), in whole units of `unit_bytes`.
    pub fn transfers_of(
        &self,
        unit_bytes: u64,
        limit_bytes: u64,
        range: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + Send + use<> {
        let most = self.transfer_units(unit_bytes, limit_bytes) * unit_bytes;
        let count = range.end.saturating_sub(range.start).div_ceil(most);
        (0..count).map(move |part| {
            let start = range.start + part * most;
            start..range.end.min(start + most)
        })
    }

    /// Whole units of `unit_bytes` in a request of at most `limit_bytes` and [`max_io_bytes`](Self::max_io_bytes); at least one.
    #[must_use]
    pub fn transfer_units(&self, unit_bytes: u64, limit_bytes: u64) -> u64 {
        (limit_bytes.min(self.max_io_bytes.into()) / unit_bytes).max(1)
    }
}

/// Selects the placement of a write on the device (NVMe Flexible Data Placement: a placement identifier).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlacementHandle(pub u16);

impl PlacementHandle {
    /// The handle of all writes without a handle of their own.
    pub const DEFAULT: Self = Self(0);
}

counters! {
    /// Bytes and requests since the device was opened. `None` is unknown, never "zero".
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Counters, atomics pub(crate) AtomicCounters {
        /// Bytes read by the host.
        read_bytes: sum u64,
        /// Bytes written by the host.
        written_bytes: sum u64,
        /// Bytes trimmed by the host.
        trimmed_bytes: sum u64,
        /// Reads completed.
        reads: sum u64,
        /// Writes completed.
        writes: sum u64,
        /// Trims completed.
        trims: sum u64,
        /// Flushes completed.
        flushes: sum u64,
        /// Requests that ended in an error.
        errors: sum u64,
        /// Bytes that the medium wrote, including garbage collection, if the device reports it.
        media_written_bytes: maybe Option<u64>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        capacity_bytes: 1 << 20,
        block_bytes: 512,
        max_io_bytes: 5 * 512,
        indirection_bytes: 512,
        placement_handles: 0,
        buffered: false,
    };

    #[test]
    fn transfers_split_at_the_device_limit_and_in_whole_units() {
        let parts = |parts: &mut dyn Iterator<Item = Range<u64>>| parts.collect::<Vec<_>>();
        assert_eq!(parts(&mut GEOMETRY.transfers(1024..6656)), [1024..3584, 3584..6144, 6144..6656]);
        assert_eq!(parts(&mut GEOMETRY.transfers(1024..3584)), vec![Range { start: 1024, end: 3584 }]);
        assert_eq!(parts(&mut GEOMETRY.transfers(1024..1024)), []);
        // Two units of 1 KiB fit into 2.5 KiB, and one into a limit of 1.5 KiB.
        assert_eq!(
            parts(&mut GEOMETRY.transfers_of(1024, u64::MAX, 0..5120)),
            [0..2048, 2048..4096, 4096..5120]
        );
        assert_eq!(parts(&mut GEOMETRY.transfers_of(1024, 1536, 0..2048)), [0..1024, 1024..2048]);
        assert_eq!(GEOMETRY.transfer_units(4096, u64::MAX), 1, "a unit above the limit is one transfer");
    }

    #[test]
    fn write_zeros_changes_only_its_range() {
        let memory = MemoryDevice::new(4 << 20);
        let device: &dyn Device = &memory;
        device.write(0, IoBuffer::copy_of(&vec![7; 4 << 20])).wait().unwrap();
        event_loop::wait_for(device.write_zeros(512..(3 << 20) + 512)).unwrap();
        let bytes = device.read(0, 4 << 20).wait().unwrap();
        let zeros = bytes.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at);
        assert!(zeros.eq(512..(3 << 20) + 512));
    }
}
