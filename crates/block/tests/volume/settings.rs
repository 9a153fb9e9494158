//! Changing settings while the volume is in use.

use std::sync::Arc;

use device::{Device, IoBuffer};
use flashwright_block::sets::{Mode, Tuning};
use flashwright_block::volume::{Volume, VolumeConfig, VolumeErrorKind};

use crate::world::{Shape, World, config};

/// The change must not hold the lock for tables while it waits for a commit that needs a table.
#[test]
fn settings_can_change_with_a_full_journal() {
    let world = World::new(1, Shape::default());
    let volume = world.volume(&VolumeConfig { journal_bytes: Some(64 << 10), ..config() });
    let work = |volume: flashwright_block::volume::Volume| async move {
        for round in 0..100 {
            let data = IoBuffer::copy_of(&[round as u8; 4096]).into();
            volume.write(round * 4096, data, false).await.unwrap();
            volume.set_tuning(volume.superblock().tuning).await.unwrap();
        }
        assert!(volume.stats().io.checkpoints > 0, "the journal was never full");
    };
    world.run(work(volume));
}

/// For example, long reads of a backup are not cached, while long writes are.
#[test]
fn sequential_reads_and_writes_have_separate_limits() {
    for (read_bypass_bytes, write_bypass_bytes) in [(16 << 10, 0), (0, 16 << 10), (16 << 10, 32 << 10)] {
        let world = World::new(1, Shape::default());
        let tuning = Tuning { read_bypass_bytes, write_bypass_bytes, ..config().tuning };
        let volume = world.volume(&VolumeConfig { tuning, ..config() });
        let counters = world.run(async move {
            for block in 0..16 {
                volume.read(block * 4096, 4096).await.unwrap();
            }
            for block in 100..116 {
                volume.write(block * 4096, IoBuffer::copy_of(&[1; 4096]).into(), false).await.unwrap();
            }
            volume.stats().counters
        });
        let past = |limit: u64| if limit == 0 { 0 } else { 16 - limit / 4096 };
        let [reads, writes] = [read_bypass_bytes, write_bypass_bytes].map(past);
        let found = (counters.uncached_sequential_reads, counters.uncached_sequential_writes);
        assert_eq!(found, (reads, writes), "limits {read_bypass_bytes} and {write_bypass_bytes}");
    }
}

/// Its disk is a copy of an earlier state of the volume only if blocks reach it in order.
#[test]
fn ordered_volume_accepts_only_modes_that_keep_dirty_blocks() {
    let world = World::new(1, Shape::default());
    let (flash, disk): (_, Arc<dyn Device>) = (world.flash.clone(), world.disk.clone());
    let with_mode =
        |mode| VolumeConfig { ordered: true, tuning: Tuning { mode, ..config().tuning }, ..config() };
    let (back, through) = (with_mode(Mode::WriteBack), with_mode(Mode::WriteThrough));
    let refused = world.run(async move { Volume::check_config(&flash, &disk, &through).await });
    assert_eq!(refused.map_err(|error| error.kind()), Err(VolumeErrorKind::Config));
    assert_eq!(world.flash.counters().writes, 0);
    let volume = world.volume(&back);
    world.run(async move {
        for (mode, is_accepted) in [
            (Mode::WriteOnly, true),
            (Mode::WriteThrough, false),
            (Mode::WriteAround, false),
            (Mode::WriteBack, true),
        ] {
            let tuning = Tuning { mode, ..volume.superblock().tuning };
            let set = volume.set_tuning(tuning).await.map_err(|error| error.kind());
            assert_eq!(set, if is_accepted { Ok(()) } else { Err(VolumeErrorKind::Config) }, "{mode:?}");
        }
    });
}
