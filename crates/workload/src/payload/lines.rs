//! Bytes written past the processor's caches, a cache line at a time.
#![allow(unsafe_code, reason = "stores past the caches are intrinsics that take an address")]

/// Bytes of one non-temporal store sequence: a cache line.
pub(super) const LINE_BYTES: usize = 64;
const VECTOR_BYTES: usize = 16;
const WORD_BYTES: usize = 8;

/// Fills `to` from front to back, with non-temporal stores for whole lines. An ordinary store first loads the line that it changes: a
/// value larger than the caches would cross the memory bus twice and would evict the engine's data.
///
/// A non-temporal store of half a line is slower than an ordinary store of all of it, so the writer buffers an incomplete line. On drop,
/// it writes the buffered bytes and makes all stores visible to the next owner of the bytes.
pub(super) struct LineWriter<'a> {
    /// The unwritten rest, aligned to a cache line.
    to: &'a mut [u8],
    buffered: Line,
    buffered_bytes: usize,
}

#[repr(align(64))]
struct Line([u8; LINE_BYTES]);

impl<'a> LineWriter<'a> {
    /// Writes to `to`, which must be aligned to a cache line.
    pub(super) fn new(to: &'a mut [u8]) -> Self {
        assert_eq!(to.as_ptr().align_offset(LINE_BYTES), 0, "the target must be aligned to a cache line");
        Self { to, buffered: Line([0; LINE_BYTES]), buffered_bytes: 0 }
    }

    /// Appends `from`, each word XORed with `mask`.
    pub(super) fn xored(&mut self, mut from: &[u8], mut mask: [u8; WORD_BYTES]) {
        if self.buffered_bytes > 0 {
            let (first, rest) = from.split_at(from.len().min(LINE_BYTES - self.buffered_bytes));
            self.buffer_partial_line(first, mask);
            mask.rotate_left(first.len() % WORD_BYTES);
            from = rest;
        }
        let whole = from.len() / LINE_BYTES * LINE_BYTES;
        let (lines, rest) = from.split_at(whole);
        let to = self.to.split_off_mut(..whole).expect("the caller appends at most the length of the target");
        store(to, lines, mask);
        self.buffer_partial_line(rest, mask);
    }

    fn buffer_partial_line(&mut self, from: &[u8], mask: [u8; WORD_BYTES]) {
        let room = &mut self.buffered.0[self.buffered_bytes..];
        for ((to, from), mask) in room.iter_mut().zip(from).zip(mask.iter().cycle()) {
            *to = from ^ mask;
        }
        self.buffered_bytes += from.len();
        if self.buffered_bytes == LINE_BYTES {
            let to = self
                .to
                .split_off_mut(..LINE_BYTES)
                .expect("the caller appends at most the length of the target");
            store(to, &self.buffered.0, [0; WORD_BYTES]);
            self.buffered_bytes = 0;
        }
    }
}

impl Drop for LineWriter<'_> {
    fn drop(&mut self) {
        self.to[..self.buffered_bytes].copy_from_slice(&self.buffered.0[..self.buffered_bytes]);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: every x86-64 processor has this fence. Non-temporal stores are not ordered with other stores, such as the one that unlocks
        // the value.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// `to = from ^ mask` for whole lines of equal number; `to` is aligned to a line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn store(to: &mut [u8], from: &[u8], mask: [u8; WORD_BYTES]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_set1_epi64x, _mm_stream_si128, _mm_xor_si128};
    let (to, _) = to.as_chunks_mut::<VECTOR_BYTES>();
    let (from, _) = from.as_chunks::<VECTOR_BYTES>();
    for (to, from) in to.iter_mut().zip(from) {
        debug_assert_eq!(to.as_ptr().align_offset(VECTOR_BYTES), 0);
        // SAFETY: every x86-64 processor has these instructions. Both pointers cover sixteen bytes that are valid for the access, and `to` is
        // aligned because it is part of a line. The required fence runs when the writer is dropped, which borrows the bytes until then.
        unsafe {
            let mask = _mm_set1_epi64x(i64::from_ne_bytes(mask));
            let words = _mm_xor_si128(_mm_loadu_si128(from.as_ptr().cast::<__m128i>()), mask);
            _mm_stream_si128(to.as_mut_ptr().cast::<__m128i>(), words);
        }
    }
}

/// An ordinary store on processors without a known non-temporal one.
#[cfg(any(miri, not(target_arch = "x86_64")))]
fn store(to: &mut [u8], from: &[u8], mask: [u8; WORD_BYTES]) {
    let (to, _) = to.as_chunks_mut::<WORD_BYTES>();
    let (from, _) = from.as_chunks::<WORD_BYTES>();
    let mask = u64::from_ne_bytes(mask);
    for (to, from) in to.iter_mut().zip(from) {
        *to = (u64::from_ne_bytes(*from) ^ mask).to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_lines_equal_the_appended_pieces(pieces in prop::collection::vec((0..300usize, any::<u64>()), 0..20)) {
            let source: Vec<u8> = (0..300u32).map(|at| (at * 7) as u8).collect();
            let mut expected = Vec::new();
            for (bytes, mask) in &pieces {
                let mask = mask.to_ne_bytes();
                expected.extend(source[..*bytes].iter().enumerate().map(|(at, byte)| byte ^ mask[at % WORD_BYTES]));
            }
            let mut memory = vec![0xee; expected.len() + 2 * LINE_BYTES];
            let start = memory.as_ptr().align_offset(LINE_BYTES);
            let end = start + expected.len();
            let mut lines = LineWriter::new(&mut memory[start..end]);
            for (bytes, mask) in &pieces {
                lines.xored(&source[..*bytes], mask.to_ne_bytes());
            }
            drop(lines);
            prop_assert_eq!(&memory[start..end], expected.as_slice());
            prop_assert!(memory[..start].iter().chain(&memory[end..]).all(|byte| *byte == 0xee));
        }
    }
}
