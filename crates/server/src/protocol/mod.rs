//! memcached's text protocol: parses request lines to [`Request`]; fixed replies.
//!
//! It depends neither on sockets nor on the cache.

mod command;
pub mod exptime;
pub mod meta;
pub mod reply;
pub mod request;
pub mod tokens;

pub use command::{AllowedCommands, COMMANDS};
pub use exptime::{Exptime, Ttl};
pub use meta::Meta;
pub use request::{Invalid, Request, Store, StoreMode, parse};

/// Longest key, bytes.
pub const MAX_KEY_BYTES: usize = 250;
