//! Tests that need internals of the volume.

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
fn written_data_is_read_after_close_and_after_crash() {
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

/// Counts the blocks examined by a trim that waits for one block in use.
#[test]
fn waiting_trim_examines_only_blocks_in_use_again() {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
    let gate = Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(64 << 20))));
    let disk: Arc<dyn Device> = gate.clone();
    let volume = pollster::block_on(async {
        Volume::create(&flash, &disk, &config(), 1).await.unwrap();
        let (volume, _) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
        volume.write(4096, data(8192, 7), true).await.unwrap();
        volume
    });
    let slots = u64::from(volume.inner.shared.layout.slots());
    for (range_bytes, search_steps) in [(8 << 20, 2048), (64 << 20, slots)] {
        pollster::block_on(volume.write(40960, data(4096, 7), true)).unwrap();
        gate.close(RequestKind::Write);
        let mut cleaning = pin!(volume.clean());
        assert!(!is_ready(cleaning.as_mut()), "the disk write has not completed");
        let before = journal::EXAMINED.get();
        let mut discard = pin!(volume.trim(0, range_bytes));
        for _ in 0..20 {
            assert!(!is_ready(discard.as_mut()), "a block being cleaned cannot be discarded");
            volume.inner.shared.changed.notify(usize::MAX);
        }
        gate.open();
        pollster::block_on(cleaning).unwrap();
        pollster::block_on(discard).unwrap();
        // Plus the few that were removed from the range.
        let looked = journal::EXAMINED.get() - before;
        assert!((search_steps..search_steps + 4).contains(&looked), "{looked} instead of {search_steps}");
        assert_eq!(volume.stats().held_blocks, 0);
    }
}

/// Only blocks removed within the range are examined, not each block of the range.
#[test]
fn trim_examines_released_blocks_only_within_its_range() {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    pollster::block_on(async {
        Volume::create(&flash, &disk, &config(), 1).await.unwrap();
        let (volume, _) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
        volume.write(0, data(4096, 7), true).await.unwrap();
        volume.trim(0, 4096).await.unwrap();
        volume.write(8192, data(4096, 7), true).await.unwrap();
        volume.write(8192, data(4096, 8), false).await.unwrap();
        let before = journal::EXAMINED.get();
        volume.trim(1 << 20, 48 << 20).await.unwrap();
        let slots = u64::from(volume.inner.shared.layout.slots());
        assert_eq!(
            journal::EXAMINED.get() - before,
            slots,
            "released blocks outside the range are not examined"
        );
    });
}

/// A run is limited to 16 MiB even with a large journal.
#[test]
fn run_of_cleaning_is_limited_to_16_mib() {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let tuning = Tuning { clean_run_blocks: u32::MAX, dirty_percent: 0, ..config().tuning };
    let config = VolumeConfig { tuning, journal_bytes: Some(16 << 20), ..config() };
    pollster::block_on(async {
        Volume::create(&flash, &disk, &config, 1).await.unwrap();
        let (volume, _) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
        // Short requests, which do not bypass the cache at the limit of dirty blocks.
        for number in 0..640 {
            volume.write(number << 15, data(32 << 10, 7), false).await.unwrap();
        }
        volume.flush().await.unwrap();
        let mut state = volume.inner.shared.state.lock();
        let run = state.next_cleaning().unwrap();
        assert_eq!(run.slots.len() << 12, 16 << 20);
        state.sets.end_cleaning(&run, false);
    });
}

/// A dropped upgrade must not leave `is_writing_table` set: otherwise each rewritten block would free its page only at the next commit.
#[test]
fn dropped_upgrade_resets_is_writing_table() {
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
        assert!(volume.inner.shared.state.lock().journal.is_writing_table());
    }
    gate.open();
    assert!(!volume.inner.shared.state.lock().journal.is_writing_table());
}
