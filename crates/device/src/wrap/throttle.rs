//! Limits a device's bytes and requests per second.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::timer::Timer;
use crate::{Completion, Device, Outcome, Request};

/// Limits per second. `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes read and written.
    pub bytes_per_second: Option<u64>,
    /// Reads, writes, trims and flushes.
    pub requests_per_second: Option<u64>,
}

impl Limits {
    /// Time cost of a request of `bytes`: the larger of both limits' costs.
    fn cost_ns(&self, bytes: u64) -> u64 {
        let at_rate = |amount: u64, rate: Option<u64>| match rate {
            Some(rate) => u128::from(amount) * 1_000_000_000 / u128::from(rate.max(1)),
            None => 0,
        };
        let cost = at_rate(bytes, self.bytes_per_second).max(at_rate(1, self.requests_per_second));
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

/// Passes requests on one after another, each when the cost of the previous ones has elapsed. Idle time gives no credit.
///
/// `submit` does not block: the timer starts a delayed request. `execute` blocks its thread. Requests delayed when the device is dropped
/// are still started.
pub struct ThrottleDevice {
    inner: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    limits: Limits,
    next_turn_ns: Mutex<u64>,
}

impl ThrottleDevice {
    /// Limits `inner` to `limits` with `timer`.
    pub fn new(inner: Arc<dyn Device>, timer: Arc<dyn Timer>, limits: Limits) -> Self {
        Self { inner, timer, limits, next_turn_ns: Mutex::new(0) }
    }

    /// Start time of the request.
    fn turn_ns(&self, request: &Request) -> u64 {
        let bytes = match request {
            Request::Read { .. } | Request::Write { .. } => request.len_bytes(),
            Request::Trim { .. } | Request::Flush => 0,
        };
        let now_ns = self.timer.monotonic_ns();
        let mut next_turn_ns = self.next_turn_ns.lock();
        let turn_ns = now_ns.max(*next_turn_ns);
        *next_turn_ns = turn_ns.saturating_add(self.limits.cost_ns(bytes));
        turn_ns
    }
}

impl Device for ThrottleDevice {
    crate::forward_device!(inner: geometry, hole_in, trims_to_zeros, counters, allocate_handle);

    fn submit(&self, request: Request, completion: Completion) {
        let turn_ns = self.turn_ns(&request);
        if turn_ns <= self.timer.monotonic_ns() {
            return self.inner.submit(request, completion);
        }
        let inner = Arc::clone(&self.inner);
        self.timer.at(turn_ns, Box::new(move || inner.submit(request, completion)));
    }

    fn execute(&self, request: Request) -> Outcome {
        self.timer.wait_until(self.turn_ns(&request));
        self.inner.execute(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, MemoryDevice, Simulation};

    /// Virtual nanoseconds of eight reads of 4096 bytes, without the last one's cost.
    fn eight_reads(limits: Limits) -> u64 {
        let simulation = Simulation::new(0);
        let timer = Arc::new(simulation.world());
        let device = ThrottleDevice::new(Arc::new(MemoryDevice::new(1 << 20)), timer, limits);
        for _ in 0..8 {
            drop((&device as &dyn Device).read(0, 4096));
        }
        simulation.run_until_idle();
        assert_eq!(device.counters().reads, 8);
        simulation.clock().monotonic_ns()
    }

    #[test]
    fn tighter_limit_applies() {
        let (bytes, requests) = (Some(4096 * 1000), Some(500));
        assert_eq!(eight_reads(Limits::default()), 0);
        assert_eq!(eight_reads(Limits { bytes_per_second: bytes, requests_per_second: None }), 7_000_000);
        assert_eq!(eight_reads(Limits { bytes_per_second: None, requests_per_second: requests }), 14_000_000);
        assert_eq!(
            eight_reads(Limits { bytes_per_second: bytes, requests_per_second: requests }),
            14_000_000
        );
    }

    #[test]
    fn limit_applies_to_blocking_callers() {
        let simulation = Simulation::new(0);
        let limits = Limits { bytes_per_second: None, requests_per_second: Some(1000) };
        let memory = Arc::new(MemoryDevice::new(1 << 20));
        let device = ThrottleDevice::new(memory, Arc::new(simulation.world()), limits);
        for _ in 0..5 {
            device.execute(Request::Flush).unwrap();
        }
        assert_eq!(simulation.clock().monotonic_ns(), 4_000_000);
    }
}
