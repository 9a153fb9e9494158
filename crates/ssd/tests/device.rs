//! The model drive as an engine sees it: counters, handles, namespaces, writes smaller than a page.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use device::{Device, IoBuffer, PlacementHandle, Request, Simulation};
use flashwright_ssd::{Card, Isolation, LogicalPage, Namespace, Payload, Shape, SsdDevice, Upkeep};

const KIB: u64 = 1024;

fn shape(isolation: Isolation) -> Shape {
    Shape {
        block_bytes: 4096,
        page_bytes: 16384,
        unit_pages: 16,
        units: 40,
        reserve_units: 0,
        logical_pages: 512,
        groups: 1,
        isolation,
    }
}

fn device(isolation: Isolation, payload: Payload) -> SsdDevice {
    SsdDevice::new(shape(isolation).layout().unwrap(), Upkeep::default(), payload)
}

fn write(device: &dyn Device, offset: u64, bytes: u64, handle: PlacementHandle) {
    let data = IoBuffer::copy_of(&vec![7; bytes as usize]).into();
    device.execute(Request::Write { offset, data, placement: handle }).unwrap();
}

fn read(device: &dyn Device, offset: u64, bytes: u64) -> IoBuffer {
    device.execute(Request::read(offset, bytes as usize)).unwrap()
}

#[test]
fn partial_page_writes_program_whole_pages() {
    let device = device(Isolation::CONVENTIONAL, Payload::Kept);
    assert_eq!(device.geometry().indirection_bytes, 16384);
    write(&device, 0, 16 * KIB, PlacementHandle::DEFAULT);
    write(&device, 4 * KIB, 4 * KIB, PlacementHandle::DEFAULT); // inside page 0
    write(&device, 28 * KIB, 24 * KIB, PlacementHandle::DEFAULT); // 4 KiB of page 1, page 2, 4 KiB of page 3
    let stats = device.stats();
    assert_eq!((stats.host_bytes, stats.host_pages, stats.partial_pages), (44 * KIB, 1 + 1 + 3, 3));
    let counters = device.counters();
    assert_eq!((counters.written_bytes, counters.media_written_bytes), (44 * KIB, Some(5 * 16 * KIB)));
    assert_eq!(stats.dlwa(16384), Some(80.0 / 44.0));
}

#[test]
fn partly_trimmed_page_stays_mapped() {
    let device = device(Isolation::CONVENTIONAL, Payload::Kept);
    write(&device, 0, 64 * KIB, PlacementHandle::DEFAULT);
    device.execute(Request::Trim { offset: 4 * KIB, len: 44 * KIB }).unwrap();
    let holds = |page| device.inspect(|ftl| ftl.locate(LogicalPage(page)).is_some());
    assert_eq!([holds(0), holds(1), holds(2), holds(3)], [true, false, false, true]);
    assert_eq!(read(&device, 0, 4 * KIB)[0], 7);
}

#[test]
fn handles_are_assigned_until_exhausted_and_reported_by_consumer() {
    let device = device(Isolation::initially_isolated(3), Payload::Discarded);
    assert_eq!(device.geometry().placement_handles, 2);
    let given = ["small", "large", "metadata"].map(|consumer| device.allocate_handle(consumer));
    assert_eq!(given, [PlacementHandle(1), PlacementHandle(2), PlacementHandle::DEFAULT]);
    let reported: Vec<(String, bool)> =
        device.assignments().into_iter().map(|given| (given.consumer, given.is_shared)).collect();
    assert_eq!(reported, [("small".into(), false), ("large".into(), false), ("metadata".into(), true)]);
    write(&device, 0, 32 * KIB, given[0]);
    write(&device, 64 * KIB, 16 * KIB, given[1]);
    let streams: Vec<u64> = device.stats().streams.iter().map(|stream| stream.host_pages).collect();
    assert_eq!(streams, [0, 2, 1]);
}

#[test]
fn write_with_an_unknown_handle_is_counted_and_uses_the_default() {
    let device = device(Isolation::initially_isolated(2), Payload::Kept);
    write(&device, 0, 16 * KIB, PlacementHandle(9));
    assert_eq!(device.stats().invalid_placements, 1);
    assert_eq!(device.stats().streams[0].host_pages, 1);
    assert_eq!(read(&device, 0, 16 * KIB)[0], 7);
}

#[test]
fn conventional_drive_assigns_the_default_handle_only() {
    let device = device(Isolation::CONVENTIONAL, Payload::Kept);
    assert_eq!(device.geometry().placement_handles, 0);
    assert_eq!(device.allocate_handle("consumer"), PlacementHandle::DEFAULT);
}

#[test]
fn discarded_payload_reads_as_zeros_and_is_still_counted() {
    let device = device(Isolation::CONVENTIONAL, Payload::Discarded);
    write(&device, 0, 32 * KIB, PlacementHandle::DEFAULT);
    assert!(read(&device, 0, 32 * KIB).iter().all(|&byte| byte == 0));
    assert_eq!(device.counters().media_written_bytes, Some(32 * KIB));
}

#[test]
fn namespaces_share_the_medium_and_keep_their_bytes_and_handles() {
    let layout = || shape(Isolation::initially_isolated(3)).layout().unwrap();
    let half = |handles| Namespace { bytes: 256 * 16 * KIB, handles };
    let tenants = [half(vec![0, 2]), half(vec![1])];
    let devices = SsdDevice::namespaces(layout(), Upkeep::default(), Payload::Kept, &tenants).unwrap();
    let [one, two] = &devices[..] else { panic!("two namespaces") };
    write(one, 0, 16 * KIB, one.allocate_handle("tenant"));
    assert_eq!(read(two, 0, 16 * KIB)[0], 0, "the other namespace has other data at this offset");
    write(two, 0, 32 * KIB, PlacementHandle::DEFAULT);
    let streams: Vec<u64> = one.stats().streams.iter().map(|stream| stream.host_pages).collect();
    assert_eq!(streams, [0, 2, 1], "handles 2 and 1 of the drive");
    assert_eq!(one.counters().media_written_bytes, None, "a namespace's share of the medium is not known");
    assert_eq!((one.counters().written_bytes, two.counters().written_bytes), (16 * KIB, 32 * KIB));
    for wrong in [
        Namespace { bytes: 16 * KIB + 1, handles: vec![0] },
        Namespace { bytes: 513 * 16 * KIB, handles: vec![0] },
        Namespace { bytes: 16 * KIB, handles: vec![3] },
        Namespace { bytes: 16 * KIB, handles: vec![] },
    ] {
        let refused = SsdDevice::namespaces(layout(), Upkeep::default(), Payload::Kept, &[wrong]);
        assert_eq!(refused.unwrap_err().key, "namespaces");
    }
}

#[test]
fn request_in_a_simulation_takes_the_modelled_time() {
    let card = Card::load("test").unwrap();
    let simulation = Simulation::new(1);
    let shape = shape(Isolation::CONVENTIONAL);
    let drive =
        SsdDevice::in_world(simulation.world(), &card, &shape, Upkeep::default(), Payload::Kept).unwrap();
    let drive: Arc<dyn Device> = Arc::new(drive);
    let data = IoBuffer::copy_of(&[9; 65536]);
    simulation.block_on(drive.write(0, data)).unwrap();
    let written_ns = simulation.clock().now_ns();
    // 8 µs for the command, 65536 bytes over 3 GB/s.
    assert_eq!(written_ns, 8_000 + 65_536_000 / 3_000);
    simulation.run_until(100_000_000);
    let read = simulation.block_on(drive.read(0, 16384)).unwrap();
    assert_eq!(read[0], 9);
    // The command, the sensing, and the transfer of a page over the channel and the host link.
    let took_ns = simulation.clock().now_ns() - 100_000_000;
    assert_eq!(took_ns, 8_000 + 50_000 + 16_384 + 16_384_000 / 3_000);
}

trait Now {
    fn now_ns(&self) -> u64;
}

impl Now for Arc<device::VirtualClock> {
    fn now_ns(&self) -> u64 {
        device::Clock::monotonic_ns(&**self)
    }
}

/// Catches a regression: the write uses the first handle of the drive, which belongs to another namespace, and mixes
/// the data of the two.
#[test]
fn unknown_handle_of_a_namespace_uses_the_default_of_that_namespace() {
    let layout = shape(Isolation::initially_isolated(4)).layout().unwrap();
    let tenant = |handles: &[u16]| Namespace { bytes: 4096 * KIB, handles: handles.to_vec() };
    let tenants = [tenant(&[0, 1]), tenant(&[2, 3])];
    let devices = SsdDevice::namespaces(layout, Upkeep::default(), Payload::Discarded, &tenants).unwrap();
    write(&devices[1], 0, 16 * KIB, PlacementHandle(7));
    let stats = devices[1].stats();
    let streams: Vec<u64> = stats.streams.iter().map(|stream| stream.host_pages).collect();
    assert_eq!((streams, stats.invalid_placements), (vec![0, 0, 1, 0], 1));
}
