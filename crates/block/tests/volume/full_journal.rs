//! A journal that is as full as it may be, and as much again that waits for a commit: the table that makes room ends with a
//! commit of its own.

use device::IoBuffer;
use flashwright_block::volume::Volume;

use crate::world::{World, with_smallest_journal};

const BLOCK: u64 = 4096;

async fn write(volume: &Volume, block: u64, blocks: u64, byte: u8) {
    let data = IoBuffer::copy_of(&vec![byte; (blocks * BLOCK) as usize]).into();
    volume.write(block * BLOCK, data, false).await.unwrap();
}

/// Commits of a block each, until the next one would need a table first: a quarter is kept for that.
async fn fill_journal(volume: &Volume) {
    while volume.stats().journal_used_blocks < volume.stats().journal_blocks * 3 / 4 {
        write(volume, 0, 1, 1).await;
        volume.flush().await.unwrap();
    }
    assert_eq!(volume.stats().io.checkpoints, 0);
}

/// Asserts that all writes, flushed or not, are present after the volume is reopened.
fn is_found_again(world: &World, volume: Volume, blocks: u64, byte: u8) {
    drop(volume);
    let volume = world.open();
    world.run(async move {
        for block in (0..blocks).step_by(64) {
            let len = (blocks - block).min(64) * BLOCK;
            let bytes = volume.read(block * BLOCK, len as usize).await.unwrap();
            assert!(bytes.iter().all(|&found| found == byte), "block {block} or one after it");
        }
        volume.flush().await.unwrap();
    });
}

/// It was a block too large, and every flush failed from then on.
#[test]
fn a_commit_of_all_that_may_wait_for_one_fits_behind_a_table() {
    // Of a journal of sixteen blocks a quarter is four, of 252 units each.
    const BLOCKS: u64 = 252;
    let (world, volume) = with_smallest_journal();
    let volume = world.run(async move {
        for block in (0..BLOCKS).step_by(64) {
            write(&volume, block, (BLOCKS - block).min(64), 1).await;
        }
        volume.flush().await.unwrap();
        fill_journal(&volume).await;
        for block in (0..BLOCKS).step_by(64) {
            write(&volume, block, (BLOCKS - block).min(64), 2).await;
        }
        volume.flush().await.unwrap();
        volume
    });
    is_found_again(&world, volume, BLOCKS, 2);
}

/// Each found room for itself before any of them had taken it. No flush ended well from then on, and the flash was refused
/// as damaged after the end of the program.
#[test]
fn writes_at_once_do_not_change_more_than_a_commit_has_room_for() {
    const WRITERS: u64 = 48;
    for flushes in [false, true] {
        let (world, volume) = with_smallest_journal();
        let filled = volume.clone();
        world.run(async move { fill_journal(&filled).await });
        let writers = (0..WRITERS).map(|writer| {
            let volume = volume.clone();
            world.simulation.spawn(async move {
                write(&volume, writer * 64, 64, 3).await;
                if flushes {
                    volume.flush().await.unwrap();
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        world.simulation.run_until_idle();
        assert!(writers.iter().all(|writer| writer.result().is_some()), "somebody waits for ever");
        is_found_again(&world, volume, WRITERS * 64, 3);
    }
}
