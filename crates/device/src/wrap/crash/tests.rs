//! Possible and impossible effects of a power cut.

use std::collections::BTreeSet;

use super::*;
use crate::sim::LatencyModel;
use crate::{IoBuffer, SimulatedDevice, Simulation};

const BLOCK: usize = 512;

fn device() -> CrashDevice {
    CrashDevice::new(MemoryDevice::new(1 << 20))
}

fn write_request(offset: usize, blocks: usize, value: u8) -> Request {
    let data = IoBuffer::copy_of(&vec![value; blocks * BLOCK]);
    Request::write(offset as u64, data)
}

/// The first `blocks` blocks by value; a torn block panics.
fn contents(device: &dyn Device, blocks: usize) -> Vec<u8> {
    let read = Request::read(0, blocks * BLOCK);
    let bytes = device.execute(read).unwrap();
    let whole = |block: &[u8]| {
        assert!(block.iter().all(|&byte| byte == block[0]), "a torn block");
        block[0]
    };
    bytes.chunks_exact(BLOCK).map(whole).collect()
}

#[test]
fn crash_image_keeps_flushed_blocks_and_any_subset_of_the_others() {
    let device = device();
    device.execute(write_request(0, 3, 1)).unwrap();
    device.execute(Request::Flush).unwrap();
    device.execute(write_request(BLOCK, 2, 2)).unwrap();
    device.execute(write_request(BLOCK, 1, 3)).unwrap();
    let images: BTreeSet<Vec<u8>> = (0..300).map(|seed| contents(&device.crash(seed), 3)).collect();
    let allowed: BTreeSet<Vec<u8>> =
        [1, 2, 3].into_iter().flat_map(|second| [1, 2].map(|third| vec![1, second, third])).collect();
    assert_eq!(images, allowed);
    assert_eq!(contents(&device, 3), [1, 3, 2], "the device itself still works");
}

#[test]
fn same_seed_gives_the_same_image() {
    let device = device();
    device.execute(write_request(0, 64, 1)).unwrap();
    assert_eq!(contents(&device.crash(9), 64), contents(&device.crash(9), 64));
}

#[test]
fn unflushed_trim_may_or_may_not_be_in_the_image() {
    let device = device();
    device.execute(write_request(0, 4, 1)).unwrap();
    device.execute(Request::Flush).unwrap();
    device.execute(Request::Trim { offset: 0, len: 4 * BLOCK as u64 }).unwrap();
    let images: BTreeSet<Vec<u8>> = (0..100).map(|seed| contents(&device.crash(seed), 4)).collect();
    assert!(images.contains(&vec![0; 4]) && images.contains(&vec![1; 4]) && images.len() > 4);
    device.execute(Request::Flush).unwrap();
    assert!((0..100).all(|seed| contents(&device.crash(seed), 4) == [0; 4]));
}

#[test]
fn power_cut_interrupts_one_request_and_fails_later_ones() {
    let device = device();
    device.freeze_after(2);
    device.execute(write_request(0, 2, 1)).unwrap();
    device.execute(Request::Flush).unwrap();
    assert!(!device.is_frozen());
    let caught = device.execute(write_request(0, 2, 2)).unwrap_err();
    assert_eq!(caught.kind(), ErrorKind::Closed);
    device.execute(write_request(0, 2, 3)).unwrap_err();
    device.execute(Request::Flush).unwrap_err();
    device.execute(Request::read(0, BLOCK)).unwrap_err();
    assert!(device.is_frozen());
    assert_eq!(device.requests(), 2);
    let images: BTreeSet<Vec<u8>> = (0..200).map(|seed| contents(&device.crash(seed), 2)).collect();
    assert_eq!(images, [[1, 1], [1, 2], [2, 1], [2, 2]].map(Vec::from).into());
}

#[test]
fn flush_covers_only_writes_completed_before_it() {
    let simulation = Simulation::new(1);
    let latency = LatencyModel { write_ns: 100, flush_ns: 10, jitter_ns: 0, ..Default::default() };
    let live =
        Arc::new(SimulatedDevice::new(simulation.world(), Arc::new(MemoryDevice::new(1 << 20)), latency));
    let device = CrashDevice::over(live, MemoryDevice::new(1 << 20));
    let shared: &dyn Device = &device;
    let write = shared.start(write_request(0, 1, 1));
    let early = shared.start(Request::Flush);
    simulation.run_until_idle();
    assert!(write.wait().is_ok() && early.wait().is_ok());
    assert!((0..50).any(|seed| contents(&device.crash(seed), 1) == [0]), "the early flush covered nothing");
    let late = shared.start(Request::Flush);
    simulation.run_until_idle();
    late.wait().unwrap();
    assert!((0..50).all(|seed| contents(&device.crash(seed), 1) == [1]));
}

#[test]
fn devices_on_one_power_supply_stop_together() {
    let power = Arc::new(Power::default());
    let [one, other] = [(); 2].map(|()| device().powered_by(&power));
    power.cut_after(3);
    one.execute(write_request(0, 1, 1)).unwrap();
    other.execute(write_request(0, 1, 1)).unwrap();
    one.execute(Request::Flush).unwrap();
    other.execute(Request::Flush).unwrap_err();
    one.execute(write_request(0, 1, 2)).unwrap_err();
    assert_eq!((power.requests(), one.is_frozen()), (3, true));
    assert!((0..50).all(|seed| contents(&one.crash(seed), 1) == [1]));
    let others: BTreeSet<_> = (0..50).map(|seed| contents(&other.crash(seed), 1)).collect();
    assert_eq!(others, [vec![0], vec![1]].into(), "its flush was interrupted");
}
