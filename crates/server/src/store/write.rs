//! Storing a value: `set`, `add`, `replace`, `append`, `prepend`, `cas`, and `ms`.

use cache::Refusal;

use super::{Draft, Found, NewValue, Store};
use crate::item::{Header, MAX_CAS, Marks};
use crate::protocol::{Exptime, StoreMode, Ttl};

/// A value to store.
#[derive(Debug)]
pub enum Value<'a> {
    /// Bytes that are copied into the item.
    Bytes(&'a [u8]),
    /// An item that has its value.
    Draft(Draft<'a>),
}

/// How a value is stored.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The condition under which the item is stored.
    pub mode: StoreMode,
    /// The key.
    pub key: &'a [u8],
    /// Opaque flags of the client.
    pub flags: u32,
    /// The expiry.
    pub exptime: Exptime,
    /// The CAS number that the present item must have; 0 is any.
    pub cas: u64,
    /// The CAS number of the new item, instead of the next one.
    pub new_cas: Option<u64>,
    /// Whether an older CAS number stores the value as stale.
    pub invalidates: bool,
    /// Whether the key was given in base64.
    pub has_binary_key: bool,
}

/// The result of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOutcome {
    /// Stored, with this CAS number.
    Stored(u64),
    /// An item exists although none may exist, or the reverse.
    NotStored,
    /// The present item has another CAS number.
    Exists,
    /// There is no item to compare with.
    NotFound,
    /// The cache refused the item.
    Refused(Refusal),
}

/// Decision on a value.
enum Decision {
    Store { ttl: Ttl, marks: Marks },
    Join,
    Refuse(StoreOutcome),
}

impl Store {
    /// Stores a value. `append` and `prepend` need its bytes.
    pub async fn write(&self, write: &Write<'_>, value: Value<'_>) -> StoreOutcome {
        let _guard = self.lock(write.key).await;
        // A plain set replaces the item without reading it.
        let old = if write.mode == StoreMode::Set { None } else { self.find(write.key).await };
        let now_seconds = self.now_seconds();
        let cas = match write.new_cas {
            Some(cas) => cas & MAX_CAS,
            None => self.cas.next(),
        };
        let header = Header { flags: write.flags, stored_seconds: now_seconds, cas, marks: Marks::default() };
        let new = match (write.decide(old.as_ref(), now_seconds), &old, value) {
            (Decision::Refuse(outcome), ..) => return outcome,
            (Decision::Store { marks, .. }, _, Value::Draft(draft)) => {
                self.insert(draft, write.key, &Header { marks, ..header });
                return StoreOutcome::Stored(cas);
            }
            (Decision::Store { ttl, marks }, _, Value::Bytes(value)) => {
                NewValue { header: Header { marks, ..header }, pieces: [value, &[]], ttl }
            }
            (Decision::Join, Some(old), Value::Bytes(value)) => NewValue {
                header: Header { flags: old.header.flags, ..header },
                pieces: write.joined(old.value(), value),
                ttl: Ttl::until(old.expiry_seconds(), now_seconds),
            },
            (Decision::Join, ..) => return StoreOutcome::NotStored,
        };
        match self.put(write.key, &new).await {
            Ok(()) => StoreOutcome::Stored(cas),
            Err(refusal) => {
                // A failed set must also remove the old value.
                if write.mode == StoreMode::Set {
                    self.cache.remove(write.key);
                }
                StoreOutcome::Refused(refusal)
            }
        }
    }

    /// Removes the item of a `set` whose value is refused.
    pub async fn drop_replaced(&self, key: &[u8]) {
        let _guard = self.lock(key).await;
        self.cache.remove(key);
    }
}

impl Write<'_> {
    fn decide(&self, old: Option<&Found<'_>>, now_seconds: u32) -> Decision {
        let marks = Marks { has_binary_key: self.has_binary_key, ..Marks::default() };
        let store = Decision::Store { ttl: self.exptime.ttl(now_seconds), marks };
        match (self.mode, old) {
            (StoreMode::Set, _) | (StoreMode::Add, None) | (StoreMode::Replace, Some(_)) => store,
            (StoreMode::Cas, None) => Decision::Refuse(StoreOutcome::NotFound),
            (StoreMode::Cas, Some(old)) if self.cas == old.header.cas => store,
            (StoreMode::Cas, Some(old)) if self.invalidates && self.cas < old.header.cas && self.cas != 0 => {
                // The client won a recache of an item that was invalidated since: its value is better than none.
                let has_winner = old.header.marks.has_winner;
                let ttl = Ttl::until(old.expiry_seconds(), now_seconds);
                Decision::Store { ttl, marks: Marks { is_stale: true, has_winner, ..marks } }
            }
            (StoreMode::Cas, Some(_)) => Decision::Refuse(StoreOutcome::Exists),
            (StoreMode::Append | StoreMode::Prepend, Some(old))
                if self.cas != 0 && self.cas != old.header.cas =>
            {
                Decision::Refuse(StoreOutcome::Exists)
            }
            (StoreMode::Append | StoreMode::Prepend, Some(_)) => Decision::Join,
            _ => Decision::Refuse(StoreOutcome::NotStored),
        }
    }

    fn joined<'b>(&self, old: &'b [u8], value: &'b [u8]) -> [&'b [u8]; 2] {
        if self.mode == StoreMode::Append { [old, value] } else { [value, old] }
    }
}
