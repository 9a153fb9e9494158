//! Replies: the fixed ones, and numbers in text.

/// An unknown command, or one with the wrong number of words.
pub const ERROR: &str = "ERROR";
/// A word of the line is invalid.
pub const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
/// The value does not end with a line end.
pub const BAD_DATA_CHUNK: &str = "CLIENT_ERROR bad data chunk";
/// `delete` with more than a key.
pub const DELETE_USAGE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
/// The expiry is not a number.
pub const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
/// The number to add is not a number.
pub const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
/// The value to add to is not a number.
pub const NON_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
/// The line has no end within the limit. The connection is closed.
pub const LINE_TOO_LONG: &str = "CLIENT_ERROR line too long";
/// The item exceeds the largest item size.
pub const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
/// No space can be freed for the item.
pub const NO_MEMORY: &str = "SERVER_ERROR out of memory storing object";
/// The server is closing.
pub const CLOSING: &str = "SERVER_ERROR the server is shutting down";
/// There are too many connections. The connection is closed.
pub const TOO_MANY_CONNECTIONS: &str = "ERROR Too many open connections";
/// `slabs`.
pub const NO_SLABS: &str = "CLIENT_ERROR slab reassignment disabled";
/// `stats detail` with another word.
pub const DETAIL_USAGE: &str = "CLIENT_ERROR usage: stats detail on|off|dump";
/// `shutdown`.
pub const NO_SHUTDOWN: &str = "ERROR: shutdown not enabled";
/// A meta command with too many flags.
pub const TOO_MANY_FLAGS: &str = "CLIENT_ERROR options flags too long";
/// An `mg` command with too many flags.
pub const TOO_MANY_GET_FLAGS: &str = "CLIENT_ERROR options flags are too long";
/// A flag occurs twice.
pub const DUPLICATE_FLAG: &str = "CLIENT_ERROR duplicate flag";
/// There is no such flag.
pub const INVALID_FLAG: &str = "CLIENT_ERROR invalid flag";
/// Either error, as `md` and `ma` report it.
pub const INVALID_OR_DUPLICATE_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag";
/// The key is not base64.
pub const BAD_KEY: &str = "CLIENT_ERROR error decoding key";
/// The number after a flag is not a number.
pub const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
/// The flag M has another length than 2.
pub const BAD_MODE_LENGTH: &str = "CLIENT_ERROR incorrect length for M token";
/// `ms` has no such mode.
pub const BAD_STORE_MODE: &str = "CLIENT_ERROR invalid mode for ms M token";
/// `ma` has no such mode.
pub const BAD_ARITHMETIC_MODE: &str = "CLIENT_ERROR invalid mode for ma M token";
/// The initial number of `ma` is not a number.
pub const BAD_INITIAL: &str = "CLIENT_ERROR invalid numeric initial value";
/// The number that `ma` adds is not a number.
pub const BAD_META_DELTA: &str = "CLIENT_ERROR invalid numeric delta value";
/// The opaque word is too long.
pub const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long";

/// Appends a line.
pub fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a number.
pub fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the line before a value of a classic `get`.
pub fn value_line(out: &mut Vec<u8>, key: &[u8], flags: u32, value_bytes: usize, cas: Option<u64>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    number(out, flags);
    out.push(b' ');
    number(out, value_bytes);
    if let Some(cas) = cas {
        out.push(b' ');
        number(out, cas);
    }
    out.extend_from_slice(b"\r\n");
}
