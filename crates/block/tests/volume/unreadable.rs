//! Unreadable sectors of the flash when a volume is opened after a kill.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Device, IoBuffer, MemoryDevice, Request};
use flashwright_block::volume::superblock::{Copies, copies};
use flashwright_block::volume::{Layout, Recovery, Result, Volume, VolumeErrorKind};

use crate::faulty::Faulty;
use crate::world::{commit, config};

const BLOCK: u64 = 4096;

struct Killed {
    flash: Arc<Faulty>,
    disk: Arc<MemoryDevice>,
    layout: Layout,
}

impl Killed {
    /// A volume that was killed after `flushed` writes, a commit, and `logged` writes that are only in the intent log.
    fn after(flushed: u64, logged: u64) -> Self {
        let (flash, disk) = (Faulty::new(4 << 20), Arc::new(MemoryDevice::new(8 << 20)));
        let (one, other): (Arc<dyn Device>, Arc<dyn Device>) = (flash.clone(), disk.clone());
        let layout = pollster::block_on(async {
            Volume::create(&one, &other, &config(), 5).await.unwrap();
            let (volume, _) = Volume::open(one, other, Arc::new(SystemTimer::default())).await.unwrap();
            for block in 0..flushed + logged {
                if flushed > 0 && block == flushed {
                    commit(&volume).await;
                }
                let data = IoBuffer::copy_of(&[block as u8 + 1; 4096]).into();
                volume.write(block * BLOCK, data, false).await.unwrap();
            }
            if flushed > 0 && logged == 0 {
                commit(&volume).await;
            }
            volume.superblock().layout
        });
        Self { flash, disk, layout }
    }

    /// A copy.
    fn duplicate(&self) -> Self {
        let disk = Arc::new(self.disk.duplicate());
        Self { flash: Faulty::over(Arc::new(self.flash.memory.duplicate())), disk, layout: self.layout }
    }

    fn open_without(&self, unreadable: u64) -> Result<(Volume, Recovery)> {
        self.flash.fail(move |request| match request {
            Request::Read { offset, buffer } => {
                (*offset..*offset + buffer.len() as u64).contains(&unreadable)
            }
            _ => false,
        });
        let timer = Arc::new(SystemTimer::default());
        pollster::block_on(Volume::open(self.flash.clone(), self.disk.clone(), timer))
    }

    fn entry_offset(&self, place: u64) -> u64 {
        self.layout.intent_log_offset() + place * BLOCK
    }

    fn erase_entry(&self, place: u64) {
        let zeros = IoBuffer::zeroed(BLOCK as usize);
        self.flash.memory.execute(Request::write(self.entry_offset(place), zeros)).unwrap();
    }
}

/// One readable superblock is enough.
#[test]
fn unreadable_superblock_copy_is_tolerated_after_a_kill() {
    let killed = Killed::after(2, 1);
    for unreadable in [0, 64 << 10] {
        let killed = killed.duplicate();
        let (_, found) = killed.open_without(unreadable).unwrap();
        assert_eq!((found.dirty_blocks, found.log_entries), (3, 1));
        // Opening writes both copies again.
        killed.flash.fail(|_| false);
        assert_eq!(pollster::block_on(copies(&*killed.flash)), Copies::Agree);
        let timer = Arc::new(SystemTimer::default());
        killed
            .flash
            .fail(move |request| matches!(request, Request::Read { offset, .. } if *offset == unreadable));
        let check =
            pollster::block_on(Volume::check(killed.flash.clone(), killed.disk.clone(), timer, false));
        let problems = check.unwrap().problems;
        assert!(problems.len() == 1 && problems[0].contains("cannot be read"), "{problems:?}");
    }
}

#[test]
fn unreadable_log_entry_that_is_not_needed_is_ignored() {
    // Four entries that a commit made obsolete, and three that follow it.
    let killed = Killed::after(4, 3);
    let places = killed.layout.intent_log_blocks();
    let opened = |place: u64| {
        let killed = killed.duplicate();
        killed
            .open_without(killed.entry_offset(place))
            .map(|(_, found)| (found.log_entries, found.dirty_blocks))
    };
    for place in (0..4).chain(8..places) {
        assert_eq!(opened(place).unwrap(), (3, 7), "place {place} of {places}");
    }
    // The writes of these entries may have been acknowledged.
    for place in 4..8 {
        assert_eq!(opened(place).unwrap_err().kind(), VolumeErrorKind::Flash, "place {place}");
    }
}

#[test]
fn unreadable_log_entry_that_may_be_needed_is_an_error() {
    // If the last of the older entries is unreadable, it cannot be distinguished from the first entry after the commit.
    for (killed, needed) in [(Killed::after(0, 0), vec![0]), (Killed::after(5, 0), vec![0, 4, 5])] {
        for place in 0..8 {
            let killed = killed.duplicate();
            let opened = killed.open_without(killed.entry_offset(place));
            assert_eq!(opened.is_err(), needed.contains(&place), "place {place}, {needed:?}");
        }
    }
    // Of three intent log entries since creation, the first is unreadable.
    let killed = Killed::after(0, 3);
    assert!(killed.open_without(killed.entry_offset(0)).is_err());
    // A power cut lost the first entry: the rest of the chain is invalid and not needed.
    let killed = Killed::after(4, 3);
    killed.erase_entry(4);
    let opened = killed.open_without(killed.entry_offset(6)).unwrap();
    assert_eq!((opened.1.log_entries, opened.1.dirty_blocks), (0, 4));
}
