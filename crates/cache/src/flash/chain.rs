//! The format of a chained item on flash: one value that contains all pieces.
//!
//! ```text
//! | count u32 | length u32 × count | parent's bytes | child 1 | child 2 | … |
//! ```
//! All integers are little-endian; the parent is piece 0. The engine that stores the value checksums it.

use std::ops::Range;

const WORD: usize = 4;

/// The header for `pieces`.
#[must_use]
pub fn header(pieces: &[&[u8]]) -> Vec<u8> {
    let words = std::iter::once(pieces.len()).chain(pieces.iter().map(|piece| piece.len()));
    words.flat_map(|word| u32::try_from(word).expect("chains are shorter than 4 GiB").to_le_bytes()).collect()
}

/// Size of the value for `pieces`, including the header; a single piece has none.
#[must_use]
pub fn value_bytes(pieces: &[&[u8]]) -> usize {
    let header = if pieces.len() > 1 { WORD * (1 + pieces.len()) } else { 0 };
    header + pieces.iter().map(|piece| piece.len()).sum::<usize>()
}

/// The range of each piece in `value`; `None` if the header contradicts the length. Only a bug, or damage to a value without a checksum,
/// can cause that.
#[must_use]
pub fn pieces(value: &[u8]) -> Option<Vec<Range<usize>>> {
    let count = word(value, 0)?;
    let mut start = WORD.checked_add(count.checked_mul(WORD)?)?;
    if start > value.len() {
        return None;
    }
    let mut ranges = Vec::with_capacity(count);
    for index in 0..count {
        let end = start.checked_add(word(value, WORD * (1 + index))?)?;
        ranges.push(start..end);
        start = end;
    }
    (start == value.len() && count > 0).then_some(ranges)
}

fn word(value: &[u8], at: usize) -> Option<usize> {
    let bytes = value.get(at..at + WORD)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_is_read_back_in_its_pieces() {
        let chain: [&[u8]; 3] = [b"parent", b"", b"child"];
        let mut value = header(&chain);
        chain.iter().for_each(|piece| value.extend_from_slice(piece));
        let found: Vec<&[u8]> = pieces(&value).unwrap().into_iter().map(|range| &value[range]).collect();
        assert_eq!(found, chain);
    }

    #[test]
    fn value_with_inconsistent_lengths_is_refused() {
        let chain: [&[u8]; 2] = [b"parent", b"child"];
        let mut value = header(&chain);
        chain.iter().for_each(|piece| value.extend_from_slice(piece));
        for cut in 0..value.len() {
            assert_eq!(pieces(&value[..cut]), None, "cut at {cut}");
        }
        value.push(0);
        assert_eq!(pieces(&value), None);
        assert_eq!(pieces(&u32::MAX.to_le_bytes()), None);
        assert_eq!(pieces(&[0; 4]), None, "a chain has at least its parent");
    }
}
