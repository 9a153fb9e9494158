//! The replies of a connection, shared by its thread and by the completions of its requests.
//!
//! The connection's thread runs an [event loop](device::event_loop): most requests complete on it, and it sends their replies with one
//! call before it sleeps. A request that completes on another thread while it sleeps is answered by that thread without waking it, and
//! several that complete together by one call. Only one thread sends at a time; the others add their replies to the queue,
//! which the sending thread empties before it stops.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::coalesce::{self, Action};
use device::event_loop::{EventLoop, Watched};
use device::{Clock, event_fd};
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::budget::Budget;
use super::wire::ReplyHead;

/// A reply or part of one.
#[derive(Debug)]
pub(super) struct Frame {
    pub head: ReplyHead,
    pub payload: Payload,
    /// Requests that complete with this frame: one, or none if more frames follow.
    pub ends: usize,
    /// Memory that is released when the frame is sent.
    pub reserved_bytes: usize,
}

/// The data after a header.
#[derive(Debug)]
pub(super) enum Payload {
    None,
    Words(Vec<u8>),
    Data(device::IoSlice),
}

impl Payload {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Words(bytes) => bytes,
            Self::Data(bytes) => bytes,
        }
    }
}

/// The sending side of a connection.
pub(super) struct Link {
    socket: OwnedFd,
    /// Eventfd that wakes the connection's thread.
    event_fd: Arc<OwnedFd>,
    budget: Arc<Budget>,
    limits: InFlight,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// When the client stalled in the middle of a request or without accepting replies; 0 if it did not.
    stalled_since_ns: AtomicU64,
}

/// Requests whose replies are not sent yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct InFlight {
    pub requests: usize,
    pub bytes: usize,
}

struct State {
    queue: VecDeque<Frame>,
    /// Frames being sent; taken by the thread that sends.
    batch: Option<Batch>,
    in_flight: InFlight,
    /// Whether the connection's thread is awake and will check the queue before it sleeps.
    is_thread_awake: bool,
    /// Whether the connection's thread waits for requests to complete.
    does_thread_wait: bool,
    /// Whether a request waits for memory, and no reply was sent since.
    lacks_memory: bool,
    /// Whether the socket's send buffer is full.
    blocked: bool,
    /// Complete frames sent so far.
    sent_frames: u64,
    /// Whether the socket failed.
    broken: bool,
    /// When the last request in flight completed.
    idle_since_ns: u64,
}

/// Frames being sent; the first may be sent in part.
#[derive(Default)]
struct Batch {
    frames: VecDeque<Frame>,
    sent_bytes: usize,
}

/// The event that the connection's thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Input from the client.
    Input,
    /// Memory for a request.
    Memory,
    /// Completion of all requests in flight.
    End,
}

/// Why the connection's thread woke up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Woken {
    /// Input may be available.
    pub input: bool,
}

/// Frames per call: headers and payloads stay below the system's limit of 1024 buffers.
const FRAMES_PER_CALL: usize = 64;

impl Link {
    pub fn new(
        socket: OwnedFd,
        budget: Arc<Budget>,
        limits: InFlight,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let state = State {
            queue: VecDeque::new(),
            batch: Some(Batch::default()),
            in_flight: InFlight::default(),
            is_thread_awake: true,
            does_thread_wait: false,
            lacks_memory: false,
            blocked: false,
            sent_frames: 0,
            broken: false,
            idle_since_ns: 0,
        };
        let (event_fd, state) = (Arc::new(event_fd::new()?), Mutex::new(state));
        Ok(Self { socket, event_fd, budget, limits, clock, state, stalled_since_ns: AtomicU64::new(0) })
    }

    /// Starts to measure idle time, after the handshake.
    pub fn begin_serving(&self) {
        self.state.lock().idle_since_ns = self.clock.monotonic_ns();
    }

    /// Records since when the client has stalled, if it has.
    pub fn client_stalled_since(&self, since_ns: Option<u64>) {
        self.stalled_since_ns.store(since_ns.unwrap_or(0), Ordering::Relaxed);
    }

    /// Since when the connection has been idle for at least `idle_ns`, or its client stalled for at least `stalled_ns`.
    pub fn quiet_since(&self, now_ns: u64, idle_ns: u64, stalled_ns: u64) -> Option<u64> {
        let stalled_since_ns = self.stalled_since_ns.load(Ordering::Relaxed);
        if stalled_since_ns > 0 {
            return (now_ns.saturating_sub(stalled_since_ns) >= stalled_ns).then_some(stalled_since_ns);
        }
        let state = self.state.lock();
        // A connection that waits for memory is not idle.
        let is_idle = state.is_idle() && !state.lacks_memory && state.idle_since_ns > 0;
        let since_ns = state.idle_since_ns;
        drop(state);
        let is_long = is_idle && now_ns.saturating_sub(since_ns) >= idle_ns;
        (is_long && !self.has_input()).then_some(since_ns)
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Closes the connection, even if other threads still use the link.
    pub fn close(&self) {
        // Fails if the client has already closed it.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Wakes the connection's thread.
    pub fn wake(&self) {
        event_fd::signal(&self.event_fd);
    }

    /// Reserves memory for one more request. Returns false if the limits do not permit it.
    pub fn reserve(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        let InFlight { requests, bytes: taken } = state.in_flight;
        let fits = requests < self.limits.requests && (taken == 0 || taken + bytes <= self.limits.bytes);
        if !fits || !self.budget.reserve(bytes, taken == 0, &self.event_fd) {
            state.lacks_memory = true;
            return false;
        }
        state.in_flight = InFlight { requests: requests + 1, bytes: taken + bytes };
        true
    }

    /// Whether the queue has more replies than requests may be in flight, because the client does not read them. Then a request
    /// waits as for memory.
    pub fn has_backlog(&self) -> bool {
        let mut state = self.state.lock();
        let has_backlog = state.queue.len() > self.limits.requests;
        state.lacks_memory |= has_backlog;
        has_backlog
    }

    /// Releases the reservation of a request that has no reply.
    pub fn release(&self, bytes: usize) {
        let mut state = self.state.lock();
        self.count_ended(&mut state, Ended { frames: 0, requests: 1, bytes });
    }

    /// Whether exactly one request is in flight.
    pub fn has_one_request(&self) -> bool {
        self.state.lock().in_flight.requests == 1
    }

    /// Whether there is unread input from the client.
    pub fn has_input(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut polled, Some(&timespec(0))).is_ok_and(|ready| ready > 0)
    }

    /// Whether every request has completed and every reply is sent.
    pub fn is_idle(&self) -> bool {
        self.state.lock().is_idle()
    }

    /// If the send buffer is full: the number of frames sent so far.
    pub fn stuck_after(&self) -> Option<u64> {
        let state = self.state.lock();
        state.blocked.then_some(state.sent_frames)
    }

    pub fn is_broken(&self) -> bool {
        self.state.lock().broken
    }

    /// Sends `frame` after the earlier ones, immediately or soon.
    pub fn send(self: &Arc<Self>, frame: Frame) {
        let mut state = self.state.lock();
        state.queue.push_back(frame);
        if state.broken {
            return self.discard(&mut state);
        }
        let sends_itself = !state.is_thread_awake;
        drop(state);
        if sends_itself {
            coalesce::request(self);
        }
    }

    /// Sends the queue, as far as the socket accepts it.
    pub fn flush(&self) {
        let state = self.state.lock();
        if state.can_send() {
            self.send_queue(state);
        }
    }

    /// Stops sending; unsent frames are discarded.
    pub fn stop_sending(&self) {
        let mut state = self.state.lock();
        // A thread that is sending discards its own frames when it returns.
        let mut batch = state.batch.take();
        self.break_off(&mut state, batch.as_mut());
        state.batch = batch;
    }

    /// The descriptors for [`sleep`](Self::sleep).
    pub fn watched(&self) -> [Watched<'_>; 3] {
        [
            Watched::input(self.event_fd.as_fd()),
            Watched::input(self.socket.as_fd()),
            Watched::output(self.socket.as_fd()),
        ]
    }

    /// Sleeps until there is work or `timeout_ns` have passed. May return earlier.
    pub fn sleep(
        &self,
        event_loop: &EventLoop<'_, 3>,
        until: Until,
        timeout_ns: Option<u64>,
    ) -> io::Result<Woken> {
        let Some(blocked) = self.prepare_to_sleep(until) else { return Ok(Woken { input: false }) };
        // Only needed events are watched: a closed socket would be reported permanently.
        let wanted = [true, until == Until::Input, blocked];
        let timeout = timeout_ns.map(timespec);
        let [is_woken, has_input, has_space] = event_loop.wait(wanted, timeout.as_ref())?;
        if is_woken {
            event_fd::clear(&self.event_fd);
        }
        let mut state = self.state.lock();
        (state.is_thread_awake, state.does_thread_wait) = (true, false);
        state.blocked &= !(has_input || has_space);
        Ok(Woken { input: has_input })
    }

    /// Prepares to sleep. Returns whether the send buffer is full; `None` if there is work.
    fn prepare_to_sleep(&self, until: Until) -> Option<bool> {
        let mut state = self.state.lock();
        let has_come = match until {
            Until::Input => false,
            Until::Memory => !state.lacks_memory,
            Until::End => state.is_idle(),
        };
        if has_come || state.can_send() {
            return None;
        }
        state.is_thread_awake = false;
        state.does_thread_wait = until != Until::Input;
        Some(state.blocked)
    }

    /// Sends until the queue is empty or the send buffer is full, unless another thread is sending.
    fn send_queue<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if state.blocked || state.broken {
            return;
        }
        let Some(mut batch) = state.batch.take() else { return };
        loop {
            let space = FRAMES_PER_CALL - batch.frames.len();
            let more = state.queue.len().min(space);
            batch.frames.extend(state.queue.drain(..more));
            if batch.frames.is_empty() {
                break;
            }
            drop(state);
            let sent = batch.send(&self.socket);
            state = self.state.lock();
            match sent {
                Ok(ended) => self.count_ended(&mut state, ended),
                Err(error) => self.handle_send_error(&mut state, &mut batch, &error),
            }
            if state.broken {
                self.break_off(&mut state, Some(&mut batch));
            }
            if state.broken || state.blocked {
                break;
            }
        }
        state.batch = Some(batch);
        if state.does_thread_wait {
            state.does_thread_wait = false;
            drop(state);
            self.wake();
        }
    }

    fn handle_send_error(&self, state: &mut State, batch: &mut Batch, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::WouldBlock => state.blocked = true,
            _ => self.break_off(state, Some(batch)),
        }
        // The connection's thread must wait for the socket, or end.
        state.does_thread_wait |= !state.is_thread_awake;
    }

    /// Marks the socket as failed and discards all frames.
    fn break_off(&self, state: &mut State, batch: Option<&mut Batch>) {
        (state.broken, state.blocked) = (true, false);
        let unsent = batch.map(std::mem::take).unwrap_or_default();
        self.count_ended(state, counted(unsent.frames.into_iter()));
        self.discard(state);
    }

    fn discard(&self, state: &mut State) {
        let ended = counted(state.queue.drain(..));
        self.count_ended(state, ended);
        if state.does_thread_wait {
            state.does_thread_wait = false;
            self.wake();
        }
    }

    fn count_ended(&self, state: &mut State, ended: Ended) {
        state.in_flight.requests -= ended.requests;
        state.in_flight.bytes -= ended.bytes;
        state.sent_frames += ended.frames;
        state.lacks_memory = false;
        if state.in_flight.requests == 0 {
            state.idle_since_ns = self.clock.monotonic_ns();
        }
        self.budget.release(ended.bytes);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.budget.forget(&self.event_fd);
    }
}

/// Sends the queue.
impl Action for Link {
    fn run(&self) {
        self.flush();
    }
}

impl State {
    /// Whether there is something to send, no thread is sending, and the socket may accept it.
    fn can_send(&self) -> bool {
        let has_begun = self.batch.as_ref().map(|batch| !batch.frames.is_empty());
        !self.blocked && has_begun.is_some_and(|has_begun| has_begun || !self.queue.is_empty())
    }

    fn is_idle(&self) -> bool {
        let is_sent = self.batch.as_ref().is_some_and(|batch| batch.frames.is_empty());
        self.in_flight.requests == 0 && self.queue.is_empty() && is_sent
    }
}

/// Totals of frames that were sent or discarded.
#[derive(Debug, Clone, Copy, Default)]
struct Ended {
    frames: u64,
    requests: usize,
    bytes: usize,
}

impl Ended {
    fn plus(self, other: Self) -> Self {
        let Self { frames, requests, bytes } = other;
        Self { frames: self.frames + frames, requests: self.requests + requests, bytes: self.bytes + bytes }
    }
}

impl Frame {
    fn counted(&self) -> Ended {
        Ended { frames: 1, requests: self.ends, bytes: self.reserved_bytes }
    }
}

fn counted(frames: impl Iterator<Item = Frame>) -> Ended {
    frames.map(|frame| frame.counted()).fold(Ended::default(), Ended::plus)
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000).cast_signed(), tv_nsec: (ns % 1_000_000_000).cast_signed() }
}

impl Batch {
    /// Calls `writev` once. Returns the totals of the completed frames.
    fn send(&mut self, socket: &OwnedFd) -> io::Result<Ended> {
        let mut buffers: Vec<IoSlice<'_>> = Vec::with_capacity(2 * self.frames.len());
        for frame in &self.frames {
            buffers.push(IoSlice::new(frame.head.bytes()));
            buffers.push(IoSlice::new(frame.payload.bytes()));
        }
        let mut unsent = &mut buffers[..];
        IoSlice::advance_slices(&mut unsent, self.sent_bytes);
        let sent = match rustix::io::writev(socket, unsent) {
            Ok(sent) => sent,
            Err(rustix::io::Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        Ok(self.advance(sent))
    }

    fn advance(&mut self, sent: usize) -> Ended {
        self.sent_bytes += sent;
        let mut ended = Ended::default();
        while let Some(frame) = self.frames.front() {
            let len = frame.head.bytes().len() + frame.payload.bytes().len();
            if self.sent_bytes < len {
                break;
            }
            self.sent_bytes -= len;
            ended = ended.plus(frame.counted());
            self.frames.pop_front();
        }
        ended
    }
}
