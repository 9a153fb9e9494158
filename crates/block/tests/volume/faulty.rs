//! A device that fails the requests it is told to.

use std::sync::Arc;

use device::{Completion, Counters, Device, ErrorKind, Geometry, IoError, MemoryDevice, Request};
use parking_lot::Mutex;

type Fails = Box<dyn Fn(&Request) -> bool + Send>;

/// Passes requests on to memory, but for those that are to fail.
pub struct Faulty {
    pub memory: Arc<MemoryDevice>,
    fails: Mutex<Fails>,
}

impl Faulty {
    /// None fails yet.
    pub fn new(bytes: u64) -> Arc<Self> {
        Self::over(Arc::new(MemoryDevice::new(bytes)))
    }

    /// The same of what this memory holds.
    pub fn over(memory: Arc<MemoryDevice>) -> Arc<Self> {
        Arc::new(Self { memory, fails: Mutex::new(Box::new(|_| false)) })
    }

    /// From now on those fail of which this is true.
    pub fn fail(&self, fails: impl Fn(&Request) -> bool + Send + 'static) {
        *self.fails.lock() = Box::new(fails);
    }

    /// Where blocks of 4 KiB lie that begin with `bytes`.
    pub fn places_of(&self, bytes: &[u8]) -> Vec<u64> {
        let end = self.memory.geometry().capacity_bytes;
        let begins_so = |&offset: &u64| {
            let buffer = device::IoBuffer::zeroed(4096);
            let read = self.memory.execute(Request::Read { offset, buffer }).unwrap().unwrap();
            read.starts_with(bytes)
        };
        (0..end).step_by(4096).filter(begins_so).collect()
    }
}

impl Device for Faulty {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        if (self.fails.lock())(&request) {
            return completion.complete(Err(IoError::new(ErrorKind::Medium, "made to fail")));
        }
        self.memory.submit(request, completion);
    }

    fn counters(&self) -> Counters {
        self.memory.counters()
    }
}
