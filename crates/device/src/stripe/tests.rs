//! The layout of stripes, and the requests that the members receive.

use std::sync::atomic::{AtomicU16, Ordering::SeqCst};

use super::*;
use crate::MemoryDevice;
use crate::wrap::{FaultDevice, Faults};

const UNIT: u64 = 4096;

fn stripe(sizes: &[u64]) -> (Vec<Arc<dyn Device>>, StripeDevice) {
    let devices: Vec<Arc<dyn Device>> =
        sizes.iter().map(|&size| Arc::new(MemoryDevice::new(size)) as Arc<dyn Device>).collect();
    let stripe = StripeDevice::new(devices.clone(), UNIT).unwrap();
    (devices, stripe)
}

fn write(device: &dyn Device, offset: u64, bytes: &[u8]) {
    let data = IoBuffer::copy_of(bytes);
    device.execute(Request::write(offset, data)).unwrap();
}

fn read(device: &dyn Device, offset: u64, len: usize) -> IoBuffer {
    device.execute(Request::read(offset, len)).unwrap()
}

#[test]
fn capacity_is_limited_by_the_smallest_device() {
    let (_, stripe) = stripe(&[10 * UNIT, 7 * UNIT + 512, 9 * UNIT]);
    assert_eq!(stripe.geometry().capacity_bytes, 3 * 7 * UNIT);
}

#[test]
fn stripes_alternate_over_the_devices() {
    let (devices, stripe) = stripe(&[8 * UNIT, 8 * UNIT, 8 * UNIT]);
    for number in 0..9 {
        write(&stripe, number * UNIT, &[number as u8 + 1; UNIT as usize]);
    }
    for number in 0..9 {
        let found = read(&*devices[number % 3], number as u64 / 3 * UNIT, UNIT as usize);
        assert!(found.iter().all(|&byte| byte == number as u8 + 1), "stripe {number}");
    }
}

#[test]
fn trim_clears_exactly_its_bytes_on_every_device() {
    let capacity = 15 * UNIT;
    for start in (0..capacity).step_by(1536) {
        for end in (start..=capacity).step_by(2560) {
            let (_, stripe) = stripe(&[5 * UNIT, 5 * UNIT, 5 * UNIT]);
            write(&stripe, 0, &vec![7; capacity as usize]);
            stripe.execute(Request::Trim { offset: start, len: end - start }).unwrap();
            for (at, &byte) in (0..).zip(read(&stripe, 0, capacity as usize).iter()) {
                assert_eq!(byte == 0, (start..end).contains(&at), "byte {at} of trim {start}..{end}");
            }
        }
    }
}

#[test]
fn device_smaller_than_a_unit_is_refused() {
    let small: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 * UNIT));
    assert_eq!(StripeDevice::new(vec![small.clone()], 3000).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(StripeDevice::new(vec![small], 5 * UNIT).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(StripeDevice::new(vec![], UNIT).unwrap_err().kind(), ErrorKind::Invalid);
}

/// A memory device with `left` placement handles that records the last one used.
struct Placing {
    memory: MemoryDevice,
    left: u16,
    given: AtomicU16,
    used: AtomicU16,
}

impl Placing {
    fn new(left: u16) -> Arc<Self> {
        let (given, used) = (AtomicU16::new(0), AtomicU16::new(0));
        Arc::new(Self { memory: MemoryDevice::new(8 * UNIT), left, given, used })
    }
}

impl Device for Placing {
    fn geometry(&self) -> Geometry {
        Geometry { placement_handles: self.left, ..self.memory.geometry() }
    }

    fn submit(&self, request: Request, completion: Completion) {
        if let Request::Write { placement, .. } = &request {
            self.used.store(placement.0, SeqCst);
        }
        self.memory.submit(request, completion);
    }

    fn counters(&self) -> Counters {
        self.memory.counters()
    }

    fn allocate_handle(&self, _consumer: &str) -> PlacementHandle {
        let given = self.given.fetch_add(1, SeqCst);
        if given < self.left { PlacementHandle(10 * (given + 1)) } else { PlacementHandle::DEFAULT }
    }
}

#[test]
fn handle_requires_a_free_handle_on_every_device() {
    let (rich, poor) = (Placing::new(3), Placing::new(2));
    rich.allocate_handle("an earlier consumer");
    let stripe = StripeDevice::new(vec![rich.clone(), poor.clone()], UNIT).unwrap();
    let (first, second, third) =
        (stripe.allocate_handle("a"), stripe.allocate_handle("b"), stripe.allocate_handle("c"));
    assert!(first != second && first != PlacementHandle::DEFAULT && second != PlacementHandle::DEFAULT);
    assert_eq!(third, PlacementHandle::DEFAULT);
    for (placement, on_rich, on_poor) in [(first, 20, 10), (second, 30, 20), (PlacementHandle::DEFAULT, 0, 0)]
    {
        let data = IoBuffer::zeroed(2 * UNIT as usize).into();
        stripe.execute(Request::Write { offset: 0, data, placement }).unwrap();
        assert_eq!((rich.used.load(SeqCst), poor.used.load(SeqCst)), (on_rich, on_poor));
    }
}

#[test]
fn failing_device_fails_only_requests_that_touch_it() {
    let sound: Arc<dyn Device> = Arc::new(MemoryDevice::new(8 * UNIT));
    let faults = Faults { failed_reads: 1.0, ..Default::default() };
    let failing: Arc<dyn Device> =
        Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(8 * UNIT)), 0, faults));
    let stripe = StripeDevice::new(vec![sound, failing], UNIT).unwrap();
    let shared: &dyn Device = &stripe;
    let read = |offset, len| Request::read(offset, len as usize);
    for (offset, len, fails) in [(0, UNIT, false), (UNIT, UNIT, true), (0, 4 * UNIT, true)] {
        for outcome in [shared.execute(read(offset, len)), shared.start(read(offset, len)).wait()] {
            assert_eq!(outcome.is_err_and(|error| error.kind() == ErrorKind::Medium), fails);
        }
    }
    assert_eq!(stripe.counters().errors, 4);
}
