//! An io_uring used by one thread for requests to any file.
//!
//! The thread pushes its requests, sleeps until one completes or a watched descriptor is ready, and calls the completions itself. So no
//! other thread is woken, nothing is locked, and the kernel finishes transfers when the thread enters it (`IORING_SETUP_DEFER_TASKRUN`,
//! Linux 6.1) instead of interrupting it.
#![allow(unsafe_code, reason = "io_uring receives raw pointers and returns them")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::time::Timespec;

use super::in_flight::{Completed, InFlight, Open, Opened};
use super::medium::Medium;
use crate::{Pending, coalesce};

/// Entries that can be pushed between two system calls.
const SUBMISSION_ENTRIES: u32 = 128;

/// Size of the completion queue.
const COMPLETION_ENTRIES: u32 = 1024;

/// Largest number of requests in the kernel; more go to the device's own ring. The remaining entries are for watched descriptors.
const MAX_IN_FLIGHT: usize = COMPLETION_ENTRIES as usize - 64;

/// Requests pushed before the kernel is entered, so that the device starts with some while the thread prepares the next.
const PUSHES_PER_ENTER: u32 = 4;

/// Polling interval of a thread that waits for completions on other threads.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Set in the user data of watches, not of requests.
const WATCHED: u64 = 1 << 63;

thread_local! {
    /// The current thread's ring.
    static THREAD_RING: RefCell<Option<Rc<ThreadRing>>> = const { RefCell::new(None) };
}

/// A thread's ring and its requests in flight.
pub(crate) struct ThreadRing(RefCell<State>);

struct State {
    ring: IoUring,
    in_flight: RequestTable,
    /// Entries pushed since the kernel was entered.
    pushed: u32,
    watched: Vec<Watched>,
    completed: VecDeque<(Arc<dyn Opened>, Completed)>,
}

/// A watched descriptor and the events awaited.
pub(crate) struct Watched {
    pub(crate) fd: RawFd,
    pub(crate) events: PollFlags,
    /// The kernel is watching the descriptor.
    armed: bool,
    /// The descriptor is ready, and this was not reported yet.
    ready: bool,
}

impl Watched {
    pub(crate) fn new(fd: RawFd, events: PollFlags) -> Self {
        Self { fd, events, armed: false, ready: false }
    }
}

/// Starts `request` on this thread's ring. Returns it if there is no ring, or the ring is full or has no entry for it.
pub(super) fn submit<M: Medium>(open: &Arc<Open<M>>, request: InFlight) -> Result<(), InFlight> {
    if !M::HAS_PLAIN_ENTRIES {
        return Err(request);
    }
    let Some(ring) = current() else { return Err(request) };
    let mut state = ring.0.borrow_mut();
    if state.in_flight.count >= MAX_IN_FLIGHT {
        return Err(request);
    }
    open.on_thread_rings.fetch_add(1, Ordering::Relaxed);
    let slot = state.in_flight.insert(RingRequest { request, open: Arc::clone(open) as Arc<dyn Opened> });
    state.push_request(slot);
    Ok(())
}

/// Waits until no event loop has requests to `open` in flight. This thread's completed ones are reported; other threads report theirs.
pub(super) fn wait_until_idle<M: Medium>(open: &Arc<Open<M>>) {
    let ring = current();
    while open.on_thread_rings.load(Ordering::Acquire) > 0 {
        match &ring {
            Some(ring) => ring.poll_completions(),
            None => std::thread::park_timeout(POLL_INTERVAL),
        }
    }
    if let Some(ring) = ring
        && ring.has_completed(Arc::as_ptr(open).cast())
    {
        ring.run_completions();
    }
}

/// This thread's ring, if it has one.
pub(crate) fn current() -> Option<Rc<ThreadRing>> {
    THREAD_RING.try_with(|ring| ring.borrow().clone()).ok().flatten()
}

impl ThreadRing {
    /// Creates a ring for this thread, until it is [closed](Self::close). `None` if the kernel does not support or permit it.
    ///
    /// # Panics
    /// If the thread already has one: it would sleep in one while its requests complete in the other.
    pub(crate) fn open(watched: Vec<Watched>) -> Option<Rc<Self>> {
        assert!(current().is_none(), "a thread has at most one ring");
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_cqsize(COMPLETION_ENTRIES);
        // A kernel that supports these flags supports every operation used here.
        let ring = builder.build(SUBMISSION_ENTRIES).ok()?;
        let state = State {
            ring,
            in_flight: RequestTable::default(),
            pushed: 0,
            watched,
            completed: VecDeque::new(),
        };
        let ring = Rc::new(Self(RefCell::new(state)));
        THREAD_RING.try_with(|own| *own.borrow_mut() = Some(Rc::clone(&ring))).ok()?;
        Some(ring)
    }

    /// Sleeps until a request completes or a `wanted` watch is ready. Returns the ready watches, each event once.
    pub(crate) fn wait(&self, wanted: &[bool], timeout: Option<&Timespec>) -> io::Result<Vec<bool>> {
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        if state.completed.is_empty() && !state.is_ready(wanted) {
            state.arm(wanted);
            state.sleep(timeout)?;
        } else {
            state.enter();
        }
        state.take();
        let ready = |(watched, wanted): (&mut Watched, &bool)| *wanted && std::mem::take(&mut watched.ready);
        Ok(state.watched.iter_mut().zip(wanted).map(ready).collect())
    }

    /// Calls the completions of completed requests, including those of requests that completions start.
    pub(crate) fn run_completions(&self) {
        while self.run_some_completions(usize::MAX) {}
    }

    /// Submits pushed entries, and calls the completions of at most `most` completed requests; returns whether more have completed.
    pub(crate) fn run_some_completions(&self, most: usize) -> bool {
        let has_pushed = self.0.borrow().pushed > 0;
        if has_pushed {
            self.0.borrow_mut().enter();
        }
        coalesce::scope(|| {
            for _ in 0..most {
                let Some((open, completed)) = self.next_completed() else { return false };
                open.finish(completed);
            }
            !self.0.borrow().completed.is_empty()
        })
    }

    /// Waits for one request, on whichever thread it completes.
    pub(crate) fn wait_for(&self, pending: &Pending) {
        while !pending.is_complete() {
            self.poll_completions();
        }
    }

    /// Sleeps until a request completes, and calls completions; at most [`POLL_INTERVAL`], because other threads do not wake it.
    pub(crate) fn poll_completions(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()) };
        let waited = self.wait(&[], Some(&timeout));
        assert!(waited.is_ok(), "io_uring_enter on a ring of our own");
        self.run_completions();
    }

    /// Whether completions of requests to the device at `slot` are not yet reported.
    fn has_completed(&self, slot: *const ()) -> bool {
        self.0.borrow().completed.iter().any(|(open, _)| Arc::as_ptr(open).cast() == slot)
    }

    #[cfg(test)]
    pub(crate) fn completed(&self) -> usize {
        self.0.borrow().completed.len()
    }

    fn next_completed(&self) -> Option<(Arc<dyn Opened>, Completed)> {
        self.0.borrow_mut().completed.pop_front()
    }

    /// Releases the ring: later requests use the devices' own rings. Waits for requests in flight, because the ring owns their buffers.
    pub(crate) fn close(&self) {
        let _ = THREAD_RING.try_with(|own| own.borrow_mut().take());
        while self.0.borrow().in_flight.count > 0 {
            self.poll_completions();
        }
        self.run_completions();
    }
}

impl Drop for State {
    /// Frees the request table, unless the kernel still has requests: it could write to their buffers, so those are leaked. That happens
    /// only if an event loop was never dropped, since [`ThreadRing::close`] waits for all requests.
    fn drop(&mut self) {
        if self.in_flight.count > 0 {
            std::mem::forget(std::mem::take(&mut self.in_flight));
        }
    }
}

impl State {
    fn push_request(&mut self, slot: usize) {
        let Some(entry) = self.in_flight.get(slot) else { return };
        let entry = entry.open.plain_entry(entry.request.transfer.next_call());
        let entry = entry.expect("only media with plain entries use this ring").user_data(slot as u64);
        self.push(&entry);
        self.pushed += 1;
        if self.pushed >= PUSHES_PER_ENTER {
            self.enter();
        }
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) {
        // SAFETY: the memory of an entry is owned by the request, which is kept until its completion was taken; a watch has no memory.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.enter();
        }
    }

    fn enter(&mut self) {
        self.pushed = 0;
        while let Err(error) = self.ring.submit() {
            assert!(is_transient(&error), "io_uring_enter on a ring of our own: {error}");
            // EBUSY and EAGAIN: completions must be taken before more is submitted.
            self.take();
            std::thread::yield_now();
        }
    }

    fn is_ready(&self, wanted: &[bool]) -> bool {
        self.watched.iter().zip(wanted).any(|(watched, wanted)| *wanted && watched.ready)
    }

    /// Watches the wanted descriptors that are not watched yet. A watch stays until it fires.
    fn arm(&mut self, wanted: &[bool]) {
        for (number, wanted) in wanted.iter().enumerate() {
            let watched = &mut self.watched[number];
            if *wanted && !watched.armed {
                watched.armed = true;
                let entry = opcode::PollAdd::new(types::Fd(watched.fd), poll_mask(watched.events)).build();
                self.push(&entry.user_data(WATCHED | number as u64));
            }
        }
    }

    /// Also submits pushed entries.
    fn sleep(&mut self, timeout: Option<&Timespec>) -> io::Result<()> {
        self.pushed = 0;
        let slept = match timeout {
            None => self.ring.submitter().submit_and_wait(1),
            Some(timeout) => {
                let time = types::Timespec::new().sec(timeout.tv_sec as u64).nsec(timeout.tv_nsec as u32);
                let args = types::SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        match slept {
            Err(error) if !is_transient(&error) && Errno::from_io_error(&error) != Some(Errno::TIME) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Takes all completions.
    fn take(&mut self) {
        let mut unfinished = Vec::new();
        for entry in self.ring.completion() {
            let mark = entry.user_data();
            if mark & WATCHED != 0 {
                let watched = &mut self.watched[(mark & !WATCHED) as usize];
                (watched.armed, watched.ready) = (false, true);
                continue;
            }
            let slot = mark as usize;
            let Some(request) = self.in_flight.get(slot) else { continue };
            match request.open.advance(&mut request.request, entry.result()) {
                Some(completed) => {
                    let open = self.in_flight.remove(slot).open;
                    self.completed.push_back((open, completed));
                }
                None => unfinished.push(slot),
            }
        }
        unfinished.into_iter().for_each(|slot| self.push_request(slot));
    }
}

/// Requests in the kernel, by their user data.
#[derive(Default)]
struct RequestTable {
    slots: Vec<Option<RingRequest>>,
    free: Vec<usize>,
    count: usize,
}

struct RingRequest {
    request: InFlight,
    open: Arc<dyn Opened>,
}

impl RequestTable {
    fn insert(&mut self, entry: RingRequest) -> usize {
        self.count += 1;
        if let Some(slot) = self.free.pop() {
            self.slots[slot] = Some(entry);
            return slot;
        }
        self.slots.push(Some(entry));
        self.slots.len() - 1
    }

    fn get(&mut self, slot: usize) -> Option<&mut RingRequest> {
        self.slots.get_mut(slot)?.as_mut()
    }

    fn remove(&mut self, slot: usize) -> RingRequest {
        self.count -= 1;
        self.free.push(slot);
        self.slots[slot].take().expect("a request has one completion")
    }
}

/// The kernel's constants: the type of the flags depends on whether rustix uses the C library.
fn poll_mask(events: PollFlags) -> u32 {
    const POLLIN: u32 = 1;
    const POLLOUT: u32 = 4;
    let bit = |flag, number| if events.contains(flag) { number } else { 0 };
    bit(PollFlags::IN, POLLIN) | bit(PollFlags::OUT, POLLOUT)
}

fn is_transient(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}
