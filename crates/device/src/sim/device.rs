//! A device in virtual time.

use std::sync::Arc;

use parking_lot::Mutex;

use super::World;
use crate::tally::Tally;
use crate::timer::Timer;
use crate::{Clock, Completion, Counters, Device, IoBuffer, IoError, IoSlice, Outcome, Request, RequestKind};

/// Latencies of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyModel {
    /// A read, without its transfer.
    pub read_ns: u64,
    /// A write, without its transfer.
    pub write_ns: u64,
    /// A trim.
    pub trim_ns: u64,
    /// A flush.
    pub flush_ns: u64,
    /// Additional time per 4096 bytes read or written.
    pub per_4k_ns: u64,
    /// Maximum random addition to each latency.
    pub jitter_ns: u64,
    /// Requests served in parallel; further requests queue. At least 1.
    pub channels: usize,
}

impl Default for LatencyModel {
    /// Typical values of a data-centre NVMe drive.
    fn default() -> Self {
        Self {
            read_ns: 80_000,
            write_ns: 20_000,
            trim_ns: 10_000,
            flush_ns: 200_000,
            per_4k_ns: 1_000,
            jitter_ns: 20_000,
            channels: 32,
        }
    }
}

/// Wraps any device so that its requests complete later, as events of a simulation.
///
/// A write, trim or flush takes effect when it completes. A read takes effect at its start or at its completion, at random: an engine
/// must handle a read that began before a write and completes after it.
///
/// [`execute`](Device::execute) blocks the whole simulation: the request is served after those already queued, the clock moves to its
/// completion, and events that were due before run late. That models one blocking caller on one thread.
pub struct SimulatedDevice {
    world: World,
    content: Arc<dyn Device>,
    latency: LatencyModel,
    /// Time at which each channel is free.
    free_at_ns: Mutex<Vec<u64>>,
    tally: Arc<Tally>,
}

impl SimulatedDevice {
    /// Wraps `content`, which must complete requests synchronously as memory does, with `latency` in `world`.
    pub fn new(world: World, content: Arc<dyn Device>, latency: LatencyModel) -> Self {
        let free_at_ns = Mutex::new(vec![0; latency.channels.max(1)]);
        Self { world, content, latency, free_at_ns, tally: Arc::default() }
    }

    /// Completion time of a request submitted now.
    fn reserve(&self, request: &Request) -> u64 {
        let duration_ns = self.duration_ns(request);
        let now_ns = self.world.monotonic_ns();
        let mut channels = self.free_at_ns.lock();
        let channel = channels.iter_mut().min().expect("there is at least one channel");
        *channel = now_ns.max(*channel) + duration_ns;
        *channel
    }

    fn duration_ns(&self, request: &Request) -> u64 {
        let latency = &self.latency;
        let bytes_ns = request.len_bytes().div_ceil(4096) * latency.per_4k_ns;
        let fixed_ns = match request.kind() {
            RequestKind::Read => latency.read_ns + bytes_ns,
            RequestKind::Write => latency.write_ns + bytes_ns,
            RequestKind::Trim => latency.trim_ns,
            RequestKind::Flush => latency.flush_ns,
        };
        fixed_ns + self.world.random() % (latency.jitter_ns + 1)
    }

    fn takes_effect_at_start(&self, request: &Request) -> bool {
        request.kind() == RequestKind::Read && self.world.random().is_multiple_of(2)
    }
}

impl Device for SimulatedDevice {
    crate::forward_device!(content: geometry, allocate_handle);

    fn submit(&self, request: Request, completion: Completion) {
        let completion = self.tally.counting(&request, completion);
        if let Err(error) = self.geometry().check(&request) {
            return completion.complete(Err(error));
        }
        let end_ns = self.reserve(&request);
        if self.takes_effect_at_start(&request) {
            let outcome = self.content.execute(request);
            return self.world.schedule(end_ns, move || completion.complete(outcome));
        }
        let content = Arc::clone(&self.content);
        self.world.schedule(end_ns, move || completion.complete(content.execute(request)));
    }

    fn execute(&self, request: Request) -> Outcome {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = self.geometry().check(&request).and_then(|()| {
            self.world.wait_until(self.reserve(&request));
            self.content.execute(request)
        });
        self.tally.count(kind, bytes, &outcome);
        outcome
    }

    /// Takes no virtual time.
    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        let absorbed = self.content.absorb(offset, data)?;
        let outcome = absorbed.map(|()| IoBuffer::empty());
        self.tally.count(RequestKind::Write, data.len() as u64, &outcome);
        Some(outcome.map(drop))
    }

    fn counters(&self) -> Counters {
        Counters { media_written_bytes: self.content.counters().media_written_bytes, ..self.tally.counters() }
    }
}

impl std::fmt::Debug for SimulatedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimulatedDevice({} bytes)", self.geometry().capacity_bytes)
    }
}
