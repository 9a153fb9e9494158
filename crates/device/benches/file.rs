//! Random 4 KiB reads, as IOPS and CPU time per read of the whole process: by a thread that waits for the oldest request in flight, by
//! reads that each start the next on completion, and by a thread that reads one by one.
//!
//!     cargo bench -p flashwright-device --bench file -- [PATH] [SECONDS]
//!
//! Without a path, a temporary file. To compare: `fio --name=read --filename=PATH --direct=1 --rw=randread --bs=4k
//! --ioengine=io_uring --iodepth=32 --runtime=SECONDS --time_based --size=1G`.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flashwright_device::file::{Engine, OpenOptions};
use flashwright_device::{Clock, Completion, Device, FileDevice, IoBuffer, Pending, Request, SystemClock};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const SIZE_BYTES: u64 = 1 << 30;
const READ_BYTES: u64 = 4096;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = arguments.first().map_or_else(|| scratch.path().join("flash"), PathBuf::from);
    let seconds = arguments.get(1).map_or(2, |text| text.parse().expect("a number of seconds"));
    fill(&path);
    println!("{:<28} {:>9} {:>9}", "", "reads/s", "CPU µs");
    for depth in [1, 8, 32, 128] {
        measure(&path, Engine::IoUring, depth, seconds);
        measure_chains(&path, depth, seconds);
    }
    measure(&path, Engine::ThreadPool, 32, seconds);
    measure_blocking(&path, seconds);
}

fn open(path: &Path, engine: Engine) -> FileDevice {
    let options = OpenOptions {
        size_bytes: Some(SIZE_BYTES),
        create: true,
        engine: Some(engine),
        ..Default::default()
    };
    FileDevice::open(path, &options).expect("a file that allows direct I/O")
}

/// Writes the whole file, because reads of holes would not reach the drive.
fn fill(path: &Path) {
    let device = open(path, Engine::IoUring);
    let piece = 8 << 20;
    for offset in (0..SIZE_BYTES).step_by(piece) {
        let mut data = IoBuffer::zeroed(piece);
        StdRng::seed_from_u64(offset).fill(&mut data[..]);
        let write = Request::write(offset, data);
        device.execute(write).expect("a write");
    }
    device.execute(Request::Flush).expect("a flush");
}

fn measure(path: &Path, engine: Engine, depth: usize, seconds: u64) {
    let device = open(path, engine);
    let device: &dyn Device = &device;
    let mut random = StdRng::seed_from_u64(1);
    let mut next = || random.random_range(0..SIZE_BYTES / READ_BYTES) * READ_BYTES;
    let mut in_flight: VecDeque<Pending> =
        (0..depth).map(|_| device.read(next(), READ_BYTES as usize)).collect();
    report(&format!("{engine:?} depth {depth}"), seconds, || {
        let oldest = in_flight.pop_front().expect("depth is not 0");
        let buffer = oldest.wait().expect("a read");
        in_flight.push_back(device.start(Request::Read { offset: next(), buffer }));
    });
}

/// Reads that complete on the reactor's thread and start the next one there.
struct Chains {
    device: FileDevice,
    random: Mutex<StdRng>,
    ended: AtomicU64,
    stop: AtomicBool,
}

impl Chains {
    fn read(self: &Arc<Self>, buffer: IoBuffer) {
        let offset = self.random.lock().random_range(0..SIZE_BYTES / READ_BYTES) * READ_BYTES;
        let chains = Arc::clone(self);
        let completion = Completion::new(move |outcome| {
            let buffer = outcome.expect("a read");
            chains.ended.fetch_add(1, Ordering::Relaxed);
            if !chains.stop.load(Ordering::Relaxed) {
                chains.read(buffer);
            }
        });
        self.device.submit(Request::Read { offset, buffer }, completion);
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark runs in the real world's time")]
fn measure_chains(path: &Path, depth: usize, seconds: u64) {
    let (ended, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let random = Mutex::new(StdRng::seed_from_u64(1));
    let chains = Arc::new(Chains { device: open(path, Engine::IoUring), random, ended, stop });
    let (start_ns, start_cpu_ns) = (SystemClock.monotonic_ns(), cpu_ns());
    (0..depth).for_each(|_| chains.read(IoBuffer::zeroed(READ_BYTES as usize)));
    std::thread::sleep(std::time::Duration::from_secs(seconds));
    let spent = (SystemClock.monotonic_ns() - start_ns, cpu_ns() - start_cpu_ns);
    print(&format!("chained, depth {depth}"), chains.ended.load(Ordering::Relaxed), spent);
    chains.stop.store(true, Ordering::Relaxed);
    while Arc::strong_count(&chains) > 1 {
        std::thread::yield_now();
    }
}

fn measure_blocking(path: &Path, seconds: u64) {
    let device = open(path, Engine::IoUring);
    let mut random = StdRng::seed_from_u64(1);
    let mut buffer = Some(IoBuffer::zeroed(READ_BYTES as usize));
    report("blocking", seconds, || {
        let offset = random.random_range(0..SIZE_BYTES / READ_BYTES) * READ_BYTES;
        let read = Request::Read { offset, buffer: buffer.take().expect("the buffer comes back") };
        buffer = Some(device.execute(read).expect("a read"));
    });
}

fn report(name: &str, seconds: u64, mut step: impl FnMut()) {
    let (start_ns, start_cpu_ns) = (SystemClock.monotonic_ns(), cpu_ns());
    let mut steps = 0_u64;
    while SystemClock.monotonic_ns() - start_ns < seconds * 1_000_000_000 {
        step();
        steps += 1;
    }
    print(name, steps, (SystemClock.monotonic_ns() - start_ns, cpu_ns() - start_cpu_ns));
}

fn print(name: &str, reads: u64, (elapsed_ns, spent_ns): (u64, u64)) {
    let per_second = reads as f64 * 1e9 / elapsed_ns as f64;
    println!("{name:<28} {per_second:>9.0} {:>9.2}", spent_ns as f64 / reads as f64 / 1e3);
}

fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
