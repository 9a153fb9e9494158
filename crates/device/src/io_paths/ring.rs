//! Requests through io_uring.
//!
//! The submitting thread pushes its entry and enters the kernel itself, so no request waits for another thread to wake. Requests submitted
//! [together](crate::together) enter once for a few. One reactor thread sleeps in the kernel until requests complete, takes all
//! completions, and calls the callers' completions. Requests submitted by those need no system call, because the reactor enters the kernel
//! next anyway and submits them together. So a chain of requests costs one system call per batch of completions. The reactor starts with
//! the first request: a device with only blocking callers has no thread.
#![allow(unsafe_code, reason = "io_uring receives raw pointers and returns them")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use io_uring::squeue::EntryMarker as _;
use io_uring::{IoUring, Probe, cqueue, opcode};
use parking_lot::Mutex;

use super::in_flight::{Completed, InFlight, Open};
use super::medium::Medium;
use super::transfer::error_kind;
use crate::IoError;
use crate::coalesce::{self, Action};

/// Entries that can be pushed between two system calls.
const SUBMISSION_ENTRIES: u32 = 256;

/// Size of the completion queue.
const COMPLETION_ENTRIES: u32 = 2048;

/// Largest number of requests in the kernel; more wait in memory. One completion entry stays free for the stop entry.
const MAX_IN_FLIGHT: usize = COMPLETION_ENTRIES as usize - 1;

/// User data of the entry that stops the reactor. Requests use their address, which is never 0.
const STOP: u64 = 0;

/// A ring and its reactor. Dropping it waits for the requests in flight.
pub(super) struct Ring<M: Medium> {
    shared: Arc<Shared<M>>,
}

struct Shared<M: Medium> {
    ring: IoUring<M::Submission, M::Completion>,
    /// Also guards the ring's submission queue.
    queue: Mutex<Queue>,
    open: Arc<Open<M>>,
}

#[derive(Default)]
struct Queue {
    in_flight: usize,
    waiting: VecDeque<Box<InFlight>>,
    /// Whether the reactor will enter the kernel again before it sleeps, so that it submits pushed entries.
    is_reactor_awake: bool,
    reactor: Option<JoinHandle<()>>,
}

impl<M: Medium> Ring<M> {
    /// A ring on the medium's file. Fails if io_uring is missing or not permitted.
    pub(super) fn new(open: Arc<Open<M>>) -> io::Result<Self> {
        let ring = IoUring::builder().setup_cqsize(COMPLETION_ENTRIES).build(SUBMISSION_ENTRIES)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !M::OPERATIONS.iter().all(|&code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        ring.submitter().register_files(&[open.medium.fd().as_raw_fd()])?;
        Ok(Self { shared: Arc::new(Shared { ring, queue: Mutex::default(), open }) })
    }

    /// Starts a request.
    pub(super) fn submit(&self, request: InFlight) {
        let shared = &self.shared;
        let mut queue = shared.queue.lock();
        if let Err(error) = self.ensure_reactor(&mut queue) {
            drop(queue);
            return shared.open.finish(request.refuse(error));
        }
        if queue.in_flight >= MAX_IN_FLIGHT {
            queue.waiting.push_back(Box::new(request));
            return;
        }
        queue.in_flight += 1;
        shared.push(Box::new(request));
        let is_seen = queue.is_reactor_awake;
        drop(queue);
        if !is_seen {
            coalesce::request(shared);
        }
    }

    fn ensure_reactor(&self, queue: &mut Queue) -> Result<(), IoError> {
        if queue.reactor.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("flash-reactor".into());
            let started = thread.spawn(move || shared.react());
            let context = || {
                format!("{}: cannot start the io_uring completion thread", self.shared.open.path.display())
            };
            queue.reactor =
                Some(started.map_err(|error| IoError::with_source(error_kind(&error), context(), error))?);
        }
        Ok(())
    }
}

impl<M: Medium> Drop for Ring<M> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        let Some(reactor) = queue.reactor.take() else { return };
        self.shared.push_entry(opcode::Nop::new().build().into(), STOP);
        drop(queue);
        self.shared.enter();
        // The last owner may be a completion on the reactor; the reactor cannot be joined here.
        if reactor.thread().id() != std::thread::current().id() {
            let joined = reactor.join();
            debug_assert!(joined.is_ok(), "panics of completions are caught");
        }
    }
}

impl<M: Medium> Drop for Shared<M> {
    /// The kernel destroys a ring some time after it is closed. Unregistering the file releases it now, so that the next opener does not
    /// find the device in use.
    fn drop(&mut self) {
        let unregistered = self.ring.submitter().unregister_files();
        debug_assert!(unregistered.is_ok(), "the file was registered in `Ring::new`");
    }
}

impl<M: Medium> Shared<M> {
    /// Submits `request` to the ring; [`take`](Self::take) reclaims its box. The queue must be locked.
    fn push(&self, mut request: Box<InFlight>) {
        let entry = self.open.medium.entry(request.transfer.next_call());
        let address = Box::into_raw(request).expose_provenance() as u64;
        self.push_entry(entry, address);
    }

    /// The queue must be locked.
    fn push_entry(&self, mut entry: M::Submission, mark: u64) {
        entry.set_user_data(mark);
        // SAFETY: the lock on the queue makes this the only handle to the submission queue, and what the entry points
        // to lives in a box that is freed only after its completion was taken.
        let pushed = || unsafe { self.ring.submission_shared().push(&entry) };
        while pushed().is_err() {
            self.enter();
        }
    }

    /// Submits the entries pushed by this and other threads to the kernel.
    fn enter(&self) {
        while let Err(error) = self.ring.submit() {
            assert!(is_transient(&error), "io_uring_enter on a ring of our own: {error}");
            std::thread::yield_now();
        }
    }

    /// The reactor's loop.
    fn react(&self) {
        let mut stopping = false;
        let (mut completed, mut unfinished) = (Vec::new(), VecDeque::new());
        loop {
            self.sleep_until_a_completion();
            stopping |= self.take(&mut completed, &mut unfinished);
            let in_flight = self.refill(completed.len(), &mut unfinished);
            coalesce::scope(|| completed.drain(..).for_each(|request| self.open.finish(request)));
            if stopping && in_flight == 0 {
                return;
            }
        }
    }

    /// Also submits the entries pushed since the reactor woke.
    fn sleep_until_a_completion(&self) {
        self.queue.lock().is_reactor_awake = false;
        while let Err(error) = self.ring.submit_and_wait(1) {
            assert!(is_transient(&error), "io_uring_enter on a ring of our own: {error}");
            // EBUSY and EAGAIN: completions must be taken before more is submitted.
            if error.raw_os_error() != Some(rustix::io::Errno::INTR.raw_os_error()) {
                return;
            }
        }
    }

    /// Takes all completions. Returns whether the stop entry was among them.
    fn take(&self, completed: &mut Vec<Completed>, unfinished: &mut VecDeque<Box<InFlight>>) -> bool {
        let mut stop = false;
        // SAFETY: only the reactor touches the completion queue.
        for entry in unsafe { self.ring.completion_shared() } {
            let entry: cqueue::Entry = entry.into();
            if entry.user_data() == STOP {
                stop = true;
                continue;
            }
            let address = std::ptr::with_exposed_provenance_mut(entry.user_data() as usize);
            // SAFETY: the address of a box given up in `push`; each request has one completion.
            let mut request: Box<InFlight> = unsafe { Box::from_raw(address) };
            match request.advance(entry.result(), &self.open) {
                Some(request) => completed.push(request),
                None => unfinished.push_back(request),
            }
        }
        stop
    }

    /// Pushes unfinished and waiting requests. Returns the number in flight.
    fn refill(&self, completed: usize, unfinished: &mut VecDeque<Box<InFlight>>) -> usize {
        let mut queue = self.queue.lock();
        queue.is_reactor_awake = true;
        queue.in_flight -= completed;
        for request in unfinished.drain(..) {
            self.push(request);
        }
        while queue.in_flight < MAX_IN_FLIGHT {
            let Some(request) = queue.waiting.pop_front() else { break };
            queue.in_flight += 1;
            self.push(request);
        }
        queue.in_flight
    }
}

/// Enters the kernel once for all pushed entries.
impl<M: Medium> Action for Shared<M> {
    fn run(&self) {
        let is_seen = self.queue.lock().is_reactor_awake;
        if !is_seen {
            self.enter();
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}
