//! A device that fails the requests selected by a test.

use std::sync::Arc;

use device::timer::Timer;
use device::wrap::{FaultDevice, Faults};
use device::{Completion, Device, MemoryDevice, Request};
use flashwright_block::volume::{Volume, VolumeConfig};

/// Forwards requests to memory, except those selected to fail.
pub struct Faulty {
    pub memory: Arc<MemoryDevice>,
    device: FaultDevice,
}

impl Faulty {
    /// No request fails.
    pub fn new(bytes: u64) -> Arc<Self> {
        Self::over(Arc::new(MemoryDevice::new(bytes)))
    }

    /// A faulty device over existing memory.
    pub fn over(memory: Arc<MemoryDevice>) -> Arc<Self> {
        let device = FaultDevice::new(memory.clone(), 0, Faults::default());
        Arc::new(Self { memory, device })
    }

    /// Fails all further requests for which this returns true.
    pub fn fail(&self, fails: impl Fn(&Request) -> bool + Send + 'static) {
        self.device.fail_where(fails);
    }

    /// Offsets of the 4 KiB blocks that begin with `bytes`.
    pub fn places_of(&self, bytes: &[u8]) -> Vec<u64> {
        let end = self.memory.geometry().capacity_bytes;
        let begins_so = |&offset: &u64| {
            let read = self.memory.execute(Request::read(offset, 4096)).unwrap();
            read.starts_with(bytes)
        };
        (0..end).step_by(4096).filter(begins_so).collect()
    }
}

/// Creates a volume on two devices and opens it.
pub async fn opened(
    (flash, disk): (Arc<dyn Device>, Arc<dyn Device>),
    config: &VolumeConfig,
    timer: Arc<dyn Timer>,
) -> Volume {
    Volume::create(&flash, &disk, config, 5).await.unwrap();
    Volume::open(flash, disk, timer).await.unwrap().0
}

impl Device for Faulty {
    device::forward_device!(memory: geometry, counters);

    fn submit(&self, request: Request, completion: Completion) {
        self.device.submit(request, completion);
    }
}
