//! The bytes of a connection, cut into requests.

use crate::protocol::{Invalid, Meta, Request, StoreMode, meta::MetaCommand, parse, reply};

/// Longest line of other commands than `get` and `gets`.
const MAX_LINE_BYTES: usize = 2048;

/// Longest line of `get` and `gets`: about 4000 keys of the largest length.
const MAX_GET_LINE_BYTES: usize = 1 << 20;

/// First byte of a request in memcached's binary protocol.
const BINARY_MAGIC: u8 = 0x80;

/// Bytes of the header of a request in the binary protocol.
const BINARY_HEADER_BYTES: usize = 24;

/// Received bytes that have not been parsed.
#[derive(Debug, Default)]
pub struct Input {
    buffer: Vec<u8>,
    /// Bytes of the buffer that have been consumed.
    start: usize,
    /// Bytes that still arrive and must be discarded.
    discard_bytes: usize,
}

/// The beginning of the input.
#[derive(Debug)]
pub enum Next<'a> {
    /// A request and its value. [`Input::consume`] removes it.
    Request {
        /// The request.
        request: Request<'a>,
        /// The value, without its line end.
        value: &'a [u8],
        /// Bytes of the request.
        bytes: usize,
    },
    /// A line that is not a valid request.
    Invalid {
        /// The reply.
        invalid: Invalid,
        /// Bytes of the request received so far.
        bytes: usize,
    },
    /// A request to store a value that exceeds the limit. Its value is discarded.
    TooLarge {
        /// The request.
        request: Request<'a>,
        /// Bytes of the line.
        bytes: usize,
        /// Bytes of the value.
        value_bytes: usize,
    },
    /// A request whose value has not arrived as a whole and is received into the memory of its item.
    Large {
        /// The request.
        request: Request<'a>,
        /// The line, without its end.
        line: &'a [u8],
        /// Bytes of the line, with its end.
        bytes: usize,
        /// Bytes of the value.
        value_bytes: usize,
    },
    /// A part of a request.
    Incomplete {
        /// Bytes of the request, as far as it has been parsed.
        bytes: usize,
    },
    /// A request in the binary protocol: its opcode and opaque word.
    Binary([u8; 5]),
    /// A line that exceeds the limit and has no end yet.
    LineTooLong,
}

impl Input {
    /// The request at the beginning. Values longer than `max_value_bytes` are too large. A request longer than `max_buffered_bytes` is
    /// [large](Next::Large) if its value can be received into its item.
    pub fn next(&mut self, max_value_bytes: usize, max_buffered_bytes: usize) -> Next<'_> {
        self.discard();
        let bytes = &self.buffer[self.start..];
        if bytes.first() == Some(&BINARY_MAGIC) {
            return binary(bytes);
        }
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            return match bytes.len() > line_limit(bytes) {
                true => Next::LineTooLong,
                false => Next::Incomplete { bytes: bytes.len() + 1 },
            };
        };
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        let bytes_of_line = end + 1;
        let request = match parse(line) {
            Ok(request) => request,
            Err(invalid) => return Next::Invalid { invalid, bytes: bytes_of_line },
        };
        let Some(value_bytes) = value_bytes(&request) else {
            return Next::Request { request, value: &[], bytes: bytes_of_line };
        };
        if value_bytes > max_value_bytes {
            return Next::TooLarge { request, bytes: bytes_of_line, value_bytes };
        }
        let bytes_of_request = bytes_of_line + value_bytes + 2;
        let Some(value) = bytes.get(bytes_of_line..bytes_of_request) else {
            return match bytes_of_request > max_buffered_bytes && is_independent(&request) {
                true => Next::Large { request, line, bytes: bytes_of_line, value_bytes },
                false => Next::Incomplete { bytes: bytes_of_request },
            };
        };
        match value.strip_suffix(b"\r\n") {
            Some(value) => Next::Request { request, value, bytes: bytes_of_request },
            None => Next::Invalid { invalid: bad_data_chunk(&request), bytes: bytes_of_request },
        }
    }

    /// Removes the first `bytes`. The following `discard_bytes` are dropped as they arrive.
    pub fn consume(&mut self, bytes: usize, discard_bytes: usize) {
        self.start += bytes;
        self.discard_bytes += discard_bytes;
        self.discard();
    }

    fn discard(&mut self) {
        let discarded = self.discard_bytes.min(self.buffer.len() - self.start);
        self.discard_bytes -= discarded;
        self.start += discarded;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
    }

    /// Moves bytes that have arrived to the beginning of `value`. Returns their number.
    pub fn move_to(&mut self, value: &mut [u8]) -> usize {
        let bytes = value.len().min(self.buffer.len() - self.start);
        value[..bytes].copy_from_slice(&self.buffer[self.start..][..bytes]);
        self.consume(bytes, 0);
        bytes
    }

    /// The first bytes that have not been parsed, if as many have arrived.
    pub fn first<const BYTES: usize>(&self) -> Option<&[u8; BYTES]> {
        self.buffer[self.start..].first_chunk()
    }

    /// Whether no part of a request has been received.
    pub fn is_empty(&self) -> bool {
        self.buffer.len() == self.start && self.discard_bytes == 0
    }

    /// The buffer to which received bytes are appended, with space for a request of `bytes`.
    pub fn room(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > bytes.saturating_mul(2) {
            self.buffer.shrink_to(bytes);
        }
        let missing = bytes.saturating_sub(self.buffer.len()).max(1);
        self.buffer.reserve(missing);
        &mut self.buffer
    }
}

fn line_limit(bytes: &[u8]) -> usize {
    let trimmed = bytes.trim_ascii_start();
    match trimmed.starts_with(b"get ") || trimmed.starts_with(b"gets ") {
        true => MAX_GET_LINE_BYTES,
        false => MAX_LINE_BYTES,
    }
}

fn binary(bytes: &[u8]) -> Next<'_> {
    match bytes.get(..BINARY_HEADER_BYTES) {
        Some(header) => Next::Binary([header[1], header[12], header[13], header[14], header[15]]),
        None => Next::Incomplete { bytes: BINARY_HEADER_BYTES },
    }
}

/// Whether the new item needs neither the value nor the expiry of the present one.
fn is_independent(request: &Request<'_>) -> bool {
    let (mode, invalidates) = match request {
        Request::Store(store) => (store.mode, false),
        Request::Meta(Meta { command: MetaCommand::Set { mode, .. }, flags, .. }) => {
            (*mode, flags.invalidates)
        }
        _ => return false,
    };
    match mode {
        StoreMode::Set | StoreMode::Add | StoreMode::Replace => true,
        StoreMode::Cas => !invalidates,
        StoreMode::Append | StoreMode::Prepend => false,
    }
}

/// The length of the value that follows the line, if one does.
pub fn value_bytes(request: &Request<'_>) -> Option<usize> {
    match request {
        Request::Store(store) => Some(store.value_bytes),
        Request::Meta(Meta { command: MetaCommand::Set { value_bytes, .. }, .. }) => Some(*value_bytes),
        _ => None,
    }
}

/// The reply to a request whose value does not end with a line end.
pub fn bad_data_chunk(request: &Request<'_>) -> Invalid {
    let noreply = matches!(request, Request::Store(store) if store.noreply);
    Invalid { noreply, ..reply::BAD_DATA_CHUNK.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(bytes: &[u8]) -> Input {
        Input { buffer: bytes.to_vec(), ..Input::default() }
    }

    #[test]
    fn request_waits_for_its_whole_value() {
        let whole = b"set a 0 0 3\r\nabc\r\n";
        for part in 1..whole.len() {
            let mut input = input(&whole[..part]);
            let Next::Incomplete { bytes } = input.next(100, 100) else {
                panic!("{part} bytes are a request")
            };
            assert!(bytes > part && bytes <= whole.len());
        }
        let mut input = input(whole);
        let Next::Request { value: b"abc", bytes, .. } = input.next(100, 100) else { panic!("no request") };
        assert_eq!(bytes, whole.len());
        input.consume(bytes, 0);
        assert!(input.is_empty());
    }

    #[test]
    fn too_large_value_is_discarded_as_it_arrives() {
        let mut input = input(b"set a 0 0 5\r\nab");
        let Next::TooLarge { bytes, value_bytes, .. } = input.next(4, 100) else { panic!("it fits") };
        input.consume(bytes, value_bytes + 2);
        input.room(16).extend_from_slice(b"cde\r\nquit\r\n");
        assert!(matches!(input.next(4, 100), Next::Request { request: Request::Quit, .. }));
    }

    #[test]
    fn endless_line_is_refused_and_long_get_is_not() {
        assert!(matches!(input(&[b'x'; 2049]).next(4, 100), Next::LineTooLong));
        let get = [&b"get "[..], &[b'x'; 4096]].concat();
        assert!(matches!(input(&get).next(4, 100), Next::Incomplete { .. }));
    }
}
