//! Metadata with a placement handle of its own: a device whose writes all go with one handle.
//!
//! Superblocks and snapshots are written at opening and closing only, so most drives are best served by the default
//! handle, which costs none.

use std::sync::Arc;

use device::{Completion, Device, Outcome, PlacementHandle, Request};

/// See the module.
pub struct Placed {
    device: Arc<dyn Device>,
    placement: PlacementHandle,
}

impl Placed {
    /// Writes to `device` with `placement`; that of a request is ignored.
    #[must_use]
    pub fn new(device: Arc<dyn Device>, placement: PlacementHandle) -> Self {
        Self { device, placement }
    }

    fn place(&self, request: Request) -> Request {
        match request {
            Request::Write { offset, data, .. } => Request::Write { offset, data, placement: self.placement },
            other => other,
        }
    }
}

impl Device for Placed {
    device::forward_device!(device: geometry, counters);

    fn submit(&self, request: Request, completion: Completion) {
        self.device.submit(self.place(request), completion);
    }

    fn execute(&self, request: Request) -> Outcome {
        self.device.execute(self.place(request))
    }
}
