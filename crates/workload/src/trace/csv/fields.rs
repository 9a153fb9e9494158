//! The fields of a table, and what can separate its columns.

pub(super) const SEPARATORS: [u8; 5] = [b',', b';', b'\t', b'|', b' '];

/// Fields of a row, by their index in [`NAMES`].
pub(super) const FIELDS: usize = NAMES.len();
pub(super) const TIME: usize = 0;
pub(super) const KEY: usize = 1;
pub(super) const SIZE: usize = 2;
pub(super) const OP: usize = 3;
pub(super) const TTL: usize = 4;
pub(super) const TENANT: usize = 5;
pub(super) const COUNT: usize = 6;

/// Our names of the fields. Other names are in [`header`](super::header).
pub(super) const NAMES: [&str; 7] = ["time", "key", "size", "op", "ttl", "tenant", "count"];
