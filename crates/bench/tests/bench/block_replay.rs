//! Compares a replay with a block cache volume: the same requests give the same counters.

use std::sync::Arc;

use block::sets::{Counters, Mode, Placement, Preset, SetsConfig, Tuning};
use block::volume::{Volume, VolumeConfig};
use device::{Device, IoBuffer, MemoryDevice, Simulation};
use flashwright_bench::block::{DiskModel, Replay};
use workload::block::{BlockKind, BlockRequest};

const DISK_BYTES: u64 = 64 << 20;

fn config(mode: Mode) -> VolumeConfig {
    let tuning = Tuning { mode, dirty_percent: 100, idle_seconds: 0, ..Preset::V3.tuning() };
    VolumeConfig { placement: Placement::Linear, ways: 64, tuning, ..VolumeConfig::default() }
}

/// The counters of a volume with `flash_bytes` of flash, and of a replay with the same geometry.
fn side_by_side(flash_bytes: u64, mode: Mode, requests: &[BlockRequest]) -> (Counters, Counters) {
    let simulation = Simulation::new(1);
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(flash_bytes));
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(DISK_BYTES));
    let timer = Arc::new(simulation.world());
    let volume = simulation.block_on(async move {
        Volume::create(&flash, &disk, &config(mode), 5).await.expect("it is made");
        Volume::open(flash, disk, timer).await.expect("it opens").0
    });
    let superblock = volume.superblock();
    let geometry = superblock.geometry();
    let live = simulation.block_on({
        let requests = requests.to_vec();
        async move {
            for &BlockRequest { kind, first_byte, bytes, .. } in &requests {
                match kind {
                    BlockKind::Read => drop(volume.read(first_byte, bytes as usize).await.expect("it reads")),
                    _ => {
                        let data = IoBuffer::zeroed(bytes as usize).into();
                        volume.write(first_byte, data, false).await.expect("it writes");
                    }
                }
                // Flushes and cleans after each request, so that flash pages are free and no write is pending.
                volume.flush().await.expect("it flushes");
                while volume.upkeep().await.expect("it is kept up") {}
            }
            volume.stats().counters
        }
    });
    let tuning = superblock.tuning;
    let mut replay =
        Replay::new(SetsConfig { geometry, tuning }, DiskModel::default()).expect("a volume has that shape");
    requests.iter().for_each(|request| replay.request(request));
    (live, replay.summary().counters)
}

fn ask(kind: BlockKind, first_byte: u64, bytes: u64) -> BlockRequest {
    BlockRequest { time_ns: 0, kind, first_byte, bytes }
}

#[test]
fn partial_block_writes_count_the_same_in_replay_and_volume() {
    let within = (0..1000).map(|i| ask(BlockKind::Write, i * 17 % 5000 * 4096 + 512 * (i % 8), 512));
    let across = (0..200).map(|i| ask(BlockKind::Write, (40 << 20) + i * (64 << 10) + 512, 8 << 10));
    let requests: Vec<_> = within.chain(across).collect();
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        let (live, replayed) = side_by_side(32 << 20, mode, &requests);
        assert_eq!(replayed, live, "{mode:?}");
        let writes = if mode.keeps_dirty() { 0 } else { 1200 };
        assert_eq!(live.disk_writes, writes, "one disk write per request");
    }
}

#[test]
fn random_requests_count_the_same_in_replay_and_volume() {
    let mut seed = 7_u64;
    let mut below = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    let requests: Vec<_> = (0..4000)
        .map(|_| {
            let kind = if below(3) == 0 { BlockKind::Read } else { BlockKind::Write };
            // A volume splits requests longer than 256 KiB or across a multiple of it.
            let (piece, sectors) = (below(40) << 18, 1 + below(40));
            ask(kind, piece + below(512 - sectors) * 512, sectors * 512)
        })
        .collect();
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        // A volume cleans several runs concurrently and a replay one after another, so they differ if dirty blocks must be
        // evicted.
        let flash_bytes = if mode.keeps_dirty() { 32 << 20 } else { 8 << 20 };
        let (live, replayed) = side_by_side(flash_bytes, mode, &requests);
        assert_eq!(replayed, live, "{mode:?}");
    }
}
