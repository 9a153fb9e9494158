//! Fuzzing of requests: arbitrary descriptors become valid operations of the export, or fail.

use device::IoBuffer;
use rustix::io::Errno;

use super::request::{BlockRequest, Limits};
use super::uapi::Descriptor;
use crate::export::{Operation, Shape, contract};

/// Descriptors in a row. The bits of the first byte choose a read-only device, and blocks of 4 KiB.
pub fn check_requests(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let limits = Limits {
        size_bytes: 1 << 40,
        block_bytes: if how & 2 == 0 { 512 } else { 4096 },
        max_io_bytes: 1 << 20,
        read_only: how & 1 == 1,
    };
    for bytes in rest.as_chunks::<{ Descriptor::BYTES }>().0 {
        check_descriptor(&Descriptor::decode(bytes), &limits);
    }
}

fn check_descriptor(descriptor: &Descriptor, limits: &Limits) {
    let shape = Shape {
        size_bytes: limits.size_bytes,
        block_bytes: limits.block_bytes,
        sector_bytes: 512,
        preferred_bytes: 4096,
        read_only: limits.read_only,
    };
    let Ok(request) = BlockRequest::of(descriptor, limits) else { return };
    let data_bytes = request.data_bytes();
    assert!(data_bytes <= limits.max_io_bytes, "{request:?}");
    let operation = request.operation(|| Ok(IoBuffer::zeroed(data_bytes as usize).into()));
    let operation = operation.expect("its data can be read");
    contract::assert_valid(&operation, &shape);
    let without_data = request.operation(|| Err(Errno::IO));
    assert_eq!(without_data.is_err(), matches!(operation, Operation::Write { .. }), "{request:?}");
}
