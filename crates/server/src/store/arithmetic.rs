//! `incr`, `decr` and `ma`: numbers in text, changed in one step.

use cache::Refusal;

use super::{NewValue, Store};
use crate::item::{Header, Marks};
use crate::protocol::tokens::stored_number;
use crate::protocol::{Exptime, Ttl};

/// A change of a number.
#[derive(Debug, Clone, Copy)]
pub struct Arithmetic<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The number to add or subtract.
    pub delta: u64,
    /// Whether `delta` is subtracted.
    pub is_decrement: bool,
    /// The CAS number that the present item must have; 0 is any.
    pub cas: u64,
    /// The CAS number of the new item, instead of the next one.
    pub new_cas: Option<u64>,
    /// The number and the expiry of an item that is created if there is none.
    pub vivify: Option<(u64, Exptime)>,
    /// The new expiry.
    pub ttl: Option<Exptime>,
    /// Whether the key was given in base64.
    pub has_binary_key: bool,
}

/// The result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithmeticOutcome {
    /// The item has a new number.
    Stored {
        /// The number.
        number: u64,
        /// The CAS number.
        cas: u64,
        /// The time left before a new expiry was set.
        old_ttl: Ttl,
        /// The time left.
        ttl: Ttl,
    },
    /// There is no item.
    NotFound,
    /// The item has another CAS number.
    Exists,
    /// The value is not a number.
    NonNumeric,
    /// The cache refused the new value.
    Refused(Refusal),
}

impl Store {
    /// Changes a number.
    pub async fn arithmetic(&self, change: &Arithmetic<'_>) -> ArithmeticOutcome {
        let _guard = self.lock(change.key).await;
        let now_seconds = self.now_seconds();
        let old = self.find(change.key).await;
        let (number, old_ttl, ttl, width, flags, marks) = match (&old, change.vivify) {
            (None, None) => return ArithmeticOutcome::NotFound,
            (None, Some((initial, exptime))) => {
                let marks = Marks { has_binary_key: change.has_binary_key, ..Marks::default() };
                (initial, Ttl::Never, exptime.ttl(now_seconds), 0, 0, marks)
            }
            (Some(old), _) => {
                let Some(number) = stored_number(old.value()) else { return ArithmeticOutcome::NonNumeric };
                if change.cas != 0 && change.cas != old.header.cas {
                    return ArithmeticOutcome::Exists;
                }
                let ttl = Ttl::until(old.expiry_seconds(), now_seconds);
                let width = old.value().len();
                (change.applied_to(number), ttl, ttl, width, old.header.flags, old.header.marks)
            }
        };
        let ttl = change.ttl.map_or(ttl, |exptime| exptime.ttl(now_seconds));
        let cas = change.new_cas.unwrap_or_else(|| self.cas.next());
        // As in memcached, a shorter number is padded to the length of the old one.
        let text = format!("{number:<width$}");
        let header = Header { flags, stored_seconds: now_seconds, cas, marks };
        match self.put(change.key, &NewValue { header, pieces: [text.as_bytes(), &[]], ttl }).await {
            Ok(()) => ArithmeticOutcome::Stored { number, cas, old_ttl, ttl },
            Err(refusal) => ArithmeticOutcome::Refused(refusal),
        }
    }
}

impl Arithmetic<'_> {
    fn applied_to(&self, number: u64) -> u64 {
        match self.is_decrement {
            true => number.saturating_sub(self.delta),
            false => number.wrapping_add(self.delta),
        }
    }
}
