//! Bytes of the transmission in, requests out.
//!
//! One read from the socket brings as many requests as have arrived. The payload of a write goes straight into the aligned
//! memory that the device is given; only what came along with the head of a request is copied there.

use std::io::{self, IoSliceMut};

use device::IoBuffer;

use super::transmission::{Command, Refusal, Rules};
use super::wire::RequestHead;

/// Room for requests without payload, or for a few small writes.
const INBOX_BYTES: usize = 64 << 10;

/// What has come in on one connection and was not yet started.
pub(super) struct Intake {
    rules: Rules,
    inbox: Box<[u8]>,
    /// What of the inbox is filled and not yet taken.
    start: usize,
    end: usize,
    stage: Stage,
}

enum Stage {
    Head,
    /// A sound request that there was no room for yet.
    Waiting(RequestHead, Command),
    /// The payload of a write, of which this much is there.
    Payload(RequestHead, Command, IoBuffer, usize),
    /// The payload of a write that is refused, of which so much has yet to come. A client that sends it takes no reply
    /// before it is done, and some hang up on one that comes too early.
    Drain(u64, u64, Refusal),
}

/// What is next.
#[derive(Debug)]
pub(super) enum Next {
    /// More must come first.
    Nothing,
    /// A request is there, and no room for what it needs.
    NoRoom,
    /// A request, with its payload if it is a write.
    Request(RequestHead, Command, Option<IoBuffer>),
    /// A request that is not done. All of it has come.
    Refused(u64, Refusal),
    /// What came is no request, and where the next one begins nobody knows.
    Lost,
}

impl Intake {
    /// `already` came right after the handshake.
    pub fn new(rules: Rules, already: &[u8]) -> Self {
        let mut inbox = vec![0; INBOX_BYTES.max(already.len())].into_boxed_slice();
        inbox[..already.len()].copy_from_slice(already);
        Self { rules, inbox, start: 0, end: already.len(), stage: Stage::Head }
    }

    /// Whether more has come than was taken.
    pub fn has_more(&self) -> bool {
        self.start < self.end
    }

    /// Whether the client has begun something that it must finish.
    pub fn is_amid(&self) -> bool {
        match self.stage {
            Stage::Head => self.has_more(),
            Stage::Waiting(..) => false,
            Stage::Payload(..) | Stage::Drain(..) => true,
        }
    }

    /// Memory reserved for a request whose payload will not come any more, if there is one.
    pub fn abandoned_bytes(&self) -> Option<usize> {
        match &self.stage {
            Stage::Payload(head, ..) => Some(head.buffer_bytes()),
            _ => None,
        }
    }

    /// Takes what `source` has, once. What `source` said, and whether it filled all the room there was.
    pub fn fill(
        &mut self,
        source: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<(usize, bool)> {
        self.inbox.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let payload = match &mut self.stage {
            Stage::Payload(_, _, buffer, filled) => &mut buffer[*filled..],
            _ => &mut [],
        };
        let payload_room = payload.len();
        let room = payload_room + self.inbox.len() - self.end;
        let came = source(&mut [IoSliceMut::new(payload), IoSliceMut::new(&mut self.inbox[self.end..])])?;
        if let Stage::Payload(_, _, _, filled) = &mut self.stage {
            *filled += came.min(payload_room);
        }
        self.end += came.saturating_sub(payload_room);
        Ok((came, came == room))
    }

    /// The next request. `reserve` says whether there is room for a request that needs so many bytes of memory.
    pub fn next(&mut self, reserve: impl FnOnce(usize) -> bool) -> Next {
        match std::mem::replace(&mut self.stage, Stage::Head) {
            Stage::Head => self.take_head(reserve),
            Stage::Waiting(head, command) => self.admit(head, command, reserve),
            Stage::Payload(head, command, buffer, filled) => self.take_payload(head, command, buffer, filled),
            Stage::Drain(left, cookie, refusal) => self.drain(left, cookie, refusal),
        }
    }

    fn take_head(&mut self, reserve: impl FnOnce(usize) -> bool) -> Next {
        let arrived = &self.inbox[self.start..self.end];
        let Some(bytes) = arrived.first_chunk::<{ RequestHead::BYTES }>() else { return Next::Nothing };
        let Some(head) = RequestHead::decode(bytes) else { return Next::Lost };
        self.start += RequestHead::BYTES;
        match self.rules.judge(&head) {
            Ok(command) => self.admit(head, command, reserve),
            Err(refusal) => self.drain(u64::from(head.payload_bytes()), head.cookie, refusal),
        }
    }

    fn drain(&mut self, left: u64, cookie: u64, refusal: Refusal) -> Next {
        let drained = left.min((self.end - self.start) as u64);
        self.start += drained as usize;
        if drained < left {
            self.stage = Stage::Drain(left - drained, cookie, refusal);
            return Next::Nothing;
        }
        Next::Refused(cookie, refusal)
    }

    fn admit(&mut self, head: RequestHead, command: Command, reserve: impl FnOnce(usize) -> bool) -> Next {
        if !reserve(head.buffer_bytes()) {
            self.stage = Stage::Waiting(head, command);
            return Next::NoRoom;
        }
        match command {
            Command::Write { .. } => {
                let buffer = IoBuffer::zeroed(head.length as usize);
                self.take_payload(head, command, buffer, 0)
            }
            _ => Next::Request(head, command, None),
        }
    }

    fn take_payload(
        &mut self,
        head: RequestHead,
        command: Command,
        mut buffer: IoBuffer,
        filled: usize,
    ) -> Next {
        let taken = (buffer.len() - filled).min(self.end - self.start);
        buffer[filled..filled + taken].copy_from_slice(&self.inbox[self.start..self.start + taken]);
        self.start += taken;
        if filled + taken < buffer.len() {
            self.stage = Stage::Payload(head, command, buffer, filled + taken);
            return Next::Nothing;
        }
        Next::Request(head, command, Some(buffer))
    }
}
