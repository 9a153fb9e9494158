//! Regions that are written as a whole, including their unused part.

use device::{IoBuffer, MemoryDevice};

use super::*;

const EARLIER: u8 = 0xEE;

/// The content of the first region after a second filling with a single item.
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

/// A drive treats bytes that are not overwritten as live, and relocates them in garbage collection.
#[test]
fn unused_part_of_a_region_keeps_old_bytes_unless_written_whole() {
    let of_earlier = |region: Vec<u8>| region.into_iter().filter(|&byte| byte == EARLIER).count();
    assert!(of_earlier(first_region(false)) > 50 << 10);
    assert!(of_earlier(first_region(true)) < 1 << 10);
}
