//! Checks operations against the contract of [`Export`](super::Export), in tests of the front ends.

use super::{Operation, Shape};

/// Longest read or write that an export must accept, without the blocks at its ends.
const MAX_DATA_BYTES: u64 = 32 << 20;

/// # Panics
/// If the operation violates the contract for an export of this shape.
pub(crate) fn assert_valid(operation: &Operation, shape: &Shape) {
    let (offset, len, most_bytes) = match operation {
        Operation::Read { offset, len } => (*offset, u64::from(*len), MAX_DATA_BYTES),
        Operation::Write { offset, data, .. } => (*offset, data.len() as u64, MAX_DATA_BYTES),
        Operation::Zero { offset, len, .. }
        | Operation::Trim { offset, len, .. }
        | Operation::Prefetch { offset, len } => (*offset, *len, shape.size_bytes),
        Operation::Flush => return,
    };
    let block_bytes = u64::from(shape.block_bytes);
    let end = offset.checked_add(len);
    assert!(len > 0 && len <= most_bytes, "{operation:?}: length");
    assert!(end.is_some_and(|end| end <= shape.size_bytes), "{operation:?}: end");
    assert!(
        offset.is_multiple_of(block_bytes) && len.is_multiple_of(block_bytes),
        "{operation:?}: alignment"
    );
    let changes = !matches!(operation, Operation::Read { .. } | Operation::Prefetch { .. });
    assert!(!(changes && shape.read_only), "{operation:?}: the export is read-only");
}
