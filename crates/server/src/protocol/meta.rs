//! The flags of meta commands.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::exptime::Exptime;
use super::request::{Invalid, Request, value_length};
use super::tokens::{Tokens, signed, unsigned};
use super::{MAX_KEY_BYTES, StoreMode, reply};

/// Words of a meta command after its name.
const MAX_WORDS: usize = 18;

/// Bytes of an opaque word, its flag included.
const MAX_OPAQUE_BYTES: usize = 32;

/// A meta command with a key.
#[derive(Debug, Clone)]
pub struct Meta<'a> {
    /// The command.
    pub command: MetaCommand,
    /// The key, decoded.
    pub key: Cow<'a, [u8]>,
    /// The flags as sent, which the reply repeats in the same order.
    pub words: Tokens<'a>,
    /// The flags by meaning.
    pub flags: MetaFlags,
}

/// A meta command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaCommand {
    /// `mg`.
    Get,
    /// `ms`.
    Set {
        /// When the value is stored.
        mode: StoreMode,
        /// Bytes of the value that follows the line.
        value_bytes: usize,
    },
    /// `md`.
    Delete,
    /// `ma`.
    Arithmetic {
        /// Whether the number is subtracted.
        is_decrement: bool,
    },
}

/// The flags of a meta command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MetaFlags {
    /// `b`: the key is in base64, in the reply too.
    pub has_binary_key: bool,
    /// `v`: return the value.
    pub wants_value: bool,
    /// `q`: leave out the usual reply.
    pub is_quiet: bool,
    /// `u`: do not count the access.
    pub is_unnoticed: bool,
    /// `N`: make an item with this expiry if there is none.
    pub vivify: Option<Exptime>,
    /// `T`: the new expiry.
    pub ttl: Option<Exptime>,
    /// `R`: ask for a recache if less time is left.
    pub recache: Option<Exptime>,
    /// `F`: client flags.
    pub client_flags: u32,
    /// `C`: the CAS number that the present item must have.
    pub cas: Option<u64>,
    /// `E`: the CAS number of the new item.
    pub new_cas: Option<u64>,
    /// `I`: mark as stale; accept an older CAS number.
    pub invalidates: bool,
    /// `x`: remove the value and keep the item.
    pub drops_value: bool,
    /// `J`: the first number of an item that `ma` makes.
    pub initial: u64,
    /// `D`: the number to add.
    pub delta: Option<u64>,
    /// `M`: the mode.
    mode: Option<u8>,
}

/// Parses the meta command `m` + `kind`.
pub(super) fn parse(kind: u8, mut words: Tokens<'_>) -> Result<Request<'_>, Invalid> {
    match kind {
        b'n' => return Ok(Request::MetaNoop),
        b'g' | b's' | b'd' | b'a' | b'e' => {}
        _ => return Err(reply::ERROR.into()),
    }
    let count = words.count();
    let missing = if kind == b'e' { reply::BAD_FORMAT } else { reply::ERROR };
    let key = words.next().ok_or(missing)?;
    if key.len() > MAX_KEY_BYTES {
        return Err(reply::BAD_FORMAT.into());
    }
    if kind == b's' && count < 2 {
        return Err(reply::BAD_FORMAT.into());
    }
    if count > MAX_WORDS {
        let is_get = kind == b'g';
        return Err(if is_get { reply::TOO_MANY_GET_FLAGS } else { reply::TOO_MANY_FLAGS }.into());
    }
    match kind {
        b'e' => debug(key, words),
        b's' => {
            let value_bytes = words.next().and_then(value_length).ok_or(reply::BAD_FORMAT)?;
            // The value is discarded with the line.
            set(key, words, value_bytes)
                .map_err(|reply| Invalid { discard_bytes: value_bytes + 2, ..reply.into() })
        }
        kind => keyed(kind, key, words).map_err(Invalid::from),
    }
}

fn debug<'a>(key: &'a [u8], mut words: Tokens<'a>) -> Result<Request<'a>, Invalid> {
    let has_binary_key = words.next() == Some(b"b");
    let key = decoded(key, has_binary_key).ok_or(reply::BAD_FORMAT)?;
    let flags = MetaFlags { has_binary_key, is_unnoticed: true, ..MetaFlags::default() };
    Ok(Request::MetaDebug(Meta { command: MetaCommand::Get, key, words, flags }))
}

fn set<'a>(key: &'a [u8], words: Tokens<'a>, value_bytes: usize) -> Result<Request<'a>, &'static str> {
    let (key, flags) = key_and_flags(key, words)?;
    let mode = match flags.mode.map(|mode| mode.to_ascii_uppercase()) {
        None | Some(b'S') => StoreMode::Set,
        Some(b'E') => StoreMode::Add,
        Some(b'A') => StoreMode::Append,
        Some(b'P') => StoreMode::Prepend,
        Some(b'R') => StoreMode::Replace,
        Some(_) => return Err(reply::BAD_STORE_MODE),
    };
    let compares = flags.cas.is_some() && matches!(mode, StoreMode::Set | StoreMode::Replace);
    let mode = if compares { StoreMode::Cas } else { mode };
    check_opaque(words)?;
    Ok(Request::Meta(Meta { command: MetaCommand::Set { mode, value_bytes }, key, words, flags }))
}

fn keyed<'a>(kind: u8, key: &'a [u8], words: Tokens<'a>) -> Result<Request<'a>, &'static str> {
    let of_flags = |reply| if kind == b'g' { reply } else { reply::INVALID_OR_DUPLICATE_FLAG };
    let (key, flags) = key_and_flags(key, words).map_err(of_flags)?;
    let command = match (kind, flags.mode.map(|mode| mode.to_ascii_uppercase())) {
        (b'g', _) => MetaCommand::Get,
        (b'd', _) => MetaCommand::Delete,
        (_, None | Some(b'I' | b'+')) => MetaCommand::Arithmetic { is_decrement: false },
        (_, Some(b'D' | b'-')) => MetaCommand::Arithmetic { is_decrement: true },
        (_, Some(_)) => return Err(reply::BAD_ARITHMETIC_MODE),
    };
    check_opaque(words)?;
    Ok(Request::Meta(Meta { command, key, words, flags }))
}

fn check_opaque(mut words: Tokens<'_>) -> Result<(), &'static str> {
    match words.any(|word| word[0] == b'O' && word.len() > MAX_OPAQUE_BYTES) {
        true => Err(reply::OPAQUE_TOO_LONG),
        false => Ok(()),
    }
}

fn decoded(key: &[u8], has_binary_key: bool) -> Option<Cow<'_, [u8]>> {
    if !has_binary_key {
        return Some(Cow::Borrowed(key));
    }
    BASE64.decode(key).ok().filter(|key| !key.is_empty()).map(Cow::Owned)
}

/// Appends a key as it was sent.
pub fn encode_key(out: &mut Vec<u8>, key: &[u8], is_binary: bool) {
    if is_binary {
        out.extend_from_slice(BASE64.encode(key).as_bytes());
    } else {
        out.extend_from_slice(key);
    }
}

fn key_and_flags<'a>(key: &'a [u8], words: Tokens<'a>) -> Result<(Cow<'a, [u8]>, MetaFlags), &'static str> {
    let mut flags = MetaFlags::default();
    let mut seen = 0_u128;
    for word in words {
        let bit = 1_u128.checked_shl(word[0].into()).ok_or(reply::DUPLICATE_FLAG)?;
        if seen & bit != 0 {
            return Err(reply::DUPLICATE_FLAG);
        }
        seen |= bit;
        flags.set(word[0], &word[1..])?;
    }
    let key = decoded(key, flags.has_binary_key).ok_or(reply::BAD_KEY)?;
    Ok((key, flags))
}

impl MetaFlags {
    fn set(&mut self, flag: u8, token: &[u8]) -> Result<(), &'static str> {
        let exptime = || signed(token).map(Exptime).ok_or(reply::BAD_TOKEN).map(Some);
        let cas = || unsigned(token).ok_or(reply::BAD_TOKEN).map(Some);
        match flag {
            b'b' => self.has_binary_key = true,
            b'v' => self.wants_value = true,
            b'q' => self.is_quiet = true,
            b'u' => self.is_unnoticed = true,
            b'x' => self.drops_value = true,
            b'I' => self.invalidates = true,
            b'N' => self.vivify = exptime()?,
            b'T' => self.ttl = exptime()?,
            b'R' => self.recache = exptime()?,
            b'C' => self.cas = cas()?,
            b'E' => self.new_cas = cas()?,
            b'F' => {
                let flags = unsigned(token).and_then(|flags| u32::try_from(flags).ok());
                self.client_flags = flags.ok_or(reply::BAD_FORMAT)?;
            }
            b'J' => self.initial = unsigned(token).ok_or(reply::BAD_INITIAL)?,
            b'D' => self.delta = Some(unsigned(token).ok_or(reply::BAD_META_DELTA)?),
            b'M' => {
                let [mode] = token else { return Err(reply::BAD_MODE_LENGTH) };
                self.mode = Some(*mode);
            }
            // In the reply only; P and L are for proxies.
            b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' => {}
            _ => return Err(reply::INVALID_FLAG),
        }
        Ok(())
    }
}
