//! Bytes written to flash for each byte that a client writes. Counted, not timed.

use std::cell::Cell;
use std::rc::Rc;

use device::IoBuffer;
use flashwright_block::volume::{Stats, VolumeConfig};

use crate::world::{Shape, World};

/// Bytes written to flash for each byte of `count` random writes of 4 KiB with `depth` in flight.
fn amplification(count: u64, depth: usize) -> (f64, Stats) {
    let world = World::new(7, Shape { flash_bytes: 96 << 20, disk_bytes: 128 << 20, ..Shape::default() });
    let volume = world.volume(&VolumeConfig::default());
    let before = world.flash.counters().written_bytes;
    let next = Rc::new(Cell::new(0_u64));
    for _ in 0..depth {
        let (volume, next) = (volume.clone(), Rc::clone(&next));
        world.simulation.spawn(async move {
            while next.get() < count {
                let number = next.replace(next.get() + 1);
                let offset = number * 7919 % 8192 * 4096;
                let data = IoBuffer::zeroed(4096).into();
                volume.write(offset, data, false).await.unwrap();
            }
        });
    }
    world.simulation.run_until_idle();
    let written = world.flash.counters().written_bytes - before;
    (written as f64 / (count * 4096) as f64, volume.stats())
}

#[test]
fn concurrent_writes_share_intent_log_entries() {
    for depth in [32, 16, 64] {
        let (amplification, stats) = amplification(16_384, depth);
        println!("depth {depth}: {amplification:.2}, {} entries", stats.io.log_writes);
        // A write is acknowledged by an entry or a commit after it, and at most `depth` writes wait for one.
        let acknowledging = stats.io.log_writes + stats.io.commits;
        assert!(acknowledging >= 16_384 / depth as u64, "depth {depth}: {acknowledging} entries and commits");
        assert!(amplification <= 1.3, "depth {depth}: {amplification:.2}, {} entries", stats.io.log_writes);
    }
}
