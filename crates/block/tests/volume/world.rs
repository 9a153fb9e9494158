//! Devices in virtual time, and a volume on them.

use std::future::Future;
use std::sync::Arc;

use device::sim::LatencyModel;
use device::wrap::{Mechanics, SpindleDevice};
use device::{Device, IoBuffer, MemoryDevice, SimulatedDevice, Simulation};
use flashwright_block::sets::{Placement, Tuning};
use flashwright_block::volume::{Result, Volume, VolumeConfig};

pub struct World {
    pub simulation: Simulation,
    pub flash: Arc<dyn Device>,
    pub disk: Arc<SpindleDevice>,
}

/// Properties of the devices.
#[derive(Clone, Copy)]
pub struct Shape {
    pub flash_bytes: u64,
    pub flash_block: u32,
    pub flush_ns: u64,
    pub disk_bytes: u64,
    pub disk_block: u32,
    /// Capacity of the disk's volatile cache; 0 disables it.
    pub disk_flush_ns: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            flash_bytes: 4 << 20,
            flash_block: 512,
            flush_ns: 200_000,
            disk_bytes: 8 << 20,
            disk_block: 512,
            disk_flush_ns: 0,
        }
    }
}

impl World {
    pub fn new(seed: u64, shape: Shape) -> Self {
        let simulation = Simulation::new(seed);
        let memory = Arc::new(MemoryDevice::with_block_bytes(shape.flash_bytes, shape.flash_block));
        let latency = LatencyModel { flush_ns: shape.flush_ns, ..LatencyModel::default() };
        let flash = Arc::new(SimulatedDevice::new(simulation.world(), memory, latency));
        let mut platters: Arc<dyn Device> =
            Arc::new(MemoryDevice::with_block_bytes(shape.disk_bytes, shape.disk_block));
        if shape.disk_flush_ns > 0 {
            let latency = LatencyModel { flush_ns: shape.disk_flush_ns, ..LatencyModel::default() };
            platters = Arc::new(SimulatedDevice::new(simulation.world(), platters, latency));
        }
        let disk = SpindleDevice::new(platters, Arc::new(simulation.world()), Mechanics::default());
        Self { simulation, flash, disk: Arc::new(disk) }
    }

    pub fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.simulation.block_on(future)
    }

    /// Creates a volume and opens it.
    pub fn volume(&self, config: &VolumeConfig) -> Volume {
        let (flash, disk): (_, Arc<dyn Device>) = (Arc::clone(&self.flash), self.disk.clone());
        let config = config.clone();
        self.run(async move { Volume::create(&flash, &disk, &config, 5).await }).unwrap();
        self.open()
    }

    pub fn open(&self) -> Volume {
        let timer = Arc::new(self.simulation.world());
        self.run(Volume::open(Arc::clone(&self.flash), self.disk.clone(), timer)).unwrap().0
    }
}

/// Writes the disk's last block past the cache. The next flush must then flush the disk too, which takes a commit.
pub async fn write_past_cache(volume: &Volume) -> Result<()> {
    let last = volume.size_bytes() - 4096;
    volume.without_caching().write(last, IoBuffer::zeroed(4096).into(), false).await
}

/// Flushes by a commit.
pub async fn commit(volume: &Volume) {
    write_past_cache(volume).await.unwrap();
    volume.flush().await.unwrap();
}

/// Small sets, so that they fill.
pub fn config() -> VolumeConfig {
    let placement = Placement::Permuted { run_bytes: 64 << 10 };
    VolumeConfig { ways: 16, placement, journal_bytes: Some(1 << 20), ..VolumeConfig::default() }
}

/// The smallest journal, of sixteen blocks, without upkeep that would commit or clean.
pub fn smallest_journal() -> VolumeConfig {
    let tuning = Tuning { dirty_percent: 100, lazy_depth: 0, ..config().tuning };
    VolumeConfig { tuning, ways: 512, journal_bytes: Some(0), ..config() }
}

/// A volume with the smallest journal and a large cache.
pub fn with_smallest_journal() -> (World, Volume) {
    let shape = Shape { flash_bytes: 64 << 20, disk_bytes: 64 << 20, ..Shape::default() };
    let world = World::new(1, shape);
    let volume = world.volume(&smallest_journal());
    (world, volume)
}
