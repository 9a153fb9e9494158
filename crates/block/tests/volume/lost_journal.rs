//! Lost journal blocks: detectable and undetectable cases.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Device, IoBuffer, MemoryDevice, Request};
use flashwright_block::volume::{Layout, Volume, VolumeErrorKind};

use crate::faulty::Faulty;
use crate::world::{Shape, World, config, write_past_cache};

const BLOCK: u64 = 4096;
const COMMITS: u64 = 6;

/// The beginning of a block of a commit.
const MAGIC: &[u8; 4] = b"FWJ1";

/// A volume that was killed after a few commits of one block each.
fn cut_off() -> (World, Layout) {
    let world = World::new(1, Shape::default());
    let volume = world.volume(&config());
    let layout = volume.superblock().layout;
    world.run(async move {
        for block in 0..COMMITS {
            write_past_cache(&volume).await.unwrap();
            volume.write(block * BLOCK, IoBuffer::copy_of(&[7; 4096]).into(), true).await.unwrap();
        }
        assert_eq!(volume.stats().io.commits, COMMITS);
    });
    (world, layout)
}

/// The used blocks of the journal, by position.
fn written(world: &World, layout: &Layout) -> Vec<u64> {
    let at = |place: u64| layout.journal_offset() + place * BLOCK;
    let read = |place: u64| {
        let flash = Arc::clone(&world.flash);
        let request = Request::read(at(place), BLOCK as usize);
        world.run(async move { flash.start(request).await }).unwrap()
    };
    (0..layout.journal_blocks).filter(|&place| read(place).starts_with(MAGIC)).collect()
}

fn lose(world: &World, layout: &Layout, place: u64) {
    let flash = Arc::clone(&world.flash);
    let request = Request::write(layout.journal_offset() + place * BLOCK, IoBuffer::zeroed(BLOCK as usize));
    world.run(async move { flash.start(request).await }).unwrap();
}

/// Otherwise the journal would end there, and later acknowledged flushes would be lost silently.
#[test]
fn lost_journal_block_before_later_ones_is_damage() {
    let count = written(&cut_off().0, &cut_off().1).len();
    assert_eq!(count as u64, COMMITS);
    for lost in 0..count {
        let (world, layout) = cut_off();
        lose(&world, &layout, written(&world, &layout)[lost]);
        let (flash, disk) = (Arc::clone(&world.flash), world.disk.clone());
        let timer = Arc::new(world.simulation.world());
        let opened = world.run(Volume::open(flash, disk, timer));
        // The last block may be missing because it was never written, and the one before because its commit was in flight.
        if lost + 2 >= count {
            let found = opened.unwrap().1;
            assert_eq!((found.commits, found.blocks), (lost as u64, lost as u64));
            assert!(found.lost_last_entry);
            continue;
        }
        let error = opened.err().unwrap();
        assert_eq!(error.kind(), VolumeErrorKind::Damaged, "{lost}: {error}");
        assert!(error.to_string().contains("of the journal is damaged or missing"), "{error}");
    }
}

/// Opening does not need sectors beyond the end.
#[test]
fn unreadable_sector_beyond_the_journal_end_is_ignored() {
    for is_lost in [false, true] {
        let (flash, disk) = (Faulty::new(4 << 20), Arc::new(MemoryDevice::new(8 << 20)));
        let open = || Volume::open(flash.clone(), disk.clone(), Arc::new(SystemTimer::default()));
        let layout = pollster::block_on(async {
            let (flash, disk): (Arc<dyn Device>, Arc<dyn Device>) = (flash.clone(), disk.clone());
            Volume::create(&flash, &disk, &config(), 5).await.unwrap();
            let volume = open().await.unwrap().0;
            for block in 0..COMMITS {
                write_past_cache(&volume).await.unwrap();
                volume.write(block * BLOCK, IoBuffer::copy_of(&[7; 4096]).into(), true).await.unwrap();
            }
            volume.superblock().layout
        });
        let place = |place: u64| layout.journal_offset() + place * BLOCK;
        let first_unused = (0..layout.journal_blocks).map(place).find(|&offset| {
            let request = Request::read(offset, BLOCK as usize);
            !flash.memory.execute(request).unwrap().starts_with(MAGIC)
        });
        let unreadable = first_unused.unwrap() + BLOCK;
        flash.fail(move |request| match request {
            Request::Read { offset, buffer } => {
                (*offset..*offset + buffer.len() as u64).contains(&unreadable)
            }
            _ => false,
        });
        if is_lost {
            let data = IoBuffer::zeroed(BLOCK as usize);
            let offset = place(1);
            let request = Request::write(offset, data);
            flash.memory.execute(request).unwrap();
        }
        match pollster::block_on(open()) {
            Ok((_, found)) => assert!(!is_lost && found.commits == COMMITS, "{found:?}"),
            Err(error) => assert!(is_lost && error.kind() == VolumeErrorKind::Damaged, "{error}"),
        }
    }
}
