//! A device for tests that calls a function before each change.

use std::sync::atomic::{AtomicU64, Ordering};

use device::{
    Completion, Counters, Device, Geometry, IoError, IoSlice, MemoryDevice, Outcome, Request, RequestKind,
};
use parking_lot::Mutex;

/// A device that calls a function before each change.
pub(in crate::flash) struct Watched {
    inner: MemoryDevice,
    requests: AtomicU64,
    watcher: Mutex<Option<Watcher>>,
}

/// Called with the number of each change before it is made.
pub(in crate::flash) type Watcher = Box<dyn Fn(u64) + Send + Sync>;

impl Watched {
    pub(in crate::flash) fn new(inner: MemoryDevice) -> Self {
        Self { inner, requests: AtomicU64::new(0), watcher: Mutex::default() }
    }

    pub(in crate::flash) fn watch(&self, watcher: Watcher) {
        *self.watcher.lock() = Some(watcher);
    }

    pub(in crate::flash) fn unwatch(&self) {
        *self.watcher.lock() = None;
    }

    fn look(&self, kind: RequestKind) {
        if kind == RequestKind::Read {
            return;
        }
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(watcher) = &*self.watcher.lock() {
            watcher(number);
        }
    }
}

impl Device for Watched {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        self.look(request.kind());
        self.inner.submit(request, completion);
    }

    fn execute(&self, request: Request) -> Outcome {
        self.look(request.kind());
        self.inner.execute(request)
    }

    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        self.look(RequestKind::Write);
        self.inner.absorb(offset, data)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
