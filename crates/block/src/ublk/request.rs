//! Converts descriptors to operations of an export.
//!
//! Every descriptor is validated: neither the kernel nor an NBD client is trusted.

use device::{ErrorKind, IoError, IoSlice};
use rustix::io::Errno;

use super::uapi::{Descriptor, SECTOR_BYTES, operation};
use crate::export::Operation;

/// The limits against which requests are validated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub size_bytes: u64,
    /// Unit of offsets and lengths; at least a sector.
    pub block_bytes: u32,
    /// Maximum length of a request with data.
    pub max_io_bytes: u32,
    pub read_only: bool,
}

/// A valid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockRequest {
    Read { offset: u64, len: u32 },
    Write { offset: u64, len: u32, durable: bool },
    Zero { offset: u64, len: u64, may_trim: bool, durable: bool },
    Trim { offset: u64, len: u64 },
    Flush,
}

impl BlockRequest {
    /// Decodes and validates a descriptor.
    pub fn of(descriptor: &Descriptor, limits: &Limits) -> Result<Self, Errno> {
        let word = descriptor.operation_and_flags;
        let (code, durable) = (word & 0xFF, word & operation::FUA != 0);
        match code {
            operation::FLUSH => return Ok(Self::Flush),
            operation::READ => {}
            operation::WRITE | operation::DISCARD | operation::WRITE_ZEROES if limits.read_only => {
                return Err(Errno::ROFS);
            }
            operation::WRITE | operation::DISCARD | operation::WRITE_ZEROES => {}
            _ => return Err(Errno::OPNOTSUPP),
        }
        let (offset, len) = range(descriptor, limits).ok_or(Errno::INVAL)?;
        let as_data =
            || u32::try_from(len).ok().filter(|len| *len <= limits.max_io_bytes).ok_or(Errno::INVAL);
        Ok(match code {
            operation::READ => Self::Read { offset, len: as_data()? },
            operation::WRITE => Self::Write { offset, len: as_data()?, durable },
            operation::DISCARD => Self::Trim { offset, len },
            _ => Self::Zero { offset, len, may_trim: word & operation::NO_UNMAP == 0, durable },
        })
    }

    /// Length of its data, which is also its result.
    pub fn data_bytes(&self) -> u32 {
        match *self {
            Self::Read { len, .. } | Self::Write { len, .. } => len,
            _ => 0,
        }
    }

    /// The operation for the export; `fetch` reads the data of a write.
    pub fn operation(self, fetch: impl FnOnce() -> Result<IoSlice, Errno>) -> Result<Operation, Errno> {
        Ok(match self {
            Self::Read { offset, len } => Operation::Read { offset, len },
            Self::Write { offset, durable, .. } => Operation::Write { offset, data: fetch()?, durable },
            Self::Zero { offset, len, may_trim, durable } => {
                Operation::Zero { offset, len, may_trim, only_if_fast: false, durable }
            }
            Self::Trim { offset, len } => Operation::Trim { offset, len, durable: false },
            Self::Flush => Operation::Flush,
        })
    }
}

/// Offset and length in bytes; `None` if invalid.
fn range(descriptor: &Descriptor, limits: &Limits) -> Option<(u64, u64)> {
    let offset = descriptor.first_sector.checked_mul(SECTOR_BYTES)?;
    let len = u64::from(descriptor.sectors) * SECTOR_BYTES;
    let end = offset.checked_add(len)?;
    let block_bytes = u64::from(limits.block_bytes);
    let is_whole = offset.is_multiple_of(block_bytes) && len.is_multiple_of(block_bytes);
    (len > 0 && end <= limits.size_bytes && is_whole).then_some((offset, len))
}

/// The error number for the block layer.
pub(super) fn errno(error: &IoError) -> Errno {
    match error.kind() {
        ErrorKind::Invalid => Errno::INVAL,
        ErrorKind::NoSpace => Errno::NOSPC,
        ErrorKind::Unsupported => Errno::OPNOTSUPP,
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use device::IoBuffer;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::export::{Shape, contract};

    const LIMITS: Limits =
        Limits { size_bytes: 1 << 20, block_bytes: 512, max_io_bytes: 64 << 10, read_only: false };

    const SHAPE: Shape = Shape {
        size_bytes: LIMITS.size_bytes,
        block_bytes: LIMITS.block_bytes,
        sector_bytes: 512,
        preferred_bytes: 4096,
        read_only: LIMITS.read_only,
    };

    fn request(word: u32, first_sector: u64, sectors: u32) -> Result<BlockRequest, Errno> {
        BlockRequest::of(&Descriptor { operation_and_flags: word, sectors, first_sector }, &LIMITS)
    }

    #[test]
    fn each_operation_is_decoded_with_its_flags() {
        let (offset, len) = (8 * 512, 16 * 512);
        assert_eq!(request(0, 8, 16), Ok(BlockRequest::Read { offset, len }));
        assert_eq!(request(1, 8, 16), Ok(BlockRequest::Write { offset, len, durable: false }));
        assert_eq!(
            request(1 | operation::FUA, 8, 16),
            Ok(BlockRequest::Write { offset, len, durable: true })
        );
        let len = u64::from(len);
        assert_eq!(request(3, 8, 16), Ok(BlockRequest::Trim { offset, len }));
        assert_eq!(request(5, 8, 16), Ok(BlockRequest::Zero { offset, len, may_trim: true, durable: false }));
        let kept = operation::NO_UNMAP | operation::FUA | 5;
        assert_eq!(
            request(kept, 8, 16),
            Ok(BlockRequest::Zero { offset, len, may_trim: false, durable: true })
        );
        assert_eq!(request(2, u64::MAX, 0), Ok(BlockRequest::Flush), "a flush has no range");
    }

    #[test]
    fn invalid_request_fails_with_its_errno() {
        for (word, first_sector, sectors, why) in [
            (4, 0, 8, Errno::OPNOTSUPP),
            (36, 0, 8, Errno::OPNOTSUPP),
            (0, 2048, 1, Errno::INVAL),
            (0, 2047, 2, Errno::INVAL),
            (0, 0, 0, Errno::INVAL),
            (0, 0, 129, Errno::INVAL),
            (1, 0, 129, Errno::INVAL),
            (3, u64::MAX, 1, Errno::INVAL),
            (3, u64::MAX / 512, 8, Errno::INVAL),
        ] {
            assert_eq!(request(word, first_sector, sectors), Err(why), "{word} at {first_sector}, {sectors}");
        }
        assert!(request(3, 0, 2048).is_ok(), "requests without data may be long");
        let descriptor = Descriptor { operation_and_flags: 0, sectors: 8, first_sector: 4 };
        let in_blocks = Limits { block_bytes: 4096, ..LIMITS };
        assert_eq!(BlockRequest::of(&descriptor, &in_blocks), Err(Errno::INVAL), "half a block");
        let read_only = Limits { read_only: true, ..LIMITS };
        for (word, allowed) in [(0, true), (1, false), (2, true), (3, false), (5, false)] {
            let descriptor = Descriptor { operation_and_flags: word, sectors: 8, first_sector: 0 };
            let refused = BlockRequest::of(&descriptor, &read_only).err();
            assert_eq!(refused, (!allowed).then_some(Errno::ROFS), "{word}");
        }
    }

    /// Random descriptors, half of them with plausible fields: valid requests must lie within the device, and all others must
    /// fail.
    #[test]
    fn random_descriptors_decode_to_valid_operations_or_fail() {
        let mut random = StdRng::seed_from_u64(0x0B1C);
        let mut sound = 0;
        for turn in 0..20_000 {
            let mut bytes: [u8; Descriptor::BYTES] = random.random();
            if turn % 2 == 0 {
                bytes[0] = random.random_range(0..8);
                bytes[4..8].copy_from_slice(&random.random_range(0..300_u32).to_ne_bytes());
                bytes[8..16].copy_from_slice(&random.random_range(0..2200_u64).to_ne_bytes());
            }
            let Ok(request) = BlockRequest::of(&Descriptor::decode(&bytes), &LIMITS) else { continue };
            sound += 1;
            let operation = request.operation(|| Ok(IoBuffer::zeroed(request.data_bytes() as usize).into()));
            contract::assert_valid(&operation.unwrap(), &SHAPE);
            assert!(request.data_bytes() <= LIMITS.max_io_bytes);
        }
        assert!(sound > 2000, "only {sound} were valid, which is too few for this test");
    }

    #[test]
    fn write_without_its_data_fails() {
        let write = BlockRequest::Write { offset: 0, len: 512, durable: false };
        assert_eq!(write.operation(|| Err(Errno::IO)).err(), Some(Errno::IO));
    }
}
