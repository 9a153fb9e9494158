//! The on-flash format of a bucket: as many small items as fit into one block or a few, oldest first.
//!
//! ```text
//!      0          4        6        8            16
//!      +----------+--------+--------+------------+---------+---------+-- ··· --+ - - - - +
//!      | checksum | format | used   | generation | entry 0 | entry 1 |         |  unused |
//!      | u32      | u16    | u16    | u64        | oldest  |         |         |         |
//!      +----------+--------+--------+------------+---------+---------+-- ··· --+ - - - - +
//!                                                |<--------- `used` bytes ---->|
//!
//!      0             4          8           10      12        13
//!      +-------------+----------+-----------+-------+---------+-- ··· --+-- ··· --+
//!      | fingerprint | expiry   | value len | tag   | key len | key     | value   |
//!      | u32         | u32      | u16       | u16   | u8      |         |         |
//!      +-------------+----------+-----------+-------+---------+-- ··· --+-- ··· --+
//! ```
//!
//! In a cache with a [journal](crate::flash::journal), the format is 0xB502, and the first 8 of the used bytes are the number of the write:
//!
//! ```text
//!      16             24
//!      +--------------+---------+-- ··· --+
//!      | write number | entry 0 |         |
//!      | u64          | oldest  |         |
//!      +--------------+---------+-- ··· --+
//! ```
//!
//! All numbers are little-endian. The checksum is CRC-32C (it detects every burst of up to 32 bits) of the bytes from `format` to the
//! last used byte, mixed with the bucket's number. Bytes beyond `used` are ignored.
//!
//! An entry stores 32 bits of its key's hash. They avoid most key comparisons, and the bucket's filter is built from them alone, so a
//! filter is rebuilt without hashing keys.

use std::ops::Range;

use device::checksum::crc32c;

use crate::KeyHash;

/// Size of the header.
pub const HEADER_BYTES: usize = GENERATION + 8;
/// Overhead of an entry in addition to its key and value.
pub const ENTRY_BYTES: usize = ENTRY_KEY_LEN + 1;
/// Smallest and largest bucket: `used` counts up to 65,535 and the smallest device block is 512.
pub const BUCKET_BYTES: std::ops::RangeInclusive<u32> = 512..=65_536;
/// Longest key of an entry.
pub const MAX_KEY_BYTES: usize = u8::MAX as usize;

/// Bytes of the write number.
pub const NUMBER_BYTES: usize = 8;

const FORMAT: u16 = 0xB501;
const NUMBERED_FORMAT: u16 = 0xB502;

const CHECKSUM: usize = 0;
const FORMAT_AT: usize = CHECKSUM + 4;
const USED: usize = FORMAT_AT + 2;
const GENERATION: usize = USED + 2;

const ENTRY_FINGERPRINT: usize = 0;
const ENTRY_EXPIRY: usize = ENTRY_FINGERPRINT + 4;
const ENTRY_VALUE_LEN: usize = ENTRY_EXPIRY + 4;
const ENTRY_TAG: usize = ENTRY_VALUE_LEN + 2;
const ENTRY_KEY_LEN: usize = ENTRY_TAG + 2;

/// The 32 bits of a key's hash that a bucket and its filter store. They are independent of the bits that select the bucket; otherwise all
/// keys of a bucket would look alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u32);

impl Fingerprint {
    /// The fingerprint of a key with this hash.
    #[must_use]
    pub fn of(hash: KeyHash) -> Self {
        Self((hash.remix() >> 32) as u32)
    }
}

/// Number of a bucket in its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId(pub u32);

/// The generation and number that a bucket must have to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Identifies the store and the period since it was last emptied. A bucket of another generation is empty, not corrupt.
    pub generation: u64,
    /// The bucket's number. It reveals a bucket that the device wrote to, or read from, the wrong place.
    pub id: BucketId,
    /// Whether the bucket has a write number.
    pub is_numbered: bool,
}

/// Why a bucket's content cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// Valid, but of an earlier generation: the device lost the last write to this place.
    Stale,
    /// The checksum does not match.
    Checksum,
    /// The checksum matches, but the content is not a bucket of this format: another program wrote it.
    Malformed,
}

/// A bucket whose content has been verified.
#[derive(Debug, Clone, Copy)]
pub struct Bucket<'a>(&'a [u8]);

/// One item in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Fingerprint of the key.
    pub fingerprint: Fingerprint,
    /// Unix second at which it expires; 0 is never.
    pub expiry_seconds: u32,
    /// Opaque.
    pub tag: u16,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Offset of the entry in the bucket.
    start: usize,
}

impl<'a> Bucket<'a> {
    /// Verifies `bytes`, one bucket as it was read.
    ///
    /// # Errors
    /// See [`Unusable`].
    pub fn open(bytes: &'a [u8], identity: Identity) -> Result<Self, Unusable> {
        let bucket = Self(bytes);
        // The checksum covers the length, so a length out of range cannot come from a sealed bucket.
        if bucket.end() > bytes.len() || bucket.checksum(identity.id) != u32_at(bytes, CHECKSUM) {
            return Err(Unusable::Checksum);
        }
        // The checksum is correct, so the following mismatches were written deliberately.
        if ![FORMAT, NUMBERED_FORMAT].contains(&u16_at(bytes, FORMAT_AT)) {
            return Err(Unusable::Malformed);
        }
        if !Self::has_generation(bytes, identity.generation) {
            return Err(Unusable::Stale);
        }
        // The code below slices by the entries' own lengths: a wrong length must not cause a panic.
        let is_usable = bucket.is_numbered() == identity.is_numbered && bucket.well_formed();
        if is_usable { Ok(bucket) } else { Err(Unusable::Malformed) }
    }

    /// Whether bytes that were not verified name this generation.
    #[must_use]
    pub fn has_generation(bytes: &[u8], generation: u64) -> bool {
        u64_at(bytes, GENERATION) == generation
    }

    /// The write number; 0 if the bucket has none.
    #[must_use]
    pub fn write_number(self) -> u64 {
        if self.is_numbered() { u64_at(self.0, HEADER_BYTES) } else { 0 }
    }

    /// A bucket that this process has just sealed.
    #[must_use]
    pub fn sealed_here(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The fingerprints of all entries, from which the bucket's filter is built.
    pub fn fingerprints(self) -> impl Iterator<Item = Fingerprint> + Clone + 'a {
        self.entries().map(|entry| entry.fingerprint)
    }

    /// The entry of `key`.
    #[must_use]
    pub fn find(self, fingerprint: Fingerprint, key: &[u8]) -> Option<Entry<'a>> {
        self.entries().find(|entry| entry.fingerprint == fingerprint && entry.key == key)
    }

    /// All entries, oldest first.
    pub fn entries(self) -> impl Iterator<Item = Entry<'a>> + Clone + 'a {
        let entry_from = move |start| (start < self.end()).then(|| self.entry_at(start));
        std::iter::successors(entry_from(self.entries_start()), move |entry| entry_from(entry.end()))
    }

    fn entry_at(self, start: usize) -> Entry<'a> {
        let head = &self.0[start..start + ENTRY_BYTES];
        let key = start + ENTRY_BYTES..start + ENTRY_BYTES + usize::from(head[ENTRY_KEY_LEN]);
        let value = key.end..key.end + usize::from(u16_at(head, ENTRY_VALUE_LEN));
        Entry {
            fingerprint: Fingerprint(u32_at(head, ENTRY_FINGERPRINT)),
            expiry_seconds: u32_at(head, ENTRY_EXPIRY),
            tag: u16_at(head, ENTRY_TAG),
            key: &self.0[key],
            value: &self.0[value],
            start,
        }
    }

    fn well_formed(self) -> bool {
        let mut at = self.entries_start();
        while at < self.end() {
            let Some(head) = self.0.get(at..at + ENTRY_BYTES) else { return false };
            at += entry_bytes(usize::from(head[ENTRY_KEY_LEN]), usize::from(u16_at(head, ENTRY_VALUE_LEN)));
        }
        at == self.end()
    }

    fn checksum(self, id: BucketId) -> u32 {
        crc32c(&self.0[FORMAT_AT..self.end()]) ^ id.0.wrapping_mul(0x9E37_79B1)
    }

    fn is_numbered(self) -> bool {
        u16_at(self.0, FORMAT_AT) == NUMBERED_FORMAT
    }

    fn entries_start(self) -> usize {
        HEADER_BYTES + if self.is_numbered() { NUMBER_BYTES } else { 0 }
    }

    /// End of the last entry.
    fn end(self) -> usize {
        HEADER_BYTES + usize::from(u16_at(self.0, USED))
    }
}

impl Entry<'_> {
    /// Range of the value in the bucket.
    #[must_use]
    pub fn value_range(&self) -> Range<usize> {
        self.end() - self.value.len()..self.end()
    }

    /// Whether the item has expired at `now_seconds`.
    #[must_use]
    pub fn expired(&self, now_seconds: u32) -> bool {
        expired(self.expiry_seconds, now_seconds)
    }

    fn end(&self) -> usize {
        self.start + entry_bytes(self.key.len(), self.value.len())
    }
}

/// Whether `expiry_seconds` (0: never) has passed.
#[must_use]
pub fn expired(expiry_seconds: u32, now_seconds: u32) -> bool {
    expiry_seconds != 0 && expiry_seconds <= now_seconds
}

/// Bytes an entry takes in a bucket.
#[must_use]
pub fn entry_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    ENTRY_BYTES + key_bytes + value_bytes
}

/// Whether an item fits a bucket of `bucket_bytes`.
#[must_use]
pub fn fits(bucket_bytes: usize, key_bytes: usize, value_bytes: usize) -> bool {
    key_bytes <= MAX_KEY_BYTES
        && value_bytes <= usize::from(u16::MAX)
        && entry_bytes(key_bytes, value_bytes) <= capacity(bucket_bytes)
}

fn capacity(bucket_bytes: usize) -> usize {
    // A 64 KiB bucket has a few bytes more than `used` can count; no entry fits into them.
    (bucket_bytes - HEADER_BYTES).min(usize::from(u16::MAX))
}

/// An item to be put into a bucket.
#[derive(Debug, Clone, Copy)]
pub struct NewEntry<'a> {
    /// Fingerprint of the key.
    pub fingerprint: Fingerprint,
    /// Unix second at which it expires; 0 is never.
    pub expiry_seconds: u32,
    /// Opaque.
    pub tag: u16,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// A bucket being changed: [`seal`](Self::seal) makes it valid again.
#[derive(Debug)]
pub struct BucketMut<'a>(&'a mut [u8]);

impl<'a> BucketMut<'a> {
    /// Wraps a bucket that [`Bucket::open`] accepted.
    #[must_use]
    pub fn verified(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// Clears `bytes` to an empty bucket.
    #[must_use]
    pub fn empty(bytes: &'a mut [u8], generation: u64) -> Self {
        bytes[FORMAT_AT..USED].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[USED..GENERATION].copy_from_slice(&0_u16.to_le_bytes());
        bytes[GENERATION..HEADER_BYTES].copy_from_slice(&generation.to_le_bytes());
        Self(bytes)
    }

    /// As [`empty`](Self::empty), with a write number.
    #[must_use]
    pub fn empty_numbered(bytes: &'a mut [u8], generation: u64) -> Self {
        let mut bucket = Self::empty(bytes, generation);
        bucket.0[FORMAT_AT..USED].copy_from_slice(&NUMBERED_FORMAT.to_le_bytes());
        bucket.set_end(HEADER_BYTES + NUMBER_BYTES);
        bucket.set_write_number(0);
        bucket
    }

    /// Sets the write number of a bucket that has one.
    pub fn set_write_number(&mut self, number: u64) {
        debug_assert!(self.view().is_numbered(), "the bucket has a write number");
        self.0[HEADER_BYTES..HEADER_BYTES + NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
    }

    /// The current content. Verified or created here, so its checksum is not checked.
    #[must_use]
    pub fn view(&self) -> Bucket<'_> {
        Bucket(self.0)
    }

    /// Appends an entry that [`fits`], and evicts the oldest ones as needed. Calls `leaving` with each and returns their number. The caller
    /// has removed an older entry of the same key.
    pub fn insert(&mut self, new: &NewEntry<'_>, leaving: impl FnMut(&Entry<'_>)) -> u32 {
        let len = entry_bytes(new.key.len(), new.value.len());
        let evicted = self.make_room(len, leaving);
        let start = self.view().end();
        self.encode(new, start..start + len);
        self.set_end(start + len);
        evicted
    }

    /// Removes the entry of `key`; without a key, every entry with the fingerprint. Returns their number.
    pub fn remove(&mut self, fingerprint: Fingerprint, key: Option<&[u8]>) -> u32 {
        self.retain(|entry| entry.fingerprint != fingerprint || key.is_some_and(|key| key != entry.key))
    }

    /// Removes every entry that has expired at `now_seconds`. Returns their number.
    pub fn remove_expired(&mut self, now_seconds: u32) -> u32 {
        self.retain(|entry| !entry.expired(now_seconds))
    }

    /// Writes the checksum: the bucket is valid and can be written to the device.
    pub fn seal(self, id: BucketId) {
        let checksum = self.view().checksum(id);
        self.0[CHECKSUM..FORMAT_AT].copy_from_slice(&checksum.to_le_bytes());
    }

    fn retain(&mut self, keep: impl Fn(&Entry<'_>) -> bool) -> u32 {
        let start = self.view().entries_start();
        let (mut from, mut to, mut dropped) = (start, start, 0);
        let end = self.view().end();
        while from < end {
            let entry = self.view().entry_at(from);
            let (kept, next) = (keep(&entry), entry.end());
            if !kept {
                dropped += 1;
            } else {
                if to != from {
                    self.0.copy_within(from..next, to);
                }
                to += next - from;
            }
            from = next;
        }
        self.set_end(to);
        dropped
    }

    /// Removes the oldest entries until `len` bytes are free. Returns their number.
    fn make_room(&mut self, len: usize, mut leaving: impl FnMut(&Entry<'_>)) -> u32 {
        let (start, end) = (self.view().entries_start(), self.view().end());
        let room_end = HEADER_BYTES + capacity(self.0.len());
        assert!(len <= room_end - start, "the entry was checked to fit a bucket");
        let mut first_kept = start;
        let mut dropped = 0;
        while end - (first_kept - start) + len > room_end {
            let oldest = self.view().entry_at(first_kept);
            leaving(&oldest);
            first_kept = oldest.end();
            dropped += 1;
        }
        if dropped > 0 {
            self.0.copy_within(first_kept..end, start);
            self.set_end(end - (first_kept - start));
        }
        dropped
    }

    fn encode(&mut self, new: &NewEntry<'_>, range: Range<usize>) {
        let (head, body) = self.0[range].split_at_mut(ENTRY_BYTES);
        let value_len = u16::try_from(new.value.len()).expect("an entry that fits has a short value");
        head[ENTRY_FINGERPRINT..ENTRY_EXPIRY].copy_from_slice(&new.fingerprint.0.to_le_bytes());
        head[ENTRY_EXPIRY..ENTRY_VALUE_LEN].copy_from_slice(&new.expiry_seconds.to_le_bytes());
        head[ENTRY_VALUE_LEN..ENTRY_TAG].copy_from_slice(&value_len.to_le_bytes());
        head[ENTRY_TAG..ENTRY_KEY_LEN].copy_from_slice(&new.tag.to_le_bytes());
        head[ENTRY_KEY_LEN] = u8::try_from(new.key.len()).expect("an entry that fits has a short key");
        let (key, value) = body.split_at_mut(new.key.len());
        key.copy_from_slice(new.key);
        value.copy_from_slice(new.value);
    }

    fn set_end(&mut self, end: usize) {
        let used = u16::try_from(end - HEADER_BYTES).expect("a bucket holds no more than its capacity");
        self.0[USED..GENERATION].copy_from_slice(&used.to_le_bytes());
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
#[path = "bucket_tests.rs"]
mod tests;
