//! Any number of changes since the last commit must fit into the journal.

use device::IoBuffer;
use flashwright_block::volume::Volume;

use crate::world::{World, with_smallest_journal};

/// Three times the capacity of a commit in the smallest journal.
const BLOCKS: u64 = 4500;

/// Writes all blocks and makes them durable.
async fn written(volume: Volume) -> Volume {
    for block in 0..BLOCKS {
        volume.write(block * 4096, IoBuffer::copy_of(&[block as u8; 4096]).into(), false).await.unwrap();
    }
    volume.flush().await.unwrap();
    volume
}

/// Asserts that a flushed write to the last block is present after the flash is reopened.
fn assert_durable_write(world: &World, volume: Volume) {
    world.run(async move {
        volume.write(0, IoBuffer::copy_of(&[7; 4096]).into(), false).await.unwrap();
        volume.flush().await.unwrap();
    });
    let volume = world.open();
    world.run(async move { assert_eq!(volume.read(0, 512).await.unwrap()[..], [7; 512]) });
}

#[test]
fn flush_after_cleaning_more_blocks_than_the_journal_holds_succeeds() {
    let (world, volume) = with_smallest_journal();
    let volume = world.run(async move {
        let volume = written(volume).await;
        volume.clean().await.unwrap();
        assert_eq!(volume.stats().dirty_blocks, 0);
        volume
    });
    assert_durable_write(&world, volume);
}

#[test]
fn flush_after_reading_more_blocks_than_the_journal_holds_succeeds() {
    let (world, volume) = with_smallest_journal();
    let volume = world.run(async move {
        for block in 0..BLOCKS {
            volume.read(block * 4096, 4096).await.unwrap();
            if block % 128 == 0 {
                volume.upkeep().await.unwrap();
            }
        }
        assert!(volume.stats().held_blocks > BLOCKS / 2, "they were cached");
        volume
    });
    assert_durable_write(&world, volume);
}

#[test]
fn flush_after_trimming_more_blocks_than_the_journal_holds_succeeds() {
    let (world, volume) = with_smallest_journal();
    let volume = world.run(async move {
        let volume = written(volume).await;
        volume.trim(0, BLOCKS * 4096).await.unwrap();
        assert_eq!(volume.stats().held_blocks, 0);
        volume
    });
    assert_durable_write(&world, volume);
}
