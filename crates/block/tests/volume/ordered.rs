//! Ordered volumes whose disk fails a flush that a commit waits for.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::wrap::{FaultDevice, Faults, GateDevice};
use device::{Device, IoBuffer, MemoryDevice, RequestKind};
use flashwright_block::volume::{Volume, VolumeConfig};
use futures_util::FutureExt as _;

use crate::world::config;

const BLOCK: u64 = 4096;

fn data(byte: u8) -> device::IoSlice {
    IoBuffer::copy_of(&[byte; BLOCK as usize]).into()
}

struct Pair {
    flash: Arc<dyn Device>,
    disk: Arc<MemoryDevice>,
}

impl Pair {
    /// A killed volume; the first commit after its recovery flushes the disk.
    async fn killed() -> Self {
        let pair =
            Self { flash: Arc::new(MemoryDevice::new(4 << 20)), disk: Arc::new(MemoryDevice::new(8 << 20)) };
        let disk: Arc<dyn Device> = pair.disk.clone();
        Volume::create(&pair.flash, &disk, &VolumeConfig { ordered: true, ..config() }, 5).await.unwrap();
        let volume = pair.open(disk).await;
        volume.write(0, data(9), true).await.unwrap();
        pair
    }

    async fn open(&self, disk: Arc<dyn Device>) -> Volume {
        Volume::open(Arc::clone(&self.flash), disk, Arc::new(SystemTimer::default())).await.unwrap().0
    }
}

/// The failed commit's epoch must be removed: otherwise both versions would get the same epoch, and recovery could restore the older
/// one.
#[test]
fn flush_survives_a_failed_commit_of_an_older_version_of_its_block() {
    // The page can also be restored from an intent log entry with the older version.
    for is_noted in [false, true] {
        pollster::block_on(async {
            let pair = Pair::killed().await;
            let faulty = Arc::new(FaultDevice::new(pair.disk.clone(), 1, Faults::default()));
            let gate = Arc::new(GateDevice::new(faulty.clone()));
            let volume = pair.open(gate.clone()).await;
            gate.close(RequestKind::Flush);
            faulty.set_faults(Faults { failed_flushes: 1.0, ..Faults::default() });
            let mut flush = if is_noted {
                volume.write(2 * BLOCK, data(1), false).await.unwrap();
                volume.flush().boxed_local()
            } else {
                volume.write(2 * BLOCK, data(1), true).boxed_local()
            };
            assert!((&mut flush).now_or_never().is_none() && gate.held() == 1, "it waits for the disk");
            let mut write = volume.write(2 * BLOCK, data(2), false).boxed_local();
            assert!((&mut write).now_or_never().is_none());
            gate.open();
            assert!(flush.await.is_err());
            faulty.set_faults(Faults::default());
            write.await.unwrap();
            volume.flush().await.unwrap();

            // The process is killed again.
            let volume = pair.open(pair.disk.clone()).await;
            assert_eq!(volume.read(2 * BLOCK, 512).await.unwrap()[..], [2; 512], "noted: {is_noted}");
            volume.clean().await.unwrap();
            assert_eq!(volume.stats().counters.cleanings, 2, "noted: {is_noted}");
            let volume = pair.open(pair.disk.clone()).await;
            assert_eq!(volume.read(2 * BLOCK, 512).await.unwrap()[..], [2; 512], "noted: {is_noted}");
        });
    }
}
