//! A request line to a [`Request`].

use super::MAX_KEY_BYTES;
use super::exptime::Exptime;
use super::meta::{self, Meta};
use super::reply;
use super::tokens::{Tokens, signed, unsigned};

/// A request. Keys and other words borrow the line.
#[derive(Debug, Clone)]
pub enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get {
        /// The keys.
        keys: Tokens<'a>,
        /// Whether the reply has CAS numbers.
        with_cas: bool,
        /// The new expiry of the items.
        touch: Option<Exptime>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`. The value follows the line.
    Store(Store<'a>),
    /// `incr`, `decr`.
    Arithmetic {
        /// The key.
        key: &'a [u8],
        /// The number to add or subtract.
        delta: u64,
        /// Whether `delta` is subtracted.
        is_decrement: bool,
        /// Whether the reply is left out.
        noreply: bool,
    },
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// Whether the reply is left out.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: &'a [u8],
        /// The new expiry.
        exptime: Exptime,
        /// Whether the reply is left out.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// When the items expire; 0 is now.
        delay: Exptime,
        /// Whether the reply is left out.
        noreply: bool,
    },
    /// `stats`.
    Stats {
        /// The kind of statistics.
        kind: Option<&'a [u8]>,
        /// The word after the kind.
        argument: Option<&'a [u8]>,
    },
    /// `version`.
    Version,
    /// `verbosity`.
    Verbosity {
        /// Whether the reply is left out.
        noreply: bool,
    },
    /// `quit`, or a request in HTTP, which a web page could make a browser send.
    Quit,
    /// `slabs`, which moves memory between size classes. This cache does so itself.
    Slabs,
    /// `shutdown`, which is not permitted.
    Shutdown,
    /// `mg`, `ms`, `md`, `ma`. The value of `ms` follows the line.
    Meta(Meta<'a>),
    /// `mn`.
    MetaNoop,
    /// `me`.
    MetaDebug(Meta<'a>),
}

/// A request to store a value.
#[derive(Debug, Clone, Copy)]
pub struct Store<'a> {
    /// When the value is stored.
    pub mode: StoreMode,
    /// The key.
    pub key: &'a [u8],
    /// Opaque flags of the client.
    pub flags: u32,
    /// The expiry.
    pub exptime: Exptime,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// The CAS number that the present item must have; 0 is any.
    pub cas: u64,
    /// Whether the reply is left out.
    pub noreply: bool,
}

/// When a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreMode {
    /// Always.
    Set,
    /// If there is no item.
    Add,
    /// If there is an item.
    Replace,
    /// Behind the value of the present item.
    Append,
    /// In front of the value of the present item.
    Prepend,
    /// If the CAS number of the present item is the given one.
    Cas,
}

/// A line that is not a valid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalid {
    /// The reply, without the line end.
    pub reply: &'static str,
    /// Whether the reply is left out.
    pub noreply: bool,
    /// Bytes after the line that belong to the request and are discarded.
    pub discard_bytes: usize,
}

impl From<&'static str> for Invalid {
    fn from(reply: &'static str) -> Self {
        Self { reply, noreply: false, discard_bytes: 0 }
    }
}

/// Most words of a classic request other than `get`.
const MAX_WORDS: usize = 8;

/// The words of a line after the command.
struct Words<'a> {
    words: [&'a [u8]; MAX_WORDS],
    /// Words in the line, which may be more than are kept.
    count: usize,
}

impl<'a> Words<'a> {
    fn of(tokens: Tokens<'a>) -> Self {
        let mut words = Self { words: [&[]; MAX_WORDS], count: 0 };
        for word in tokens {
            if let Some(place) = words.words.get_mut(words.count) {
                *place = word;
            }
            words.count += 1;
        }
        words
    }

    /// A word, if the line has as many.
    fn get(&self, place: usize) -> Option<&'a [u8]> {
        (place < self.count).then(|| self.words.get(place).copied()).flatten()
    }

    /// Whether the last word is `noreply`.
    fn noreply(&self) -> bool {
        self.count.checked_sub(1).and_then(|last| self.words.get(last)) == Some(&&b"noreply"[..])
    }

    /// The key; with it, whether the reply is left out.
    fn key(&self) -> Result<&'a [u8], Invalid> {
        match self.words[0] {
            key if key.len() > MAX_KEY_BYTES => Err(self.invalid(reply::BAD_FORMAT)),
            key => Ok(key),
        }
    }

    fn invalid(&self, reply: &'static str) -> Invalid {
        Invalid { noreply: self.noreply(), ..reply.into() }
    }

    /// Requires a number of words; other numbers are an unknown command to memcached.
    fn require(self, counts: impl std::ops::RangeBounds<usize>) -> Result<Self, Invalid> {
        if counts.contains(&self.count) { Ok(self) } else { Err(reply::ERROR.into()) }
    }
}

type Parser = for<'a> fn(Words<'a>) -> Result<Request<'a>, Invalid>;

/// The classic commands, except `get`, `gets`, `gat` and `gats`, which take any number of words.
const COMMANDS: &[(&[u8], Parser)] = &[
    (b"set", |words| store(StoreMode::Set, &words.require(4..=5)?)),
    (b"add", |words| store(StoreMode::Add, &words.require(4..=5)?)),
    (b"replace", |words| store(StoreMode::Replace, &words.require(4..=5)?)),
    (b"append", |words| store(StoreMode::Append, &words.require(4..=5)?)),
    (b"prepend", |words| store(StoreMode::Prepend, &words.require(4..=5)?)),
    (b"cas", |words| store(StoreMode::Cas, &words.require(5..=6)?)),
    (b"incr", |words| arithmetic(&words.require(2..=3)?, false)),
    (b"decr", |words| arithmetic(&words.require(2..=3)?, true)),
    (b"delete", |words| delete(&words.require(1..=3)?)),
    (b"touch", |words| touch(&words.require(2..=3)?)),
    (b"flush_all", |words| flush_all(&words.require(0..=2)?)),
    (b"stats", |words| Ok(Request::Stats { kind: words.get(0), argument: words.get(1) })),
    (b"version", |_| Ok(Request::Version)),
    (b"verbosity", |words| verbosity(&words.require(1..)?)),
    (b"slabs", |words| slabs(&words.require(2..)?)),
    (b"quit", |_| Ok(Request::Quit)),
    (b"shutdown", |_| Ok(Request::Shutdown)),
];

/// Parses a line, given without its line end.
///
/// # Errors
/// The reply to a line that is not a valid request.
pub fn parse(line: &[u8]) -> Result<Request<'_>, Invalid> {
    let mut tokens = Tokens::of(line);
    let command = tokens.next().unwrap_or_default();
    match command {
        b"get" | b"bget" => get(tokens, false),
        b"gets" => get(tokens, true),
        b"gat" => get_and_touch(tokens, false),
        b"gats" => get_and_touch(tokens, true),
        [b'm', kind] => meta::parse(*kind, tokens),
        _ => match COMMANDS.iter().find(|(name, _)| *name == command) {
            Some((_, parser)) => parser(Words::of(tokens)),
            None if Tokens::of(line).last().is_some_and(|word| word.starts_with(b"HTTP/")) => {
                Ok(Request::Quit)
            }
            None => Err(reply::ERROR.into()),
        },
    }
}

fn get(keys: Tokens<'_>, with_cas: bool) -> Result<Request<'_>, Invalid> {
    check_keys(keys)?;
    match Tokens::next(&mut { keys }) {
        Some(_) => Ok(Request::Get { keys, with_cas, touch: None }),
        None => Err(reply::ERROR.into()),
    }
}

/// Parses `gat` or `gats`. As in memcached, a request without a key is valid and finds nothing.
fn get_and_touch(mut tokens: Tokens<'_>, with_cas: bool) -> Result<Request<'_>, Invalid> {
    let exptime = tokens.next().ok_or(reply::ERROR)?;
    let exptime = signed(exptime).map(Exptime).ok_or(reply::BAD_EXPTIME)?;
    check_keys(tokens)?;
    Ok(Request::Get { keys: tokens, with_cas, touch: Some(exptime) })
}

fn check_keys(mut keys: Tokens<'_>) -> Result<(), Invalid> {
    match keys.any(|key| key.len() > MAX_KEY_BYTES) {
        true => Err(reply::BAD_FORMAT.into()),
        false => Ok(()),
    }
}

fn store<'a>(mode: StoreMode, words: &Words<'a>) -> Result<Request<'a>, Invalid> {
    let key = words.key()?;
    let [_, flags, exptime, value_bytes, cas, ..] = words.words;
    let bad_format = || words.invalid(reply::BAD_FORMAT);
    let flags = unsigned(flags).and_then(|flags| u32::try_from(flags).ok()).ok_or_else(bad_format)?;
    let exptime = signed(exptime).map(Exptime).ok_or_else(bad_format)?;
    let value_bytes = value_length(value_bytes).ok_or_else(bad_format)?;
    let cas = if mode == StoreMode::Cas { unsigned(cas).ok_or_else(bad_format)? } else { 0 };
    Ok(Request::Store(Store { mode, key, flags, exptime, value_bytes, cas, noreply: words.noreply() }))
}

/// The length of a value: a 32-bit number that leaves space for the line end.
pub(super) fn value_length(word: &[u8]) -> Option<usize> {
    let max = i64::from(i32::MAX) - 2;
    signed(word).filter(|bytes| (0..=max).contains(bytes)).and_then(|bytes| usize::try_from(bytes).ok())
}

fn arithmetic<'a>(words: &Words<'a>, is_decrement: bool) -> Result<Request<'a>, Invalid> {
    let key = words.key()?;
    let delta = unsigned(words.words[1]).ok_or_else(|| words.invalid(reply::BAD_DELTA))?;
    Ok(Request::Arithmetic { key, delta, is_decrement, noreply: words.noreply() })
}

/// A delay of 0 after the key, from an old protocol version, is permitted.
fn delete<'a>(words: &Words<'a>) -> Result<Request<'a>, Invalid> {
    let noreply = words.count > 1 && words.noreply();
    let has_delay = words.count > 1 && words.words[1] == b"0";
    if words.count != 1 + usize::from(noreply) + usize::from(has_delay) {
        return Err(words.invalid(reply::DELETE_USAGE));
    }
    Ok(Request::Delete { key: words.key()?, noreply })
}

fn touch<'a>(words: &Words<'a>) -> Result<Request<'a>, Invalid> {
    let key = words.key()?;
    let exptime = signed(words.words[1]).ok_or_else(|| words.invalid(reply::BAD_EXPTIME))?;
    Ok(Request::Touch { key, exptime: Exptime(exptime), noreply: words.noreply() })
}

fn verbosity<'a>(words: &Words<'a>) -> Result<Request<'a>, Invalid> {
    match unsigned(words.words[0]).filter(|&level| u32::try_from(level).is_ok()) {
        Some(_) => Ok(Request::Verbosity { noreply: words.noreply() }),
        None => Err(words.invalid(reply::BAD_FORMAT)),
    }
}

fn slabs<'a>(words: &Words<'a>) -> Result<Request<'a>, Invalid> {
    match words.words[0] {
        b"automove" if unsigned(words.words[1]).is_none() => Err(reply::BAD_FORMAT.into()),
        b"automove" | b"reassign" => Ok(Request::Slabs),
        _ => Err(reply::ERROR.into()),
    }
}

fn flush_all<'a>(words: &Words<'a>) -> Result<Request<'a>, Invalid> {
    let noreply = words.noreply();
    let delay = match words.count - usize::from(noreply) {
        0 => 0,
        _ => signed(words.words[0]).ok_or_else(|| words.invalid(reply::BAD_EXPTIME))?,
    };
    Ok(Request::FlushAll { delay: Exptime(delay), noreply })
}
