//! Divides requests for part of a large object into the items that a cache stores.
//!
//! Simulators number the pages of a range ([`Extent::cut`](super::rows::Extent::cut)). A cache needs keys, and its statistics need to know
//! which items belong to one request: a CDN's client has its answer once all pieces are there. So a row can request [`Items`]; the replay
//! passes them to one worker in sequence, each with its [`Part`].

use std::ops::Range;

use super::columns::RowError;
use super::rows::Rows;
use crate::{Fetch, Part};

/// Division of a request into cache items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cut {
    /// None: a request is for one object, or for each of the pages that its range touches.
    #[default]
    Pages,
    /// The chunks of a block that the range touches, as in CacheBench's `block-replay`. Only `storage` has blocks.
    Chunks {
        /// Size of a chunk.
        chunk_bytes: u64,
        /// Size of a block; ranges beyond its end are invalid.
        block_bytes: u64,
    },
    /// The pieces of an object that the range touches, as in CacheBench's `piecewise-replay`. Only `cdn` has objects with headers.
    Pieces {
        /// Size of a piece; a shorter object is one item.
        piece_bytes: u64,
        /// Cached pieces per object; later pieces are never cached.
        most: u64,
    },
}

/// The items of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Items {
    /// Prefix of the keys, in [`Rows`].
    pub(super) name: Range<u32>,
    pub(super) shape: Shape,
}

/// The items in which an object is cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// One item whose key is the name.
    One { header_bytes: u64, body_bytes: u64, requested_bytes: u64 },
    /// Chunks of equal length, cached independently of each other.
    Chunks { chunk_bytes: u64, of: Span },
    /// A marker item, the object's header, and the pieces. One response from the origin fills them, so a missing piece causes all later
    /// ones to be fetched again.
    Pieces { header_bytes: u64, piece_bytes: u64, most: u64, of: Span },
}

/// The requested range of an object of `whole_bytes` bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) whole_bytes: u64,
    pub(super) requested: Range<u64>,
}

/// One item of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) label: Label,
    pub(super) bytes: u64,
    pub(super) requested_bytes: u64,
}

/// The suffix of an item's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Nothing,
    Header,
    Chunk(u64),
    Piece(u64),
}

impl Items {
    /// Item number `index`; `None` behind the last.
    fn piece(&self, index: u64) -> Option<Piece> {
        match &self.shape {
            Shape::One { header_bytes, body_bytes, requested_bytes } => (index == 0).then_some(Piece {
                label: Label::Nothing,
                bytes: header_bytes.saturating_add(*body_bytes),
                requested_bytes: *requested_bytes,
            }),
            Shape::Chunks { chunk_bytes, of } => of.piece(index, *chunk_bytes, u64::MAX, Label::Chunk),
            Shape::Pieces { header_bytes, piece_bytes, most, of } => match index {
                0 => Some(Piece { label: Label::Nothing, bytes: 0, requested_bytes: 0 }),
                1 => {
                    Some(Piece { label: Label::Header, bytes: *header_bytes, requested_bytes: *header_bytes })
                }
                _ => of.piece(index - 2, *piece_bytes, *most, Label::Piece),
            },
        }
    }

    /// The items with their parts; sizes are multiplied by `factor`.
    pub(super) fn parts(&self, factor: u64) -> impl Iterator<Item = (Piece, Part)> {
        let mut next = self.piece(0);
        let mut index = 0;
        std::iter::from_fn(move || {
            let piece = next?;
            index += 1;
            next = self.piece(index);
            let is_last = next.is_none();
            let times = |bytes: u64| bytes.saturating_mul(factor);
            let part = Part {
                is_first: index == 1,
                is_last,
                requested_bytes: times(piece.requested_bytes),
                uncached_bytes: if is_last { times(self.uncached_bytes()) } else { 0 },
                fetches_rest_on_miss: matches!(self.shape, Shape::Pieces { .. }),
                fetch: self.fetch_from(index - 1).map(|fetch| fetch.times(factor)),
            };
            Some((Piece { bytes: times(piece.bytes), ..piece }, part))
        })
    }

    /// The fetch if the items from number `index` on are missing.
    fn fetch_from(&self, index: u64) -> Option<Fetch> {
        match &self.shape {
            Shape::One { header_bytes, body_bytes, .. } => Some(Fetch {
                header_bytes: *header_bytes,
                body_bytes: *body_bytes,
                from_bytes: 0,
                to_bytes: *body_bytes,
            }),
            Shape::Chunks { .. } => None,
            Shape::Pieces { header_bytes, piece_bytes, most, of } => {
                let body = of.fetched(index.saturating_sub(2), *piece_bytes, *most);
                Some(Fetch {
                    header_bytes: *header_bytes,
                    body_bytes: of.whole_bytes,
                    from_bytes: body.start,
                    to_bytes: body.end,
                })
            }
        }
    }

    /// Requested bytes that are never cached.
    fn uncached_bytes(&self) -> u64 {
        match &self.shape {
            Shape::One { .. } | Shape::Chunks { .. } => 0,
            Shape::Pieces { piece_bytes, most, of, .. } => {
                of.requested.end.saturating_sub(of.requested.start.max(piece_bytes.saturating_mul(*most)))
            }
        }
    }
}

impl Span {
    /// Number `index` of the touched pieces with numbers below `most`.
    fn piece(&self, index: u64, piece_bytes: u64, most: u64, label: fn(u64) -> Label) -> Option<Piece> {
        let number = self.requested.start / piece_bytes + index;
        let start = number.saturating_mul(piece_bytes);
        let end = start.saturating_add(piece_bytes).min(self.whole_bytes);
        let requested = self.requested.start.max(start)..self.requested.end.min(end);
        let is_touched = number < most && !requested.is_empty();
        is_touched.then(|| Piece {
            label: label(number),
            bytes: end - start,
            requested_bytes: requested.end - requested.start,
        })
    }

    /// The range to fetch if the touched pieces from number `index` on are missing: whole pieces, and the requested bytes behind the last
    /// cached piece.
    fn fetched(&self, index: u64, piece_bytes: u64, most: u64) -> Range<u64> {
        let Range { start, end } = self.requested;
        if start >= end {
            return start..start;
        }
        let kept = piece_bytes.saturating_mul(most);
        let number = start / piece_bytes + index;
        let first = if number < most { number.saturating_mul(piece_bytes) } else { start.max(kept) };
        let whole_pieces = end.checked_next_multiple_of(piece_bytes).unwrap_or(u64::MAX);
        first..if end > kept { end } else { whole_pieces.min(self.whole_bytes) }
    }
}

impl Fetch {
    /// The fetch of an object `factor` times as large.
    fn times(self, factor: u64) -> Self {
        Self {
            header_bytes: self.header_bytes.saturating_mul(factor),
            body_bytes: self.body_bytes.saturating_mul(factor),
            from_bytes: self.from_bytes.saturating_mul(factor),
            to_bytes: self.to_bytes.saturating_mul(factor),
        }
    }
}

impl Label {
    /// Appends the suffix to a name. CacheBench's keys end likewise, except that it also names groups of pieces.
    pub(super) fn append(self, key: &mut Vec<u8>) {
        use std::io::Write;
        let written = match self {
            Self::Nothing => Ok(()),
            Self::Header => write!(key, "|#|header-0"),
            Self::Chunk(number) => write!(key, "-{number}"),
            Self::Piece(number) => write!(key, "|#|body-0-{number}"),
        };
        written.expect("writing to memory cannot fail");
    }
}

/// The chunks of a block touched by the range that begins at `start_bytes`.
pub(super) fn chunks(
    (block, shard, length): (&[u8], u64, u64),
    (start_bytes, bytes): (u64, u64),
    (chunk_bytes, block_bytes): (u64, u64),
    rows: &mut Rows,
) -> Result<Items, RowError> {
    if bytes == 0 {
        return Err(RowError::NoSize);
    }
    let end = start_bytes.saturating_add(bytes);
    if end > block_bytes {
        return Err(RowError::PastBlock { end_bytes: end, block_bytes });
    }
    let of = Span { whole_bytes: block_bytes, requested: start_bytes..end };
    Ok(Items { name: shard_name(block, shard, length, rows)?, shape: Shape::Chunks { chunk_bytes, of } })
}

/// The block's name, padded so that it has `length` bytes with its shard. (CacheBench pads after the shard, so a four-digit shard can equal
/// a three-digit one.)
fn shard_name(block: &[u8], shard: u64, length: u64, rows: &mut Rows) -> Result<Range<u32>, RowError> {
    use std::io::Write;
    let mut digits = [0; 24];
    let mut rest = &mut digits[..];
    write!(rest, "_{shard:03}").expect("a number has at most 20 digits");
    let used = 24 - rest.len();
    rows.padded_name(block, length, &digits[..used])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(shape: Shape) -> Vec<(Label, u64, u64)> {
        let items = Items { name: 0..0, shape };
        items.parts(1).map(|(piece, part)| (piece.label, piece.bytes, part.requested_bytes)).collect()
    }

    fn span(whole_bytes: u64, requested: Range<u64>) -> Span {
        Span { whole_bytes, requested }
    }

    #[test]
    fn range_touches_its_chunks_and_the_last_chunk_is_shorter() {
        let chunks = |requested| items(Shape::Chunks { chunk_bytes: 100, of: span(250, requested) });
        let chunk = |number, bytes, requested| (Label::Chunk(number), bytes, requested);
        assert_eq!(chunks(0..1), [chunk(0, 100, 1)]);
        assert_eq!(chunks(99..101), [chunk(0, 100, 1), chunk(1, 100, 1)]);
        assert_eq!(chunks(100..250), [chunk(1, 100, 100), chunk(2, 50, 50)]);
    }

    #[test]
    fn object_in_pieces_has_marker_header_and_at_most_the_cached_pieces() {
        let pieces = |most, requested| {
            items(Shape::Pieces { header_bytes: 7, piece_bytes: 100, most, of: span(250, requested) })
        };
        let front = [(Label::Nothing, 0, 0), (Label::Header, 7, 7)];
        let body = |number, bytes, requested| (Label::Piece(number), bytes, requested);
        assert_eq!(pieces(9, 0..250)[..2], front);
        assert_eq!(pieces(9, 0..250)[2..], [body(0, 100, 100), body(1, 100, 100), body(2, 50, 50)]);
        assert_eq!(pieces(9, 150..201)[2..], [body(1, 100, 50), body(2, 50, 1)]);
        assert_eq!(pieces(1, 0..250)[2..], [body(0, 100, 100)]);
        assert_eq!(pieces(9, 0..0), front, "a request for the header alone has no pieces");
        assert_eq!(pieces(1, 120..130), front);
    }

    /// Whichever item is missing first, the fetch consists of the items from it on and the uncached bytes.
    #[test]
    fn fetch_covers_the_missing_items_and_the_uncached_bytes() {
        let requested = [
            0..0,
            0..1,
            0..250,
            50..240,
            99..101,
            100..200,
            120..130,
            150..201,
            199..200,
            200..250,
            249..250,
        ];
        for (most, requested) in
            (0..4).flat_map(|most| requested.iter().map(move |requested| (most, requested.clone())))
        {
            let context = format!("{requested:?} of {most}");
            let of = span(250, requested.clone());
            let shape = Shape::Pieces { header_bytes: 7, piece_bytes: 100, most, of };
            let parts: Vec<(Piece, Part)> = Items { name: 0..0, shape }.parts(3).collect();
            let uncached = parts.last().unwrap().1.uncached_bytes;
            for (number, (_, part)) in parts.iter().enumerate() {
                let body: u64 =
                    parts[number.max(2).min(parts.len())..].iter().map(|(piece, _)| piece.bytes).sum();
                let Fetch { header_bytes, body_bytes, from_bytes, to_bytes } = part.fetch.unwrap();
                assert_eq!(to_bytes - from_bytes, body + uncached, "{context}: {number}");
                assert_eq!((header_bytes, body_bytes), (21, 750));
                assert!(requested.is_empty() || to_bytes >= 3 * requested.end, "{context}");
                assert!(number > 2 || from_bytes <= 3 * requested.start, "{context}");
            }
        }
        let largest = span(u64::MAX, u64::MAX - 5..u64::MAX);
        assert_eq!(largest.fetched(0, 1 << 62, 4), 3 << 62..u64::MAX, "the range ends at the largest number");
        let one = Shape::One { header_bytes: 7, body_bytes: 50, requested_bytes: 8 };
        let (piece, part) = Items { name: 0..0, shape: one }.parts(2).next().unwrap();
        let fetch = Fetch { header_bytes: 14, body_bytes: 100, from_bytes: 0, to_bytes: 100 };
        assert_eq!((piece.bytes, part.requested_bytes, part.fetch), (114, 16, Some(fetch)), "whole");
    }

    #[test]
    fn uncached_bytes_are_reported_with_the_last_item() {
        let of = span(250, 50..240);
        let shape = Shape::Pieces { header_bytes: 7, piece_bytes: 100, most: 1, of };
        let parts: Vec<Part> = Items { name: 0..0, shape }.parts(3).map(|(_, part)| part).collect();
        let uncached: Vec<u64> = parts.iter().map(|part| part.uncached_bytes).collect();
        assert_eq!(uncached, [0, 0, 3 * 140], "multiplied like all sizes");
        assert_eq!(parts.iter().map(|part| part.is_first).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(parts.iter().map(|part| part.is_last).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(parts.iter().map(|part| part.requested_bytes).sum::<u64>(), 3 * (7 + 50));
    }
}
