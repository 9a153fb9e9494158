//! A model disk with one head, the slow disk behind a flash cache.
//!
//! Requests are served one at a time in order of arrival. A request that begins where the last one ended takes the time of its bytes
//! only; any other also takes the time of a head movement. There is no write cache, so a flush takes no time, and no reordering, so a
//! deep queue gains nothing: a simple lower bound of a disk, equal in real and simulated time.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::timer::Timer;
use crate::{Completion, Device, Outcome, Request};

/// Timing of the model's mechanics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mechanics {
    /// Average head movement and rotational latency.
    pub seek_ns: u64,
    /// Bytes transferred per second.
    pub bytes_per_second: u64,
}

impl Default for Mechanics {
    /// Typical values of a 7200 rpm disk: 7 ms and 150 MB/s.
    fn default() -> Self {
        Self { seek_ns: 7_000_000, bytes_per_second: 150_000_000 }
    }
}

/// See the [module](self).
pub struct SpindleDevice {
    inner: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    mechanics: Mechanics,
    arm: Mutex<Arm>,
}

#[derive(Default)]
struct Arm {
    /// Position of the head in bytes.
    at: u64,
    free_at_ns: u64,
    seeks: u64,
}

impl SpindleDevice {
    /// The bytes of `inner` with one head.
    pub fn new(inner: Arc<dyn Device>, timer: Arc<dyn Timer>, mechanics: Mechanics) -> Self {
        Self { inner, timer, mechanics, arm: Mutex::default() }
    }

    /// Head movements so far.
    #[must_use]
    pub fn seeks(&self) -> u64 {
        self.arm.lock().seeks
    }

    /// Completion time of a request submitted now. Trims and flushes move nothing, but wait in order.
    fn end_ns(&self, request: &Request) -> u64 {
        let now_ns = self.timer.monotonic_ns();
        let mut arm = self.arm.lock();
        let duration_ns = match request {
            Request::Read { offset, .. } | Request::Write { offset, .. } => {
                let seek_ns = if *offset == arm.at { 0 } else { self.mechanics.seek_ns };
                arm.seeks += u64::from(*offset != arm.at);
                arm.at = offset + request.len_bytes();
                seek_ns + self.transfer_ns(request.len_bytes())
            }
            Request::Trim { .. } | Request::Flush => 0,
        };
        arm.free_at_ns = arm.free_at_ns.max(now_ns).saturating_add(duration_ns);
        arm.free_at_ns
    }

    fn transfer_ns(&self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.mechanics.bytes_per_second.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

impl Device for SpindleDevice {
    crate::forward_device!(inner: geometry, hole_in, trims_to_zeros, counters, allocate_handle, refresh_capacity);

    fn submit(&self, request: Request, completion: Completion) {
        // Invalid requests fail immediately, and are counted with all others.
        if self.geometry().check(&request).is_err() {
            return self.inner.submit(request, completion);
        }
        let end_ns = self.end_ns(&request);
        if end_ns <= self.timer.monotonic_ns() {
            return self.inner.submit(request, completion);
        }
        let inner = Arc::clone(&self.inner);
        self.timer.at(end_ns, Box::new(move || inner.submit(request, completion)));
    }

    fn execute(&self, request: Request) -> Outcome {
        if self.geometry().check(&request).is_ok() {
            self.timer.wait_until(self.end_ns(&request));
        }
        self.inner.execute(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, MemoryDevice, Simulation};

    /// Virtual milliseconds of 150 kB reads at these offsets, and the head movements.
    fn reads(offsets: &[u64]) -> (u64, u64) {
        let simulation = Simulation::new(0);
        let memory = Arc::new(MemoryDevice::new(1 << 30));
        let disk = SpindleDevice::new(memory, Arc::new(simulation.world()), Mechanics::default());
        for &offset in offsets {
            drop((&disk as &dyn Device).read(offset / 512 * 512, 150_016));
        }
        drop((&disk as &dyn Device).start(Request::Flush));
        simulation.run_until_idle();
        (simulation.clock().monotonic_ns() / 1_000_000, disk.seeks())
    }

    #[test]
    fn only_non_sequential_requests_move_the_head() {
        assert_eq!(reads(&[0, 150_016, 300_032]), (3, 0));
        assert_eq!(reads(&[1 << 20, 1 << 21, 1 << 22]), (24, 3));
        assert_eq!(reads(&[1 << 20, (1 << 20) + 150_016, 1 << 20]), (17, 2));
    }

    #[test]
    fn blocking_call_takes_the_same_time() {
        let simulation = Simulation::new(0);
        let memory = Arc::new(MemoryDevice::new(1 << 30));
        let disk = SpindleDevice::new(memory, Arc::new(simulation.world()), Mechanics::default());
        for offset in [4096, 1 << 20] {
            disk.execute(Request::read(offset, 512)).unwrap();
        }
        assert_eq!(simulation.clock().monotonic_ns(), 2 * (7_000_000 + 3413));
    }
}
