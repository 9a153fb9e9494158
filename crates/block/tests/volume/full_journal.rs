//! A full journal with a maximum of pending changes: the table that frees it ends with a commit of its own.

use device::IoBuffer;
use flashwright_block::volume::Volume;

use crate::world::{World, with_smallest_journal};

const BLOCK: u64 = 4096;

async fn write(volume: &Volume, block: u64, blocks: u64, byte: u8) {
    let data = IoBuffer::copy_of(&vec![byte; (blocks * BLOCK) as usize]).into();
    volume.write(block * BLOCK, data, false).await.unwrap();
}

/// Makes commits of one block each until the next one would need a table. A quarter of the journal is reserved for that commit.
async fn fill_journal(volume: &Volume) {
    while volume.stats().journal_used_blocks < volume.stats().journal_blocks * 3 / 4 {
        write(volume, 0, 1, 1).await;
        volume.flush().await.unwrap();
    }
    assert_eq!(volume.stats().io.checkpoints, 0);
}

/// Asserts that all writes, flushed or not, are present after the volume is reopened.
fn assert_found_after_reopen(world: &World, volume: Volume, blocks: u64, byte: u8) {
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

/// If the commit were a block too large, every later flush would fail.
#[test]
fn commit_of_maximum_pending_changes_fits_after_a_table() {
    // In a journal of sixteen blocks a quarter is four blocks of 252 units each.
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
    assert_found_after_reopen(&world, volume, BLOCKS, 2);
}

/// Each write must reserve journal space before it waits; otherwise the pending changes exceed a commit, and no flush succeeds
/// any more.
#[test]
fn concurrent_writes_do_not_exceed_the_capacity_of_a_commit() {
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
        assert!(writers.iter().all(|writer| writer.result().is_some()), "a request never completes");
        assert_found_after_reopen(&world, volume, WRITERS * 64, 3);
    }
}
