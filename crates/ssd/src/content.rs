//! The payload of a model drive, without its zeros.
//!
//! The memory for the payload limits the size of a simulated drive. A workload that checks only keys and headers can write zeros for
//! the rest, and zeros are not stored: a block is a bitmap of its pieces and the pieces that are not zero. Random bytes take their own
//! size plus one cache line per block.

use std::collections::HashMap;
use std::ops::Range;

use parking_lot::RwLock;

/// Unit of zero detection: small enough that a header among zeros takes little memory.
const PIECE_BYTES: usize = 64;
/// One bit per piece in the word of a block's map.
const BLOCK_BYTES: usize = PIECE_BYTES * u64::BITS as usize;
/// Blocks that are allocated together. Writers of one chunk exclude each other.
const CHUNK_BLOCKS: usize = 16;
const CHUNK_BYTES: u64 = (CHUNK_BLOCKS * BLOCK_BYTES) as u64;
/// Locks that the chunks share. Neighbours have different ones.
const SHARDS: usize = 64;

/// Bytes by address. Unwritten addresses read as zeros.
pub(crate) struct Content {
    shards: Box<[RwLock<Chunks>]>,
}

type Chunks = HashMap<u64, Box<Chunk>>;
type Chunk = [Block; CHUNK_BLOCKS];
type Piece = [u8; PIECE_BYTES];

/// [`BLOCK_BYTES`] bytes.
#[derive(Default, Clone)]
struct Block {
    /// Bit mask of the stored pieces; pieces of zeros are not stored.
    kept: u64,
    /// The stored pieces, in the order of their bits.
    pieces: Box<[Piece]>,
}

impl Content {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| RwLock::default()).collect() }
    }

    /// Fills `into` with the bytes at `offset`.
    pub(crate) fn read(&self, offset: u64, mut into: &mut [u8]) {
        for (chunk, range) in cut(offset, into.len() as u64, CHUNK_BYTES) {
            let (head, tail) = into.split_at_mut(range.len());
            match self.shard(chunk).read().get(&chunk) {
                Some(blocks) => read_chunk(blocks, range.start, head),
                None => head.fill(0),
            }
            into = tail;
        }
    }

    /// Writes `from` at `offset`.
    pub(crate) fn write(&self, offset: u64, mut from: &[u8]) {
        for (chunk, range) in cut(offset, from.len() as u64, CHUNK_BYTES) {
            let (head, tail) = from.split_at(range.len());
            write_chunk(self.shard(chunk).write().entry(chunk).or_default(), range.start, head);
            from = tail;
        }
    }

    /// Sets `len` bytes from `offset` on to zero. It visits existing chunks only, so trimming an empty terabyte is
    /// quick.
    pub(crate) fn trim(&self, offset: u64, len: u64) {
        let (end, visits) = (offset + len, len / CHUNK_BYTES);
        if visits < self.shards.iter().map(|shard| shard.read().len() as u64).sum() {
            for (chunk, range) in cut(offset, len, CHUNK_BYTES) {
                let mut chunks = self.shard(chunk).write();
                if range.len() as u64 == CHUNK_BYTES {
                    chunks.remove(&chunk);
                } else if let Some(blocks) = chunks.get_mut(&chunk) {
                    trim_chunk(blocks, range);
                }
            }
            return;
        }
        for shard in &self.shards {
            shard.write().retain(|&chunk, blocks| {
                let start = chunk * CHUNK_BYTES;
                let inside = |at: u64| at.clamp(start, start + CHUNK_BYTES) - start;
                let range = inside(offset) as usize..inside(end) as usize;
                let is_kept = (range.len() as u64) < CHUNK_BYTES;
                if is_kept {
                    trim_chunk(blocks, range);
                }
                is_kept
            });
        }
    }

    fn shard(&self, chunk: u64) -> &RwLock<Chunks> {
        &self.shards[chunk as usize % SHARDS]
    }
}

fn read_chunk(blocks: &Chunk, offset: usize, mut into: &mut [u8]) {
    for (block, range) in cut(offset as u64, into.len() as u64, BLOCK_BYTES as u64) {
        let (head, tail) = into.split_at_mut(range.len());
        let block = &blocks[block as usize];
        match <&mut [u8; BLOCK_BYTES]>::try_from(&mut *head) {
            Ok(whole) => block.read(whole),
            Err(_) => head.copy_from_slice(&block.bytes()[range]),
        }
        into = tail;
    }
}

fn write_chunk(blocks: &mut Chunk, offset: usize, mut from: &[u8]) {
    for (block, range) in cut(offset as u64, from.len() as u64, BLOCK_BYTES as u64) {
        let (head, tail) = from.split_at(range.len());
        blocks[block as usize].write(range.start, head);
        from = tail;
    }
}

fn trim_chunk(blocks: &mut Chunk, range: Range<usize>) {
    for (block, range) in cut(range.start as u64, range.len() as u64, BLOCK_BYTES as u64) {
        blocks[block as usize].write(range.start, &[0; BLOCK_BYTES][range]);
    }
}

impl Block {
    fn bytes(&self) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        self.read(&mut bytes);
        bytes
    }

    fn read(&self, into: &mut [u8; BLOCK_BYTES]) {
        if self.kept == u64::MAX {
            return into.copy_from_slice(self.pieces.as_flattened());
        }
        let mut pieces = self.pieces.iter();
        let (places, _) = into.as_chunks_mut();
        for (number, place) in places.iter_mut().enumerate() {
            let is_kept = self.kept >> number & 1 == 1;
            *place = is_kept.then(|| pieces.next()).flatten().copied().unwrap_or([0; PIECE_BYTES]);
        }
    }

    fn write(&mut self, offset: usize, from: &[u8]) {
        if let Ok(whole) = <&[u8; BLOCK_BYTES]>::try_from(from) {
            return self.become_bytes(whole);
        }
        let mut bytes = self.bytes();
        bytes[offset..offset + from.len()].copy_from_slice(from);
        self.become_bytes(&bytes);
    }

    fn become_bytes(&mut self, bytes: &[u8; BLOCK_BYTES]) {
        let (pieces, _) = bytes.as_chunks();
        let bit = |(number, piece): (usize, &Piece)| u64::from(*piece != [0; PIECE_BYTES]) << number;
        self.kept = pieces.iter().enumerate().map(bit).fold(0, std::ops::BitOr::bitor);
        let count = self.kept.count_ones() as usize;
        if self.pieces.len() != count {
            self.pieces = vec![[0; PIECE_BYTES]; count].into();
        }
        if self.kept == u64::MAX {
            return self.pieces.copy_from_slice(pieces);
        }
        let mut left = self.kept;
        for place in &mut self.pieces {
            *place = pieces[left.trailing_zeros() as usize];
            left &= left - 1;
        }
    }
}

/// Splits `len` units from `offset` on at multiples of `every`. Returns the number of each part and the range in it.
fn cut(offset: u64, len: u64, every: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        let (number, start) = (at / every, at % every);
        let until = end.min((number + 1) * every);
        let range = start as usize..(until - number * every) as usize;
        let more = at < end;
        at = until;
        more.then_some((number, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE_BYTES: usize = 3 * CHUNK_BYTES as usize;

    /// A write of data, a write of zeros, or a trim.
    #[derive(Debug, Clone)]
    enum Step {
        Write { offset: usize, len: usize, every: usize },
        Trim { offset: usize, len: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = || (0..SPACE_BYTES, prop_oneof![1..200_usize, Just(BLOCK_BYTES), 1..SPACE_BYTES]);
        let inside = |(offset, len): (usize, usize)| (offset, len.min(SPACE_BYTES - offset));
        prop_oneof![
            (range(), prop_oneof![Just(1), 2..5000_usize]).prop_map(move |(range, every)| {
                let (offset, len) = inside(range);
                Step::Write { offset, len, every }
            }),
            range().prop_map(move |range| {
                let (offset, len) = inside(range);
                Step::Trim { offset, len }
            }),
        ]
    }

    proptest! {
        #[test]
        fn written_bytes_are_read_back_at_any_position_of_zeros(
            steps in prop::collection::vec((step(), 0..SPACE_BYTES), 1..12),
        ) {
            let (content, mut twin) = (Content::new(), vec![0; SPACE_BYTES]);
            for (number, (step, look)) in steps.into_iter().enumerate() {
                match step {
                    Step::Write { offset, len, every } => {
                        let byte = |at: usize| if at.is_multiple_of(every) { number as u8 + 1 } else { 0 };
                        let bytes: Vec<u8> = (0..len).map(byte).collect();
                        content.write(offset as u64, &bytes);
                        twin[offset..offset + len].copy_from_slice(&bytes);
                    }
                    Step::Trim { offset, len } => {
                        content.trim(offset as u64, len as u64);
                        twin[offset..offset + len].fill(0);
                    }
                }
                let mut seen = vec![0xff; SPACE_BYTES - look];
                content.read(look as u64, &mut seen);
                prop_assert!(seen == twin[look..], "step {number}");
            }
        }
    }

    #[test]
    fn distant_addresses_are_stored_separately() {
        let content = Content::new();
        let places = [0, 1, CHUNK_BYTES / 2, SHARDS as u64 * CHUNK_BYTES, 1 << 40, 1 << 50];
        places.iter().zip(1..).for_each(|(place, byte)| content.write(*place, &[byte]));
        let read = |place: u64| {
            let mut byte = [0xff];
            content.read(place, &mut byte);
            byte[0]
        };
        assert_eq!(places.map(read), [1, 2, 3, 4, 5, 6]);
        content.trim(1, (1 << 40) - 1);
        assert_eq!(places.map(read), [1, 0, 0, 0, 5, 6]);
    }

    #[test]
    fn zeros_and_trimmed_blocks_take_no_memory() {
        let kept = |content: &Content| -> usize {
            let blocks = |chunks: &Chunks| {
                chunks.values().flat_map(|it| it.iter()).map(|it| it.pieces.len() * PIECE_BYTES).sum()
            };
            content.shards.iter().map(|shard| -> usize { blocks(&shard.read()) }).sum()
        };
        let content = Content::new();
        content.write(0, &[0; 2 * BLOCK_BYTES]);
        assert_eq!(kept(&content), 0);
        content.write(BLOCK_BYTES as u64 - 1, &[1; 2]);
        assert_eq!(kept(&content), 2 * PIECE_BYTES, "the last piece of one block, the first of the next");
        content.write(CHUNK_BYTES, &[1; BLOCK_BYTES]);
        assert_eq!(kept(&content), 2 * PIECE_BYTES + BLOCK_BYTES);
        content.trim(0, 1 << 40);
        assert!(content.shards.iter().all(|shard| shard.read().is_empty()));
    }
}
