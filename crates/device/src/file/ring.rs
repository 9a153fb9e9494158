//! Requests through io_uring.
//!
//! Whoever submits a request pushes its entry and enters the kernel itself, so no request waits for another thread
//! to wake. One reactor thread sleeps in the kernel until something has ended, takes everything that has, and tells
//! the callers. It starts with the first request: a device that only blocking callers use has no thread.
#![allow(unsafe_code, reason = "io_uring is given raw pointers and gives them back")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use parking_lot::Mutex;

use super::medium::{Ended, InFlight, Medium, PUNCH_HOLE};
use super::transfer::{Call, kind_of};
use crate::IoError;

/// Entries that can be pushed between two system calls.
const SUBMISSION_ENTRIES: u32 = 256;

/// Room for requests that have ended and were not yet taken.
const COMPLETION_ENTRIES: u32 = 2048;

/// Requests that the kernel has at once; more wait in memory. One completion entry stays free for the stop entry.
const MAX_IN_FLIGHT: usize = COMPLETION_ENTRIES as usize - 1;

/// Mark of the entry that tells the reactor to stop. No request has it: requests are marked by their address.
const STOP: u64 = 0;

/// The device's file, as registered with the ring.
const FILE: types::Fixed = types::Fixed(0);

/// A ring and its reactor. Dropping it lets what is in flight end first.
pub(super) struct Ring {
    shared: Arc<Shared>,
}

struct Shared {
    ring: IoUring,
    /// Also guards the ring's submission queue.
    queue: Mutex<Queue>,
    medium: Arc<Medium>,
}

#[derive(Default)]
struct Queue {
    in_flight: usize,
    waiting: VecDeque<Box<InFlight>>,
    reactor: Option<JoinHandle<()>>,
}

impl Ring {
    /// A ring on `medium`'s file. Fails where the kernel has no io_uring, or not for us.
    pub(super) fn new(medium: Arc<Medium>) -> io::Result<Self> {
        let ring = IoUring::builder().setup_cqsize(COMPLETION_ENTRIES).build(SUBMISSION_ENTRIES)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE, opcode::Fallocate::CODE];
        if !needed.iter().all(|&code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        ring.submitter().register_files(&[medium.file.as_raw_fd()])?;
        Ok(Self { shared: Arc::new(Shared { ring, queue: Mutex::default(), medium }) })
    }

    /// Starts a request.
    pub(super) fn submit(&self, request: InFlight) {
        let shared = &self.shared;
        let mut queue = shared.queue.lock();
        if let Err(error) = self.ensure_reactor(&mut queue) {
            drop(queue);
            return shared.medium.finish(request.refuse(error));
        }
        if queue.in_flight >= MAX_IN_FLIGHT {
            queue.waiting.push_back(Box::new(request));
            return;
        }
        queue.in_flight += 1;
        shared.push(Box::new(request));
        drop(queue);
        shared.enter();
    }

    fn ensure_reactor(&self, queue: &mut Queue) -> Result<(), IoError> {
        if queue.reactor.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("flash-reactor".into());
            let started = thread.spawn(move || shared.react());
            let context =
                || format!("{}: no thread to wait for transfers", self.shared.medium.path.display());
            queue.reactor =
                Some(started.map_err(|error| IoError::with_source(kind_of(&error), context(), error))?);
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        let Some(reactor) = queue.reactor.take() else { return };
        self.shared.push_entry(&opcode::Nop::new().build().user_data(STOP));
        drop(queue);
        self.shared.enter();
        // The last owner may be a completion that the reactor itself runs; the reactor then ends unattended.
        if reactor.thread().id() != std::thread::current().id() {
            let ended = reactor.join();
            debug_assert!(ended.is_ok(), "panics of completions are caught");
        }
    }
}

impl Drop for Shared {
    /// The kernel takes a ring apart some time after it is closed. Let go of the file now, so that whoever opens
    /// the device next does not find it in use.
    fn drop(&mut self) {
        let unregistered = self.ring.submitter().unregister_files();
        debug_assert!(unregistered.is_ok(), "the file was registered in `Ring::new`");
    }
}

impl Shared {
    /// Hands `request` to the ring; its box comes back by [`take`](Self::take). The queue must be locked.
    fn push(&self, mut request: Box<InFlight>) {
        let entry = entry(request.transfer.next_call());
        let address = Box::into_raw(request).expose_provenance() as u64;
        self.push_entry(&entry.user_data(address));
    }

    /// The queue must be locked.
    fn push_entry(&self, entry: &squeue::Entry) {
        // SAFETY: the lock on the queue makes this the only handle to the submission queue, and what the entry points
        // to lives in a box that is freed only after its completion was taken.
        let pushed = || unsafe { self.ring.submission_shared().push(entry) };
        while pushed().is_err() {
            self.enter();
        }
    }

    /// Makes the kernel see what was pushed, by this thread or another.
    fn enter(&self) {
        while let Err(error) = self.ring.submit() {
            assert!(is_passing(&error), "io_uring_enter on a ring of our own: {error}");
            std::thread::yield_now();
        }
    }

    /// The reactor's life.
    fn react(&self) {
        let mut stopping = false;
        let (mut ended, mut unfinished) = (Vec::new(), VecDeque::new());
        loop {
            self.sleep_until_something_ended();
            stopping |= self.take(&mut ended, &mut unfinished);
            let in_flight = self.refill(ended.len(), &mut unfinished);
            for request in ended.drain(..) {
                self.medium.finish(request);
            }
            if stopping && in_flight == 0 {
                return;
            }
        }
    }

    /// Enters too what [`refill`](Self::refill) has pushed.
    fn sleep_until_something_ended(&self) {
        while let Err(error) = self.ring.submit_and_wait(1) {
            assert!(is_passing(&error), "io_uring_enter on a ring of our own: {error}");
            // EBUSY and EAGAIN: completions must be taken before more is submitted.
            if error.raw_os_error() != Some(rustix::io::Errno::INTR.raw_os_error()) {
                return;
            }
        }
    }

    /// Takes every completion there is. Whether the stop entry was among them.
    fn take(&self, ended: &mut Vec<Ended>, unfinished: &mut VecDeque<Box<InFlight>>) -> bool {
        let mut stop = false;
        // SAFETY: only the reactor touches the completion queue.
        for entry in unsafe { self.ring.completion_shared() } {
            if entry.user_data() == STOP {
                stop = true;
                continue;
            }
            let address = std::ptr::with_exposed_provenance_mut(entry.user_data() as usize);
            // SAFETY: the address of a box given up in `push`; each request has one completion.
            let request: Box<InFlight> = unsafe { Box::from_raw(address) };
            match request.advance(result_of(entry.result()), &self.medium) {
                Ok(request) => ended.push(request),
                Err(request) => unfinished.push_back(request),
            }
        }
        stop
    }

    /// Pushes what goes on and what waited for room. How many are in flight now.
    fn refill(&self, ended: usize, unfinished: &mut VecDeque<Box<InFlight>>) -> usize {
        let mut queue = self.queue.lock();
        queue.in_flight -= ended;
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

/// The ring's entry for a call. Lengths fit: a request is at most `max_io_bytes` long.
fn entry(call: Call<'_>) -> squeue::Entry {
    match call {
        Call::Read { offset, into } => {
            opcode::Read::new(FILE, into.as_mut_ptr(), into.len() as u32).offset(offset).build()
        }
        Call::Write { offset, from } => {
            opcode::Write::new(FILE, from.as_ptr(), from.len() as u32).offset(offset).build()
        }
        Call::Trim { offset, len } => {
            let mode = PUNCH_HOLE.bits().cast_signed();
            opcode::Fallocate::new(FILE, len).offset(offset).mode(mode).build()
        }
        Call::Flush => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
    }
}

fn result_of(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}
