//! Bytes written to flash for each byte that a client writes. Counted, not timed.

use std::cell::Cell;
use std::rc::Rc;

use device::IoBuffer;
use flashwright_block::volume::{Stats, VolumeConfig};

use crate::world::{Shape, World};

/// Random writes of clients.
#[derive(Debug, Clone, Copy)]
struct Load {
    count: u64,
    bytes: usize,
    depth: usize,
    /// Each write is followed by a flush.
    flushes: bool,
}

/// Bytes written to flash for each byte of `load`.
fn amplification(load: Load) -> (f64, Stats) {
    let Load { count, bytes, depth, flushes } = load;
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
                let data = IoBuffer::zeroed(bytes).into();
                volume.write(offset, data, false).await.unwrap();
                if flushes {
                    volume.flush().await.unwrap();
                }
            }
        });
    }
    world.simulation.run_until_idle();
    let written = world.flash.counters().written_bytes - before;
    (written as f64 / (count * bytes as u64) as f64, volume.stats())
}

#[test]
fn concurrent_writes_share_intent_log_entries() {
    for depth in [32, 16, 64] {
        let (amplification, stats) =
            amplification(Load { count: 16_384, bytes: 4096, depth, flushes: false });
        println!("depth {depth}: {amplification:.2}, {} entries", stats.io.intent_log_writes);
        // A write is acknowledged by an entry or a commit after it, and at most `depth` writes wait for one.
        let acknowledging = stats.io.intent_log_writes + stats.io.commits;
        assert!(acknowledging >= 16_384 / depth as u64, "depth {depth}: {acknowledging} entries and commits");
        assert!(
            amplification <= 1.3,
            "depth {depth}: {amplification:.2}, {} entries",
            stats.io.intent_log_writes
        );
    }
}

/// A block and an entry of the intent log per write; a commit for each would be a third.
#[test]
fn flushed_writes_take_a_page_and_at_most_one_intent_log_entry() {
    let load = |bytes, depth| Load { count: 8_192, bytes, depth, flushes: true };
    for (load, most) in [
        (load(4096, 1), 2.1),
        (load(4096, 4), 1.6),
        (load(4096, 32), 1.3),
        // A write of one sector rewrites its whole block.
        (load(512, 1), 16.5),
        (load(65536, 1), 1.1),
    ] {
        let (amplification, stats) = amplification(load);
        println!("{load:?}: {amplification:.2}, {:?}", stats.io);
        assert_eq!(stats.io.client_flushes, load.count);
        assert!(amplification <= most, "{load:?}: {amplification:.2} bytes written per byte");
    }
}
