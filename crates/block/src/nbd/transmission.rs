//! Validation of requests and encoding of replies.

use device::{ErrorKind, IoError};

use super::wire::{Errno, MAX_PAYLOAD_BYTES, ReplyHead, RequestHead, chunk, command, command_flag};
use crate::export::{Context, Extent, STEP_BYTES, Shape};

/// The properties against which requests are validated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub shape: Shape,
    pub structured: bool,
    pub has_contexts: bool,
}

/// A valid request without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Read,
    Write { durable: bool },
    Zero { may_trim: bool, only_if_fast: bool, durable: bool },
    Trim { durable: bool },
    Prefetch,
    Flush,
    Status { only_one: bool },
    Disconnect,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub errno: Errno,
    pub why: String,
}

impl Refusal {
    pub fn new(errno: Errno, why: impl Into<String>) -> Self {
        Self { errno, why: why.into() }
    }
}

impl From<&IoError> for Refusal {
    fn from(error: &IoError) -> Self {
        let errno = match error.kind() {
            ErrorKind::Invalid => Errno::Invalid,
            ErrorKind::NoSpace => Errno::NoSpace,
            ErrorKind::Unsupported => Errno::Unsupported,
            ErrorKind::Closed => Errno::Shutdown,
            ErrorKind::Medium | ErrorKind::Busy | ErrorKind::Open => Errno::Io,
        };
        Self::new(errno, error.to_string())
    }
}

impl RequestHead {
    /// Length of the payload that follows the header.
    pub fn payload_bytes(&self) -> u32 {
        if self.command == command::WRITE { self.length } else { 0 }
    }

    /// Memory that the request needs until it is answered.
    pub fn buffer_bytes(&self) -> usize {
        match self.command {
            command::READ | command::WRITE => self.length as usize,
            // Processed in steps that need memory.
            command::CACHE | command::WRITE_ZEROES => (self.length as usize).min(STEP_BYTES),
            command::BLOCK_STATUS => MAX_EXTENTS * 8 * Context::ALL.len(),
            _ => 0,
        }
    }
}

impl Rules {
    /// Validates the request and decodes its command.
    pub fn judge(&self, head: &RequestHead) -> Result<Command, Refusal> {
        let has = |flag: u16| head.flags & flag != 0;
        let durable = has(command_flag::FUA);
        let command = match head.command {
            command::READ => Command::Read,
            command::WRITE => Command::Write { durable },
            command::DISCONNECT => return Ok(Command::Disconnect),
            command::FLUSH => Command::Flush,
            command::TRIM => Command::Trim { durable },
            command::CACHE => Command::Prefetch,
            command::WRITE_ZEROES => {
                let (may_trim, only_if_fast) = (!has(command_flag::NO_HOLE), has(command_flag::FAST_ZERO));
                Command::Zero { may_trim, only_if_fast, durable }
            }
            command::BLOCK_STATUS => Command::Status { only_one: has(command_flag::REQ_ONE) },
            unknown => return Err(invalid(format!("unknown command {unknown}"))),
        };
        self.check_flags(command, head.flags)?;
        self.check_range(command, head)?;
        Ok(command)
    }

    /// FUA is permitted with every command, even if it has no effect.
    fn check_flags(&self, command: Command, flags: u16) -> Result<(), Refusal> {
        let meant = match command {
            Command::Read if self.structured => command_flag::DF,
            Command::Zero { .. } => command_flag::NO_HOLE | command_flag::FAST_ZERO,
            Command::Status { .. } => command_flag::REQ_ONE,
            _ => 0,
        };
        match flags & !(meant | command_flag::FUA) {
            0 => Ok(()),
            unknown => Err(invalid(format!("unknown flags {unknown:#x} for this command"))),
        }
    }

    fn check_range(&self, command: Command, head: &RequestHead) -> Result<(), Refusal> {
        let (offset, length, size) = (head.offset, u64::from(head.length), self.shape.size_bytes);
        let writes = matches!(command, Command::Write { .. } | Command::Zero { .. } | Command::Trim { .. });
        if command == Command::Flush {
            let is_plain = offset == 0 && length == 0;
            return if is_plain { Ok(()) } else { Err(invalid("a flush takes no range")) };
        }
        if writes && self.shape.read_only {
            return Err(Refusal::new(Errno::Permission, "the export is read-only"));
        }
        if matches!(command, Command::Status { .. }) && !self.has_contexts {
            return Err(invalid("no metadata context was negotiated"));
        }
        if length == 0 {
            return Err(invalid("a request of 0 bytes"));
        }
        if matches!(command, Command::Read | Command::Write { .. }) && head.length > MAX_PAYLOAD_BYTES {
            let errno = if writes { Errno::Invalid } else { Errno::Overflow };
            return Err(Refusal::new(
                errno,
                format!("{length} bytes in one request: at most {MAX_PAYLOAD_BYTES} are allowed"),
            ));
        }
        if offset.checked_add(length).is_none_or(|end| end > size) {
            let stores = writes && !matches!(command, Command::Trim { .. });
            let errno = if stores { Errno::NoSpace } else { Errno::Invalid };
            return Err(Refusal::new(
                errno,
                format!("{length} bytes at {offset} reach past the end at {size}"),
            ));
        }
        let block = u64::from(self.shape.block_bytes);
        if !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            return Err(invalid(format!("{length} bytes at {offset} are not aligned to blocks of {block}")));
        }
        Ok(())
    }

    /// The reply to a refused or failed request: its header, and with structured replies a message.
    pub fn refusal(&self, cookie: u64, refusal: &Refusal) -> (ReplyHead, Vec<u8>) {
        let errno = refusal.errno as u32;
        if !self.structured {
            return (ReplyHead::simple(cookie, errno), Vec::new());
        }
        let why = &refusal.why.as_bytes()[..refusal.why.len().min(MAX_MESSAGE_BYTES)];
        let mut payload = errno.to_be_bytes().to_vec();
        payload.extend((why.len() as u16).to_be_bytes());
        payload.extend(why);
        (ReplyHead::chunk(cookie, chunk::DONE, chunk::ERROR, payload.len() as u32), payload)
    }

    /// The header of the reply to a read, before `data_bytes` of data.
    pub fn data(&self, head: &RequestHead) -> ReplyHead {
        match self.structured {
            true => ReplyHead::data(head.cookie, head.offset, head.length),
            false => ReplyHead::simple(head.cookie, 0),
        }
    }

    /// The reply to a successful request without data.
    pub fn done(&self, cookie: u64) -> ReplyHead {
        match self.structured {
            true => ReplyHead::chunk(cookie, chunk::DONE, chunk::NONE, 0),
            false => ReplyHead::simple(cookie, 0),
        }
    }
}

/// Maximum length of a string in the protocol.
const MAX_MESSAGE_BYTES: usize = 4096;

/// Maximum of extents per reply; clients query the rest.
pub(super) const MAX_EXTENTS: usize = 4096;

/// The payload of a chunk with the `extents` of context `id`. With `only_one`, a single extent of at most `length` bytes, as
/// the protocol requires.
pub(super) fn status_payload(id: u32, extents: &[Extent], length: u32, only_one: bool) -> Vec<u8> {
    let mut payload = id.to_be_bytes().to_vec();
    for extent in extents.iter().take(if only_one { 1 } else { MAX_EXTENTS }) {
        let most = if only_one { u64::from(length) } else { u64::from(u32::MAX) & !0xffff };
        payload.extend((extent.len.min(most) as u32).to_be_bytes());
        payload.extend(extent.flags.to_be_bytes());
        if extent.len > most {
            break;
        }
    }
    payload
}

fn invalid(why: impl Into<String>) -> Refusal {
    Refusal::new(Errno::Invalid, why)
}
