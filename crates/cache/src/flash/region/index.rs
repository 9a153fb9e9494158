//! The index of items on flash: 10 bytes per item, or 13 if items have ranks.
//!
//! A record holds 29 bits of the key's hash instead of the key; 8 more bits select the shard. Two keys that agree in all 37 bits share a
//! record: the later insert replaces the earlier item, which then misses (each read compares the key on flash). With 64 M items this
//! happens to one insert in two thousand.
//!
//! Each shard is a linear hash table (Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980): when partitions
//! hold more than [`MEAN_RECORDS`] on average, the next one in turn is split. So the index grows a kilobyte at a time and never stops to
//! rehash. A partition is an unsorted array of about a kilobyte; scanning it is short compared with the device's read. Its unused
//! capacity is at most [`CHUNK_RECORDS`], so the overhead is about one byte per item at any size.

use std::ops::Range;

use parking_lot::Mutex;

use crate::KeyHash;

use super::entry::MAX_HITS;
use super::layout::{Address, SizeHint};
use super::policy::Rank;

const SHARD_BITS: u32 = 8;
const MEAN_RECORDS: usize = 96;
const CHUNK_RECORDS: usize = 8;
/// Approximate overhead of an allocator per allocation.
const ALLOCATION_OVERHEAD_BYTES: usize = 16;

/// See the module.
pub(crate) struct Index {
    shards: Shards,
}

/// All records of an index have the same width.
enum Shards {
    Narrow(Box<[Mutex<Shard<NARROW>>]>),
    Wide(Box<[Mutex<Shard<WIDE>>]>),
}

/// An index record of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub address: Address,
    pub size: SizeHint,
    /// Reads since the item was written, up to [`MAX_HITS`]; in wide records, since it was inserted, up to [`MAX_WIDE_HITS`].
    pub hits: u8,
    /// The item's virtual block in the policy's queue. Stored in wide records only.
    pub rank: Rank,
}

/// The largest hit count of a wide record.
pub(crate) const MAX_WIDE_HITS: u8 = u8::MAX;

/// Runs `$body` on the locked shard of a hash, for either record width.
macro_rules! in_shard {
    ($index:expr, $hash:expr, |$shard:ident, $fingerprint:ident| $body:expr) => {
        match &$index.shards {
            Shards::Narrow(shards) => {
                let (shard, $fingerprint) = locate(shards, $hash);
                let mut $shard = shard.lock();
                $body
            }
            Shards::Wide(shards) => {
                let (shard, $fingerprint) = locate(shards, $hash);
                let mut $shard = shard.lock();
                $body
            }
        }
    };
}

/// Sums a method over all shards.
macro_rules! sum_of_shards {
    ($index:expr, |$shard:ident| $body:expr) => {
        match &$index.shards {
            Shards::Narrow(shards) => shards
                .iter()
                .map(|shard| {
                    let mut $shard = shard.lock();
                    $body
                })
                .sum::<usize>(),
            Shards::Wide(shards) => shards
                .iter()
                .map(|shard| {
                    let mut $shard = shard.lock();
                    $body
                })
                .sum::<usize>(),
        }
    };
}

impl Index {
    /// Number of shards.
    pub(crate) const SHARDS: usize = 1 << SHARD_BITS;

    /// An empty index, with or without ranks in its records.
    pub(crate) fn new(has_ranks: bool) -> Self {
        let shards = if has_ranks { Shards::Wide(empty()) } else { Shards::Narrow(empty()) };
        Self { shards }
    }

    /// The record of the item, if present.
    pub(crate) fn get(&self, hash: KeyHash) -> Option<Found> {
        in_shard!(self, hash, |shard, fingerprint| shard.find(fingerprint).map(|at| shard.at(at).found()))
    }

    /// Returns the record and increments its hit count; the returned count is the old one.
    pub(crate) fn hit(&self, hash: KeyHash) -> Option<Found> {
        in_shard!(self, hash, |shard, fingerprint| {
            let at = shard.find(fingerprint)?;
            let record = shard.at(at);
            let found = record.found();
            record.put(fingerprint, Found { hits: found.hits.saturating_add(1), ..found });
            Some(found)
        })
    }

    /// Inserts a record. Returns the record that it replaced.
    pub(crate) fn insert(&self, hash: KeyHash, item: Found) -> Option<Found> {
        in_shard!(self, hash, |shard, fingerprint| match shard.find(fingerprint) {
            Some(at) => {
                let before = shard.at(at).found();
                shard.at(at).put(fingerprint, item);
                Some(before)
            }
            None => {
                shard.push(Record::new(fingerprint, item));
                None
            }
        })
    }

    /// Inserts an item whose key is certainly absent: at a restart, all items come from one index.
    pub(crate) fn insert_new(&self, hash: KeyHash, item: Found) {
        in_shard!(self, hash, |shard, fingerprint| shard.push(Record::new(fingerprint, item)));
    }

    /// Removes a record.
    pub(crate) fn remove(&self, hash: KeyHash) -> Option<Found> {
        in_shard!(self, hash, |shard, fingerprint| shard.find(fingerprint).map(|at| shard.take(at).found()))
    }

    /// The record, if it still points to `address`.
    pub(crate) fn get_at(&self, hash: KeyHash, address: Address) -> Option<Found> {
        self.get(hash).filter(|found| found.address == address)
    }

    /// Removes the record if it still points to `address`.
    pub(crate) fn remove_at(&self, hash: KeyHash, address: Address) -> Option<Found> {
        in_shard!(self, hash, |shard, fingerprint| {
            let at = shard.find(fingerprint)?;
            (shard.at(at).found().address == address).then(|| shard.take(at).found())
        })
    }

    /// Moves the item from `address` to the location of `item`, if it is still there: a reinsertion must not restore an item that was
    /// removed or replaced meanwhile. Returns the old record.
    pub(crate) fn replace_at(&self, hash: KeyHash, address: Address, item: Found) -> Option<Found> {
        in_shard!(self, hash, |shard, fingerprint| {
            let at = shard.find(fingerprint)?;
            let before = shard.at(at).found();
            (before.address == address).then(|| {
                shard.at(at).put(fingerprint, item);
                before
            })
        })
    }

    /// Calls `rank` with the record if it still points to `address`, and stores the rank that it returns, if any.
    pub(crate) fn rank_at(&self, hash: KeyHash, address: Address, rank: impl FnOnce(Found) -> Option<Rank>) {
        in_shard!(self, hash, |shard, fingerprint| {
            if let Some(at) = shard.find(fingerprint) {
                let found = shard.at(at).found();
                if found.address == address
                    && let Some(rank) = rank(found)
                {
                    shard.at(at).put(fingerprint, Found { rank, ..found });
                }
            }
        });
    }

    /// Removes all records that point into `addresses` and calls `removed` with each. Scans the whole index: for regions whose table is
    /// lost.
    pub(crate) fn remove_range(&self, addresses: &Range<Address>, mut removed: impl FnMut(Found)) -> usize {
        sum_of_shards!(self, |shard| shard.remove_range(addresses, &mut removed))
    }

    /// Removes all records of one shard and calls `removed` with each. Returns their number.
    pub(crate) fn clear_shard(&self, shard: usize, removed: impl FnMut(Found)) -> usize {
        match &self.shards {
            Shards::Narrow(shards) => shards[shard].lock().clear(removed),
            Shards::Wide(shards) => shards[shard].lock().clear(removed),
        }
    }

    /// Calls `visit` with every record, in no particular order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(Found)) {
        sum_of_shards!(self, |shard| {
            let records = shard.partitions.iter_mut().flat_map(|partition| &partition.0);
            records.map(|record| visit(record.found())).count()
        });
    }

    /// Number of items.
    pub(crate) fn len(&self) -> usize {
        sum_of_shards!(self, |shard| {
            let shard = &mut *shard;
            shard.len
        })
    }

    /// Memory of records, unused capacity, headers and the allocator.
    pub(crate) fn memory_bytes(&self) -> usize {
        let shards = sum_of_shards!(self, |shard| {
            let shard = &mut *shard;
            shard.memory_bytes() + size_of_val(shard)
        });
        shards + size_of::<Self>()
    }
}

fn empty<const BYTES: usize>() -> Box<[Mutex<Shard<BYTES>>]> {
    std::iter::repeat_with(|| Mutex::new(Shard::new())).take(1 << SHARD_BITS).collect()
}

fn locate<T>(shards: &[T], hash: KeyHash) -> (&T, Fingerprint) {
    // Remixed, because a store may receive only keys whose hashes share their top bits. The fingerprint takes the bits below those of the
    // shard, not the lowest: a store that is one of several has keys with equal low bits after remixing, and the low bits of a fingerprint
    // select its partition.
    let mixed = hash.remix();
    let fingerprint = (mixed >> (u64::BITS - SHARD_BITS - Fingerprint::BITS)) as u32 & Fingerprint::MASK;
    (&shards[KeyHash(mixed).shard(SHARD_BITS)], Fingerprint(fingerprint))
}

/// The bits of the hash that a record stores.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fingerprint(u32);

impl Fingerprint {
    const BITS: u32 = 29;
    const MASK: u32 = (1 << Self::BITS) - 1;
}

/// 80 bits: fingerprint 29, address 40, size hint 8, hits 3.
const NARROW: usize = 10;
/// 24 more bits: hits 5, rank 16, and 3 zeros.
const WIDE: usize = 13;

#[derive(Clone, Copy)]
struct Record<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Record<BYTES> {
    const ADDRESS: u32 = Fingerprint::BITS;
    const SIZE: u32 = Self::ADDRESS + 40;
    const HITS: u32 = Self::SIZE + 8;
    const MAX_HITS: u8 = if BYTES == WIDE { MAX_WIDE_HITS } else { MAX_HITS };
    const RANK: u32 = Self::HITS + 8;

    fn new(fingerprint: Fingerprint, item: Found) -> Self {
        let mut record = Self([0; BYTES]);
        record.put(fingerprint, item);
        record
    }

    fn put(&mut self, fingerprint: Fingerprint, item: Found) {
        let mut bits = u128::from(fingerprint.0)
            | u128::from(item.address.0) << Self::ADDRESS
            | u128::from(item.size.0) << Self::SIZE
            | u128::from(item.hits.min(Self::MAX_HITS)) << Self::HITS;
        if BYTES == WIDE {
            bits |= u128::from(item.rank.0) << Self::RANK;
        }
        self.0.copy_from_slice(&bits.to_le_bytes()[..BYTES]);
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint(super::entry::u32_at(&self.0, 0) & Fingerprint::MASK)
    }

    fn found(&self) -> Found {
        let mut bytes = [0; 16];
        bytes[..BYTES].copy_from_slice(&self.0);
        let bits = u128::from_le_bytes(bytes);
        Found {
            address: Address((bits >> Self::ADDRESS) as u64 & ((1 << 40) - 1)),
            size: SizeHint((bits >> Self::SIZE) as u8),
            hits: (bits >> Self::HITS) as u8 & Self::MAX_HITS,
            // These bits are zero in a narrow record.
            rank: Rank((bits >> Self::RANK) as u16),
        }
    }
}

struct Partition<const BYTES: usize>(Vec<Record<BYTES>>);

impl<const BYTES: usize> Default for Partition<BYTES> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<const BYTES: usize> Partition<BYTES> {
    fn push(&mut self, record: Record<BYTES>) {
        if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(CHUNK_RECORDS);
        }
        self.0.push(record);
    }

    fn shrink(&mut self) {
        if self.0.capacity() - self.0.len() >= 2 * CHUNK_RECORDS {
            self.0.shrink_to(self.0.len().next_multiple_of(CHUNK_RECORDS));
        }
    }
}

/// Partition number and index in it.
type Place = (usize, usize);

/// A linear hash table of `2^level + next_split` partitions. Partitions below `next_split`, and their images `2^level` further on, are
/// already split: they are selected by one more bit of the hash than the others.
struct Shard<const BYTES: usize> {
    partitions: Vec<Partition<BYTES>>,
    level: u32,
    next_split: usize,
    len: usize,
    /// Capacity in records, summed over the partitions.
    room: usize,
}

impl<const BYTES: usize> Shard<BYTES> {
    fn new() -> Self {
        Self { partitions: vec![Partition::default()], level: 0, next_split: 0, len: 0, room: 0 }
    }

    fn partition_of(&self, fingerprint: Fingerprint) -> usize {
        let low_bits = |bits: u32| fingerprint.0 as usize & ((1 << bits) - 1);
        let partition = low_bits(self.level);
        if partition < self.next_split { low_bits(self.level + 1) } else { partition }
    }

    fn find(&self, fingerprint: Fingerprint) -> Option<Place> {
        let partition = self.partition_of(fingerprint);
        let at =
            self.partitions[partition].0.iter().position(|record| record.fingerprint() == fingerprint)?;
        Some((partition, at))
    }

    fn at(&mut self, (partition, at): Place) -> &mut Record<BYTES> {
        &mut self.partitions[partition].0[at]
    }

    fn push(&mut self, record: Record<BYTES>) {
        let partition = self.partition_of(record.fingerprint());
        self.change(partition, |partition| partition.push(record));
        self.len += 1;
        if self.len > self.partitions.len() * MEAN_RECORDS && self.level < Fingerprint::BITS {
            self.split();
        }
    }

    fn take(&mut self, (partition, at): Place) -> Record<BYTES> {
        self.len -= 1;
        self.change(partition, |partition| {
            let record = partition.0.swap_remove(at);
            partition.shrink();
            record
        })
    }

    fn remove_range(&mut self, addresses: &Range<Address>, removed: &mut impl FnMut(Found)) -> usize {
        let before = self.len;
        for at in 0..self.partitions.len() {
            self.len -= self.partitions[at].0.len();
            self.change(at, |partition| {
                partition.0.retain(|record| {
                    let found = record.found();
                    let leaves = addresses.contains(&found.address);
                    if leaves {
                        removed(found);
                    }
                    !leaves
                });
                partition.shrink();
            });
            self.len += self.partitions[at].0.len();
        }
        before - self.len
    }

    fn clear(&mut self, mut removed: impl FnMut(Found)) -> usize {
        let before = std::mem::replace(self, Self::new());
        let records = before.partitions.iter().flat_map(|partition| &partition.0);
        records.for_each(|record| removed(record.found()));
        before.len
    }

    fn split(&mut self) {
        let image = self.next_split + (1 << self.level);
        debug_assert_eq!(image, self.partitions.len(), "partitions are split in turn");
        let bit = 1 << self.level;
        let mut moved = Partition::default();
        self.change(self.next_split, |partition| {
            let is_moved = |record: &&Record<BYTES>| record.fingerprint().0 & bit != 0;
            moved
                .0
                .reserve_exact(partition.0.iter().filter(is_moved).count().next_multiple_of(CHUNK_RECORDS));
            moved.0.extend(partition.0.iter().filter(is_moved));
            partition.0.retain(|record| record.fingerprint().0 & bit == 0);
            partition.shrink();
        });
        self.room += moved.0.capacity();
        if self.partitions.len() == self.partitions.capacity() {
            self.partitions.reserve_exact(self.partitions.len() / 8 + 1);
        }
        self.partitions.push(moved);
        self.next_split += 1;
        if self.next_split == 1 << self.level {
            self.level += 1;
            self.next_split = 0;
        }
    }

    /// Changes a partition and updates `room`.
    fn change<T>(&mut self, partition: usize, change: impl FnOnce(&mut Partition<BYTES>) -> T) -> T {
        let partition = &mut self.partitions[partition];
        self.room -= partition.0.capacity();
        let answer = change(partition);
        self.room += partition.0.capacity();
        answer
    }

    fn memory_bytes(&self) -> usize {
        self.room * BYTES
            + self.partitions.capacity() * size_of::<Partition<BYTES>>()
            + (self.partitions.len() + 1) * ALLOCATION_OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests;
