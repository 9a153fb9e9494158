//! Labels of stripe members with corrected checksums: fields must be bounds-checked even if the checksum is right.

use std::sync::Arc;

use block::striped::{Member, join};
use device::{Device, IoBuffer, MemoryDevice};

const MEMBER_BYTES: u64 = 512 << 10;
const LABEL_BYTES: usize = 512;
const CRC_AT: usize = LABEL_BYTES - 4;

/// Uses the bytes as the labels of two members; if they form a stripe, the stripe must be usable.
pub fn check(data: &[u8]) {
    let (first, second) = data.split_at(data.len().min(LABEL_BYTES));
    let members = [member("first", first), member("second", second)];
    let Ok(stripe) = join(&members) else { return };
    let last = stripe.geometry().capacity_bytes - 4096;
    let written = stripe.write(last, IoBuffer::copy_of(&[7; 4096])).wait();
    written.unwrap();
    let read = stripe.read(last, 4096).wait().unwrap();
    assert!(read.iter().all(|byte| *byte == 7));
    assert!(join(&members).is_ok(), "writes to a stripe do not change its labels");
}

/// A device that begins with `label`.
fn member(name: &str, label: &[u8]) -> Member {
    let mut bytes = [0; LABEL_BYTES];
    let len = label.len().min(CRC_AT);
    bytes[..len].copy_from_slice(&label[..len]);
    let crc = device::checksum::crc32c(&bytes[..CRC_AT]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(MEMBER_BYTES));
    device.write(0, IoBuffer::copy_of(&bytes)).wait().unwrap();
    (name.into(), device)
}
