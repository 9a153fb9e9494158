//! One connection as its thread and the completions of its requests share it: replies on their way out.
//!
//! The connection's thread sits at a [desk](device::desk): most requests end on it, and it sends their replies with one call
//! before it sleeps again. What ends elsewhere while it sleeps is answered at once and without waking anybody, by the thread that
//! completes the request, or for the last of a few that have ended [together]. Only one thread sends at a time; the others leave
//! their replies in the queue, which the sender empties before it goes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::desk::{Desk, Watched};
use device::together::{self, Errand};
use device::{Clock, bell};
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::budget::Budget;
use super::wire::ReplyHead;

/// A reply, or a part of one.
#[derive(Debug)]
pub(super) struct Frame {
    pub head: ReplyHead,
    pub payload: Payload,
    /// Requests that end with this frame: one, or none if more frames follow.
    pub ends: usize,
    /// What those had taken of the budget.
    pub reserved_bytes: usize,
}

/// What follows a head.
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

/// A connection's way out.
pub(super) struct Link {
    socket: OwnedFd,
    /// Rung to wake the connection's thread.
    bell: Arc<OwnedFd>,
    budget: Arc<Budget>,
    limits: InFlight,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Since when the client has not finished a request or taken its replies; 0 if it owes nothing.
    owes_since_ns: AtomicU64,
}

/// Requests started whose replies were not sent yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct InFlight {
    pub requests: usize,
    pub bytes: usize,
}

struct State {
    queue: VecDeque<Frame>,
    /// What the sender sends. Gone while somebody is sending.
    batch: Option<Batch>,
    in_flight: InFlight,
    /// Whether the connection's thread will look at the queue before it sleeps.
    owner_awake: bool,
    /// Whether the connection's thread waits for requests to end.
    owner_waits: bool,
    /// Whether nothing was sent since there was no room for a request.
    lacks_room: bool,
    /// Whether the socket takes no more for now.
    blocked: bool,
    /// Frames sent so far, whole.
    sent_frames: u64,
    /// Whether the socket takes no more for ever.
    broken: bool,
    /// When the last request under way ended.
    idle_since_ns: u64,
}

/// Frames being sent, the first of them in part.
#[derive(Default)]
struct Batch {
    frames: VecDeque<Frame>,
    sent_bytes: usize,
}

/// What the connection's thread sleeps for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Something has come from the client.
    Input,
    /// A request that found no room may find some now.
    Room,
    /// Requests under way have ended.
    End,
}

/// Why the connection's thread has woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Woken {
    /// There may be something to read.
    pub input: bool,
}

/// Frames sent with one call: their heads and payloads stay below the system's limit of 1024 pieces.
const FRAMES_AT_ONCE: usize = 64;

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
            owner_awake: true,
            owner_waits: false,
            lacks_room: false,
            blocked: false,
            sent_frames: 0,
            broken: false,
            idle_since_ns: 0,
        };
        let (bell, state) = (Arc::new(bell::new()?), Mutex::new(state));
        Ok(Self { socket, bell, budget, limits, clock, state, owes_since_ns: AtomicU64::new(0) })
    }

    /// The handshake is over: idle time counts from now on.
    pub fn begin_serving(&self) {
        self.state.lock().idle_since_ns = self.clock.monotonic_ns();
    }

    /// Records since when the client has not finished a request or taken its replies, if that is so.
    pub fn client_owes_since(&self, since_ns: Option<u64>) {
        self.owes_since_ns.store(since_ns.unwrap_or(0), Ordering::Relaxed);
    }

    /// Since when the connection has been idle, if for `idle_ns`, or its client has stalled, if for `stalled_ns`.
    pub fn quiet_since(&self, now_ns: u64, idle_ns: u64, stalled_ns: u64) -> Option<u64> {
        let owes_since_ns = self.owes_since_ns.load(Ordering::Relaxed);
        if owes_since_ns > 0 {
            return (now_ns.saturating_sub(owes_since_ns) >= stalled_ns).then_some(owes_since_ns);
        }
        let state = self.state.lock();
        // Without room for its next request it waits for the server.
        let is_idle = state.is_idle() && !state.lacks_room && state.idle_since_ns > 0;
        let since_ns = state.idle_since_ns;
        drop(state);
        let is_long = is_idle && now_ns.saturating_sub(since_ns) >= idle_ns;
        (is_long && !self.has_input()).then_some(since_ns)
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Ends the connection for the client too, however many still hold the link.
    pub fn hang_up(&self) {
        // A client that has hung up first has done it for us.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Wakes the connection's thread.
    pub fn ring(&self) {
        bell::ring(&self.bell);
    }

    /// Whether one more request that needs `bytes` may be started; it then counts as started.
    pub fn reserve(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        let InFlight { requests, bytes: taken } = state.in_flight;
        let fits = requests < self.limits.requests && (taken == 0 || taken + bytes <= self.limits.bytes);
        if !fits || !self.budget.reserve(bytes, taken == 0, &self.bell) {
            state.lacks_room = true;
            return false;
        }
        state.in_flight = InFlight { requests: requests + 1, bytes: taken + bytes };
        true
    }

    /// Whether more replies wait to be taken than requests may be under way: a client that only asks and never listens must
    /// not pile them up. A request then finds no room.
    pub fn has_backlog(&self) -> bool {
        let mut state = self.state.lock();
        let has_backlog = state.queue.len() > self.limits.requests;
        state.lacks_room |= has_backlog;
        has_backlog
    }

    /// Takes back what was reserved for a request that ends without a reply.
    pub fn release(&self, bytes: usize) {
        let mut state = self.state.lock();
        self.count_ended(&mut state, Ended { frames: 0, requests: 1, bytes });
    }

    /// Whether a single request is under way.
    pub fn has_one_request(&self) -> bool {
        self.state.lock().in_flight.requests == 1
    }

    /// Whether the client has sent something that was not read yet.
    pub fn has_input(&self) -> bool {
        let mut asked = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut asked, Some(&timespec(0))).is_ok_and(|ready| ready > 0)
    }

    /// Whether every request has ended and every reply is on its way.
    pub fn is_idle(&self) -> bool {
        self.state.lock().is_idle()
    }

    /// Whether the client has to take replies before more can be sent: then the number of those it has taken.
    pub fn stuck_after(&self) -> Option<u64> {
        let state = self.state.lock();
        state.blocked.then_some(state.sent_frames)
    }

    pub fn is_broken(&self) -> bool {
        self.state.lock().broken
    }

    /// Sends `frame`, now or soon, after those that came before it.
    pub fn send(self: &Arc<Self>, frame: Frame) {
        let mut state = self.state.lock();
        state.queue.push_back(frame);
        if state.broken {
            return self.discard(&mut state);
        }
        let sends_itself = !state.owner_awake;
        drop(state);
        if sends_itself {
            together::once(self);
        }
    }

    /// Sends what is queued, as far as the socket takes it.
    pub fn flush(&self) {
        let state = self.state.lock();
        if state.can_send() {
            self.send_queue(state);
        }
    }

    /// Nothing will be sent any more.
    pub fn give_up(&self) {
        let mut state = self.state.lock();
        // Whoever is sending sees to what he has when he comes back.
        let mut batch = state.batch.take();
        self.break_off(&mut state, batch.as_mut());
        state.batch = batch;
    }

    /// What the connection's thread watches: for [`sleep`](Self::sleep).
    pub fn watched(&self) -> [Watched<'_>; 3] {
        [
            Watched::input(self.bell.as_fd()),
            Watched::input(self.socket.as_fd()),
            Watched::output(self.socket.as_fd()),
        ]
    }

    /// Sleeps until there is something to do, or until `timeout_ns` are over. It may return sooner.
    pub fn sleep(&self, desk: &Desk<'_, 3>, until: Until, timeout_ns: Option<u64>) -> io::Result<Woken> {
        let Some(blocked) = self.fall_asleep(until) else { return Ok(Woken { input: false }) };
        // A socket that was hung up on would be reported for ever: it is asked only for what is wanted.
        let wanted = [true, until == Until::Input, blocked];
        let timeout = timeout_ns.map(timespec);
        let [rung, has_input, has_room] = desk.wait(wanted, timeout.as_ref())?;
        if rung {
            bell::silence(&self.bell);
        }
        let mut state = self.state.lock();
        (state.owner_awake, state.owner_waits) = (true, false);
        state.blocked &= !(has_input || has_room);
        Ok(Woken { input: has_input })
    }

    /// Whether the socket is blocked; nothing if there is something to do instead of sleeping.
    fn fall_asleep(&self, until: Until) -> Option<bool> {
        let mut state = self.state.lock();
        let has_come = match until {
            Until::Input => false,
            Until::Room => !state.lacks_room,
            Until::End => state.is_idle(),
        };
        if has_come || state.can_send() {
            return None;
        }
        state.owner_awake = false;
        state.owner_waits = until != Until::Input;
        Some(state.blocked)
    }

    /// Sends until nothing is left or the socket takes no more, unless somebody else is at it.
    fn send_queue<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if state.blocked || state.broken {
            return;
        }
        let Some(mut batch) = state.batch.take() else { return };
        loop {
            let room = FRAMES_AT_ONCE - batch.frames.len();
            let more = state.queue.len().min(room);
            batch.frames.extend(state.queue.drain(..more));
            if batch.frames.is_empty() {
                break;
            }
            drop(state);
            let sent = batch.send(&self.socket);
            state = self.state.lock();
            match sent {
                Ok(ended) => self.count_ended(&mut state, ended),
                Err(error) => self.stop_sending(&mut state, &mut batch, &error),
            }
            if state.broken {
                self.break_off(&mut state, Some(&mut batch));
            }
            if state.broken || state.blocked {
                break;
            }
        }
        state.batch = Some(batch);
        if state.owner_waits {
            state.owner_waits = false;
            drop(state);
            self.ring();
        }
    }

    fn stop_sending(&self, state: &mut State, batch: &mut Batch, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::WouldBlock => state.blocked = true,
            _ => self.break_off(state, Some(batch)),
        }
        // The connection's thread must wait for the socket, or leave.
        state.owner_waits |= !state.owner_awake;
    }

    /// Nothing is sent any more, not even the rest of what was sent in part.
    fn break_off(&self, state: &mut State, batch: Option<&mut Batch>) {
        (state.broken, state.blocked) = (true, false);
        let unsent = batch.map(std::mem::take).unwrap_or_default();
        self.count_ended(state, counted(unsent.frames.into_iter()));
        self.discard(state);
    }

    fn discard(&self, state: &mut State) {
        let ended = counted(state.queue.drain(..));
        self.count_ended(state, ended);
        if state.owner_waits {
            state.owner_waits = false;
            self.ring();
        }
    }

    fn count_ended(&self, state: &mut State, ended: Ended) {
        state.in_flight.requests -= ended.requests;
        state.in_flight.bytes -= ended.bytes;
        state.sent_frames += ended.frames;
        state.lacks_room = false;
        if state.in_flight.requests == 0 {
            state.idle_since_ns = self.clock.monotonic_ns();
        }
        self.budget.release(ended.bytes);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.budget.forget(&self.bell);
    }
}

/// To send what is queued.
impl Errand for Link {
    fn run(&self) {
        self.flush();
    }
}

impl State {
    /// Whether there is something to send, nobody sends, and the socket may take it.
    fn can_send(&self) -> bool {
        let has_begun = self.batch.as_ref().map(|batch| !batch.frames.is_empty());
        !self.blocked && has_begun.is_some_and(|has_begun| has_begun || !self.queue.is_empty())
    }

    fn is_idle(&self) -> bool {
        let is_sent = self.batch.as_ref().is_some_and(|batch| batch.frames.is_empty());
        self.in_flight.requests == 0 && self.queue.is_empty() && is_sent
    }
}

/// What has ended with frames that were sent or given up.
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
    /// Sends once. What has ended with it.
    fn send(&mut self, socket: &OwnedFd) -> io::Result<Ended> {
        let mut pieces: Vec<IoSlice<'_>> = Vec::with_capacity(2 * self.frames.len());
        for frame in &self.frames {
            pieces.push(IoSlice::new(frame.head.bytes()));
            pieces.push(IoSlice::new(frame.payload.bytes()));
        }
        let mut unsent = &mut pieces[..];
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
