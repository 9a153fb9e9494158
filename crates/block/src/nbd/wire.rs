//! Constants and layouts of the NBD protocol, from its specification (`doc/proto.md` of the NBD project).
//! All integers are big-endian.
//!
//! ```text
//! request   0 magic 4 │ 4 flags 2 │ 6 command 2 │ 8 cookie 8 │ 16 offset 8 │ 24 length 4 │ payload of a write
//! simple    0 magic 4 │ 4 error 4 │ 8 cookie 8  │ payload of a read
//! chunk     0 magic 4 │ 4 flags 2 │ 6 type 2    │ 8 cookie 8 │ 16 length 4 │ payload
//! option    0 "IHAVEOPT" 8 │ 8 option 4 │ 12 length 4 │ data
//! answer    0 magic 8 │ 8 option 4 │ 12 type 4 │ 16 length 4 │ data
//! ```

/// First eight bytes of the greeting.
pub(super) const INIT_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second eight bytes of the greeting, and start of every option.
pub(super) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Start of every reply to an option.
pub(super) const ANSWER_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of every request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of a simple reply.
pub(super) const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// Start of a chunk of a structured reply.
pub(super) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Longest read or write that is accepted; the specification recommends it to all servers and clients.
pub(super) const MAX_PAYLOAD_BYTES: u32 = 32 << 20;

/// Handshake flags of server and client.
pub(super) mod handshake_flag {
    pub const FIXED_NEWSTYLE: u16 = 1;
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Flags of an export.
pub(super) mod export_flag {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options of a client during the handshake.
pub(super) mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to an option.
pub(super) mod answer {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const UNSUPPORTED: u32 = ERROR | 1;
    pub const POLICY: u32 = ERROR | 2;
    pub const INVALID: u32 = ERROR | 3;
    pub const UNKNOWN: u32 = ERROR | 6;
    pub const TOO_BIG: u32 = ERROR | 9;
    const ERROR: u32 = 1 << 31;
}

/// Types of information in the replies to INFO and GO.
pub(super) mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Commands of the transmission.
pub(super) mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISCONNECT: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub(super) mod command_flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Types of chunks of a structured reply.
pub(super) mod chunk {
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = (1 << 15) | 1;
    /// The flag of a reply's last chunk.
    pub const DONE: u16 = 1;
}

/// Errors in replies, with Linux's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Errno {
    /// A write to a read-only export.
    Permission = 1,
    /// The device failed.
    Io = 5,
    /// The request is invalid.
    Invalid = 22,
    /// The range is past the end, or no space is left.
    NoSpace = 28,
    /// Longer than a reply can be.
    Overflow = 75,
    /// The operation is not supported.
    Unsupported = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

/// Reads big-endian numbers from a byte slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A length and then that many bytes.
    pub fn counted(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }
}

/// The header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestHead {
    pub flags: u16,
    pub command: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

impl RequestHead {
    pub const BYTES: usize = 28;

    /// `None` if the magic number is wrong: the connection cannot be resynchronised.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        let (flags, command) = (fields.u16()?, fields.u16()?);
        Some(Self { flags, command, cookie: fields.u64()?, offset: fields.u64()?, length: fields.u32()? })
    }
}

/// The header of a reply, stored inline.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplyHead {
    bytes: [u8; Self::MAX_BYTES],
    len: u8,
}

impl ReplyHead {
    const MAX_BYTES: usize = 28;

    /// A simple reply; `error` is 0 on success.
    pub fn simple(cookie: u64, error: u32) -> Self {
        let mut head = Self::empty();
        head.put(&SIMPLE_MAGIC.to_be_bytes());
        head.put(&error.to_be_bytes());
        head.put(&cookie.to_be_bytes());
        head
    }

    /// A chunk with `payload_bytes` of payload.
    pub fn chunk(cookie: u64, flags: u16, kind: u16, payload_bytes: u32) -> Self {
        let mut head = Self::empty();
        head.put(&CHUNK_MAGIC.to_be_bytes());
        head.put(&flags.to_be_bytes());
        head.put(&kind.to_be_bytes());
        head.put(&cookie.to_be_bytes());
        head.put(&payload_bytes.to_be_bytes());
        head
    }

    /// The only chunk of a successful read, with `data_bytes` of data.
    pub fn data(cookie: u64, offset: u64, data_bytes: u32) -> Self {
        let mut head = Self::chunk(cookie, chunk::DONE, chunk::OFFSET_DATA, data_bytes + 8);
        head.put(&offset.to_be_bytes());
        head
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn empty() -> Self {
        Self { bytes: [0; Self::MAX_BYTES], len: 0 }
    }

    fn put(&mut self, field: &[u8]) {
        let at = usize::from(self.len);
        self.bytes[at..at + field.len()].copy_from_slice(field);
        self.len += field.len() as u8;
    }
}
