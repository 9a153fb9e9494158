//! The life of one connection, on a thread of its own: handshake, requests, and a clean end.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::desk::Desk;
use device::together::together;
use device::{Clock, IoBuffer};

use super::handshake::{Agreed, Handshake, Offer, Step, context_id};
use super::intake::{Intake, Next};
use super::link::{Frame, Link, Payload, Until, Woken};
use super::slots::Slot;
use super::transmission::{Command, MOST_EXTENTS, Refusal, Rules, status_payload};
use super::wire::{Errno, ReplyHead, RequestHead, chunk};
use crate::export::{Answer, Caller, Client, Context, Export, Operation, staying};

/// What all connections of a server share.
pub(super) struct Hall {
    pub offers: Vec<Offer>,
    /// The export behind each offer.
    pub exports: Vec<Arc<dyn Export>>,
    pub clock: Arc<dyn Clock>,
    /// Time limit for a client to send a request that it began, or to take a reply.
    pub client_timeout_ns: u64,
    /// Time limit for a handshake.
    pub handshake_timeout_ns: u64,
    /// No more requests are taken.
    pub closing: AtomicBool,
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client left, or the server did, with every request answered.
    Left,
    /// All slots were taken by clients that are at work.
    TurnedAway,
    /// The client broke the protocol or kept us waiting for too long.
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
    /// What went wrong, if anything did.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Left | Self::TurnedAway => None,
            Self::Dropped(why) => Some(format!("a client was dropped: {why}")),
            Self::Failed(error) => Some(format!("a client's socket failed: {error}")),
        }
    }
}

/// Requests up to this length are stayed with: longer ones go to the device in several transfers side by side.
const MOST_STAYING_BYTES: u32 = 16 << 10;

/// Requests that are not stayed with after the client was found to have several under way: the first time, and at most, if it has
/// them each time that it is looked again. To look costs such a client the time of a transfer.
const CROWD: u32 = 64;
const MOST_CROWD: u32 = 64 * CROWD;

/// Replies sent at once of a burst of reads that have ended: then the client goes on with those while the rest is made ready,
/// and what it asks for meanwhile is started before that. A drive ends up to thirty requests at once; with their replies
/// in one call, client, server and drive would wait for each other in turn, and a client of 32 reads get a tenth less.
/// Writes gain more by being recorded together.
const READS_ENDED_AT_ONCE: usize = 6;

/// Requests started before replies are looked after.
const REQUESTS_AT_ONCE: usize = 64;

/// Serves one client to the end. Every request that was started has ended when this returns.
pub(super) fn serve(hall: &Arc<Hall>, link: &Arc<Link>, client: Client, slot: &Slot) -> End {
    let (agreed, already) = match shake_hands(hall, link.socket(), slot) {
        Ok(Some(agreed)) => agreed,
        Ok(None) => return End::Left,
        Err(end) => return end,
    };
    link.begin_serving();
    let has_contexts = !agreed.contexts.is_empty();
    let shape = hall.offers[agreed.place].shape;
    let rules = Rules { shape, structured: agreed.structured, has_contexts };
    let talk = Arc::new(Talk { link: Arc::clone(link), rules, contexts: agreed.contexts });
    let desk = Desk::sit_down(link.watched());
    let mut server = Server {
        hall,
        desk: &desk,
        export: &*hall.exports[agreed.place],
        client,
        intake: Intake::new(rules, &already),
        talk: &talk,
        owed: Owed::default(),
        has_more_ended: false,
        has_read_last: false,
        crowd: 0,
        next_crowd: CROWD,
    };
    let end = server.run();
    if let Some(bytes) = server.intake.abandoned_bytes() {
        link.release(bytes);
    }
    if !matches!(end, Ok(())) {
        link.give_up();
    }
    let waited = wait_for_completions(hall, link, &desk);
    end.and(waited).err().unwrap_or(End::Left)
}

/// What was agreed on, and what came right after it; nothing if the client left.
fn shake_hands(hall: &Hall, socket: &OwnedFd, slot: &Slot) -> Result<Option<(Agreed, Vec<u8>)>, End> {
    let deadline_ns = hall.clock.monotonic_ns().saturating_add(hall.handshake_timeout_ns);
    let mut handshake = Handshake::new(&hall.offers);
    let (mut input, mut output) = (Vec::new(), Vec::new());
    handshake.greet(&mut output);
    loop {
        exchange::send(hall, socket, &mut output, deadline_ns)?;
        let came = exchange::receive(hall, socket, &mut input, Handshake::MOST_INPUT_BYTES, deadline_ns)?;
        if came == 0 {
            return Ok(None);
        }
        loop {
            let (taken, step) = handshake.advance(&input, &mut output);
            input.drain(..taken);
            match step {
                Step::More if taken == 0 => break,
                Step::More => {}
                Step::Transmit(_) if !slot.begin_serving(deadline_ns, &hall.closing) => {
                    handshake.refuse_export(&mut output, "too many clients are connected");
                    // A client that has gone meanwhile misses nothing.
                    let _ = exchange::send(hall, socket, &mut output, deadline_ns);
                    return Err(End::TurnedAway);
                }
                Step::Transmit(agreed) => {
                    exchange::send(hall, socket, &mut output, deadline_ns)?;
                    return Ok(Some((agreed, input)));
                }
                Step::Close => {
                    return match exchange::send(hall, socket, &mut output, deadline_ns) {
                        // Whoever says that he leaves need not wait to hear that he may.
                        Ok(()) | Err(End::Failed(_)) => Ok(None),
                        Err(end) => Err(end),
                    };
                }
            }
            // A flood of options gets its answers as they come and never piles them up.
            exchange::send(hall, socket, &mut output, deadline_ns)?;
        }
    }
}

/// The transmission's own side of a connection.
struct Server<'a> {
    hall: &'a Arc<Hall>,
    desk: &'a Desk<'a, 3>,
    export: &'a dyn Export,
    client: Client,
    talk: &'a Arc<Talk>,
    intake: Intake,
    /// Since when the client owes us the rest of a request, or room for a reply.
    owed: Owed,
    /// Whether requests have ended whose callers were not told yet.
    has_more_ended: bool,
    /// Whether the latest request was a read.
    has_read_last: bool,
    /// Requests to come that are not stayed with.
    crowd: u32,
    /// How many those will be the next time.
    next_crowd: u32,
}

/// How long the client has owed us something. A reply that it takes meanwhile starts the time anew.
#[derive(Default)]
struct Owed {
    since_ns: Option<u64>,
    /// Replies it had taken then, if it owes room for more.
    stuck_after: Option<u64>,
}

impl Owed {
    /// Time left until the client's limit, 0 if it is over.
    fn time_left_ns(&mut self, hall: &Hall, stuck_after: Option<u64>) -> u64 {
        let now_ns = hall.clock.monotonic_ns();
        if stuck_after > self.stuck_after {
            (self.since_ns, self.stuck_after) = (None, stuck_after);
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        since_ns.saturating_add(hall.client_timeout_ns).saturating_sub(now_ns)
    }
}

/// What replies are made with.
struct Talk {
    link: Arc<Link>,
    rules: Rules,
    contexts: Vec<Context>,
}

/// What is to be done after the requests at hand were started.
enum Then {
    Read,
    /// More requests are at hand.
    GoOn,
    AwaitRoom,
    Leave,
}

impl Server<'_> {
    fn run(&mut self) -> Result<(), End> {
        loop {
            let then = together(|| self.start_requests())?;
            self.talk.link.flush();
            if self.talk.link.is_broken() {
                return Err(End::Dropped("it closed the connection without taking its replies"));
            }
            let until = match then {
                Then::GoOn => continue,
                Then::Leave => return Ok(()),
                Then::Read if self.hall.closing.load(Ordering::Acquire) => return Ok(()),
                Then::Read => Until::Input,
                Then::AwaitRoom => Until::Room,
            };
            let woken = if self.has_more_ended {
                Woken { input: until == Until::Input && self.talk.link.has_input() }
            } else {
                let timeout_ns = self.time_left_ns()?;
                self.talk.link.sleep(self.desk, until, timeout_ns)?
            };
            let most = if self.has_read_last { READS_ENDED_AT_ONCE } else { usize::MAX };
            self.has_more_ended = self.desk.tell_some(most);
            self.talk.link.flush();
            if woken.input && !self.read()? {
                return Ok(());
            }
        }
    }

    /// Whether the client is still there.
    fn read(&mut self) -> Result<bool, End> {
        let socket = self.talk.link.socket();
        match self.intake.fill(|room| Ok(rustix::io::readv(socket, room)?)) {
            Ok((0, _)) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) if is_passing(&error) => Ok(true),
            Err(error) => Err(End::Failed(error)),
        }
    }

    /// Time left until the client's limit. There is none while the client owes nothing.
    fn time_left_ns(&mut self) -> Result<Option<u64>, End> {
        let stuck_after = self.talk.link.stuck_after();
        if !self.intake.is_amid() && stuck_after.is_none() {
            self.owed = Owed::default();
            self.talk.link.client_owes_since(None);
            return Ok(None);
        }
        let left_ns = self.owed.time_left_ns(self.hall, stuck_after);
        self.talk.link.client_owes_since(self.owed.since_ns);
        match left_ns {
            0 => Err(End::Dropped("it did not finish a request or take its replies in time")),
            left_ns => Ok(Some(left_ns)),
        }
    }

    fn start_requests(&mut self) -> Result<Then, End> {
        let link = &self.talk.link;
        if link.has_backlog() {
            return Ok(Then::AwaitRoom);
        }
        for _ in 0..REQUESTS_AT_ONCE {
            match self.intake.next(|bytes| link.reserve(bytes)) {
                Next::Nothing => return Ok(Then::Read),
                Next::NoRoom => return Ok(Then::AwaitRoom),
                Next::Lost => return Err(End::Dropped("it sent an invalid request")),
                Next::Request(_, Command::Disconnect, _) => {
                    link.release(0);
                    return Ok(Then::Leave);
                }
                Next::Request(head, command, payload) => {
                    self.owed = Owed::default();
                    self.start(&head, command, payload);
                }
                Next::Refused(cookie, refusal) => self.talk.refuse_unstarted(cookie, &refusal),
            }
        }
        Ok(Then::GoOn)
    }

    fn start(&mut self, head: &RequestHead, command: Command, payload: Option<IoBuffer>) {
        let reply = Reply { talk: Arc::clone(self.talk), head: *head };
        if self.hall.closing.load(Ordering::Acquire) {
            return reply.refuse(&Refusal::new(Errno::Shutdown, "the server is shutting down"));
        }
        if let Command::Status { only_one } = command {
            return reply.status(self.export, only_one);
        }
        self.has_read_last = matches!(command, Command::Read);
        let operation = operation(head, command, payload);
        let caller = Caller::new(move |answer| reply.tell(answer));
        let submit = || self.export.submit_for(&self.client, operation, caller);
        let link = &self.talk.link;
        let is_alone = head.length <= MOST_STAYING_BYTES && !self.intake.has_more() && link.has_one_request();
        if self.crowd > 0 || !is_alone {
            self.crowd = self.crowd.saturating_sub(1);
            return submit();
        }
        staying(submit);
        // The reply is not sent before this thread goes on: what has come meanwhile was asked for beside it.
        if link.has_input() {
            self.crowd = self.next_crowd;
            self.next_crowd = (2 * self.next_crowd).min(MOST_CROWD);
        } else {
            self.next_crowd = CROWD;
        }
    }
}

fn operation(head: &RequestHead, command: Command, payload: Option<IoBuffer>) -> Operation {
    let (offset, len) = (head.offset, u64::from(head.length));
    match command {
        Command::Read => Operation::Read { offset, len: head.length },
        Command::Write { durable } => {
            let data = payload.expect("the intake gives a write with its payload").into();
            Operation::Write { offset, data, durable }
        }
        Command::Zero { may_trim, only_if_fast, durable } => {
            Operation::Zero { offset, len, may_trim, only_if_fast, durable }
        }
        Command::Trim { durable } => Operation::Trim { offset, len, durable },
        Command::Prefetch => Operation::Prefetch { offset, len },
        Command::Flush => Operation::Flush,
        Command::Status { .. } | Command::Disconnect => unreachable!("answered without the export's doing"),
    }
}

/// A request that waits for its outcome.
struct Reply {
    talk: Arc<Talk>,
    head: RequestHead,
}

impl Reply {
    fn tell(self, answer: Answer) {
        let rules = &self.talk.rules;
        match answer {
            Ok(Some(bytes)) => self.end(rules.data(&self.head), Payload::Data(bytes)),
            Ok(None) => self.end(rules.done(self.head.cookie), Payload::None),
            Err(error) => self.refuse(&Refusal::from(&error)),
        }
    }

    fn refuse(&self, refusal: &Refusal) {
        let (head, words) = self.talk.rules.refusal(self.head.cookie, refusal);
        self.end(head, Payload::Words(words));
    }

    /// A chunk for each context, with the last of which the request ends.
    fn status(&self, export: &dyn Export, only_one: bool) {
        let (offset, length) = (self.head.offset, self.head.length);
        let most = if only_one { 1 } else { MOST_EXTENTS };
        let contexts = &self.talk.contexts;
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
                self.talk.link.send(frame);
            }
        }
    }

    fn end(&self, head: ReplyHead, payload: Payload) {
        let reserved_bytes = self.head.buffer_bytes();
        self.talk.link.send(Frame { head, payload, ends: 1, reserved_bytes });
    }
}

impl Talk {
    /// Answers a request for which nothing was reserved.
    fn refuse_unstarted(&self, cookie: u64, refusal: &Refusal) {
        let (head, words) = self.rules.refusal(cookie, refusal);
        self.link.send(Frame { head, payload: Payload::Words(words), ends: 0, reserved_bytes: 0 });
    }
}

/// Requests that were started end by themselves; their replies are sent if the client takes them in time.
fn wait_for_completions(hall: &Hall, link: &Link, desk: &Desk<'_, 3>) -> Result<(), End> {
    let (mut owed, mut end) = (Owed::default(), Ok(()));
    loop {
        link.flush();
        if link.is_idle() {
            return end;
        }
        // The medium may take as long as it takes: only a client is waited for in vain.
        let stuck_after = link.stuck_after();
        let timeout_ns = stuck_after.map(|_| owed.time_left_ns(hall, stuck_after));
        if timeout_ns == Some(0) {
            end = Err(End::Dropped("it did not read its replies"));
            link.give_up();
            continue;
        }
        if let Err(error) = link.sleep(desk, Until::End, timeout_ns) {
            link.give_up();
            end = Err(error.into());
        }
        desk.tell();
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Sending and receiving with a deadline, for the handshake.
mod exchange {
    use std::os::fd::OwnedFd;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::{End, Hall};

    pub fn send(hall: &Hall, socket: &OwnedFd, bytes: &mut Vec<u8>, deadline_ns: u64) -> Result<(), End> {
        while !bytes.is_empty() {
            match rustix::io::write(socket, bytes) {
                Ok(sent) => drop(bytes.drain(..sent)),
                Err(rustix::io::Errno::AGAIN) => wait(hall, socket, PollFlags::OUT, deadline_ns)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(End::Failed(errno.into())),
            }
        }
        Ok(())
    }

    /// Adds what has come to `bytes`, which never grow longer than `most`. How much it was.
    pub fn receive(
        hall: &Hall,
        socket: &OwnedFd,
        bytes: &mut Vec<u8>,
        most: usize,
        deadline_ns: u64,
    ) -> Result<usize, End> {
        let mut room = [0; 4096];
        let free = (most - bytes.len()).min(room.len());
        loop {
            match rustix::io::read(socket, &mut room[..free]) {
                Ok(came) => {
                    bytes.extend(&room[..came]);
                    return Ok(came);
                }
                Err(rustix::io::Errno::AGAIN) => wait(hall, socket, PollFlags::IN, deadline_ns)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(End::Failed(errno.into())),
            }
        }
    }

    fn wait(hall: &Hall, socket: &OwnedFd, events: PollFlags, deadline_ns: u64) -> Result<(), End> {
        let left_ns = deadline_ns.saturating_sub(hall.clock.monotonic_ns());
        let stops = hall.closing.load(std::sync::atomic::Ordering::Acquire);
        if left_ns == 0 || stops {
            return Err(End::Dropped("it did not finish the handshake"));
        }
        // Looking up now and then whether the server stops is cheaper than a bell in every handshake.
        let pause_ns = left_ns.min(100_000_000);
        let pause = Timespec { tv_sec: 0, tv_nsec: pause_ns.cast_signed() };
        match poll(&mut [PollFd::new(socket, events)], Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(End::Failed(errno.into())),
        }
    }
}
