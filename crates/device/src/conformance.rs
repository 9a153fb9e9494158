//! The contract of [`Device`] as a test suite that every implementation and wrapper runs.
//!
//! Each check gets a new device and writes blocks that contain their number and version. A failed check panics with the violated rule. The
//! suite overwrites the whole device: never run it on one with data.

mod access;
mod flight;
mod model;
mod pattern;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::{Device, Outcome, Pending, Request};

/// Smallest capacity for the suite, together with [`MIN_BLOCKS`].
pub const MIN_CAPACITY_BYTES: u64 = 4 << 20;

/// Fewest blocks for the suite.
pub const MIN_BLOCKS: u64 = 256;

/// A device under test, and the function that drives its simulation.
pub struct Subject {
    /// The device.
    pub device: Arc<dyn Device>,
    /// For a simulated device: runs the simulation until it is idle. `None` for a real device.
    pub drive: Option<Box<dyn Fn()>>,
}

/// Runs the whole suite on real devices, a new one from `make` for each check.
///
/// # Panics
/// If the device breaks its contract.
pub fn run(make: impl Fn() -> Box<dyn Device>) {
    run_driven(|| Subject { device: make().into(), drive: None });
}

/// Runs the suite on devices whose pending requests move only when they are driven.
///
/// # Panics
/// If the device breaks its contract.
pub fn run_driven(make: impl Fn() -> Subject) {
    let checks: [(&str, Check); 15] = [
        ("the geometry is valid", access::geometry_is_valid),
        ("invalid requests have no effect", access::invalid_requests_have_no_effect),
        ("empty requests succeed", access::empty_requests_succeed),
        ("the first and last bytes can be used, at every size", access::first_and_last_bytes_at_every_size),
        ("a completed write is read back, by either way", access::reads_see_completed_writes),
        ("an absorbed write is a write", access::absorbed_writes_are_writes),
        ("a trimmed range can be read and written again", access::trimmed_ranges_are_usable),
        ("a hole reads as zeros and contains no written data", access::holes_contain_no_data),
        ("flushes complete and change no data", access::flushes_change_no_data),
        ("all requests are counted", access::counters_add_up),
        ("concurrent requests transfer the right bytes", flight::many_requests_in_flight),
        ("dropped requests still complete", flight::dropped_requests_complete),
        ("requests outlive the thread that submitted them", flight::requests_outlive_their_thread),
        ("threads do not interfere", flight::threads_do_not_interfere),
        ("a long random run matches the model", model::matches_the_model),
    ];
    for (promise, check) in checks {
        let subject = make();
        let capacity = subject.device.geometry().capacity_bytes;
        let needed = MIN_CAPACITY_BYTES.max(MIN_BLOCKS * subject.block() as u64);
        assert!(capacity >= needed, "the suite needs {needed} bytes, not {capacity}");
        let broken = Broken(promise);
        check(&subject);
        std::mem::forget(broken);
    }
    flight::completions_run_once_even_if_the_device_is_dropped(make());
}

type Check = fn(&Subject);

/// Prints the violated rule when its check panics.
struct Broken(&'static str);

impl Drop for Broken {
    #[allow(
        clippy::print_stderr,
        reason = "a test suite prints the failed rule beside the assertion's message"
    )]
    fn drop(&mut self) {
        eprintln!("conformance: broken: {}", self.0);
    }
}

impl Subject {
    /// Submits `request` and waits for its completion.
    fn submit(&self, request: Request) -> Outcome {
        self.wait(self.device.start(request))
    }

    /// Waits for `pending`, driving the simulation if there is one.
    fn wait(&self, pending: Pending) -> Outcome {
        let Some(drive) = &self.drive else { return pending.wait() };
        drive();
        match pin!(pending).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("the simulation is idle, but a request has not completed"),
        }
    }

    fn block(&self) -> usize {
        self.device.geometry().block_bytes as usize
    }
}
