//! CPU time of a 4 KiB random read, by passthrough and by the block device, for comparison with fio: once with a thread that waits for the
//! oldest request, which includes thread switches, and once with reads that each start the next on completion.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flashwright_device::file::OpenOptions;
use flashwright_device::{
    Clock, Completion, Device, FileDevice, IoBuffer, PassthroughDevice, Pending, Request, SystemClock,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::drives::{BLOCK_BYTES, Drives, PLAIN};

const DEPTH: usize = 32;
const SECONDS: u64 = 4;

/// Prints reads per second, and the whole process's CPU time per read.
pub fn print(drives: &Drives) {
    let options = OpenOptions::default();
    let passed = PassthroughDevice::open(drives.generic(PLAIN), &options).unwrap();
    measure("passed-through commands", Arc::new(passed));
    measure("block device", Arc::new(FileDevice::open(drives.block(PLAIN), &options).unwrap()));
}

fn measure(name: &str, device: Arc<dyn Device>) {
    waiting(&format!("{name}, waiting"), &*device);
    chained(&format!("{name}, chained"), device);
}

fn buffer() -> IoBuffer {
    IoBuffer::zeroed(BLOCK_BYTES as usize)
}

fn waiting(name: &str, device: &dyn Device) {
    let blocks = device.geometry().capacity_bytes / BLOCK_BYTES;
    let mut random = StdRng::seed_from_u64(1);
    let mut next = || random.random_range(0..blocks) * BLOCK_BYTES;
    let mut in_flight: VecDeque<Pending> = (0..DEPTH).map(|_| device.read(next(), buffer().len())).collect();
    let (start_ns, start_cpu_ns, mut reads) = (SystemClock.monotonic_ns(), cpu_ns(), 0_u64);
    while SystemClock.monotonic_ns() - start_ns < SECONDS * 1_000_000_000 {
        let buffer = in_flight.pop_front().unwrap().wait().unwrap();
        in_flight.push_back(device.start(Request::Read { offset: next(), buffer }));
        reads += 1;
    }
    print_line(name, reads, (SystemClock.monotonic_ns() - start_ns, cpu_ns() - start_cpu_ns));
}

/// Reads that start the next one on completion.
struct Chains {
    device: Arc<dyn Device>,
    blocks: u64,
    random: Mutex<StdRng>,
    reads: AtomicU64,
    stop: AtomicBool,
}

impl Chains {
    fn read(self: &Arc<Self>, buffer: IoBuffer) {
        let offset = self.random.lock().unwrap().random_range(0..self.blocks) * BLOCK_BYTES;
        let chains = Arc::clone(self);
        let completion = Completion::new(move |outcome| {
            let buffer = outcome.unwrap();
            chains.reads.fetch_add(1, Relaxed);
            if !chains.stop.load(Relaxed) {
                chains.read(buffer);
            }
        });
        self.device.submit(Request::Read { offset, buffer }, completion);
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement takes real time")]
fn chained(name: &str, device: Arc<dyn Device>) {
    let blocks = device.geometry().capacity_bytes / BLOCK_BYTES;
    let random = Mutex::new(StdRng::seed_from_u64(1));
    let (reads, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let chains = Arc::new(Chains { device, blocks, random, reads, stop });
    let (start_ns, start_cpu_ns) = (SystemClock.monotonic_ns(), cpu_ns());
    (0..DEPTH).for_each(|_| chains.read(buffer()));
    std::thread::sleep(Duration::from_secs(SECONDS));
    let spent = (SystemClock.monotonic_ns() - start_ns, cpu_ns() - start_cpu_ns);
    print_line(name, chains.reads.load(Relaxed), spent);
    chains.stop.store(true, Relaxed);
    while Arc::strong_count(&chains) > 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn print_line(name: &str, reads: u64, (elapsed_ns, spent_ns): (u64, u64)) {
    let per_second = reads as f64 * 1e9 / elapsed_ns as f64;
    println!(
        "MEASURE ours {name}: {per_second:.0} reads/s, {:.2} us CPU per read",
        spent_ns as f64 / reads as f64 / 1e3
    );
}

fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
