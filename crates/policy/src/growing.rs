//! A table that grows without moving its elements.

use std::sync::OnceLock;

/// A growable table of `T`, default-initialised. Memory is allocated in chunks on first access, so the table never moves and readers
/// need no lock. Each chunk has twice the entries of the one before, so a small table stays small. The first chunk has `FIRST` entries,
/// a power of two.
pub struct Growing<T, const FIRST: usize, const CHUNKS: usize> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
}

impl<T, const FIRST: usize, const CHUNKS: usize> Default for Growing<T, FIRST, CHUNKS> {
    fn default() -> Self {
        const { assert!(FIRST.is_power_of_two()) };
        Self { chunks: [const { OnceLock::new() }; CHUNKS] }
    }
}

impl<T: Default, const FIRST: usize, const CHUNKS: usize> Growing<T, FIRST, CHUNKS> {
    /// The element at `place`.
    ///
    /// # Panics
    /// If it is behind the last chunk: at `FIRST * (2^CHUNKS - 1)` or beyond.
    #[inline]
    pub fn at(&self, place: u32) -> &T {
        let (chunk, place) = chunk_and_place::<FIRST>(place);
        &self.chunks[chunk].get_or_init(|| new_chunk(FIRST << chunk))[place]
    }
}

#[cold]
fn new_chunk<T: Default>(len: usize) -> Box<[T]> {
    std::iter::repeat_with(T::default).take(len).collect()
}

/// The chunk of a place and the position in it: in `place + FIRST`, the highest bit determines the chunk, and the other bits are the
/// position.
#[inline]
fn chunk_and_place<const FIRST: usize>(place: u32) -> (usize, usize) {
    let from_first = u64::from(place) + FIRST as u64;
    let chunk = from_first.ilog2() - FIRST.ilog2();
    (chunk as usize, (from_first ^ (FIRST as u64) << chunk) as usize)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    #[test]
    fn chunks_cover_every_place_once() {
        let mut expected = (0, 0);
        for place in 0..16 * 100 {
            assert_eq!(chunk_and_place::<16>(place), expected, "place {place}");
            expected.1 += 1;
            if expected.1 == 16 << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(chunk_and_place::<1024>(u32::MAX), (22, 1023));
    }

    #[test]
    fn every_place_keeps_its_own_value_while_the_table_grows() {
        let table = Growing::<AtomicU8, 4, 6>::default();
        (0..4 * 63).for_each(|place| table.at(place).store(place as u8, Ordering::Relaxed));
        assert!((0..4 * 63).all(|place| table.at(place).load(Ordering::Relaxed) == place as u8));
    }
}
