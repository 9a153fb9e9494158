//! Regions that are written as a whole, including their unused part, and items larger than a transfer of the device.

use device::{Completion, Geometry, IoBuffer, MemoryDevice, Outcome, Request};

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

/// A device of small transfers.
struct Narrow(MemoryDevice);

const NARROW_BYTES: u32 = 2048;

impl Device for Narrow {
    device::forward_device!(0: counters);

    fn geometry(&self) -> Geometry {
        Geometry { max_io_bytes: NARROW_BYTES, ..self.0.geometry() }
    }

    fn submit(&self, request: Request, completion: Completion) {
        completion.complete(self.execute(request));
    }

    fn execute(&self, request: Request) -> Outcome {
        let bytes = match &request {
            Request::Read { buffer, .. } => buffer.len(),
            Request::Write { data, .. } => data.len(),
            Request::Trim { .. } | Request::Flush => 0,
        };
        assert!(bytes <= NARROW_BYTES as usize, "{request:?}");
        self.0.execute(request)
    }
}

#[test]
fn item_larger_than_a_transfer_is_read_in_pieces() {
    let narrow = Narrow(MemoryDevice::new(small().capacity_bytes));
    let store = open(Arc::new(narrow), small());
    (0..20).for_each(|key| put_version(&store, key, 0));
    drain(&store);
    (0..20).for_each(|key| assert_eq!(*get(&store, key).found().unwrap(), value(key, 0), "{key}"));
}
