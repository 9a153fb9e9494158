//! The parser of requests.
//!
//! One read from the socket receives all requests that have arrived. The payload of a write is received directly into the aligned
//! buffer for the device; only bytes that arrived with the header are copied.

use std::io::{self, IoSliceMut};

use device::IoBuffer;

use super::transmission::{Command, Refusal, Rules};
use super::wire::RequestHead;

/// Size of the receive buffer: many requests without payload, or a few small writes.
const INBOX_BYTES: usize = 64 << 10;

/// Received bytes that are not processed yet.
pub(super) struct ReceiveBuffer {
    rules: Rules,
    inbox: Box<[u8]>,
    /// Range of unprocessed bytes in the buffer.
    start: usize,
    end: usize,
    stage: Stage,
}

enum Stage {
    Head,
    /// A valid request that waits for memory.
    Waiting(RequestHead, Command),
    /// A write whose payload is received up to this length.
    Payload(RequestHead, Command, IoBuffer, usize),
    /// A refused write with this many bytes of payload still to come. The reply must wait: some clients read replies only after
    /// sending, and some disconnect on an early reply.
    Drain(u64, u64, Refusal),
}

/// The next event.
#[derive(Debug)]
pub(super) enum Next {
    /// More input is needed.
    Nothing,
    /// A request is complete, but there is no memory for it.
    NoSpace,
    /// A request, with the payload of a write.
    Request(RequestHead, Command, Option<IoBuffer>),
    /// A refused request, completely received.
    Refused(u64, Refusal),
    /// The input is not a request, so the position of the next one is unknown.
    Invalid,
}

impl ReceiveBuffer {
    /// `received` holds the bytes received after the handshake.
    pub fn new(rules: Rules, received: &[u8]) -> Self {
        let mut inbox = vec![0; INBOX_BYTES.max(received.len())].into_boxed_slice();
        inbox[..received.len()].copy_from_slice(received);
        Self { rules, inbox, start: 0, end: received.len(), stage: Stage::Head }
    }

    /// Whether there are unprocessed bytes.
    pub fn has_more(&self) -> bool {
        self.start < self.end
    }

    /// Whether the client is in the middle of a request.
    pub fn is_incomplete(&self) -> bool {
        match self.stage {
            Stage::Head => self.has_more(),
            Stage::Waiting(..) => false,
            Stage::Payload(..) | Stage::Drain(..) => true,
        }
    }

    /// Memory reserved for an incomplete write, if there is one.
    pub fn abandoned_bytes(&self) -> Option<usize> {
        match &self.stage {
            Stage::Payload(head, ..) => Some(head.buffer_bytes()),
            _ => None,
        }
    }

    /// Reads once from `source`. Returns its result, and whether it filled all available space.
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
        let space = payload_room + self.inbox.len() - self.end;
        let received = source(&mut [IoSliceMut::new(payload), IoSliceMut::new(&mut self.inbox[self.end..])])?;
        if let Stage::Payload(_, _, _, filled) = &mut self.stage {
            *filled += received.min(payload_room);
        }
        self.end += received.saturating_sub(payload_room);
        Ok((received, received == space))
    }

    /// The next event. `reserve` returns whether memory of this size is available for a request.
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
        let Some(head) = RequestHead::decode(bytes) else { return Next::Invalid };
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
            return Next::NoSpace;
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
