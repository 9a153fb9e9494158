//! A device for metadata, which replaces the placement handle of each write.
//!
//! Superblocks and snapshots are written only at opening and closing, so on most drives the default handle, which no data uses, is the
//! best choice.

use std::sync::Arc;

use device::{Completion, Device, Outcome, PlacementHandle, Request};

/// Passes requests to a device, with one placement handle for all writes.
pub struct Placed {
    device: Arc<dyn Device>,
    placement: PlacementHandle,
}

impl Placed {
    /// Writes to `device` with `placement`; the handle of a request is ignored.
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
