//! Regions that are written from end to end.

use device::{IoBuffer, MemoryDevice};

use super::*;

const EARLIER: u8 = 0xEE;

/// What the first region holds after a filling of a single item, over an earlier one.
fn first_region(write_whole: bool) -> Vec<u8> {
    let config = RegionConfig { write_whole, ..small() };
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(config.capacity_bytes));
    let bytes = config.region_bytes as usize;
    let mut earlier = IoBuffer::zeroed(bytes);
    earlier.fill(EARLIER);
    device.write(0, earlier).wait().unwrap();
    let store = open(Arc::clone(&device), config);
    put_version(&store, 1, 0);
    drain(&store);
    assert_eq!(*get(&store, 1).found().unwrap(), value(1, 0));
    let region = device.read(0, bytes).wait().unwrap();
    region.to_vec()
}

/// A drive takes what is not written again for live, and moves it whenever it collects.
#[test]
fn unused_part_of_a_region_keeps_old_bytes_unless_written_whole() {
    let of_earlier = |region: Vec<u8>| region.into_iter().filter(|&byte| byte == EARLIER).count();
    assert!(of_earlier(first_region(false)) > 50 << 10);
    assert!(of_earlier(first_region(true)) < 1 << 10);
}
