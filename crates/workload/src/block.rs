//! What is asked of a block device.

/// Bytes of a sector, the unit of traces regardless of the device's block size.
pub const SECTOR_BYTES: u64 = 512;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRequest {
    /// Nanoseconds since the first request, or since the origin of the trace's timestamps.
    pub time_ns: u64,
    /// What is asked.
    pub kind: BlockKind,
    /// Where it begins.
    pub first_byte: u64,
    /// How long it is. 0 only where nothing is moved: flushes.
    pub bytes: u64,
}

/// What is asked of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Bytes are not needed any more.
    Discard,
    /// What was written is to be made durable.
    Flush,
}

impl BlockRequest {
    /// The first byte behind it.
    #[must_use]
    pub fn end_byte(&self) -> u64 {
        self.first_byte.saturating_add(self.bytes)
    }

    /// The blocks it touches, whole or in part.
    #[must_use]
    pub fn blocks(&self, block_bytes: u32) -> std::ops::Range<u64> {
        let block_bytes = u64::from(block_bytes);
        self.first_byte / block_bytes..self.end_byte().div_ceil(block_bytes)
    }
}
