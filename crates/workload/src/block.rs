//! Requests for block devices.

/// Bytes of a sector, the unit of traces regardless of the device's block size.
pub const SECTOR_BYTES: u64 = 512;

/// A request for a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRequest {
    /// Nanoseconds since the first request, or since the origin of the trace's timestamps.
    pub time_ns: u64,
    /// The operation.
    pub kind: BlockKind,
    /// First byte of the range.
    pub first_byte: u64,
    /// Length of the range. 0 only for flushes, which move no data.
    pub bytes: u64,
}

/// The operation of a block request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// The host no longer needs the bytes.
    Discard,
    /// Completed writes are made durable.
    Flush,
}

impl BlockRequest {
    /// The first byte after the range.
    #[must_use]
    pub fn end_byte(&self) -> u64 {
        self.first_byte.saturating_add(self.bytes)
    }

    /// The blocks that the range touches, wholly or partly.
    #[must_use]
    pub fn blocks(&self, block_bytes: u32) -> std::ops::Range<u64> {
        let block_bytes = u64::from(block_bytes);
        self.first_byte / block_bytes..self.end_byte().div_ceil(block_bytes)
    }
}
