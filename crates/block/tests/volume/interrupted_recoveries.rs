//! Repeatedly interrupted recoveries.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Device, IoBuffer, MemoryDevice, Request};
use flashwright_block::volume::layout::SUPERBLOCKS_BYTES;
use flashwright_block::volume::{Result, Volume, VolumeConfig};

use crate::faulty::Faulty;
use crate::world::smallest_journal;

const BLOCK: u64 = 4096;

async fn open(flash: Arc<dyn Device>, disk: &Arc<dyn Device>) -> Result<Volume> {
    Ok(Volume::open(flash, disk.clone(), Arc::new(SystemTimer::default())).await?.0)
}

/// Recovery must not use up journal space each time. The smallest journal reserves four blocks.
#[test]
fn repeated_interrupted_recoveries_use_no_journal_space() {
    for ordered in [false, true] {
        let memory = Arc::new(MemoryDevice::new(8 << 20));
        let (flash, disk): (Arc<dyn Device>, Arc<dyn Device>) =
            (memory.clone(), Arc::new(MemoryDevice::new(4 << 20)));
        let data = |byte: u8| IoBuffer::copy_of(&[byte; BLOCK as usize]).into();
        pollster::block_on(async {
            let config = VolumeConfig { ordered, ..smallest_journal() };
            Volume::create(&flash, &disk, &config, 5).await.unwrap();
            let volume = open(flash.clone(), &disk).await.unwrap();
            for number in 0.. {
                let stats = volume.stats();
                if stats.journal_used_blocks >= stats.journal_blocks * 3 / 4 {
                    break;
                }
                volume.write(number * BLOCK, data(1), true).await.unwrap();
            }
            // An intent log entry that no commit has repeated.
            volume.write(100 * BLOCK, data(2), false).await.unwrap();
            drop(volume);
            for attempt in 0..12 {
                let cut_off = Faulty::over(memory.clone());
                cut_off.fail(
                    |request| matches!(request, Request::Write { offset, .. } if *offset < SUPERBLOCKS_BYTES),
                );
                assert!(open(cut_off, &disk).await.is_err(), "attempt {attempt}");
            }
            for byte in 3..6 {
                let volume = open(flash.clone(), &disk).await.unwrap();
                assert_eq!(volume.read(0, 512).await.unwrap()[..], [1; 512]);
                let expected = [byte - 1; 512];
                assert_eq!(volume.read(100 * BLOCK, 512).await.unwrap()[..], expected);
                // The next recovery finds only entries written after this one.
                volume.write(100 * BLOCK, data(byte), false).await.unwrap();
            }
        });
    }
}
