//! Settings that are changed while the volume is used.

use device::IoBuffer;
use flashwright_block::volume::VolumeConfig;

use crate::world::{Shape, World, config};

/// The change held what writes tables, and waited for a commit for which a table had to be written first.
#[test]
fn settings_are_changed_when_the_journal_is_full() {
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
