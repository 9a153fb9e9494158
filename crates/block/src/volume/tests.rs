//! The volume, against its promises.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};

use device::timer::SystemTimer;
use device::wrap::GateDevice;
use device::{Device, IoBuffer, IoSlice, MemoryDevice, RequestKind};

use super::*;
use crate::sets::Tuning;

fn data(len: usize, value: u8) -> IoSlice {
    IoBuffer::copy_of(&vec![value; len]).into()
}

fn config() -> VolumeConfig {
    VolumeConfig { ways: 64, ..VolumeConfig::default() }
}

#[test]
fn what_was_written_and_flushed_is_there_after_a_close() {
    pollster::block_on(async {
        let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 << 20));
        let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        Volume::create(&flash, &disk, &config(), 1).await.unwrap();
        let open = || Volume::open(Arc::clone(&flash), Arc::clone(&disk), Arc::new(SystemTimer::default()));
        let (volume, recovery) = open().await.unwrap();
        assert!(recovery.was_clean);
        volume.write(4096, data(8192, 7), false).await.unwrap();
        volume.write(512, data(512, 3), true).await.unwrap();
        assert_eq!(volume.read(4096, 8192).await.unwrap()[..], [7; 8192]);
        assert_eq!(volume.read(0, 1024).await.unwrap()[..], [[0; 512], [3; 512]].concat());
        assert_eq!(disk.counters().writes, 0, "write-back");
        volume.close().await.unwrap();
        let (volume, recovery) = open().await.unwrap();
        assert_eq!((recovery.was_clean, recovery.dirty_blocks), (true, 3));
        assert_eq!(volume.read(4096, 8192).await.unwrap()[..], [7; 8192]);
        drop(volume);
        let (volume, recovery) = open().await.unwrap();
        assert_eq!((recovery.was_clean, recovery.dirty_blocks), (false, 3));
        assert_eq!(volume.read(0, 1024).await.unwrap()[..], [[0; 512], [3; 512]].concat());
    });
}

fn is_ready(future: Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Whenever anything ended that it might have waited for, and everybody else waited for that.
#[test]
fn a_discard_that_waited_for_one_block_looked_for_all_of_its_range_again() {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
    let gate = Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(64 << 20))));
    let disk: Arc<dyn Device> = gate.clone();
    let volume = pollster::block_on(async {
        Volume::create(&flash, &disk, &config(), 1).await.unwrap();
        let (volume, _) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
        volume.write(4096, data(8192, 7), true).await.unwrap();
        volume
    });
    let slots = u64::from(volume.shared.layout.slots());
    for (range_bytes, looks) in [(8 << 20, 2048), (64 << 20, slots)] {
        pollster::block_on(volume.write(40960, data(4096, 7), true)).unwrap();
        gate.close(RequestKind::Write);
        let mut cleaning = pin!(volume.clean());
        assert!(!is_ready(cleaning.as_mut()), "the disk has not written it");
        let before = trim::LOOKS.get();
        let mut discard = pin!(volume.trim(0, range_bytes));
        for _ in 0..20 {
            assert!(!is_ready(discard.as_mut()), "it cannot forget what is on its way");
            volume.shared.changed.notify(usize::MAX);
        }
        gate.open();
        pollster::block_on(cleaning).unwrap();
        pollster::block_on(discard).unwrap();
        // And at the few of the range that have left.
        let looked = trim::LOOKS.get() - before;
        assert!((looks..looks + 4).contains(&looked), "{looked} instead of {looks}");
        assert_eq!(volume.stats().held_blocks, 0);
    }
}

/// Every block of the range was looked for among those that had left, twice, while everybody else waited.
#[test]
fn a_discard_looked_for_each_block_of_its_range_among_the_few_that_had_left() {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    pollster::block_on(async {
        Volume::create(&flash, &disk, &config(), 1).await.unwrap();
        let (volume, _) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
        volume.write(0, data(4096, 7), true).await.unwrap();
        volume.trim(0, 4096).await.unwrap();
        volume.write(8192, data(4096, 7), true).await.unwrap();
        volume.write(8192, data(4096, 8), false).await.unwrap();
        let before = trim::LOOKS.get();
        volume.trim(1 << 20, 48 << 20).await.unwrap();
        let slots = u64::from(volume.shared.layout.slots());
        assert_eq!(trim::LOOKS.get() - before, slots, "what has left is not in the range");
    });
}

/// One had as many blocks as a share of the journal could tell of, 1 GiB of them with flash of 100 GiB, and all were held in memory.
#[test]
fn a_run_of_any_length_was_held_in_memory() {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let tuning = Tuning { clean_run_blocks: u32::MAX, dirty_percent: 0, ..config().tuning };
    let config = VolumeConfig { tuning, journal_bytes: Some(16 << 20), ..config() };
    pollster::block_on(async {
        Volume::create(&flash, &disk, &config, 1).await.unwrap();
        let (volume, _) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
        volume.write(0, data(20 << 20, 7), true).await.unwrap();
        let mut state = volume.shared.state.lock();
        let run = state.next_cleaning().unwrap();
        assert_eq!(run.slots.len() << 12, 16 << 20);
        state.sets.end_cleaning(&run, false);
    });
}

/// Each block that was written again left its page only with the next commit, until somebody wrote another table.
#[test]
fn a_table_that_was_given_up_counted_as_being_written_for_good() {
    let gate = Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(16 << 20))));
    let (flash, disk): (Arc<dyn Device>, Arc<dyn Device>) =
        (gate.clone(), Arc::new(MemoryDevice::new(64 << 20)));
    let volume = pollster::block_on(async {
        let config = VolumeConfig { format: 1, ..config() };
        Volume::create(&flash, &disk, &config, 1).await.unwrap();
        Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap().0
    });
    pollster::block_on(volume.write(0, data(4096, 7), true)).unwrap();
    gate.close(RequestKind::Write);
    {
        let mut upgrade = pin!(volume.upgrade());
        assert!(!is_ready(upgrade.as_mut()));
        assert!(volume.shared.state.lock().table_in_writing);
    }
    gate.open();
    assert!(!volume.shared.state.lock().table_in_writing);
}
