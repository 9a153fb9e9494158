//! A device in memory: for tests, for simulations, and to measure a cache without a drive.

use std::collections::HashMap;
use std::ops::Range;

use parking_lot::RwLock;

use crate::check::MAX_IO_BYTES;
use crate::tally::Tally;
use crate::{Completion, Counters, Device, Geometry, IoBuffer, IoError, IoSlice, Outcome, Request};

/// Bytes in memory, sparse: a chunk is allocated by its first write, so an unused terabyte costs nothing.
pub struct MemoryDevice {
    geometry: Geometry,
    shards: Box<[RwLock<Chunks>]>,
    tally: Tally,
    absorbs: bool,
}

/// Chunks by number. Absent chunks read as zeros.
type Chunks = HashMap<u64, Box<[u8]>>;

/// Bytes allocated together. Writers of one chunk exclude each other, which also keeps blocks whole.
const CHUNK_BYTES: u64 = 64 << 10;

/// Number of locks for the chunks. Adjacent chunks have different locks.
const SHARDS: usize = 64;

impl MemoryDevice {
    /// Block size of [`new`](Self::new): the smallest that drives have.
    pub const DEFAULT_BLOCK_BYTES: u32 = 512;

    /// A device of `capacity_bytes` zeros, in blocks of [`DEFAULT_BLOCK_BYTES`](Self::DEFAULT_BLOCK_BYTES).
    ///
    /// # Panics
    /// If the capacity is not in whole blocks.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        Self::with_block_bytes(capacity_bytes, Self::DEFAULT_BLOCK_BYTES)
    }

    /// A device of `capacity_bytes` zeros in blocks of `block_bytes`, a power of two from 512 to 64 KiB.
    ///
    /// # Panics
    /// If the block size is outside that range or not a power of two, or the capacity is not a multiple of it.
    #[must_use]
    pub fn with_block_bytes(capacity_bytes: u64, block_bytes: u32) -> Self {
        let chunk_holds_block = (512..=CHUNK_BYTES).contains(&u64::from(block_bytes));
        assert!(block_bytes.is_power_of_two() && chunk_holds_block, "block size {block_bytes}");
        assert!(
            capacity_bytes.is_multiple_of(u64::from(block_bytes)),
            "capacity {capacity_bytes} in whole blocks"
        );
        let geometry = Geometry {
            capacity_bytes,
            block_bytes,
            max_io_bytes: MAX_IO_BYTES,
            indirection_bytes: block_bytes,
            placement_handles: 0,
            buffered: false,
        };
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { geometry, shards, tally: Tally::default(), absorbs: false }
    }

    /// Sets whether the device [absorbs](Device::absorb) writes, as if a page cache were above it.
    #[must_use]
    pub fn absorbing(self, absorbs: bool) -> Self {
        Self { absorbs, ..self }
    }

    /// A copy of the device. It may or may not contain requests in flight.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let shards = self.shards.iter().map(|shard| RwLock::new(shard.read().clone())).collect();
        Self { geometry: self.geometry, shards, tally: Tally::default(), absorbs: self.absorbs }
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().len() as u64 * CHUNK_BYTES).sum()
    }

    fn perform(&self, request: Request) -> Outcome {
        self.geometry.check(&request)?;
        match request {
            Request::Read { offset, mut buffer } => {
                self.read_at(offset, &mut buffer);
                Ok(buffer)
            }
            Request::Write { offset, data, .. } => {
                self.write_at(offset, &data);
                Ok(IoBuffer::empty())
            }
            Request::Trim { offset, len } => {
                self.trim_at(offset, len);
                Ok(IoBuffer::empty())
            }
            Request::Flush => Ok(IoBuffer::empty()),
        }
    }

    fn read_at(&self, offset: u64, mut into: &mut [u8]) {
        for (chunk, range) in pieces(offset, into.len() as u64) {
            let (head, tail) = into.split_at_mut(range.len());
            match self.shard(chunk).read().get(&chunk) {
                Some(bytes) => head.copy_from_slice(&bytes[range]),
                None => head.fill(0),
            }
            into = tail;
        }
    }

    fn write_at(&self, offset: u64, mut from: &[u8]) {
        for (chunk, range) in pieces(offset, from.len() as u64) {
            let (head, tail) = from.split_at(range.len());
            let mut chunks = self.shard(chunk).write();
            let bytes = chunks.entry(chunk).or_insert_with(|| vec![0; CHUNK_BYTES as usize].into());
            bytes[range].copy_from_slice(head);
            from = tail;
        }
    }

    /// Visits existing chunks only: trimming an empty terabyte is quick.
    fn trim_at(&self, offset: u64, len: u64) {
        let trimmed = offset..offset + len;
        for shard in &self.shards {
            shard.write().retain(|&chunk, bytes| {
                let start = chunk * CHUNK_BYTES;
                let from = trimmed.start.clamp(start, start + CHUNK_BYTES) - start;
                let to = trimmed.end.clamp(start, start + CHUNK_BYTES) - start;
                if from < to {
                    bytes[from as usize..to as usize].fill(0);
                }
                to - from < CHUNK_BYTES
            });
        }
    }

    fn shard(&self, chunk: u64) -> &RwLock<Chunks> {
        &self.shards[chunk as usize % SHARDS]
    }
}

impl Device for MemoryDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, request: Request, completion: Completion) {
        completion.complete(self.execute(request));
    }

    fn execute(&self, request: Request) -> Outcome {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = self.perform(request);
        self.tally.count(kind, bytes, &outcome);
        outcome
    }

    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        let write = || self.execute(Request::write(offset, data.clone()));
        self.absorbs.then(|| write().map(drop))
    }

    fn hole_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        let is_there = |chunk: u64| self.shard(chunk).read().contains_key(&chunk);
        let block = u64::from(self.geometry.block_bytes);
        let range = range.start.next_multiple_of(block)..range.end / block * block;
        let chunks = range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES);
        let first = chunks.clone().find(|&chunk| !is_there(chunk))?;
        let end = (first..chunks.end).find(|&chunk| is_there(chunk)).unwrap_or(chunks.end);
        let hole = range.start.max(first * CHUNK_BYTES)..range.end.min(end * CHUNK_BYTES);
        (!hole.is_empty()).then_some(hole)
    }

    fn trims_to_zeros(&self) -> bool {
        true
    }

    fn counters(&self) -> Counters {
        self.tally.counters()
    }
}

/// The chunks that `len` bytes at `offset` touch, each with the range inside it.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        let chunk = at / CHUNK_BYTES;
        let start = chunk * CHUNK_BYTES;
        let until = end.min(start + CHUNK_BYTES);
        let range = (at - start) as usize..(until - start) as usize;
        let more = at < end;
        at = until;
        more.then_some((chunk, range))
    })
}

impl std::fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryDevice({} bytes, {} resident)", self.geometry.capacity_bytes, self.resident_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERABYTE: u64 = 1 << 40;

    fn write(device: &MemoryDevice, offset: u64, bytes: &[u8]) {
        let data = IoBuffer::copy_of(bytes);
        device.execute(Request::write(offset, data)).unwrap();
    }

    fn read(device: &MemoryDevice, offset: u64, len: usize) -> IoBuffer {
        device.execute(Request::read(offset, len)).unwrap()
    }

    /// Buffers are aligned to pages. Catches a regression: with larger blocks, requests are accepted or refused
    /// depending on the address of the buffer.
    #[test]
    fn blocks_larger_than_a_page_are_accepted() {
        for block_bytes in [8192, 16_384, 65_536] {
            let device = MemoryDevice::with_block_bytes(1 << 20, block_bytes);
            let buffers: Vec<_> = (0..20).map(|_| IoBuffer::zeroed(block_bytes as usize)).collect();
            for buffer in buffers {
                device.execute(Request::Read { offset: 0, buffer }).unwrap();
            }
            write(&device, 1 << 19, &vec![7; block_bytes as usize]);
            assert_eq!(read(&device, 1 << 19, block_bytes as usize)[..], vec![7; block_bytes as usize]);
        }
    }

    #[test]
    fn writes_allocate_and_trims_free_memory() {
        let device = MemoryDevice::new(TERABYTE);
        assert!(
            read(&device, TERABYTE - 4096, 4096).iter().all(|&byte| byte == 0),
            "unwritten space is zeros"
        );
        assert_eq!(device.resident_bytes(), 0, "reads allocate nothing");
        write(&device, TERABYTE - 512, &[1; 512]);
        write(&device, 3 * CHUNK_BYTES - 512, &[2; 1024]);
        assert_eq!(device.resident_bytes(), 3 * CHUNK_BYTES);
        device.execute(Request::Trim { offset: 512, len: TERABYTE - 1024 }).unwrap();
        assert_eq!(device.resident_bytes(), CHUNK_BYTES, "the last chunk was trimmed in part");
        assert!(read(&device, TERABYTE - 512, 512).iter().all(|&byte| byte == 1));
        assert!(read(&device, 3 * CHUNK_BYTES - 512, 1024).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn duplicate_is_independent() {
        let device = MemoryDevice::new(TERABYTE);
        write(&device, 0, &[1; 512]);
        let duplicate = device.duplicate();
        write(&device, 0, &[2; 512]);
        write(&duplicate, 512, &[3; 512]);
        assert_eq!((read(&duplicate, 0, 1024)[0], read(&duplicate, 0, 1024)[512]), (1, 3));
        assert_eq!((read(&device, 0, 1024)[0], read(&device, 0, 1024)[512]), (2, 0));
    }
}
