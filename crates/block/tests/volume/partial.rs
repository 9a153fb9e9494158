//! Blocks with only some sectors in the cache.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};

use device::timer::SystemTimer;
use device::wrap::GateDevice;
use device::{Device, IoBuffer, MemoryDevice, RequestKind};
use flashwright_block::volume::{Volume, VolumeConfig};
use futures_util::future::join_all;

use crate::world::{Shape, World, config};

const BLOCK: u64 = 64 << 10;

fn is_ready(future: Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Each write must reserve space for its partial block: otherwise a table could not hold all of them, and the volume could not be
/// closed.
#[test]
fn concurrent_sector_writes_create_no_more_partial_blocks_than_a_table_can_record() {
    let gate = Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(32 << 20))));
    let flash: Arc<dyn Device> = gate.clone();
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 << 20));
    let config = VolumeConfig { block_bytes: BLOCK as u32, ..config() };
    let sector = |block: u64| (block * BLOCK + 512, IoBuffer::copy_of(&[block as u8; 512]).into());
    pollster::block_on(async {
        Volume::create(&flash, &disk, &config, 5).await.unwrap();
        let open = || Volume::open(flash.clone(), disk.clone(), Arc::new(SystemTimer::default()));
        let (volume, _) = open().await.unwrap();
        for block in 1000..1500 {
            volume.read(block * BLOCK, BLOCK as usize).await.unwrap();
        }
        let stats = volume.stats();
        assert_eq!(stats.held_blocks, stats.capacity_blocks);
        gate.close(RequestKind::Write);
        let volume_ref = &volume;
        let writes = (0..320).map(sector).map(|(offset, data)| volume_ref.write(offset, data, false));
        let mut all = pin!(join_all(writes));
        assert!(!is_ready(all.as_mut()));
        gate.open();
        all.await.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
        volume.close().await.unwrap();
        let (volume, _) = open().await.unwrap();
        for block in 0..320 {
            let (offset, _) = sector(block);
            let read = volume.read(offset - 512, 1024).await.unwrap();
            assert_eq!((read[0], read[512]), (0, block as u8));
        }
    });
}

/// The rest of the block is read only if the disk could not write the sectors back alone.
#[test]
fn write_of_sectors_reads_the_disk_only_if_they_are_part_of_a_disk_block() {
    for (disk_block, offset, bytes, reads) in [
        (512, 512, 512, 0),
        (512, 1536, 4096, 0),
        (4096, 4096, 8192, 0),
        (4096, 4096, 512, 1),
        (4096, 512, 4096, 1),
    ] {
        let world = World::new(
            1,
            Shape { disk_block, flash_bytes: 32 << 20, disk_bytes: 64 << 20, ..Shape::default() },
        );
        let volume = world.volume(&VolumeConfig { block_bytes: BLOCK as u32, ..config() });
        let writer = volume.clone();
        world.run(async move {
            writer.write(BLOCK + offset, IoBuffer::copy_of(&vec![7; bytes]).into(), true).await.unwrap();
        });
        let counters = volume.stats().counters;
        assert_eq!(
            counters.disk_reads, reads,
            "{bytes} bytes at {offset} of a disk with blocks of {disk_block}"
        );
    }
}

/// A disk with blocks of 4 KiB filled with 9s, and a volume with blocks of 64 KiB on it.
fn over_nines(disk_bytes: u64) -> (World, Volume) {
    let world =
        World::new(1, Shape { disk_block: 4096, flash_bytes: 32 << 20, disk_bytes, ..Shape::default() });
    let disk: Arc<dyn Device> = world.disk.clone();
    world.run(async move {
        for offset in (0..disk_bytes).step_by(BLOCK as usize) {
            let nines = vec![9; (disk_bytes - offset).min(BLOCK) as usize];
            disk.write(offset, IoBuffer::copy_of(&nines)).await.unwrap();
        }
    });
    let volume = world.volume(&VolumeConfig { block_bytes: BLOCK as u32, ..config() });
    (world, volume)
}

async fn write_sevens(volume: &Volume, offset: u64, bytes: usize) {
    volume.write(offset, IoBuffer::copy_of(&vec![7; bytes]).into(), false).await.unwrap();
}

#[test]
fn last_block_that_is_shorter_is_read_from_the_disk_and_from_flash() {
    // The last two blocks are read by one request.
    let tail = (4 << 20) + BLOCK;
    let (world, volume) = over_nines(tail + 3 * 4096);
    world.run(async move {
        let nines = vec![9; BLOCK as usize + 3 * 4096];
        assert_eq!(*volume.read(tail - BLOCK, nines.len()).await.unwrap(), *nines);
        let disk_reads = volume.stats().counters.disk_reads;
        assert_eq!(*volume.read(tail - BLOCK, nines.len()).await.unwrap(), *nines);
        assert_eq!(volume.stats().counters.disk_reads, disk_reads, "the second time from flash");
    });
}

#[test]
fn write_of_a_sector_keeps_the_rest_of_a_last_block_that_is_shorter() {
    let tail = 4 << 20;
    let (world, volume) = over_nines(tail + 3 * 4096);
    world.run(async move {
        write_sevens(&volume, tail + 512, 512).await;
        let mut expected = vec![9; 3 * 4096];
        expected[512..1024].fill(7);
        assert_eq!(*volume.read(tail, expected.len()).await.unwrap(), *expected);
        volume.clean().await.unwrap();
        assert_eq!(*volume.without_caching().read(tail, expected.len()).await.unwrap(), *expected);
    });
}

#[test]
fn write_past_the_cache_keeps_the_rest_of_the_disk_blocks_that_it_covers_in_part() {
    let (world, volume) = over_nines(4 << 20);
    world.run(async move {
        let past_the_cache = volume.without_caching();
        let mut expected = vec![9; BLOCK as usize];
        for (offset, bytes) in [(4096, 512), (8704, 512), (15_872, 512), (16_384, 4608), (24_064, 4608)] {
            write_sevens(&past_the_cache, offset as u64, bytes).await;
            expected[offset..offset + bytes].fill(7);
            let read = past_the_cache.read(0, expected.len()).await.unwrap();
            assert_eq!(*read, *expected, "{bytes} bytes at {offset}");
        }
    });
}
