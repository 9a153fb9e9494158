//! Many threads on one volume, in real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use device::timer::SystemTimer;
use device::{Device, IoBuffer, MemoryDevice};
use flashwright_block::sets::{Mode, Tuning};
use flashwright_block::volume::{Volume, VolumeConfig};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::world::config;

const THREADS: u64 = 4;

/// Each thread has every fourth sector, so that threads share every block.
fn run(volume: &Volume, thread: u64) {
    let mut random = StdRng::seed_from_u64(thread);
    let mut twin = vec![0_u8; 2000];
    for _ in 0..1500 {
        let mine = random.random_range(0..twin.len());
        let offset = (mine as u64 * THREADS + thread) * 512;
        match random.random_range(0..12) {
            0..5 => {
                twin[mine] = random.random();
                let data = IoBuffer::copy_of(&[twin[mine]; 512]).into();
                pollster::block_on(volume.write(offset, data, false)).unwrap();
            }
            5..11 => {
                let bytes = pollster::block_on(volume.read(offset, 512)).unwrap();
                assert!(bytes.iter().all(|&byte| byte == twin[mine]), "thread {thread}, sector {mine}");
            }
            _ => pollster::block_on(volume.flush()).unwrap(),
        }
    }
}

#[test]
fn threads_sharing_blocks_read_their_own_sectors() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        for ordered in [false, true] {
            if ordered && mode != Mode::WriteBack {
                continue;
            }
            let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(5 << 19));
            let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 << 20));
            let tuning = Tuning { mode, dirty_percent: 30, ..config().tuning };
            let config = VolumeConfig { tuning, ordered, ..config() };
            let timer = Arc::new(SystemTimer::default());
            let volume = pollster::block_on(async {
                Volume::create(&flash, &disk, &config, 3).await.unwrap();
                Volume::open(flash, disk, timer).await.unwrap().0
            });
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let upkeep = scope.spawn(|| {
                    while !done.load(Relaxed) {
                        pollster::block_on(volume.upkeep()).unwrap();
                        std::thread::yield_now();
                    }
                });
                let volume = &volume;
                let threads = (0..THREADS).map(|thread| scope.spawn(move || run(volume, thread)));
                threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
                done.store(true, Relaxed);
                upkeep.join().unwrap();
            });
            pollster::block_on(async {
                volume.clean().await.unwrap();
                assert_eq!(volume.stats().dirty_blocks, 0);
                volume.close().await.unwrap();
            });
        }
    }
}
