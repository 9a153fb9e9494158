//! Measures the latency of each request, and records the first error and the assigned placement handles.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::{Clock, Completion, Device, IoError, IoSlice, Outcome, PlacementHandle, Request, RequestKind};

/// Called for each successful request with its kind, bytes and latency in nanoseconds. It runs on the completing thread and must not
/// block. Failed requests are in the counters only.
pub type Observer = Arc<dyn Fn(RequestKind, u64, u64) + Send + Sync>;

/// Reports the latency of every request, from `submit` to its completion, to an observer.
pub struct MeasureDevice {
    inner: Arc<dyn Device>,
    clock: Arc<dyn Clock>,
    observer: Observer,
    first_failure: Arc<OnceLock<String>>,
    consumers: Mutex<Vec<(String, PlacementHandle)>>,
}

impl MeasureDevice {
    /// Measures `inner` with `clock`.
    pub fn new(inner: Arc<dyn Device>, clock: Arc<dyn Clock>, observer: Observer) -> Self {
        Self { inner, clock, observer, first_failure: Arc::default(), consumers: Mutex::default() }
    }

    /// Message of the first request that failed. The counters have the number of failures.
    #[must_use]
    pub fn first_failure(&self) -> Option<String> {
        self.first_failure.get().cloned()
    }

    /// The consumers that requested a placement handle, in order, each with its handle.
    #[must_use]
    pub fn consumers(&self) -> Vec<(String, PlacementHandle)> {
        self.consumers.lock().clone()
    }
}

impl Device for MeasureDevice {
    crate::forward_device!(inner: geometry, hole_in, trims_to_zeros, engine, counters);

    fn submit(&self, request: Request, completion: Completion) {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let (clock, observer) = (Arc::clone(&self.clock), Arc::clone(&self.observer));
        let start_ns = clock.monotonic_ns();
        let first_failure = Arc::clone(&self.first_failure);
        let measured = Completion::new(move |outcome| {
            match &outcome {
                Ok(_) => observer(kind, bytes, clock.monotonic_ns() - start_ns),
                Err(error) => remember(&first_failure, error),
            }
            completion.complete(outcome);
        });
        self.inner.submit(request, measured);
    }

    fn execute(&self, request: Request) -> Outcome {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let start_ns = self.clock.monotonic_ns();
        let outcome = self.inner.execute(request);
        match &outcome {
            Ok(_) => (self.observer)(kind, bytes, self.clock.monotonic_ns() - start_ns),
            Err(error) => remember(&self.first_failure, error),
        }
        outcome
    }

    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        let start_ns = self.clock.monotonic_ns();
        let absorbed = self.inner.absorb(offset, data)?;
        match &absorbed {
            Ok(()) => {
                let ns = self.clock.monotonic_ns() - start_ns;
                (self.observer)(RequestKind::Write, data.len() as u64, ns);
            }
            Err(error) => remember(&self.first_failure, error),
        }
        Some(absorbed)
    }

    fn allocate_handle(&self, consumer: &str) -> PlacementHandle {
        let handle = self.inner.allocate_handle(consumer);
        self.consumers.lock().push((consumer.to_owned(), handle));
        handle
    }
}

fn remember(first: &OnceLock<String>, error: &IoError) {
    first.get_or_init(|| error.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::LatencyModel;
    use crate::{IoBuffer, MemoryDevice, SimulatedDevice, Simulation};

    #[test]
    fn absorbed_write_is_observed_and_reaches_the_device() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let observed = Arc::clone(&seen);
        let observer: Observer = Arc::new(move |kind, bytes, _| observed.lock().push((kind, bytes)));
        let clock = Simulation::new(0).clock();
        let device =
            MeasureDevice::new(Arc::new(MemoryDevice::new(1 << 20).absorbing(true)), clock, observer);
        let data: IoSlice = IoBuffer::copy_of(&[9; 4096]).into();
        device.absorb(8192, &data).expect("there is a page cache").unwrap();
        assert_eq!(device.execute(Request::read(8192, 4096)).unwrap()[..], data[..]);
        let outside = device.absorb(1 << 20, &data).expect("there is a page cache").unwrap_err();
        assert_eq!(device.first_failure(), Some(outside.to_string()));
        assert_eq!(*seen.lock(), [(RequestKind::Write, 4096), (RequestKind::Read, 4096)]);
    }

    #[test]
    fn observer_receives_kind_bytes_and_latency_of_each_request() {
        let simulation = Simulation::new(0);
        let latency = LatencyModel {
            read_ns: 70,
            write_ns: 30,
            flush_ns: 9,
            trim_ns: 5,
            per_4k_ns: 1,
            jitter_ns: 0,
            channels: 1,
        };
        let inner = SimulatedDevice::new(simulation.world(), Arc::new(MemoryDevice::new(1 << 20)), latency);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let observer: Observer = Arc::new(move |kind, bytes, ns| sink.lock().push((kind, bytes, ns)));
        let device = MeasureDevice::new(Arc::new(inner), simulation.clock(), observer);

        let write = Request::write(0, IoBuffer::zeroed(8192));
        let queued = Request::read(0, 4096);
        drop((<dyn Device>::start(&device, write), <dyn Device>::start(&device, queued)));
        simulation.run_until_idle();
        device.execute(Request::Flush).unwrap();
        device.execute(Request::Trim { offset: 0, len: 512 }).unwrap();
        assert_eq!(device.first_failure(), None);
        let first = device.execute(Request::Trim { offset: 1, len: 512 }).unwrap_err();
        drop(<dyn Device>::start(&device, Request::Trim { offset: 3, len: 512 }));
        simulation.run_until_idle();
        assert_eq!(device.first_failure(), Some(first.to_string()), "the first failure");

        use RequestKind::{Flush, Read, Trim, Write};
        assert_eq!(*seen.lock(), [(Write, 8192, 32), (Read, 4096, 32 + 71), (Flush, 0, 9), (Trim, 512, 5)]);
    }
}
