//! The two devices of a test, and opening a volume on them.

use std::sync::Arc;

use device::timer::{Action, Timer};
use device::wrap::{CrashDevice, Power};
use device::{Clock, Device, MemoryDevice, VirtualClock};
use flashwright_block::sets::{Mode, Placement, Preset, Tuning};
use flashwright_block::volume::{Recovery, Result, Volume, VolumeConfig};

pub const FLASH_BYTES: u64 = 900 << 10;
pub const DISK_BYTES: u64 = (512 << 10) - 1536;

/// Images of both media.
pub struct Media {
    pub flash: MemoryDevice,
    pub disk: MemoryDevice,
}

/// Two devices with one power supply.
pub struct Stage {
    pub power: Arc<Power>,
    pub flash: Arc<CrashDevice>,
    pub disk: Arc<CrashDevice>,
}

/// The devices with a volume on them.
pub trait Opens {
    /// The power supply shared by all devices.
    fn power(&self) -> &Power;

    async fn open(&self) -> Result<(Volume, Recovery)>;
}

impl Opens for Stage {
    fn power(&self) -> &Power {
        &self.power
    }

    async fn open(&self) -> Result<(Volume, Recovery)> {
        Volume::open(self.flash.clone(), self.disk.clone(), self.timer()).await
    }
}

impl Media {
    pub fn empty() -> Self {
        Self { flash: MemoryDevice::new(FLASH_BYTES), disk: MemoryDevice::new(DISK_BYTES) }
    }

    pub fn duplicate(&self) -> Self {
        Self { flash: self.flash.duplicate(), disk: self.disk.duplicate() }
    }

    /// Devices with a new volume.
    pub fn created(config: &VolumeConfig) -> Self {
        let stage = Stage::new(Self::empty());
        pollster::block_on(stage.create(config)).unwrap();
        stage.crash(1)
    }
}

impl Stage {
    pub fn new(media: Media) -> Self {
        let power = Arc::new(Power::default());
        let device = |memory| Arc::new(CrashDevice::new(memory).powered_by(&power));
        Self { flash: device(media.flash), disk: device(media.disk), power }
    }

    pub async fn create(&self, config: &VolumeConfig) -> Result<()> {
        let (flash, disk): (Arc<dyn Device>, Arc<dyn Device>) = (self.flash.clone(), self.disk.clone());
        Volume::create(&flash, &disk, config, 0x1234_5678_9abc).await.map(|_| ())
    }

    /// A clock for the volume.
    pub fn timer(&self) -> Arc<dyn Timer> {
        timer()
    }

    /// The media after a power cut.
    pub fn crash(&self, seed: u64) -> Media {
        // Different seeds, so that one may keep everything and the other nothing.
        Media { flash: self.flash.crash(seed), disk: self.disk.crash(seed.wrapping_mul(0x9E37_79B9) ^ 77) }
    }
}

/// A cache of 64 blocks before a disk of 256.
pub fn config(mode: Mode) -> VolumeConfig {
    let tuning = Tuning { mode, dirty_percent: 60, lazy_depth: 2, ..Preset::V3.tuning() };
    let placement = Placement::Permuted { run_bytes: 16 << 10 };
    VolumeConfig { ways: 8, placement, tuning, journal_bytes: Some(64 << 10), ..VolumeConfig::default() }
}

/// A clock for a volume.
pub fn timer() -> Arc<dyn Timer> {
    Arc::new(JumpingClock::default())
}

/// A clock that jumps ahead when a caller waits.
#[derive(Default)]
struct JumpingClock(VirtualClock);

impl Clock for JumpingClock {
    fn monotonic_ns(&self) -> u64 {
        self.0.monotonic_ns()
    }

    fn unix_seconds(&self) -> u32 {
        self.0.unix_seconds()
    }
}

impl Timer for JumpingClock {
    fn at(&self, due_ns: u64, action: Action) {
        self.0.advance_to(due_ns);
        action();
    }

    fn wait_until(&self, due_ns: u64) {
        self.0.advance_to(due_ns);
    }
}
