//! Serves an export of blocks as one of bytes, with requests of any offset and length.
//!
//! A write of part of a block reads the block, replaces the bytes and writes it back. Concurrent writes to the block wait, since
//! otherwise an acknowledged write could be lost: see [`ranges`](super::ranges).

use std::ops::Range;
use std::sync::Arc;

use device::{ErrorKind, IoBuffer, IoError, IoSlice};

use super::ranges::{Access, RangeLocks};
use super::{Context, Export, Extent, Operation, OperationResult, Reply, Shape};

/// Serves an export to clients that do not align requests to its blocks.
pub struct ByteExport {
    inner: Arc<Inner>,
}

/// Sector size unless another one is given.
const USUAL_SECTOR_BYTES: u32 = 512;

struct Inner {
    blocks: Arc<dyn Export>,
    block_bytes: u64,
    /// Sector size presented to clients.
    sector_bytes: u32,
    ranges: Arc<RangeLocks>,
}

impl ByteExport {
    /// Serves `blocks` and presents sectors of 512 bytes.
    #[must_use]
    pub fn new(blocks: Arc<dyn Export>) -> Self {
        Self::with_sectors(blocks, USUAL_SECTOR_BYTES)
    }

    /// Serves `blocks` and presents sectors of `sector_bytes`, a power of two of at least 512.
    #[must_use]
    pub fn with_sectors(blocks: Arc<dyn Export>, sector_bytes: u32) -> Self {
        let block_bytes = u64::from(blocks.shape().block_bytes);
        Self { inner: Arc::new(Inner { blocks, block_bytes, sector_bytes, ranges: Arc::default() }) }
    }

    /// Serves `blocks`, another path to the same bytes. Both exports share the locks on blocks that are partially
    /// written.
    #[must_use]
    pub fn beside(&self, blocks: Arc<dyn Export>) -> Self {
        let Inner { block_bytes, sector_bytes, ref ranges, .. } = *self.inner;
        debug_assert_eq!(
            block_bytes,
            u64::from(blocks.shape().block_bytes),
            "the same bytes have the same blocks"
        );
        Self { inner: Arc::new(Inner { blocks, block_bytes, sector_bytes, ranges: Arc::clone(ranges) }) }
    }
}

impl Export for ByteExport {
    fn shape(&self) -> Shape {
        let (shape, sector_bytes) = (self.inner.blocks.shape(), self.inner.sector_bytes);
        Shape {
            block_bytes: 1,
            sector_bytes,
            preferred_bytes: shape.preferred_bytes.max(sector_bytes),
            ..shape
        }
    }

    fn submit(&self, operation: Operation, reply: Reply) {
        let inner = &self.inner;
        match operation {
            Operation::Read { offset, len } => inner.read(offset, len, reply),
            Operation::Write { offset, data, durable } if inner.is_aligned(offset, data.len() as u64) => {
                let touched = offset..offset + data.len() as u64;
                inner.submit_shared(touched, Operation::Write { offset, data, durable }, reply);
            }
            Operation::Write { offset, data, durable } => inner.patch(offset, data, durable, reply),
            Operation::Zero { offset, len, .. } if inner.is_aligned(offset, len) => {
                inner.submit_shared(offset..offset + len, operation, reply);
            }
            Operation::Zero { offset, len, may_trim, only_if_fast, durable } => {
                inner.zero(offset..offset + len, Zero { may_trim, only_if_fast, durable }, reply);
            }
            Operation::Trim { offset, len, durable } => {
                inner.trim(&(offset..offset + len), durable, reply);
            }
            Operation::Prefetch { offset, len } => {
                let around = inner.around(offset..offset + len);
                let (offset, len) = (around.start, around.end - around.start);
                inner.blocks.submit(Operation::Prefetch { offset, len }, reply);
            }
            Operation::Flush => inner.blocks.submit(Operation::Flush, reply),
        }
    }

    fn contexts(&self) -> &[Context] {
        self.inner.blocks.contexts()
    }

    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError> {
        let around = self.inner.around(offset..offset + len);
        let before = offset - around.start;
        let mut extents =
            self.inner.blocks.extents(context, around.start, around.end - around.start, most)?;
        // The first extent may begin before the range.
        if let Some(first) = extents.first_mut() {
            first.len -= before;
        }
        Ok(extents)
    }
}

/// Options of [`Operation::Zero`].
#[derive(Clone, Copy)]
struct Zero {
    may_trim: bool,
    only_if_fast: bool,
    durable: bool,
}

impl Inner {
    fn is_aligned(&self, offset: u64, len: u64) -> bool {
        offset.is_multiple_of(self.block_bytes) && len.is_multiple_of(self.block_bytes)
    }

    /// The blocks that overlap `range`.
    fn around(&self, range: Range<u64>) -> Range<u64> {
        range.start - range.start % self.block_bytes..range.end.next_multiple_of(self.block_bytes)
    }

    /// The blocks that lie inside `range` completely.
    fn inside(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (start, end) =
            (range.start.next_multiple_of(self.block_bytes), range.end - range.end % self.block_bytes);
        (start < end).then_some(start..end)
    }

    fn submit_shared(self: &Arc<Self>, touched: Range<u64>, operation: Operation, reply: Reply) {
        let inner = Arc::clone(self);
        self.ranges.lock(touched, Access::Shared, move |guard| {
            let reply = Reply::new(move |result| {
                drop(guard);
                reply.send(result);
            });
            inner.blocks.submit(operation, reply);
        });
    }

    fn read(&self, offset: u64, len: u32, reply: Reply) {
        if self.is_aligned(offset, u64::from(len)) {
            return self.blocks.submit(Operation::Read { offset, len }, reply);
        }
        let around = self.around(offset..offset + u64::from(len));
        let before = (offset - around.start) as usize;
        let cut = Reply::new(move |result: OperationResult| {
            let wanted = before..before + len as usize;
            reply.send(result.and_then(read_bytes).map(|whole| Some(whole.part(wanted))));
        });
        let (offset, len) = (around.start, (around.end - around.start) as u32);
        self.blocks.submit(Operation::Read { offset, len }, cut);
    }

    /// Writes `data` over part of the blocks that it overlaps.
    fn patch(self: &Arc<Self>, offset: u64, data: IoSlice, durable: bool, reply: Reply) {
        let range = offset..offset + data.len() as u64;
        let around = self.around(range.clone());
        let inner = Arc::clone(self);
        self.ranges.lock(around.clone(), Access::Exclusive, move |guard| {
            let reply = Reply::new(move |result| {
                drop(guard);
                reply.send(result);
            });
            let whole = IoBuffer::zeroed((around.end - around.start) as usize);
            let edges = inner.edges(&range);
            Patch { inner, edges, start: around.start, whole, offset, data, durable, reply }.read_next_edge();
        });
    }

    /// Offsets of the blocks that `range` covers in part: none, one or two.
    fn edges(&self, range: &Range<u64>) -> Vec<u64> {
        let of = |byte: u64| byte - byte % self.block_bytes;
        let head = (range.start != of(range.start)).then(|| of(range.start));
        let tail = (range.end != of(range.end)).then(|| of(range.end)).filter(|tail| Some(*tail) != head);
        head.into_iter().chain(tail).collect()
    }

    /// Zeroes the whole blocks first: if that is refused, nothing has changed.
    fn zero(self: &Arc<Self>, range: Range<u64>, how: Zero, reply: Reply) {
        let Zero { may_trim, only_if_fast, durable } = how;
        let inside = self.inside(&range);
        if only_if_fast && inside.is_none() {
            let message = "part of a block cannot be zeroed faster than written";
            return reply.send(Err(IoError::new(ErrorKind::Unsupported, message)));
        }
        let mut steps = Vec::new();
        if let Some(Range { start, end }) = inside.clone() {
            steps.push(Operation::Zero { offset: start, len: end - start, may_trim, only_if_fast, durable });
        }
        let inside = inside.unwrap_or(range.end..range.end);
        for edge in [range.start..inside.start, inside.end..range.end] {
            if !edge.is_empty() {
                let data = IoBuffer::zeroed((edge.end - edge.start) as usize).into();
                steps.push(Operation::Write { offset: edge.start, data, durable });
            }
        }
        steps.reverse();
        self.run_in_order(steps, reply);
    }

    /// Runs `steps` one after the other, from the last to the first.
    fn run_in_order(self: &Arc<Self>, mut steps: Vec<Operation>, reply: Reply) {
        let Some(step) = steps.pop() else { return reply.send(Ok(None)) };
        let inner = Arc::clone(self);
        let then = Reply::new(move |result| match result {
            Ok(_) => inner.run_in_order(steps, reply),
            Err(error) => reply.send(Err(error)),
        });
        ByteExport { inner: Arc::clone(self) }.submit(step, then);
    }

    /// Trims the whole blocks. Partially covered blocks keep their contents.
    fn trim(self: &Arc<Self>, range: &Range<u64>, durable: bool, reply: Reply) {
        let Some(inside) = self.inside(range) else { return reply.send(Ok(None)) };
        let (offset, len) = (inside.start, inside.end - inside.start);
        self.submit_shared(inside, Operation::Trim { offset, len, durable }, reply);
    }
}

/// A write of parts of blocks, which holds their range exclusively.
struct Patch {
    inner: Arc<Inner>,
    /// Offsets of blocks still to be read.
    edges: Vec<u64>,
    /// Offset and contents of all blocks of the range.
    start: u64,
    whole: IoBuffer,
    offset: u64,
    data: IoSlice,
    durable: bool,
    reply: Reply,
}

impl Patch {
    fn read_next_edge(mut self) {
        let Some(edge) = self.edges.pop() else { return self.write() };
        let (blocks, block_bytes) = (Arc::clone(&self.inner.blocks), self.inner.block_bytes as usize);
        let then = Reply::new(move |result: OperationResult| match result.and_then(read_bytes) {
            Err(error) => self.reply.send(Err(error)),
            Ok(block) => {
                let at = (edge - self.start) as usize;
                self.whole[at..at + block_bytes].copy_from_slice(&block);
                self.read_next_edge();
            }
        });
        blocks.submit(Operation::Read { offset: edge, len: block_bytes as u32 }, then);
    }

    fn write(mut self) {
        let at = (self.offset - self.start) as usize;
        self.whole[at..at + self.data.len()].copy_from_slice(&self.data);
        let write = Operation::Write { offset: self.start, data: self.whole.into(), durable: self.durable };
        self.inner.blocks.submit(write, self.reply);
    }
}

fn read_bytes(bytes: Option<IoSlice>) -> Result<IoSlice, IoError> {
    bytes.ok_or_else(|| IoError::new(ErrorKind::Medium, "a read returned no bytes"))
}

#[cfg(test)]
mod tests;
