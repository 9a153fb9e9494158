//! One connection, on its own thread: handshake, requests, and closing.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::coalesce;
use device::event_loop::EventLoop;
use device::{Clock, IoBuffer};

use super::handshake::{Handshake, NegotiatedOptions, Offer, Step, context_id};
use super::link::{Frame, Link, Payload, Until, Woken};
use super::receive_buffer::{Next, ReceiveBuffer};
use super::slots::Slot;
use super::transmission::{Command, MAX_EXTENTS, Refusal, Rules, status_payload};
use super::wire::{Errno, ReplyHead, RequestHead, chunk};
use crate::export::{Client, Context, Export, Operation, OperationResult, Reply, run_inline};

/// State shared by all connections of a server.
pub(super) struct ServerShared {
    pub offers: Vec<Offer>,
    /// The export of each offer.
    pub exports: Vec<Arc<dyn Export>>,
    pub clock: Arc<dyn Clock>,
    /// Time limit for a client to finish sending a request, or to accept a reply.
    pub client_timeout_ns: u64,
    /// Time limit for a handshake.
    pub handshake_timeout_ns: u64,
    /// Set when the server stops: no more requests are accepted.
    pub closing: AtomicBool,
}

impl ServerShared {
    /// The exports offered to clients, with their current sizes.
    fn present_offers(&self) -> Vec<Offer> {
        let present =
            |(offer, export): (&Offer, &Arc<dyn Export>)| Offer { shape: export.shape(), ..offer.clone() };
        self.offers.iter().zip(&self.exports).map(present).collect()
    }
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client disconnected or the server stopped, with every request answered.
    Closed,
    /// All slots are in use by active clients.
    NoSlot,
    /// The client violated the protocol or exceeded a time limit.
    Dropped(&'static str),
    /// The socket failed.
    Failed(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl End {
    /// The error, if any.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Closed | Self::NoSlot => None,
            Self::Dropped(why) => Some(format!("a client was disconnected: {why}")),
            Self::Failed(error) => Some(format!("a client's socket failed: {error}")),
        }
    }
}

/// Requests up to this length complete on the connection's thread. Longer ones are split into parallel transfers.
const MAX_INLINE_BYTES: u32 = 16 << 10;

/// Number of requests that are not executed inline after an inline request delayed others of its client. It doubles each time up to the
/// maximum, because each attempt costs such a client the time of a transfer.
const INLINE_BACKOFF: u32 = 64;
const MAX_INLINE_BACKOFF: u32 = 64 * INLINE_BACKOFF;

/// Read replies sent together after several reads have completed. The client can continue with them while the rest is prepared,
/// and its next requests are started first. A drive completes up to thirty requests together; with all replies in one call, client,
/// server and drive would wait for each other in turn, and a client with 32 reads would be 10 % slower. Writes gain more from
/// sharing an intent log entry.
const READS_PER_FLUSH: usize = 6;

/// Requests started before replies are sent.
const REQUESTS_PER_ROUND: usize = 64;

/// Serves one client. When this returns, every started request has completed.
pub(super) fn serve(shared: &Arc<ServerShared>, link: &Arc<Link>, client: Client, slot: &Slot) -> End {
    // An export may have grown since the server was started.
    let offers = shared.present_offers();
    let (agreed, received) = match handshake_with(shared, &offers, link.socket(), slot) {
        Ok(Some(agreed)) => agreed,
        Ok(None) => return End::Closed,
        Err(end) => return end,
    };
    link.begin_serving();
    let has_contexts = !agreed.contexts.is_empty();
    let shape = offers[agreed.place].shape;
    let rules = Rules { shape, structured: agreed.structured, has_contexts };
    let replies = Arc::new(ReplyContext { link: Arc::clone(link), rules, contexts: agreed.contexts });
    let event_loop = EventLoop::new(link.watched());
    let mut server = Server {
        shared,
        event_loop: &event_loop,
        export: &*shared.exports[agreed.place],
        client,
        intake: ReceiveBuffer::new(rules, &received),
        replies: &replies,
        stall: StallTimer::default(),
        has_more_completed: false,
        has_read_last: false,
        inline_backoff: 0,
        next_inline_backoff: INLINE_BACKOFF,
    };
    let end = server.run();
    if let Some(bytes) = server.intake.abandoned_bytes() {
        link.release(bytes);
    }
    if !matches!(end, Ok(())) {
        link.stop_sending();
    }
    let waited = wait_for_completions(shared, link, &event_loop);
    end.and(waited).err().unwrap_or(End::Closed)
}

/// The negotiated options and the bytes that followed; `None` if the client disconnected.
fn handshake_with(
    shared: &ServerShared,
    offers: &[Offer],
    socket: &OwnedFd,
    slot: &Slot,
) -> Result<Option<(NegotiatedOptions, Vec<u8>)>, End> {
    let deadline_ns = shared.clock.monotonic_ns().saturating_add(shared.handshake_timeout_ns);
    let mut handshake = Handshake::new(offers);
    let (mut input, mut output) = (Vec::new(), Vec::new());
    handshake.greet(&mut output);
    loop {
        exchange::send(shared, socket, &mut output, deadline_ns)?;
        let received =
            exchange::receive(shared, socket, &mut input, Handshake::MAX_INPUT_BYTES, deadline_ns)?;
        if received == 0 {
            return Ok(None);
        }
        loop {
            let (taken, step) = handshake.advance(&input, &mut output);
            input.drain(..taken);
            match step {
                Step::More if taken == 0 => break,
                Step::More => {}
                Step::Transmit(_) if !slot.begin_serving(deadline_ns, &shared.closing) => {
                    handshake.refuse_export(&mut output, "too many clients are connected");
                    // Ignored: the client may have disconnected.
                    let _ = exchange::send(shared, socket, &mut output, deadline_ns);
                    return Err(End::NoSlot);
                }
                Step::Transmit(agreed) => {
                    exchange::send(shared, socket, &mut output, deadline_ns)?;
                    return Ok(Some((agreed, input)));
                }
                Step::Close => {
                    return match exchange::send(shared, socket, &mut output, deadline_ns) {
                        // A client that disconnects may not wait for the reply.
                        Ok(()) | Err(End::Failed(_)) => Ok(None),
                        Err(end) => Err(end),
                    };
                }
            }
            // Sent per option, so that replies to a flood of options do not accumulate.
            exchange::send(shared, socket, &mut output, deadline_ns)?;
        }
    }
}

/// The state of a connection after the handshake.
struct Server<'a> {
    shared: &'a Arc<ServerShared>,
    event_loop: &'a EventLoop<'a, 3>,
    export: &'a dyn Export,
    client: Client,
    replies: &'a Arc<ReplyContext>,
    intake: ReceiveBuffer,
    /// How long the client has stalled in the middle of a request or without accepting replies.
    stall: StallTimer,
    /// Whether completed requests wait for their replies to be queued.
    has_more_completed: bool,
    /// Whether the last request was a read.
    has_read_last: bool,
    /// Number of further requests that are not made inline.
    inline_backoff: u32,
    /// The next value of `inline_backoff`.
    next_inline_backoff: u32,
}

/// Measures how long a client has stalled. Each accepted reply restarts it.
#[derive(Default)]
struct StallTimer {
    since_ns: Option<u64>,
    /// Replies accepted at that time, if the client does not accept more.
    stuck_after: Option<u64>,
}

impl StallTimer {
    /// Remaining time of the limit; 0 if exceeded.
    fn time_left_ns(&mut self, shared: &ServerShared, stuck_after: Option<u64>) -> u64 {
        let now_ns = shared.clock.monotonic_ns();
        if stuck_after > self.stuck_after {
            (self.since_ns, self.stuck_after) = (None, stuck_after);
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        since_ns.saturating_add(shared.client_timeout_ns).saturating_sub(now_ns)
    }
}

/// What replies need.
struct ReplyContext {
    link: Arc<Link>,
    rules: Rules,
    contexts: Vec<Context>,
}

/// What to do after starting the available requests.
enum NextStep {
    Read,
    /// More requests are available.
    Continue,
    AwaitMemory,
    Disconnect,
}

impl Server<'_> {
    fn run(&mut self) -> Result<(), End> {
        loop {
            let then = coalesce::scope(|| self.start_requests())?;
            self.replies.link.flush();
            if self.replies.link.is_broken() {
                return Err(End::Dropped("it closed the connection before reading its replies"));
            }
            let until = match then {
                NextStep::Continue => continue,
                NextStep::Disconnect => return Ok(()),
                NextStep::Read if self.shared.closing.load(Ordering::Acquire) => return Ok(()),
                NextStep::Read => Until::Input,
                NextStep::AwaitMemory => Until::Memory,
            };
            let woken = if self.has_more_completed {
                Woken { input: until == Until::Input && self.replies.link.has_input() }
            } else {
                let timeout_ns = self.time_left_ns()?;
                self.replies.link.sleep(self.event_loop, until, timeout_ns)?
            };
            let most = if self.has_read_last { READS_PER_FLUSH } else { usize::MAX };
            self.has_more_completed = self.event_loop.run_some_completions(most);
            self.replies.link.flush();
            if woken.input && !self.read()? {
                return Ok(());
            }
        }
    }

    /// Reads from the socket. Returns false if the client disconnected.
    fn read(&mut self) -> Result<bool, End> {
        let socket = self.replies.link.socket();
        match self.intake.fill(|room| Ok(rustix::io::readv(socket, room)?)) {
            Ok((0, _)) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) if is_transient(&error) => Ok(true),
            Err(error) => Err(End::Failed(error)),
        }
    }

    /// Remaining time of the client's limit; `None` while the client is not stalled.
    fn time_left_ns(&mut self) -> Result<Option<u64>, End> {
        let stuck_after = self.replies.link.stuck_after();
        if !self.intake.is_incomplete() && stuck_after.is_none() {
            self.stall = StallTimer::default();
            self.replies.link.client_stalled_since(None);
            return Ok(None);
        }
        let left_ns = self.stall.time_left_ns(self.shared, stuck_after);
        self.replies.link.client_stalled_since(self.stall.since_ns);
        match left_ns {
            0 => Err(End::Dropped("it did not finish a request or read its replies in time")),
            left_ns => Ok(Some(left_ns)),
        }
    }

    fn start_requests(&mut self) -> Result<NextStep, End> {
        let link = &self.replies.link;
        if link.has_backlog() {
            return Ok(NextStep::AwaitMemory);
        }
        for _ in 0..REQUESTS_PER_ROUND {
            match self.intake.next(|bytes| link.reserve(bytes)) {
                Next::Nothing => return Ok(NextStep::Read),
                Next::NoSpace => return Ok(NextStep::AwaitMemory),
                Next::Invalid => return Err(End::Dropped("it sent an invalid request")),
                Next::Request(_, Command::Disconnect, _) => {
                    link.release(0);
                    return Ok(NextStep::Disconnect);
                }
                Next::Request(head, command, payload) => {
                    self.stall = StallTimer::default();
                    self.start(&head, command, payload);
                }
                Next::Refused(cookie, refusal) => self.replies.refuse_unstarted(cookie, &refusal),
            }
        }
        Ok(NextStep::Continue)
    }

    fn start(&mut self, head: &RequestHead, command: Command, payload: Option<IoBuffer>) {
        let reply = PendingReply { replies: Arc::clone(self.replies), head: *head };
        if self.shared.closing.load(Ordering::Acquire) {
            return reply.refuse(&Refusal::new(Errno::Shutdown, "the server is shutting down"));
        }
        if let Command::Status { only_one } = command {
            return reply.status(self.export, only_one);
        }
        self.has_read_last = matches!(command, Command::Read);
        let operation = operation(head, command, payload);
        let reply = Reply::new(move |result| reply.send(result));
        let submit = || self.export.submit_for(&self.client, operation, reply);
        let link = &self.replies.link;
        let is_alone = head.length <= MAX_INLINE_BYTES && !self.intake.has_more() && link.has_one_request();
        if self.inline_backoff > 0 || !is_alone {
            self.inline_backoff = self.inline_backoff.saturating_sub(1);
            return submit();
        }
        run_inline(submit);
        // The reply is sent later by this thread. Input that arrived meanwhile means that the client has several requests in flight.
        if link.has_input() {
            self.inline_backoff = self.next_inline_backoff;
            self.next_inline_backoff = (2 * self.next_inline_backoff).min(MAX_INLINE_BACKOFF);
        } else {
            self.next_inline_backoff = INLINE_BACKOFF;
        }
    }
}

fn operation(head: &RequestHead, command: Command, payload: Option<IoBuffer>) -> Operation {
    let (offset, len) = (head.offset, u64::from(head.length));
    match command {
        Command::Read => Operation::Read { offset, len: head.length },
        Command::Write { durable } => {
            let data = payload.expect("a write has a payload").into();
            Operation::Write { offset, data, durable }
        }
        Command::Zero { may_trim, only_if_fast, durable } => {
            Operation::Zero { offset, len, may_trim, only_if_fast, durable }
        }
        Command::Trim { durable } => Operation::Trim { offset, len, durable },
        Command::Prefetch => Operation::Prefetch { offset, len },
        Command::Flush => Operation::Flush,
        Command::Status { .. } | Command::Disconnect => unreachable!("answered without the export"),
    }
}

/// A request that waits for its result.
struct PendingReply {
    replies: Arc<ReplyContext>,
    head: RequestHead,
}

impl PendingReply {
    fn send(self, result: OperationResult) {
        let rules = &self.replies.rules;
        match result {
            Ok(Some(bytes)) => self.end(rules.data(&self.head), Payload::Data(bytes)),
            Ok(None) => self.end(rules.done(self.head.cookie), Payload::None),
            Err(error) => self.refuse(&Refusal::from(&error)),
        }
    }

    fn refuse(&self, refusal: &Refusal) {
        let (head, words) = self.replies.rules.refusal(self.head.cookie, refusal);
        self.end(head, Payload::Words(words));
    }

    /// Sends a chunk for each context; the last one ends the request.
    fn status(&self, export: &dyn Export, only_one: bool) {
        let (offset, length) = (self.head.offset, self.head.length);
        let most = if only_one { 1 } else { MAX_EXTENTS };
        let contexts = &self.replies.contexts;
        for (i, context) in contexts.iter().enumerate() {
            let extents = match export.extents(*context, offset, u64::from(length), most) {
                Ok(extents) => extents,
                Err(error) => return self.refuse(&Refusal::from(&error)),
            };
            let words = status_payload(context_id(*context), &extents, length, only_one);
            let is_last = i + 1 == contexts.len();
            let flags = if is_last { chunk::DONE } else { 0 };
            let head = ReplyHead::chunk(self.head.cookie, flags, chunk::BLOCK_STATUS, words.len() as u32);
            if is_last {
                self.end(head, Payload::Words(words));
            } else {
                let frame = Frame { head, payload: Payload::Words(words), ends: 0, reserved_bytes: 0 };
                self.replies.link.send(frame);
            }
        }
    }

    fn end(&self, head: ReplyHead, payload: Payload) {
        let reserved_bytes = self.head.buffer_bytes();
        self.replies.link.send(Frame { head, payload, ends: 1, reserved_bytes });
    }
}

impl ReplyContext {
    /// Replies to a request for which no memory was reserved.
    fn refuse_unstarted(&self, cookie: u64, refusal: &Refusal) {
        let (head, words) = self.rules.refusal(cookie, refusal);
        self.link.send(Frame { head, payload: Payload::Words(words), ends: 0, reserved_bytes: 0 });
    }
}

/// Waits until all started requests have completed and their replies are accepted in time.
fn wait_for_completions(
    shared: &ServerShared,
    link: &Link,
    event_loop: &EventLoop<'_, 3>,
) -> Result<(), End> {
    let (mut stall, mut end) = (StallTimer::default(), Ok(()));
    loop {
        link.flush();
        if link.is_idle() {
            return end;
        }
        // The device may take any time; only the client has a time limit.
        let stuck_after = link.stuck_after();
        let timeout_ns = stuck_after.map(|_| stall.time_left_ns(shared, stuck_after));
        if timeout_ns == Some(0) {
            end = Err(End::Dropped("it did not read its replies"));
            link.stop_sending();
            continue;
        }
        if let Err(error) = link.sleep(event_loop, Until::End, timeout_ns) {
            link.stop_sending();
            end = Err(error.into());
        }
        event_loop.run_completions();
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Sending and receiving with a deadline, for the handshake.
mod exchange {
    use std::os::fd::OwnedFd;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::{End, ServerShared};

    pub fn send(
        shared: &ServerShared,
        socket: &OwnedFd,
        bytes: &mut Vec<u8>,
        deadline_ns: u64,
    ) -> Result<(), End> {
        while !bytes.is_empty() {
            match rustix::io::write(socket, bytes) {
                Ok(sent) => drop(bytes.drain(..sent)),
                Err(rustix::io::Errno::AGAIN) => wait(shared, socket, PollFlags::OUT, deadline_ns)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(End::Failed(errno.into())),
            }
        }
        Ok(())
    }

    /// Appends received bytes, up to a length of `most`. Returns their number; 0 at the end of the stream.
    pub fn receive(
        shared: &ServerShared,
        socket: &OwnedFd,
        bytes: &mut Vec<u8>,
        most: usize,
        deadline_ns: u64,
    ) -> Result<usize, End> {
        let mut room = [0; 4096];
        let free = (most - bytes.len()).min(room.len());
        loop {
            match rustix::io::read(socket, &mut room[..free]) {
                Ok(received) => {
                    bytes.extend(&room[..received]);
                    return Ok(received);
                }
                Err(rustix::io::Errno::AGAIN) => wait(shared, socket, PollFlags::IN, deadline_ns)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(End::Failed(errno.into())),
            }
        }
    }

    fn wait(shared: &ServerShared, socket: &OwnedFd, events: PollFlags, deadline_ns: u64) -> Result<(), End> {
        let left_ns = deadline_ns.saturating_sub(shared.clock.monotonic_ns());
        let stops = shared.closing.load(std::sync::atomic::Ordering::Acquire);
        if left_ns == 0 || stops {
            return Err(End::Dropped("it did not finish the handshake"));
        }
        // Polling for a stop of the server is cheaper than an eventfd per handshake.
        let pause_ns = left_ns.min(100_000_000);
        let pause = Timespec { tv_sec: 0, tv_nsec: pause_ns.cast_signed() };
        match poll(&mut [PollFd::new(socket, events)], Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(End::Failed(errno.into())),
        }
    }
}
