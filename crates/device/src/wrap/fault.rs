//! A device with injected faults, by seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::tally::Tally;
use crate::{Completion, Counters, Device, ErrorKind, IoBuffer, IoError, Outcome, Request, RequestKind};

/// Shares of requests, from 0 to 1, that have each fault.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// Reads that fail with [`ErrorKind::Medium`].
    pub failed_reads: f64,
    /// Writes that fail with [`ErrorKind::Medium`]; nothing is written.
    pub failed_writes: f64,
    /// Flushes that fail with [`ErrorKind::Medium`]; nothing is flushed.
    pub failed_flushes: f64,
    /// Reads that return one flipped bit; the medium is unchanged.
    pub flipped_reads: f64,
    /// Writes that silently store one flipped bit.
    pub flipped_writes: f64,
    /// Requests that hang until [`FaultDevice::release_stuck`].
    pub stuck: f64,
}

/// Passes requests on, except those selected by [`Faults`]. The fault of a request depends on the seed and its number alone, so a single
/// thread's faults are reproducible.
///
/// The faults can be changed at any time, for example to model a temporary failure.
pub struct FaultDevice {
    inner: Arc<dyn Device>,
    seed: u64,
    requests: AtomicU64,
    faults: Mutex<Faults>,
    fails: Mutex<FailureRule>,
    stuck: Mutex<Vec<(Request, Completion)>>,
    injected: AtomicU64,
    tally: Arc<Tally>,
}

/// Whether a request fails.
type FailureRule = Box<dyn Fn(&Request) -> bool + Send>;

enum Fault {
    Pass,
    Fail,
    /// One bit of the data, at this fraction of its length.
    Flip(f64),
    Stick,
}

impl FaultDevice {
    /// Wraps `inner` with `faults`.
    pub fn new(inner: Arc<dyn Device>, seed: u64, faults: Faults) -> Self {
        let (requests, injected) = (AtomicU64::new(0), AtomicU64::new(0));
        let (faults, fails): (_, FailureRule) = (Mutex::new(faults), Box::new(|_| false));
        let (fails, stuck, tally) = (Mutex::new(fails), Mutex::default(), Arc::default());
        Self { inner, seed, requests, faults, fails, stuck, injected, tally }
    }

    /// Additionally fails all further requests for which this returns true, with [`ErrorKind::Medium`]; models a bad block, for example.
    pub fn fail_where(&self, fails: impl Fn(&Request) -> bool + Send + 'static) {
        *self.fails.lock() = Box::new(fails);
    }

    /// Sets the faults of later requests.
    pub fn set_faults(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    /// Continues all hung requests, and returns their number.
    pub fn release_stuck(&self) -> usize {
        let stuck = std::mem::take(&mut *self.stuck.lock());
        let count = stuck.len();
        for (request, completion) in stuck {
            self.inner.submit(request, completion);
        }
        count
    }

    /// Faults so far: failures, flips and hangs.
    pub fn injected(&self) -> u64 {
        self.injected.load(Relaxed)
    }

    fn fault_of(&self, request: &Request) -> Fault {
        let (kind, faults) = (request.kind(), *self.faults.lock());
        if (self.fails.lock())(request) {
            self.injected.fetch_add(1, Relaxed);
            return Fault::Fail;
        }
        let number = self.requests.fetch_add(1, Relaxed);
        // Adjacent numbers must give independent streams; the generator's seeding ensures that.
        let mut random = StdRng::seed_from_u64(self.seed ^ number.rotate_left(32));
        let (failed, flipped) = match kind {
            RequestKind::Read => (faults.failed_reads, faults.flipped_reads),
            RequestKind::Write => (faults.failed_writes, faults.flipped_writes),
            RequestKind::Flush => (faults.failed_flushes, 0.0),
            RequestKind::Trim => (0.0, 0.0),
        };
        let fault = match () {
            () if random.random_bool(faults.stuck) => Fault::Stick,
            () if random.random_bool(failed) => Fault::Fail,
            () if random.random_bool(flipped) => Fault::Flip(random.random()),
            () => return Fault::Pass,
        };
        self.injected.fetch_add(1, Relaxed);
        fault
    }

    fn perform(&self, request: Request) -> Outcome {
        let is_read = request.kind() == RequestKind::Read;
        match self.fault_of(&request) {
            Fault::Pass => self.inner.execute(request),
            Fault::Fail => Err(injected_failure(&request)),
            Fault::Flip(place) if is_read => flipped_outcome(self.inner.execute(request), place),
            Fault::Flip(place) => self.inner.execute(flipped_request(request, place)),
            Fault::Stick => {
                let (completion, pending) = Completion::pair();
                self.stuck.lock().push((request, completion));
                pending.wait()
            }
        }
    }
}

impl Device for FaultDevice {
    crate::forward_device!(inner: geometry, allocate_handle);

    fn submit(&self, request: Request, completion: Completion) {
        let completion = self.tally.counting(&request, completion);
        if let Err(error) = self.geometry().check(&request) {
            return completion.complete(Err(error));
        }
        match self.fault_of(&request) {
            Fault::Pass => self.inner.submit(request, completion),
            Fault::Fail => completion.complete(Err(injected_failure(&request))),
            Fault::Stick => self.stuck.lock().push((request, completion)),
            Fault::Flip(place) if request.kind() == RequestKind::Read => {
                let flipped =
                    Completion::new(move |outcome| completion.complete(flipped_outcome(outcome, place)));
                self.inner.submit(request, flipped);
            }
            Fault::Flip(place) => self.inner.submit(flipped_request(request, place), completion),
        }
    }

    /// A hung request blocks its caller until another thread releases it.
    fn execute(&self, request: Request) -> Outcome {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = self.geometry().check(&request).and_then(|()| self.perform(request));
        self.tally.count(kind, bytes, &outcome);
        outcome
    }

    /// Counts requests by their outcome here; the media bytes are those of the wrapped device.
    fn counters(&self) -> Counters {
        Counters { media_written_bytes: self.inner.counters().media_written_bytes, ..self.tally.counters() }
    }
}

fn injected_failure(request: &Request) -> IoError {
    IoError::new(ErrorKind::Medium, format!("injected failure of {request:?}"))
}

fn flipped_outcome(outcome: Outcome, place: f64) -> Outcome {
    let mut buffer = outcome?;
    flip(&mut buffer, place);
    Ok(buffer)
}

fn flipped_request(request: Request, place: f64) -> Request {
    match request {
        Request::Write { offset, data, placement } => {
            let mut copy = IoBuffer::copy_of(&data);
            flip(&mut copy, place);
            Request::Write { offset, data: copy.into(), placement }
        }
        other => other,
    }
}

fn flip(bytes: &mut [u8], place: f64) {
    let bit = (place * (bytes.len() * 8) as f64) as usize;
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn device(seed: u64, faults: Faults) -> FaultDevice {
        FaultDevice::new(Arc::new(MemoryDevice::new(1 << 20)), seed, faults)
    }

    fn read(device: &dyn Device) -> Outcome {
        device.execute(Request::read(0, 4096))
    }

    fn write_ones(device: &dyn Device) -> Outcome {
        let data = IoBuffer::copy_of(&[0xff; 4096]);
        device.execute(Request::write(0, data))
    }

    fn ones(bytes: &[u8]) -> u32 {
        bytes.iter().map(|byte| byte.count_ones()).sum()
    }

    fn failures(seed: u64) -> Vec<bool> {
        let device = device(seed, Faults { failed_reads: 0.1, ..Default::default() });
        (0..2000).map(|_| read(&device).is_err()).collect()
    }

    #[test]
    fn failure_share_is_as_configured_and_reproducible() {
        let failed = failures(1).iter().filter(|failed| **failed).count();
        assert!((140..260).contains(&failed), "{failed} of 2000 at 10 %");
        assert_eq!(failures(1), failures(1));
        assert_ne!(failures(1), failures(2));
    }

    #[test]
    fn only_selected_requests_fail() {
        let device = device(5, Faults::default());
        device.fail_where(|request| matches!(request, Request::Write { offset, .. } if *offset == 0));
        assert_eq!(write_ones(&device).unwrap_err().kind(), ErrorKind::Medium);
        assert_eq!(ones(&read(&device).unwrap()), 0, "nothing was written");
        assert_eq!(device.injected(), 1);
        device.fail_where(|_| false);
        write_ones(&device).unwrap();
    }

    #[test]
    fn flipped_read_leaves_the_medium_unchanged() {
        let device = device(7, Faults { flipped_reads: 1.0, ..Default::default() });
        write_ones(&device).unwrap();
        assert_eq!(ones(&read(&device).unwrap()), 4096 * 8 - 1);
        device.set_faults(Faults::default());
        assert_eq!(ones(&read(&device).unwrap()), 4096 * 8);
        assert_eq!(device.injected(), 1);
    }

    #[test]
    fn flipped_write_is_stored() {
        let device = device(7, Faults { flipped_writes: 1.0, ..Default::default() });
        write_ones(&device).unwrap();
        device.set_faults(Faults::default());
        for _ in 0..2 {
            assert_eq!(ones(&read(&device).unwrap()), 4096 * 8 - 1);
        }
    }

    #[test]
    fn failed_write_has_no_effect_and_faults_can_be_removed() {
        let device = device(7, Faults { failed_writes: 1.0, failed_flushes: 1.0, ..Default::default() });
        assert_eq!(write_ones(&device).unwrap_err().kind(), ErrorKind::Medium);
        assert_eq!(device.execute(Request::Flush).unwrap_err().kind(), ErrorKind::Medium);
        device.set_faults(Faults::default());
        assert_eq!(ones(&read(&device).unwrap()), 0);
        write_ones(&device).unwrap();
        assert_eq!(ones(&read(&device).unwrap()), 4096 * 8);
    }

    #[test]
    fn stuck_request_completes_on_release_and_fails_as_closed_on_drop() {
        let device = device(7, Faults { stuck: 1.0, ..Default::default() });
        let shared: &dyn Device = &device;
        let (first, second) = (shared.start(Request::Flush), shared.start(Request::Flush));
        assert_eq!(device.counters().flushes, 0);
        assert_eq!(device.release_stuck(), 2);
        assert!(first.wait().is_ok() && second.wait().is_ok());
        let lost = shared.start(Request::Flush);
        drop(device);
        assert_eq!(lost.wait().unwrap_err().kind(), ErrorKind::Closed);
    }
}
