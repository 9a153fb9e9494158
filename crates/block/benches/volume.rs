//! CPU time per request of a volume on devices in memory, which copy the data once each.
//!
//! `cargo bench -p flashwright-block --bench volume`; with `-- --test` a short run that checks that it works.
#![allow(clippy::print_stdout, reason = "a benchmark prints its measurements")]
#![allow(clippy::unwrap_used, reason = "in a benchmark, a failed unwrap fails the test")]

use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Device, IoBuffer, IoSlice, MemoryDevice};
use flashwright_block::volume::{Volume, VolumeConfig};

const BLOCKS: u64 = 16 << 10;

fn main() {
    let short = std::env::args().any(|argument| argument == "--test");
    let requests: u64 = if short { 2_000 } else { 2_000_000 };
    pollster::block_on(run(requests));
}

async fn run(requests: u64) {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 << 20));
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 30));
    Volume::create(&flash, &disk, &VolumeConfig::default(), 1).await.unwrap();
    let (volume, _) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
    let data: IoSlice = IoBuffer::zeroed(4096).into();
    for block in 0..BLOCKS {
        volume.write(block * 4096, data.clone(), false).await.unwrap();
    }
    let offset = |request: u64| request.wrapping_mul(0x9E37_79B9_7F4A_7C15) % BLOCKS * 4096;
    let before = cpu_ns();
    for request in 0..requests {
        volume.read(offset(request), 4096).await.unwrap();
    }
    let read = cpu_ns();
    for request in 0..requests {
        volume.write(offset(request), data.clone(), false).await.unwrap();
        if request % 32 == 31 {
            volume.flush().await.unwrap();
        }
    }
    let written = cpu_ns();
    println!(
        "hit: {} ns of CPU; dirty overwrite, a flush for 32: {} ns",
        (read - before) / requests,
        (written - read) / requests
    );
}

/// CPU time of this process, user and system.
fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
