//! A disk with a small largest transfer, like a drive with passed-through commands.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Completion, Counters, Device, Geometry, IoBuffer, MemoryDevice, Request};
use flashwright_block::sets::{Mode, Tuning};
use flashwright_block::volume::{Volume, VolumeConfig};

use crate::world::config;

/// Refuses requests over 128 KiB.
struct Short(MemoryDevice);

impl Device for Short {
    fn geometry(&self) -> Geometry {
        Geometry { max_io_bytes: 128 << 10, ..self.0.geometry() }
    }

    fn submit(&self, request: Request, completion: Completion) {
        match self.geometry().check(&request) {
            Ok(()) => self.0.submit(request, completion),
            Err(error) => completion.complete(Err(error)),
        }
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }
}

/// A read miss is split at the disk's largest transfer.
#[test]
fn adjacent_misses_are_read_in_short_requests() {
    for (mode, block_bytes) in [(Mode::WriteBack, 4096), (Mode::WriteAround, 4096), (Mode::WriteBack, 65536)]
    {
        let flash: Arc<dyn Device> = Arc::new(Short(MemoryDevice::new(32 << 20)));
        let disk: Arc<dyn Device> = Arc::new(Short(MemoryDevice::new(8 << 20)));
        let tuning = Tuning { mode, ..config().tuning };
        let config = VolumeConfig { tuning, block_bytes, ways: 64, ..config() };
        pollster::block_on(async {
            Volume::create(&flash, &disk, &config, 5).await.unwrap();
            let (volume, _) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
            let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at >> 9) as u8).collect();
            let uncached = volume.without_caching();
            uncached.write(2560, IoBuffer::copy_of(&bytes).into(), true).await.unwrap();
            for volume in [&uncached, &volume, &volume] {
                assert!(
                    volume.read(2560, bytes.len()).await.unwrap()[..] == bytes,
                    "{mode:?}, {block_bytes}"
                );
            }
        });
    }
}

/// If the disk's blocks are larger than 512 bytes, only the blocks at the ends of a write are read.
#[test]
fn unaligned_write_reads_only_the_blocks_at_its_ends() {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
    let disk: Arc<dyn Device> = Arc::new(Short(MemoryDevice::with_block_bytes(8 << 20, 4096)));
    pollster::block_on(async {
        Volume::create(&flash, &disk, &config(), 5).await.unwrap();
        let (volume, _) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
        let uncached = volume.without_caching();
        let of = |byte: u8, len: usize| IoBuffer::copy_of(&vec![byte; len]).into();
        uncached.write(0, of(1, 1 << 20), false).await.unwrap();
        let reads = volume.stats().counters.disk_reads;
        uncached.write(512, of(2, 200 << 10), false).await.unwrap();
        uncached.write(800 << 10, of(3, 512), true).await.unwrap();
        assert_eq!(volume.stats().counters.disk_reads - reads, 3, "one at each end, and one");
        let read = uncached.read(0, 1 << 20).await.unwrap();
        let runs: Vec<(u8, usize)> =
            read.chunk_by(|one, next| one == next).map(|run| (run[0], run.len())).collect();
        let rest = (1 << 20) - (800 << 10) - 512;
        let expected = [(1, 512), (2, 200 << 10), (1, (600 << 10) - 512), (3, 512), (1, rest)];
        assert_eq!(runs, expected);
    });
}
