//! CPU time of a 4 KiB random read, by passed-through commands and by the block device: to be set beside fio's.

use std::collections::VecDeque;

use flashwright_device::file::OpenOptions;
use flashwright_device::{Clock, Device, FileDevice, IoBuffer, PassthroughDevice, Pending, SystemClock};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::drives::{BLOCK_BYTES, Drives, PLAIN};

const DEPTH: usize = 32;
const SECONDS: u64 = 4;

/// Prints reads a second, and the whole process's CPU time by read.
pub fn print(drives: &Drives) {
    let options = OpenOptions::default();
    let passed = PassthroughDevice::open(drives.generic(PLAIN), &options).unwrap();
    measure("passed-through commands", &passed);
    drop(passed);
    measure("block device", &FileDevice::open(drives.block(PLAIN), &options).unwrap());
}

fn measure(name: &str, device: &dyn Device) {
    let blocks = device.geometry().capacity_bytes / BLOCK_BYTES;
    let mut random = StdRng::seed_from_u64(1);
    let mut next = || random.random_range(0..blocks) * BLOCK_BYTES;
    let buffer = || IoBuffer::zeroed(BLOCK_BYTES as usize);
    let mut under_way: VecDeque<Pending> = (0..DEPTH).map(|_| device.read(next(), buffer())).collect();
    let (start_ns, start_cpu_ns, mut reads) = (SystemClock.monotonic_ns(), cpu_ns(), 0_u64);
    while SystemClock.monotonic_ns() - start_ns < SECONDS * 1_000_000_000 {
        let buffer = under_way.pop_front().unwrap().wait().unwrap().unwrap();
        under_way.push_back(device.read(next(), buffer));
        reads += 1;
    }
    let (elapsed_ns, spent_ns) = (SystemClock.monotonic_ns() - start_ns, cpu_ns() - start_cpu_ns);
    let per_second = reads as f64 * 1e9 / elapsed_ns as f64;
    println!(
        "MEASURE ours {name}: {per_second:.0} reads/s, {:.2} us CPU a read",
        spent_ns as f64 / reads as f64 / 1e3
    );
}

fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
