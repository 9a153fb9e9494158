//! Verifiable value bytes.
//!
//! All bytes of a value are computed from its key's hash, its version and its length, so a reader that knows the key can check that it
//! got a whole value of that key, and of which version. The layout:
//!
//! ```text
//! 0        4        8                16                       23     24            length
//! | check  | length | key hash       | version (7 bytes)      | body | body ...    |
//! ```
//!
//! `check` is a hash of the other 20 header bytes. `body` is the kind of the body: the percentage of zeros; 101 plus that percentage if
//! the end of the value repeats; or 255 if the body was left unchanged. If the end repeats, the byte after the header is the repeating
//! share of the value in percent, and `check` covers it too. A value shorter than the header has the low bytes of the version in its front
//! half and a hash in its back half.
//!
//! CacheBench fills values with an English sentence, which favours drives that compress. The body here is random, except for the chosen
//! share of zeros at the end of each 4 KiB: it is a prepared block of random bytes, from an offset chosen by key and version, with every
//! word XORed with a number derived from the key, the version and the block. So no two blocks are equal, and a deduplicating drive finds
//! no duplicates.
//!
//! With repeats, the end of the value consists of one of four prepared 4 KiB blocks, chosen by the key. A cache packs values behind
//! headers and keys, so a drive's block begins at any offset of a value; but in a sequence of equal 4 KiB blocks, every 4 KiB window is
//! a rotation of the block, and there are few rotations. The first whole window begins half a block later on average, and as much is lost
//! at the end: the repeating part is therefore one block longer than requested, so that the drive finds the requested share.

mod lines;
#[cfg(test)]
mod tests;

use lines::{LINE_BYTES, LineWriter};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes of the header; shorter values hold a shortened form.
pub const HEADER_BYTES: usize = 24;
/// Versions are below 2^56.
pub const MAX_VERSION: u64 = (1 << VERSION_BITS) - 1;
const VERSION_BITS: u32 = 56;

const CHECK: std::ops::Range<usize> = 0..4;
const LENGTH: std::ops::Range<usize> = CHECK.end..CHECK.end + 4;
const KEY_HASH: std::ops::Range<usize> = LENGTH.end..LENGTH.end + 8;
/// The version in the low seven bytes, the kind of body in the highest.
const VERSION_AND_BODY: std::ops::Range<usize> = KEY_HASH.end..HEADER_BYTES;

/// Body kind of a value with only its header written.
const NO_BODY: u8 = 0xff;
const BLOCK_BYTES: usize = 4096;
const WORD_BYTES: usize = 8;
/// Body kinds of at least this value have a repeating end.
const REPEATS: u8 = 101;
/// Offset of the repeating share, in percent; the body follows it.
const REPEATED_PERCENT: usize = HEADER_BYTES;
const REPEATING_BODY: usize = HEADER_BYTES + WORD_BYTES;
/// Number of prepared blocks that values repeat. Their words are XORed with the mask so that they differ from all other blocks.
const REPEATED_BLOCKS: u64 = 4;
const REPEATED_MASK: u64 = 0x6465_6475_7065_6421;
/// Values of at least this size are written with non-temporal stores, because they would evict most of a core's cache.
const PAST_CACHES_BYTES: usize = 32 << 10;
static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
/// Prepared random bytes: small enough to stay in a second-level cache beside the engine's own data.
const PREPARED_BYTES: usize = 64 << 10;
/// Part of the format: other readers prepare the same bytes.
const PREPARED_SEED: u64 = 0x666c_6173_6877_7269;

/// Writes and verifies values.
pub struct Payload {
    prepared: Box<[u8]>,
    zeros_percent: u8,
    repeated_percent: u8,
}

/// The version stored in a value. Values shorter than the header store only its low bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The stored bits.
    pub low_bits: u64,
    /// Number of stored bits.
    pub known_bits: u32,
}

impl Version {
    /// Whether the stored bits agree with `version`.
    #[must_use]
    pub fn matches(self, version: u64) -> bool {
        self.low_bits == version & low_mask(self.known_bits)
    }
}

/// How a value differs from the written one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corruption {
    /// The header, or a value shorter than it, was not written for the key.
    #[error("the value's header fails its check")]
    Header,
    /// The header is valid, but belongs to another key.
    #[error("the value belongs to the key with hash {found:016x}, not {expected:016x}")]
    OtherKey {
        /// Hash of the requested key.
        expected: u64,
        /// Hash of the key in the value.
        found: u64,
    },
    /// The value belongs to the key, but has another length.
    #[error("the value was written with {written} bytes and read with {read}")]
    Length {
        /// Bytes written.
        written: u64,
        /// Bytes read.
        read: u64,
    },
    /// The header is valid, but a byte of the body is wrong.
    #[error("the value's body is wrong from byte {offset} on")]
    Body {
        /// The first wrong byte, counted from the start of the value.
        offset: usize,
    },
}

impl Payload {
    /// Values with `zeros_percent` zeros in each hundred bytes, which can be compressed.
    #[must_use]
    pub fn new(zeros_percent: u8) -> Self {
        assert!(zeros_percent <= 100, "a percentage");
        let mut prepared = vec![0; PREPARED_BYTES + BLOCK_BYTES].into_boxed_slice();
        Xoshiro256PlusPlus::seed_from_u64(PREPARED_SEED).fill_bytes(&mut prepared);
        Self { prepared, zeros_percent, repeated_percent: 0 }
    }

    /// The same values, except that a deduplicating drive finds `percent` of the blocks to be duplicates. Values of at most one block have
    /// no repeats.
    #[must_use]
    pub fn with_repeats(self, percent: u8) -> Self {
        assert!(percent <= 100, "a percentage");
        Self { repeated_percent: percent, ..self }
    }

    /// Writes all bytes of `value`.
    pub fn fill(&self, value: &mut [u8], key_hash: u64, version: u64) {
        let zeros_percent = self.zeros_percent;
        let repeated_percent =
            if value.len() > REPEATING_BODY + BLOCK_BYTES { self.repeated_percent } else { 0 };
        if repeated_percent > 0 {
            value[REPEATED_PERCENT..REPEATING_BODY].fill(0);
            value[REPEATED_PERCENT] = repeated_percent;
        }
        let kind = if repeated_percent > 0 { zeros_percent + REPEATS } else { zeros_percent };
        if write_header(value, key_hash, version, kind) {
            Body { payload: self, key_hash, version, zeros_percent, repeated_percent }.write(value);
        }
    }

    /// Writes the header only, for runs that do not verify bodies.
    pub fn fill_header_only(value: &mut [u8], key_hash: u64, version: u64) {
        write_header(value, key_hash, version, NO_BODY);
    }

    /// Checks every byte of `value` against the key, and returns its version.
    ///
    /// # Errors
    /// The kind of corruption.
    pub fn verify(&self, value: &[u8], key_hash: u64) -> Result<Version, Corruption> {
        let version = Self::verify_header(value, key_hash)?;
        if value.len() < HEADER_BYTES {
            return Ok(version);
        }
        match value[HEADER_BYTES - 1] {
            NO_BODY => Ok(version),
            kind => {
                let (zeros_percent, repeated_percent) =
                    if kind < REPEATS { (kind, 0) } else { (kind - REPEATS, value[REPEATED_PERCENT]) };
                let stored_version = version.low_bits;
                let body = Body {
                    payload: self,
                    key_hash,
                    version: stored_version,
                    zeros_percent,
                    repeated_percent,
                };
                body.compare(value).map(|()| version)
            }
        }
    }

    /// The version in a value's header, for any key.
    ///
    /// # Errors
    /// The value is shorter than a header, or its header fails its check.
    pub fn version_of(value: &[u8]) -> Result<u64, Corruption> {
        if value.len() < HEADER_BYTES {
            return Err(Corruption::Header);
        }
        Self::verify_header(value, word(value, KEY_HASH.start)).map(|version| version.low_bits)
    }

    /// Like [`verify`](Self::verify), without checking the body.
    ///
    /// # Errors
    /// The header's corruption.
    pub fn verify_header(value: &[u8], key_hash: u64) -> Result<Version, Corruption> {
        if value.len() < HEADER_BYTES {
            return verify_tiny(value, key_hash);
        }
        if value[CHECK] != check(value) {
            return Err(Corruption::Header);
        }
        let found = word(value, KEY_HASH.start);
        if found != key_hash {
            return Err(Corruption::OtherKey { expected: key_hash, found });
        }
        let written = word(value, CHECK.start) >> 32;
        if written != value.len() as u64 {
            return Err(Corruption::Length { written, read: value.len() as u64 });
        }
        if !is_kind(value) {
            return Err(Corruption::Header);
        }
        let low_bits = word(value, VERSION_AND_BODY.start) & MAX_VERSION;
        Ok(Version { low_bits, known_bits: VERSION_BITS })
    }
}

/// Writes the header, or all of a value shorter than it. Returns whether a body follows.
fn write_header(value: &mut [u8], key_hash: u64, version: u64, body: u8) -> bool {
    assert!(version <= MAX_VERSION, "versions have 56 bits");
    if value.len() < HEADER_BYTES {
        write_tiny(value, key_hash, version);
        return false;
    }
    let length = u32::try_from(value.len()).expect("values are below 4 GiB");
    value[LENGTH].copy_from_slice(&length.to_le_bytes());
    value[KEY_HASH].copy_from_slice(&key_hash.to_le_bytes());
    let version_and_body = version | u64::from(body) << VERSION_BITS;
    value[VERSION_AND_BODY].copy_from_slice(&version_and_body.to_le_bytes());
    let check = check(value);
    value[CHECK].copy_from_slice(&check);
    value.len() > HEADER_BYTES && body != NO_BODY
}

/// Whether the body kind is one that a writer produces.
fn is_kind(value: &[u8]) -> bool {
    match value[HEADER_BYTES - 1] {
        0..REPEATS | NO_BODY => true,
        kind if kind - REPEATS > 100 || value.len() <= REPEATING_BODY + BLOCK_BYTES => false,
        _ => (1..=100).contains(&value[REPEATED_PERCENT]),
    }
}

fn check(value: &[u8]) -> [u8; 4] {
    let kind = value[HEADER_BYTES - 1];
    let repeats = kind >= REPEATS && kind != NO_BODY;
    let end = if repeats { REPEATING_BODY.min(value.len()) } else { HEADER_BYTES };
    (xxh3_64(&value[CHECK.end..end]) as u32).to_le_bytes()
}

fn word(value: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(value[at..at + WORD_BYTES].try_into().expect("eight bytes"))
}

fn low_mask(bits: u32) -> u64 {
    u64::MAX.checked_shr(64 - bits).unwrap_or(0)
}

/// Bytes of the version in a value shorter than the header.
fn tiny_version_bytes(length: usize) -> usize {
    length.div_ceil(2).min(VERSION_BITS as usize / 8)
}

fn write_tiny(value: &mut [u8], key_hash: u64, version: u64) {
    let length = value.len();
    let (front, back) = value.split_at_mut(tiny_version_bytes(length));
    front.copy_from_slice(&version.to_le_bytes()[..front.len()]);
    back.copy_from_slice(&tiny_check(front, length, key_hash)[..back.len()]);
}

fn verify_tiny(value: &[u8], key_hash: u64) -> Result<Version, Corruption> {
    let (front, back) = value.split_at(tiny_version_bytes(value.len()));
    if back != &tiny_check(front, value.len(), key_hash)[..back.len()] {
        return Err(Corruption::Header);
    }
    let mut bytes = [0; WORD_BYTES];
    bytes[..front.len()].copy_from_slice(front);
    Ok(Version { low_bits: u64::from_le_bytes(bytes), known_bits: front.len() as u32 * 8 })
}

/// Enough check bytes for the longest value without a header: 23 bytes minus 7 of the version.
fn tiny_check(version: &[u8], length: usize, key_hash: u64) -> [u8; 16] {
    let first = xxh3_64_with_seed(version, key_hash ^ length as u64);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&scramble(first).to_le_bytes());
    bytes
}

/// The expected body of one value, block by block.
struct Body<'a> {
    payload: &'a Payload,
    key_hash: u64,
    version: u64,
    zeros_percent: u8,
    repeated_percent: u8,
}

impl Body<'_> {
    fn write(&self, value: &mut [u8]) {
        if value.len() >= PAST_CACHES_BYTES {
            return self.write_past_caches(value);
        }
        self.for_each_segment(value.len(), |at, source, mask| {
            xor_into(&mut value[at..at + source.len()], source, mask);
        });
    }

    fn write_past_caches(&self, value: &mut [u8]) {
        let first_line = REPEATING_BODY + value[REPEATING_BODY..].as_ptr().align_offset(LINE_BYTES);
        let value_bytes = value.len();
        let (front, lines) = value.split_at_mut(first_line);
        let mut lines = LineWriter::new(lines);
        self.for_each_segment(value_bytes, |at, source, mask| {
            let (first, rest) = source.split_at(first_line.saturating_sub(at).min(source.len()));
            xor_into(&mut front[at.min(first_line)..][..first.len()], first, mask);
            let mut mask = mask.to_ne_bytes();
            mask.rotate_left(first.len() % WORD_BYTES);
            lines.xored(rest, mask);
        });
    }

    /// Calls `piece` for each piece of the body in order, with its offset, its source bytes and the XOR mask of its words.
    #[inline]
    fn for_each_segment(&self, value_bytes: usize, mut piece: impl FnMut(usize, &[u8], u64)) {
        let repeats_from = self.repeats_from(value_bytes);
        for (number, at) in (0..value_bytes).step_by(BLOCK_BYTES).enumerate() {
            let block_bytes = BLOCK_BYTES.min(value_bytes - at);
            let [start, repeats, zeros] = self.parts(number, block_bytes, repeats_from);
            let ((own, own_mask), (repeated, repeated_mask)) = (self.own(number), self.repeated());
            piece(at + start, &own[start..repeats], own_mask);
            piece(at + repeats, &repeated[repeats..zeros], repeated_mask);
            piece(at + zeros, &ZEROS[zeros..block_bytes], 0);
        }
    }

    fn compare(&self, value: &[u8]) -> Result<(), Corruption> {
        let repeats_from = self.repeats_from(value.len());
        for (number, block) in value.chunks(BLOCK_BYTES).enumerate() {
            let [start, repeats, zeros] = self.parts(number, block.len(), repeats_from);
            let (own, repeated) = (self.own(number), self.repeated());
            let mut wrong = block[zeros..].iter().fold(0, |any, byte| any | byte) != 0;
            for (part, (source, mask)) in [(start..repeats, own), (repeats..zeros, repeated)] {
                wrong |= xor_differs(&block[part.clone()], &source[part], mask);
            }
            if wrong {
                let offset = number * BLOCK_BYTES + self.first_wrong(number, block, repeats_from);
                return Err(Corruption::Body { offset });
            }
        }
        Ok(())
    }

    /// Offsets in block `number` of its own bytes, its repeated bytes and its zeros.
    fn parts(&self, number: usize, block_bytes: usize, repeats_from: usize) -> [usize; 3] {
        let start = match number {
            0 if self.repeated_percent > 0 => REPEATING_BODY,
            0 => HEADER_BYTES,
            _ => 0,
        };
        let zeros = self.zeros_from(block_bytes).max(start);
        [start, repeats_from.saturating_sub(number * BLOCK_BYTES).clamp(start, zeros), zeros]
    }

    /// Offset of the repeating part in a value of this length, aligned to a word.
    fn repeats_from(&self, value_bytes: usize) -> usize {
        if self.repeated_percent == 0 {
            return value_bytes;
        }
        let requested = (value_bytes as u64 * u64::from(self.repeated_percent) / 100) as usize;
        value_bytes.saturating_sub(requested + BLOCK_BYTES).next_multiple_of(WORD_BYTES)
    }

    /// Offset of the zeros in a block, aligned to a word.
    fn zeros_from(&self, block_bytes: usize) -> usize {
        let random = block_bytes * (100 - usize::from(self.zeros_percent)) / 100;
        if self.zeros_percent == 0 {
            block_bytes
        } else {
            random.next_multiple_of(WORD_BYTES).min(block_bytes)
        }
    }

    /// The prepared bytes of block `number` and the XOR mask of its words.
    fn own(&self, number: usize) -> (&[u8], u64) {
        let mixed = scramble(self.key_hash ^ scramble(self.version ^ (number as u64) << VERSION_BITS));
        let mixed = scramble(mixed.wrapping_add(number as u64));
        let at = (mixed % PREPARED_BYTES as u64) as usize;
        (&self.payload.prepared[at..at + BLOCK_BYTES], mixed)
    }

    /// The prepared bytes and the XOR mask of every block in the repeating part.
    fn repeated(&self) -> (&[u8], u64) {
        let at = (scramble(self.key_hash) % REPEATED_BLOCKS) as usize * BLOCK_BYTES;
        (&self.payload.prepared[at..at + BLOCK_BYTES], REPEATED_MASK)
    }

    /// Offset of the first wrong byte, for the error; slow.
    fn first_wrong(&self, number: usize, block: &[u8], repeats_from: usize) -> usize {
        let [start, repeats, zeros] = self.parts(number, block.len(), repeats_from);
        let (own, repeated) = (self.own(number), self.repeated());
        let mut right = vec![0; block.len()];
        for (part, (source, mask)) in [(start..repeats, own), (repeats..zeros, repeated)] {
            xor_into(&mut right[part.clone()], &source[part], mask);
        }
        (start..block.len()).find(|at| right[*at] != block[*at]).unwrap_or(start)
    }
}

/// `to = from ^ mask`, word by word; compilers vectorise this loop.
fn xor_into(to: &mut [u8], from: &[u8], mask: u64) {
    let (to_words, to_rest) = to.as_chunks_mut::<WORD_BYTES>();
    let (from_words, from_rest) = from.as_chunks::<WORD_BYTES>();
    for (to, from) in to_words.iter_mut().zip(from_words) {
        *to = (u64::from_ne_bytes(*from) ^ mask).to_ne_bytes();
    }
    for ((to, from), mask) in to_rest.iter_mut().zip(from_rest).zip(mask.to_ne_bytes()) {
        *to = from ^ mask;
    }
}

/// Whether `a` differs from `b ^ mask`.
fn xor_differs(a: &[u8], b: &[u8], mask: u64) -> bool {
    let (a_words, a_rest) = a.as_chunks::<WORD_BYTES>();
    let (b_words, b_rest) = b.as_chunks::<WORD_BYTES>();
    let words = a_words.iter().zip(b_words);
    let difference =
        words.fold(0, |any, (a, b)| any | (u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b) ^ mask));
    let rest = a_rest.iter().zip(b_rest).zip(mask.to_ne_bytes());
    difference != 0 || rest.fold(0, |any, ((a, b), mask)| any | (a ^ b ^ mask)) != 0
}

/// The finaliser of SplitMix64. Part of the format, so it must not change with the generators' randomness.
fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
