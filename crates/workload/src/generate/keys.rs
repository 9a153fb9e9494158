//! Converts key indexes to key bytes.
//!
//! A key's bytes are computed from its index and never stored. There are two formats, one for each of CacheBench's generators: `Raw`
//! writes the index itself, so no two keys are equal; `Letters` writes pseudo-random words, and there are fewer short words than
//! indexes.
use super::error::Problem;
use super::interval_index::IntervalIndex;
use super::population::{KEY_LENGTH_STRIDE, point};
use super::random::scramble;
use super::sizes::Sizes;

/// Longest key in bytes.
pub const MAX_KEY_BYTES: usize = 255;

/// Largest number of keys of a generator.
pub const MAX_KEYS: u64 = 1 << 56;

/// Set in the ids of keys outside the population.
pub(crate) const LONE: u64 = 1 << 63;

/// Bits of a lone id in which a worker counts. The bits above, except [`LONE`], are the worker's number.
pub(super) const LONE_BITS: u32 = 48;

/// A buffer for a key, and the key's length.
pub(crate) struct KeyBuffer {
    bytes: [u8; MAX_KEY_BYTES],
    len: usize,
}

impl KeyBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: [b'a'; MAX_KEY_BYTES], len: 0 }
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Writes the keys of one pool.
pub(crate) trait KeyFormat: Send + Sync + 'static {
    /// Number of different keys in the pool.
    fn keys(&self) -> u64;

    /// Writes key number `index` of the pool and returns its id.
    fn write_key(&self, index: u64, into: &mut KeyBuffer) -> u64;

    /// Writes the key of the lone `id`, which no other request uses.
    fn write_lone_key(&self, id: u64, into: &mut KeyBuffer);
}

/// The keys of CacheBench's `online` generator: eight bytes of the index, then `a` up to the key's length, which is at least 8. Not
/// printable; constant cost for any number of keys.
pub(crate) struct Raw {
    first_key: u64,
    keys: u64,
    lengths: Sizes,
}

const INDEX_BYTES: usize = 8;

impl Raw {
    pub(crate) fn new(first_key: u64, keys: u64, lengths: Sizes) -> Result<Self, Problem> {
        checked_length(&lengths)?;
        Ok(Self { first_key, keys, lengths })
    }

    #[inline]
    fn write(&self, id: u64, into: &mut KeyBuffer) {
        // The bytes after the index have been `a` since the buffer was created.
        into.bytes[..INDEX_BYTES].copy_from_slice(&id.to_le_bytes());
        into.len = (self.lengths.at(point(id, KEY_LENGTH_STRIDE)) as usize).clamp(INDEX_BYTES, MAX_KEY_BYTES);
    }
}

impl KeyFormat for Raw {
    fn keys(&self) -> u64 {
        self.keys
    }

    #[inline]
    fn write_key(&self, index: u64, into: &mut KeyBuffer) -> u64 {
        let id = self.first_key + index;
        self.write(id, into);
        id
    }

    fn write_lone_key(&self, id: u64, into: &mut KeyBuffer) {
        debug_assert!(id & LONE != 0);
        self.write(id, into);
    }
}

/// The keys of CacheBench's `workload` generator: lower-case words.
///
/// CacheBench draws every letter at random and then removes duplicates: of 43,000 one-letter keys among a million, 26
/// keys remain. Here each length has the number of keys expected to remain, so the pool is equally smaller without drawing or sorting. A
/// key is its number within its length in base 26 (from 16 letters on, its index in letters `a` to `p`), so all keys differ; a long key is
/// filled up with letters that depend on its index.
pub(crate) struct Letters {
    keys: u64,
    /// Multiplier coprime to `keys`: `index * stride % keys` visits every key once and mixes the lengths.
    stride: u64,
    /// Maps a position in that order to a length.
    guide: IntervalIndex,
    classes: Box<[Class]>,
    /// First id of this pool's long keys, which continue after those of earlier pools.
    first_long_id: u64,
    padding: Box<[u8; PADDING_BYTES]>,
}

/// The keys of one length.
#[derive(Debug, Clone, Copy)]
struct Class {
    length: usize,
    /// Position of the first key.
    start: u64,
    /// Number of existing words of that length, if they could be exhausted; 0 for long keys.
    words: u64,
    /// Number of the first word. A pool starts where the previous one ended, and pools share words only if there are too few.
    first_word: u64,
    /// Id of word 0 of this length.
    first_id: u64,
}

/// From this length on, an index fits into a key at two letters per byte.
const LONG: usize = 16;
const LETTERS: u64 = 26;
/// Words of 12 to 15 letters all count as 26^12, which is above [`MAX_KEYS`]; so their ids fit below those of long keys.
const COUNTED_LETTERS: usize = 12;
/// Ids of keys of [`LONG`] letters and more; ids of shorter ones, numbered by length, are below.
const FIRST_LONG_ID: u64 = 1 << 62;
const PADDING_BYTES: usize = 512;

impl Letters {
    /// The keys of several pools, each with its number of keys and their lengths.
    pub(crate) fn pools(pools: &[(u64, Sizes)]) -> Result<Vec<Self>, Problem> {
        let mut used_words = [0u64; LONG];
        let mut first_long_id = FIRST_LONG_ID;
        let mut formats = Vec::with_capacity(pools.len());
        for (drawn_keys, lengths) in pools {
            checked_length(lengths)?;
            if lengths.at(0) == 0 {
                return Err(Problem::EmptyKey);
            }
            let format = Self::new(*drawn_keys, lengths, &mut used_words, first_long_id);
            first_long_id += format.keys;
            formats.push(format);
        }
        Ok(formats)
    }

    fn new(drawn_keys: u64, lengths: &Sizes, used_words: &mut [u64; LONG], first_long_id: u64) -> Self {
        let mut classes = Vec::new();
        let mut start = 0;
        for (length, keys) in remaining_keys(drawn_keys, &lengths.probabilities()) {
            let (words, first_word, first_id) = match used_words.get_mut(length) {
                Some(used) => {
                    (words_of(length), std::mem::replace(used, *used + keys), first_word_id(length))
                }
                None => (0, 0, 0),
            };
            classes.push(Class { length, start, words, first_word, first_id });
            start += keys;
        }
        let starts = classes.iter().map(|class| class.start).collect();
        let padding = Box::new(std::array::from_fn(|i| b'a' + (scramble(i as u64) % LETTERS) as u8));
        Self {
            keys: start,
            stride: coprime_stride(start),
            guide: IntervalIndex::new(starts, start - 1),
            classes: classes.into(),
            first_long_id,
            padding,
        }
    }

    /// Fills `into` from [`LONG`] to `length` with letters selected by `id`.
    #[inline]
    fn pad(&self, id: u64, length: usize, into: &mut KeyBuffer) {
        let at = (scramble(id) % (PADDING_BYTES - MAX_KEY_BYTES) as u64) as usize;
        // A copy of constant length compiles to a few instructions instead of a call; most keys are short.
        const USUAL_BYTES: usize = 64;
        into.bytes[LONG..LONG + USUAL_BYTES].copy_from_slice(&self.padding[at..at + USUAL_BYTES]);
        if length > LONG + USUAL_BYTES {
            into.bytes[LONG + USUAL_BYTES..length]
                .copy_from_slice(&self.padding[at + USUAL_BYTES..at + length - LONG]);
        }
        into.len = length;
    }
}

impl KeyFormat for Letters {
    fn keys(&self) -> u64 {
        self.keys
    }

    #[inline]
    fn write_key(&self, index: u64, into: &mut KeyBuffer) -> u64 {
        let position = multiply_modulo(index, self.stride, self.keys);
        let class = &self.classes[self.guide.find(position)];
        if class.length >= LONG {
            let id = self.first_long_id + index;
            into.bytes[..8].copy_from_slice(&nibbles((id >> 32) as u32, b'a'));
            into.bytes[8..LONG].copy_from_slice(&nibbles(id as u32, b'a'));
            self.pad(id, class.length, into);
            return id;
        }
        let word = (class.first_word + (position - class.start)) % class.words;
        write_word(word, &mut into.bytes[..class.length]);
        into.len = class.length;
        class.first_id + word
    }

    fn write_lone_key(&self, id: u64, into: &mut KeyBuffer) {
        // The same stride as for other keys: consecutive ids have equal lengths.
        let position = multiply_modulo(id % self.keys, self.stride, self.keys);
        let length = self.classes[self.guide.find(position)].length.max(SHORTEST_LONE);
        if length < LONG {
            write_lone(id, &mut into.bytes[..length]);
            into.len = length;
            return;
        }
        into.bytes[..8].copy_from_slice(&nibbles((id >> 32) as u32, b'A'));
        into.bytes[8..LONG].copy_from_slice(&nibbles(id as u32, b'A'));
        self.pad(id, length, into);
    }
}

/// Length of the shortest lone key: fewer letters would give too few keys.
const SHORTEST_LONE: usize = 8;
/// Letters of lone keys. The first letter is always a capital, with which no other key begins.
const LONE_LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Writes the lone `id` as a word of 8 to 15 letters. There are 26 × 64^7 words of 8 letters: with the worker's number in the last places,
/// each of up to 32,768 workers has 3 billion before one repeats.
fn write_lone(id: u64, into: &mut [u8]) {
    let (worker, count) = ((id & !LONE) >> LONE_BITS, id & ((1 << LONE_BITS) - 1));
    let mut number = count << (63 - LONE_BITS) | worker;
    let (first, others) = into.split_first_mut().expect("a lone key has letters");
    for letter in others.iter_mut().rev() {
        *letter = LONE_LETTERS[(number % 64) as usize];
        number /= 64;
    }
    *first = LONE_LETTERS[(number % LETTERS) as usize];
}

fn checked_length(lengths: &Sizes) -> Result<(), Problem> {
    if lengths.largest() > MAX_KEY_BYTES as u64 { Err(Problem::LongKey(lengths.largest())) } else { Ok(()) }
}

/// Expected number of different keys among `drawn` random ones, by length: of `n` draws from `w` words, `w (1 - (1 - 1/w)^n)` differ.
fn remaining_keys(drawn: u64, lengths: &[(u64, f64)]) -> Vec<(usize, u64)> {
    let mut remaining: Vec<(usize, u64)> = Vec::with_capacity(lengths.len());
    let (mut expected, mut given) = (0.0, 0);
    for &(length, share) in lengths {
        let length = length as usize;
        let n = drawn as f64 * share;
        let w = (LETTERS as f64).powi(length as i32);
        let (different, most) = if length >= LONG {
            (n, u64::MAX)
        } else {
            (w * -f64::exp_m1(n * f64::ln_1p(-1.0 / w)), words_of(length))
        };
        // The sum is rounded, not each term, so that the total never exceeds the number drawn.
        expected += different;
        let keys = ((expected.round() as u64).min(drawn) - given).min(most);
        given += keys;
        remaining.push((length, keys));
    }
    remaining.retain(|(_, keys)| *keys > 0);
    if remaining.is_empty() {
        remaining.push((lengths.last().map_or(1, |(length, _)| *length as usize), 1));
    }
    remaining
}

fn words_of(length: usize) -> u64 {
    const { assert!(LETTERS.pow(COUNTED_LETTERS as u32) > MAX_KEYS) };
    LETTERS.pow(length.min(COUNTED_LETTERS) as u32)
}

/// Words of all lengths are numbered consecutively, the short ones first.
fn first_word_id(length: usize) -> u64 {
    const { assert!((LONG - COUNTED_LETTERS + 1) as u64 * LETTERS.pow(COUNTED_LETTERS as u32) < FIRST_LONG_ID) };
    (1..length).map(words_of).sum()
}

/// Writes `word` in base 26 right-aligned into `into`, padded with `a`.
fn write_word(mut word: u64, into: &mut [u8]) {
    for letter in into.iter_mut().rev() {
        *letter = b'a' + (word % LETTERS) as u8;
        word /= LETTERS;
    }
}

/// The eight nibbles of `value` as letters starting at `first`, the highest nibble first.
#[inline]
fn nibbles(value: u32, first: u8) -> [u8; 8] {
    // Each step halves the groups and separates the halves: 8 nibbles end in 8 bytes.
    let mut spread = u64::from(value);
    spread = (spread | (spread << 16)) & 0x0000_ffff_0000_ffff;
    spread = (spread | (spread << 8)) & 0x00ff_00ff_00ff_00ff;
    spread = (spread | (spread << 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    (spread + u64::from(first) * 0x0101_0101_0101_0101).to_be_bytes()
}

/// A multiplier near the golden section of `modulus` and coprime to it.
fn coprime_stride(modulus: u64) -> u64 {
    let golden = (modulus as f64 * 0.618_033_988_749_894_9) as u64;
    (golden.max(1)..).find(|stride| gcd(*stride, modulus) == 1).expect("there is a prime above every number")
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[inline]
fn multiply_modulo(a: u64, b: u64, modulus: u64) -> u64 {
    // 64-bit division is several times faster than 128-bit, and nearly all populations are below 2^32.
    if modulus <= 1 << 32 {
        a * b % modulus
    } else {
        (u128::from(a) * u128::from(b) % u128::from(modulus)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Table;

    fn written(format: &impl KeyFormat, index: u64) -> (u64, String) {
        let mut buffer = KeyBuffer::new();
        let id = format.write_key(index, &mut buffer);
        (id, String::from_utf8(buffer.key().to_vec()).unwrap())
    }

    fn letters(keys: u64, lengths: &Table) -> Letters {
        Letters::pools(&[(keys, lengths.sizes().unwrap())]).unwrap().remove(0)
    }

    #[test]
    fn raw_key_is_the_index_and_padding() {
        let raw = Raw::new(0x100, 1000, Table::constant(11).sizes().unwrap()).unwrap();
        assert_eq!(written(&raw, 0x22), (0x122, "\x22\x01\0\0\0\0\0\0aaa".to_owned()));
        let short = Raw::new(0, 1000, Table::constant(3).sizes().unwrap()).unwrap();
        assert_eq!(written(&short, 0x41).1.len(), 8, "the index takes eight bytes");
    }

    #[test]
    fn one_letter_keys_are_the_alphabet() {
        let alphabet = letters(1000, &Table::constant(1));
        assert_eq!(alphabet.keys(), 26);
        let mut words: Vec<String> = (0..26).map(|index| written(&alphabet, index).1).collect();
        words.sort();
        assert_eq!(words.concat(), "abcdefghijklmnopqrstuvwxyz");
    }

    #[test]
    fn words_are_numbers_in_base_26() {
        let mut word = [0; 3];
        write_word(26 * 26 + 2 * 26 + 25, &mut word);
        assert_eq!(&word, b"bcz");
        assert_eq!(&nibbles(0x0123_cdef, b'a'), b"abcdmnop");
    }

    #[test]
    fn ids_of_different_lengths_differ() {
        let mut ends = (1..LONG).map(|length| first_word_id(length) + words_of(length));
        assert!(ends.clone().zip(2..LONG).all(|(end, next)| end == first_word_id(next)));
        assert!(ends.next_back().unwrap() < FIRST_LONG_ID && FIRST_LONG_ID + MAX_KEYS < LONE);
    }

    #[test]
    fn longest_keys_all_differ() {
        let longest = letters(500, &Table::constant(255));
        assert!((0..500).all(|index| written(&longest, index).1.len() == 255));
        assert!(checked_length(&Table::constant(256).sizes().unwrap()).is_err());
        let empty = Letters::pools(&[(9, Table::uniform(0, 5).sizes().unwrap())]);
        assert_eq!(empty.err(), Some(Problem::EmptyKey));
    }

    fn lone(letters: &Letters, count: u64, worker: u64) -> String {
        // Masked as in a source.
        let id = (worker << LONE_BITS | count) ^ (scramble(7) | LONE);
        let mut buffer = KeyBuffer::new();
        letters.write_lone_key(id, &mut buffer);
        String::from_utf8(buffer.key().to_vec()).unwrap()
    }

    /// Catches a regression: lone keys have at least 16 letters, and with mixed lengths the first billions of them are
    /// not distinct.
    #[test]
    fn lone_keys_have_the_lengths_of_other_keys() {
        let mixed = letters(1000, &Table { range: vec![9.0, 12.0, 20.0], weights: vec![1.0, 1.0, 2.0] });
        let mut by_length = std::collections::BTreeMap::new();
        (0..1000).for_each(|count| *by_length.entry(lone(&mixed, count, 3).len()).or_insert(0) += 1);
        let expected = [(9, 250), (12, 250), (20, 500)];
        let near = |(length, keys)| (keys - 2..=keys + 2).contains(&by_length[&length]);
        assert!(by_length.len() == 3 && expected.into_iter().all(near), "{by_length:?}");
        let short = letters(26, &Table::constant(3));
        assert_eq!(lone(&short, 0, 0).len(), SHORTEST_LONE);
    }

    #[test]
    fn lone_keys_of_every_length_are_unique() {
        for length in [8, 9, 10, 11, 15, 16, 40] {
            let some = letters(100, &Table::constant(length));
            let keys = (0..4).flat_map(|worker| (0..5000).map(move |count| (count, worker)));
            let all: std::collections::HashSet<String> =
                keys.map(|(count, worker)| lone(&some, count, worker)).collect();
            assert_eq!(all.len(), 20_000, "{length} letters");
            assert!(
                all.iter().all(|key| key.as_bytes()[0].is_ascii_uppercase() && key.len() as u64 == length)
            );
        }
    }

    #[test]
    fn stride_visits_every_position_once() {
        for modulus in [1, 2, 3, 10, 26, 4096, 897_355] {
            let stride = coprime_stride(modulus);
            let mut seen = vec![false; modulus as usize];
            (0..modulus).for_each(|index| seen[multiply_modulo(index, stride, modulus) as usize] = true);
            assert!(seen.into_iter().all(|seen| seen), "{modulus}");
        }
    }
}
