//! A device that executes some changes long after others that were submitted later.

use std::sync::Arc;

use device::sim::World;
use device::{Clock, Completion, Device, Request, RequestKind};

/// One change in this many is delayed,
const LATE_ONE_IN: u64 = 10;
/// by at most this time: long enough for its location to be reused.
const LONGEST_NS: u64 = 3_000_000_000;

/// Delays some writes and trims. Reads are not delayed.
pub struct LateDevice {
    pub inner: Arc<dyn Device>,
    pub world: World,
}

impl Device for LateDevice {
    device::forward_device!(inner: geometry, execute, counters, allocate_handle);

    fn submit(&self, request: Request, completion: Completion) {
        let is_change = matches!(request.kind(), RequestKind::Write | RequestKind::Trim);
        if !is_change || !self.world.random().is_multiple_of(LATE_ONE_IN) {
            return self.inner.submit(request, completion);
        }
        let due_ns = self.world.monotonic_ns() + self.world.random() % LONGEST_NS;
        let inner = Arc::clone(&self.inner);
        self.world.schedule(due_ns, move || inner.submit(request, completion));
    }
}
