//! The spelling of keys.
//!
//! A key's bytes are computed from its index and never stored. There are two spellings, one for each of CacheBench's generators: `Raw`
//! writes the index itself, so no two keys are equal; `Letters` writes pseudo-random words, and there are fewer short words than
//! indexes.
use super::error::Problem;
use super::guide::Guide;
use super::population::{KEY_LENGTH_STRIDE, point};
use super::random::scramble;
use super::sizes::Sizes;

/// Longest key, bytes.
pub const MAX_KEY_BYTES: usize = 255;

/// Most keys a generator can have.
pub const MAX_KEYS: u64 = 1 << 56;

/// Ids of keys outside of the population have this bit.
pub(crate) const LONE: u64 = 1 << 63;

/// Of a lone id, the bits that a worker counts in. Those above, but for [`LONE`], are the worker's number.
pub(super) const LONE_BITS: u32 = 48;

/// A key in the making: the bytes and how many of them count.
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

/// Spells the keys of one pool.
pub(crate) trait Spelling: Send + Sync + 'static {
    /// Keys of the pool that differ.
    fn keys(&self) -> u64;

    /// Writes key number `index` of the pool and answers its id.
    fn spell(&self, index: u64, into: &mut KeyBuffer) -> u64;

    /// Writes the key with the lone `id`, which nothing else ever asks for.
    fn spell_lone(&self, id: u64, into: &mut KeyBuffer);
}

/// The spelling of CacheBench's `online` generator: eight bytes of the index, then `a` up to the key's length,
/// which is at least 8. Not printable; cheap for any number of keys.
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
        // Everything behind the index is `a` since the buffer was made.
        into.bytes[..INDEX_BYTES].copy_from_slice(&id.to_le_bytes());
        into.len = (self.lengths.at(point(id, KEY_LENGTH_STRIDE)) as usize).clamp(INDEX_BYTES, MAX_KEY_BYTES);
    }
}

impl Spelling for Raw {
    fn keys(&self) -> u64 {
        self.keys
    }

    #[inline]
    fn spell(&self, index: u64, into: &mut KeyBuffer) -> u64 {
        let id = self.first_key + index;
        self.write(id, into);
        id
    }

    fn spell_lone(&self, id: u64, into: &mut KeyBuffer) {
        debug_assert!(id & LONE != 0);
        self.write(id, into);
    }
}

/// The spelling of CacheBench's `workload` generator: lower-case words.
///
/// CacheBench draws every letter at random and then removes equal keys, so of a million keys, 43,000 of them of
/// one letter, 26 of one letter remain. Here every length has as many keys as would be expected to remain,
/// which makes the pool smaller in the same way without drawing or sorting anything. Inside a length, a key is
/// its number in base 26 (or, from 16 letters on, its index in letters `a` to `p`), so no two are equal; what
/// is left of a long key is filled with letters picked by its index.
pub(crate) struct Letters {
    keys: u64,
    /// Multiplier that is coprime to `keys`: index times it, modulo `keys`, visits every key once and mixes the
    /// lengths.
    stride: u64,
    /// By position in that order: which length a key has.
    guide: Guide,
    classes: Box<[Class]>,
    /// Ids of long keys continue after those of the earlier pools.
    first_long_id: u64,
    padding: Box<[u8; PADDING_BYTES]>,
}

/// The keys of one length.
#[derive(Debug, Clone, Copy)]
struct Class {
    length: usize,
    /// Position of the first.
    start: u64,
    /// Words of that length that exist, where they could run out; 0 for long keys.
    words: u64,
    /// Number of the first word; pools begin where the pool before ended, and share words only when they run
    /// out.
    first_word: u64,
    /// Ids of the words begin here.
    first_id: u64,
}

/// From this length on an index fits a key whole, two letters a byte.
const LONG: usize = 16;
const LETTERS: u64 = 26;
/// Words of 12 to 15 letters all count as 26^12, which is more than there may be keys; so their ids fit below
/// the long keys' ones.
const COUNTED_LETTERS: usize = 12;
/// Ids of keys of [`LONG`] letters and more; those of shorter ones, numbered through by length, stay below.
const FIRST_LONG_ID: u64 = 1 << 62;
const PADDING_BYTES: usize = 512;

impl Letters {
    /// The spellings of several pools, each with its number of keys and their lengths.
    pub(crate) fn pools(pools: &[(u64, Sizes)]) -> Result<Vec<Self>, Problem> {
        let mut used_words = [0u64; LONG];
        let mut first_long_id = FIRST_LONG_ID;
        let mut spellings = Vec::with_capacity(pools.len());
        for (drawn_keys, lengths) in pools {
            checked_length(lengths)?;
            if lengths.at(0) == 0 {
                return Err(Problem::EmptyKey);
            }
            let spelling = Self::new(*drawn_keys, lengths, &mut used_words, first_long_id);
            first_long_id += spelling.keys;
            spellings.push(spelling);
        }
        Ok(spellings)
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
            guide: Guide::new(starts, start - 1),
            classes: classes.into(),
            first_long_id,
            padding,
        }
    }

    /// Fills `into` from [`LONG`] to `length` with letters picked by `id`.
    #[inline]
    fn pad(&self, id: u64, length: usize, into: &mut KeyBuffer) {
        let at = (scramble(id) % (PADDING_BYTES - MAX_KEY_BYTES) as u64) as usize;
        // A copy of known length is a few instructions, one of unknown length a call; most keys are short.
        const USUAL_BYTES: usize = 64;
        into.bytes[LONG..LONG + USUAL_BYTES].copy_from_slice(&self.padding[at..at + USUAL_BYTES]);
        if length > LONG + USUAL_BYTES {
            into.bytes[LONG + USUAL_BYTES..length]
                .copy_from_slice(&self.padding[at + USUAL_BYTES..at + length - LONG]);
        }
        into.len = length;
    }
}

impl Spelling for Letters {
    fn keys(&self) -> u64 {
        self.keys
    }

    #[inline]
    fn spell(&self, index: u64, into: &mut KeyBuffer) -> u64 {
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

    fn spell_lone(&self, id: u64, into: &mut KeyBuffer) {
        // By the same stride as other keys: neighbours are of one length, and ids come one after another.
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

/// In fewer letters, lone keys would run out.
const SHORTEST_LONE: usize = 8;
/// Most of a lone key's letters. The first is one of the capitals among them, which no other key begins with.
const LONE_LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The lone `id` in a word of 8 to 15 letters. Of 8 letters there are 26 × 64^7 words: with a worker's number in the last
/// places, each of the 32,768 that there can be has 3 billion of them before one comes again.
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

/// Different keys expected among `drawn` random ones, by length: of `n` draws from `w` words `w (1 - (1 -
/// 1/w)^n)` remain.
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
        // The sum is rounded, not each part, so that a hundred lengths cannot add up to more keys than were
        // drawn.
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

/// Words of all lengths are numbered through, the short ones first.
fn first_word_id(length: usize) -> u64 {
    const { assert!((LONG - COUNTED_LETTERS + 1) as u64 * LETTERS.pow(COUNTED_LETTERS as u32) < FIRST_LONG_ID) };
    (1..length).map(words_of).sum()
}

/// Writes `word` in base 26 to the end of `into`; leading positions are filled with `a`.
fn write_word(mut word: u64, into: &mut [u8]) {
    for letter in into.iter_mut().rev() {
        *letter = b'a' + (word % LETTERS) as u8;
        word /= LETTERS;
    }
}

/// The eight nibbles of `value` as letters from `first` on, the highest first.
#[inline]
fn nibbles(value: u32, first: u8) -> [u8; 8] {
    // Each step halves the groups and moves the upper half of each away: 8 nibbles end in 8 bytes.
    let mut spread = u64::from(value);
    spread = (spread | (spread << 16)) & 0x0000_ffff_0000_ffff;
    spread = (spread | (spread << 8)) & 0x00ff_00ff_00ff_00ff;
    spread = (spread | (spread << 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    (spread + u64::from(first) * 0x0101_0101_0101_0101).to_be_bytes()
}

/// A multiplier near the golden section of `modulus` that shares no divisor with it.
fn coprime_stride(modulus: u64) -> u64 {
    let golden = (modulus as f64 * 0.618_033_988_749_894_9) as u64;
    (golden.max(1)..).find(|stride| gcd(*stride, modulus) == 1).expect("the numbers above hold a prime")
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

    fn spelt(spelling: &impl Spelling, index: u64) -> (u64, String) {
        let mut buffer = KeyBuffer::new();
        let id = spelling.spell(index, &mut buffer);
        (id, String::from_utf8(buffer.key().to_vec()).unwrap())
    }

    fn letters(keys: u64, lengths: &Table) -> Letters {
        Letters::pools(&[(keys, lengths.sizes().unwrap())]).unwrap().remove(0)
    }

    #[test]
    fn raw_keys_are_the_index_and_a_padding() {
        let raw = Raw::new(0x100, 1000, Table::constant(11).sizes().unwrap()).unwrap();
        assert_eq!(spelt(&raw, 0x22), (0x122, "\x22\x01\0\0\0\0\0\0aaa".to_owned()));
        let short = Raw::new(0, 1000, Table::constant(3).sizes().unwrap()).unwrap();
        assert_eq!(spelt(&short, 0x41).1.len(), 8, "the index takes eight bytes");
    }

    #[test]
    fn keys_of_a_letter_are_the_alphabet() {
        let alphabet = letters(1000, &Table::constant(1));
        assert_eq!(alphabet.keys(), 26);
        let mut words: Vec<String> = (0..26).map(|index| spelt(&alphabet, index).1).collect();
        words.sort();
        assert_eq!(words.concat(), "abcdefghijklmnopqrstuvwxyz");
    }

    #[test]
    fn words_count_in_base_26() {
        let mut word = [0; 3];
        write_word(26 * 26 + 2 * 26 + 25, &mut word);
        assert_eq!(&word, b"bcz");
        assert_eq!(&nibbles(0x0123_cdef, b'a'), b"abcdmnop");
    }

    #[test]
    fn ids_of_different_lengths_never_meet() {
        let mut ends = (1..LONG).map(|length| first_word_id(length) + words_of(length));
        assert!(ends.clone().zip(2..LONG).all(|(end, next)| end == first_word_id(next)));
        assert!(ends.next_back().unwrap() < FIRST_LONG_ID && FIRST_LONG_ID + MAX_KEYS < LONE);
    }

    #[test]
    fn every_key_of_the_longest_length_fits() {
        let longest = letters(500, &Table::constant(255));
        assert!((0..500).all(|index| spelt(&longest, index).1.len() == 255));
        assert!(checked_length(&Table::constant(256).sizes().unwrap()).is_err());
        let empty = Letters::pools(&[(9, Table::uniform(0, 5).sizes().unwrap())]);
        assert_eq!(empty.err(), Some(Problem::EmptyKey));
    }

    fn lone(letters: &Letters, count: u64, worker: u64) -> String {
        // As a source masks them.
        let id = (worker << LONE_BITS | count) ^ (scramble(7) | LONE);
        let mut buffer = KeyBuffer::new();
        letters.spell_lone(id, &mut buffer);
        String::from_utf8(buffer.key().to_vec()).unwrap()
    }

    /// They had 16 letters at least, and where lengths were mixed, the first billions had the same.
    #[test]
    fn lone_keys_had_other_lengths_than_the_rest() {
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
    fn lone_keys_of_every_length_differ_from_each_other_and_from_the_rest() {
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
    fn strides_visit_every_position() {
        for modulus in [1, 2, 3, 10, 26, 4096, 897_355] {
            let stride = coprime_stride(modulus);
            let mut seen = vec![false; modulus as usize];
            (0..modulus).for_each(|index| seen[multiply_modulo(index, stride, modulus) as usize] = true);
            assert!(seen.into_iter().all(|seen| seen), "{modulus}");
        }
    }
}
