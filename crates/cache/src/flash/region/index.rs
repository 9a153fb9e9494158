//! Which keys are on flash, and where: ten bytes an item.
//!
//! A record holds no key, only 29 bits of its hash; 8 more choose the shard. Two keys that agree in all 37 are taken
//! for one: the later replaces the earlier, which is then a miss (the key on flash is compared at every read). At
//! 64 M items that befalls one insert in two thousand.
//!
//! Each shard is a table by linear hashing (Litwin, "Linear hashing: a new tool for file and table addressing", VLDB
//! 1980): when partitions are fuller than [`MEAN_RECORDS`] on average, the next one in turn is split in two. So the
//! index grows a kilobyte at a time and never stops to rehash. A partition is an unsorted array, searched from end to
//! end: a kilobyte on average, which is nothing beside the device's time. Its spare room is [`CHUNK_RECORDS`] at most,
//! so an item costs 10 bytes and about one of overhead at any size.

use std::ops::Range;

use parking_lot::Mutex;

use crate::KeyHash;

use super::entry::MAX_HITS;
use super::layout::{Address, SizeHint};

const SHARD_BITS: u32 = 8;
const MEAN_RECORDS: usize = 96;
const CHUNK_RECORDS: usize = 8;
/// What an allocator adds to an allocation, near enough.
const ALLOCATION_OVERHEAD_BYTES: usize = 16;

/// See the module.
pub(crate) struct Index {
    shards: Box<[Mutex<Shard>]>,
}

/// What the index knows of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub address: Address,
    pub size: SizeHint,
    /// Reads since it was written, up to [`MAX_HITS`].
    pub hits: u8,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { shards: std::iter::repeat_with(|| Mutex::new(Shard::new())).take(1 << SHARD_BITS).collect() }
    }

    /// Where the item is, if it is there.
    pub(crate) fn get(&self, hash: KeyHash) -> Option<Found> {
        let (shard, print) = self.locate(hash);
        let shard = shard.lock();
        let (partition, at) = shard.find(print)?;
        Some(shard.partitions[partition].0[at].found())
    }

    /// The same, and counts a hit. The hits answered are those before.
    pub(crate) fn hit(&self, hash: KeyHash) -> Option<Found> {
        let (shard, print) = self.locate(hash);
        let mut shard = shard.lock();
        let (partition, at) = shard.find(print)?;
        let record = &mut shard.partitions[partition].0[at];
        let found = record.found();
        if found.hits < MAX_HITS {
            *record = Record::new(print, Found { hits: found.hits + 1, ..found });
        }
        Some(found)
    }

    /// Puts the item in, in place of the one that was there.
    pub(crate) fn insert(&self, hash: KeyHash, item: Found) -> Option<Address> {
        let (shard, print) = self.locate(hash);
        let mut shard = shard.lock();
        if let Some((partition, at)) = shard.find(print) {
            let record = &mut shard.partitions[partition].0[at];
            let before = record.found().address;
            *record = Record::new(print, item);
            return Some(before);
        }
        shard.push(Record::new(print, item));
        None
    }

    /// Puts an item in that is certainly not there: at a restart, where all items come from one index.
    pub(crate) fn insert_new(&self, hash: KeyHash, item: Found) {
        let (shard, print) = self.locate(hash);
        shard.lock().push(Record::new(print, item));
    }

    /// Takes the item out.
    pub(crate) fn remove(&self, hash: KeyHash) -> Option<Address> {
        let (shard, print) = self.locate(hash);
        let mut shard = shard.lock();
        let (partition, at) = shard.find(print)?;
        Some(shard.take(partition, at).found().address)
    }

    /// The item, if it is still at `address`.
    pub(crate) fn get_at(&self, hash: KeyHash, address: Address) -> Option<Found> {
        self.get(hash).filter(|found| found.address == address)
    }

    /// Takes the item out if it is still at `address`.
    pub(crate) fn remove_at(&self, hash: KeyHash, address: Address) -> Option<Found> {
        let (shard, print) = self.locate(hash);
        let mut shard = shard.lock();
        let (partition, at) = shard.find(print)?;
        let found = shard.partitions[partition].0[at].found();
        (found.address == address).then(|| {
            shard.take(partition, at);
            found
        })
    }

    /// Moves the item from `address` to where `item` says, if it is still there: what keeps a reinsertion from
    /// bringing back an item that was removed or replaced meanwhile.
    pub(crate) fn replace_at(&self, hash: KeyHash, address: Address, item: Found) -> bool {
        let (shard, print) = self.locate(hash);
        let mut shard = shard.lock();
        let Some((partition, at)) = shard.find(print) else { return false };
        let record = &mut shard.partitions[partition].0[at];
        let still = record.found().address == address;
        if still {
            *record = Record::new(print, item);
        }
        still
    }

    /// Takes out everything in `addresses`. Walks the whole index: for regions whose table is lost.
    pub(crate) fn remove_range(&self, addresses: &Range<Address>) -> usize {
        let remove = |shard: &Mutex<Shard>| shard.lock().remove_range(addresses);
        self.shards.iter().map(remove).sum()
    }

    /// Shows every item, in no order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(Found)) {
        for shard in &self.shards {
            let shard = shard.lock();
            shard
                .partitions
                .iter()
                .flat_map(|partition| &partition.0)
                .for_each(|record| visit(record.found()));
        }
    }

    /// Items.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len).sum()
    }

    /// Memory of records, spare room, headers and the allocator.
    pub(crate) fn memory_bytes(&self) -> usize {
        let shards: usize = self.shards.iter().map(|shard| shard.lock().memory_bytes()).sum();
        shards + size_of::<Self>() + self.shards.len() * size_of::<Mutex<Shard>>()
    }

    fn locate(&self, hash: KeyHash) -> (&Mutex<Shard>, Print) {
        // Remixed: a store may be given only keys whose hashes share their top bits.
        let mixed = hash.remix();
        (&self.shards[KeyHash(mixed).shard(SHARD_BITS)], Print(mixed as u32 & Print::MASK))
    }
}

/// The part of the hash that a record holds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Print(u32);

impl Print {
    const BITS: u32 = 29;
    const MASK: u32 = (1 << Self::BITS) - 1;
}

/// 80 bits: print 29, address 40, size hint 8, hits 3.
#[derive(Clone, Copy)]
struct Record([u8; 10]);

impl Record {
    const ADDRESS: u32 = Print::BITS;
    const SIZE: u32 = Self::ADDRESS + 40;
    const HITS: u32 = Self::SIZE + 8;

    fn new(print: Print, item: Found) -> Self {
        let bits = u128::from(print.0)
            | u128::from(item.address.0) << Self::ADDRESS
            | u128::from(item.size.0) << Self::SIZE
            | u128::from(item.hits) << Self::HITS;
        let mut bytes = [0; 10];
        bytes.copy_from_slice(&bits.to_le_bytes()[..10]);
        Self(bytes)
    }

    fn print(&self) -> Print {
        let [a, b, c, d, ..] = self.0;
        Print(u32::from_le_bytes([a, b, c, d]) & Print::MASK)
    }

    fn found(&self) -> Found {
        let mut bytes = [0; 16];
        bytes[..10].copy_from_slice(&self.0);
        let bits = u128::from_le_bytes(bytes);
        Found {
            address: Address((bits >> Self::ADDRESS) as u64 & ((1 << 40) - 1)),
            size: SizeHint((bits >> Self::SIZE) as u8),
            hits: (bits >> Self::HITS) as u8 & MAX_HITS,
        }
    }
}

#[derive(Default)]
struct Partition(Vec<Record>);

impl Partition {
    fn push(&mut self, record: Record) {
        if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(CHUNK_RECORDS);
        }
        self.0.push(record);
    }

    fn give_back_room(&mut self) {
        if self.0.capacity() - self.0.len() >= 2 * CHUNK_RECORDS {
            self.0.shrink_to(self.0.len().next_multiple_of(CHUNK_RECORDS));
        }
    }
}

/// A linear hash table: `2^level + next_split` partitions. Those below `next_split`, and their images `2^level` further
/// on, are told apart by one more bit than the rest.
struct Shard {
    partitions: Vec<Partition>,
    level: u32,
    next_split: usize,
    len: usize,
    /// Records that there is room for, summed over the partitions.
    room: usize,
}

impl Shard {
    fn new() -> Self {
        Self { partitions: vec![Partition::default()], level: 0, next_split: 0, len: 0, room: 0 }
    }

    fn partition_of(&self, print: Print) -> usize {
        let low_bits = |bits: u32| print.0 as usize & ((1 << bits) - 1);
        let partition = low_bits(self.level);
        if partition < self.next_split { low_bits(self.level + 1) } else { partition }
    }

    fn find(&self, print: Print) -> Option<(usize, usize)> {
        let partition = self.partition_of(print);
        let at = self.partitions[partition].0.iter().position(|record| record.print() == print)?;
        Some((partition, at))
    }

    fn push(&mut self, record: Record) {
        let partition = self.partition_of(record.print());
        self.change(partition, |partition| partition.push(record));
        self.len += 1;
        if self.len > self.partitions.len() * MEAN_RECORDS && self.level < Print::BITS {
            self.split();
        }
    }

    fn take(&mut self, partition: usize, at: usize) -> Record {
        self.len -= 1;
        self.change(partition, |partition| {
            let record = partition.0.swap_remove(at);
            partition.give_back_room();
            record
        })
    }

    fn remove_range(&mut self, addresses: &Range<Address>) -> usize {
        let before = self.len;
        for at in 0..self.partitions.len() {
            self.len -= self.partitions[at].0.len();
            self.change(at, |partition| {
                partition.0.retain(|record| !addresses.contains(&record.found().address));
                partition.give_back_room();
            });
            self.len += self.partitions[at].0.len();
        }
        before - self.len
    }

    fn split(&mut self) {
        let image = self.next_split + (1 << self.level);
        debug_assert_eq!(image, self.partitions.len(), "partitions are split in turn");
        let bit = 1 << self.level;
        let mut moved = Partition::default();
        self.change(self.next_split, |partition| {
            let is_moved = |record: &&Record| record.print().0 & bit != 0;
            moved
                .0
                .reserve_exact(partition.0.iter().filter(is_moved).count().next_multiple_of(CHUNK_RECORDS));
            moved.0.extend(partition.0.iter().filter(is_moved));
            partition.0.retain(|record| record.print().0 & bit == 0);
            partition.give_back_room();
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

    /// Changes a partition and keeps account of its room.
    fn change<T>(&mut self, partition: usize, change: impl FnOnce(&mut Partition) -> T) -> T {
        let partition = &mut self.partitions[partition];
        self.room -= partition.0.capacity();
        let answer = change(partition);
        self.room += partition.0.capacity();
        answer
    }

    fn memory_bytes(&self) -> usize {
        self.room * size_of::<Record>()
            + self.partitions.capacity() * size_of::<Partition>()
            + (self.partitions.len() + 1) * ALLOCATION_OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn item(address: u64) -> Found {
        Found { address: Address(address), size: SizeHint(address as u8), hits: 0 }
    }

    fn key(number: u64) -> KeyHash {
        KeyHash::of(&number.to_le_bytes())
    }

    #[test]
    fn a_record_keeps_every_bit_of_its_parts() {
        for (print, address, size, hits) in
            [(0, 0, 0, 0), (Print::MASK, 0, 0, 0), (0, (1 << 40) - 1, 0, 0), (0, 0, 255, 0), (0, 0, 0, 7)]
        {
            let found = Found { address: Address(address), size: SizeHint(size), hits };
            let record = Record::new(Print(print), found);
            assert!(record.print() == Print(print));
            assert_eq!(record.found(), found);
        }
    }

    #[test]
    fn the_index_and_a_map_agree_both_ways() {
        let keys = if cfg!(miri) { 300 } else { 30_000 };
        for seed in 0..if cfg!(miri) { 1 } else { 4 } {
            let mut random = StdRng::seed_from_u64(seed);
            let index = Index::new();
            let mut map: HashMap<u64, Found> = HashMap::new();
            for step in 0..if cfg!(miri) { 1_500 } else { 60_000_u64 } {
                let number = random.random_range(0..keys);
                let now = item(step);
                match random.random_range(0..10) {
                    0..5 => {
                        let before = map.insert(number, now).map(|found| found.address);
                        assert_eq!(index.insert(key(number), now), before, "seed {seed} step {step}");
                    }
                    5..7 => {
                        let before = map.remove(&number).map(|found| found.address);
                        assert_eq!(index.remove(key(number)), before, "seed {seed} step {step}");
                    }
                    7 => {
                        let seen = map.get_mut(&number).map(|found| {
                            let before = *found;
                            found.hits = (found.hits + 1).min(MAX_HITS);
                            before
                        });
                        assert_eq!(index.hit(key(number)), seen, "seed {seed} step {step}");
                    }
                    8 => {
                        let at = map.get(&number).map_or(Address(1), |found| found.address);
                        let moved = index.replace_at(key(number), at, now);
                        assert_eq!(moved, map.contains_key(&number));
                        map.entry(number).and_modify(|found| *found = now);
                        assert!(!index.replace_at(key(number), Address(u64::from(u32::MAX)), item(0)));
                    }
                    _ => {
                        assert_eq!(index.remove_at(key(number), Address(u64::from(u32::MAX))), None);
                        let at = map.remove(&number);
                        assert_eq!(at.and_then(|found| index.remove_at(key(number), found.address)), at);
                    }
                }
            }
            assert_eq!(index.len(), map.len());
            let mut left = 0;
            index.for_each(|found| {
                left += 1;
                assert!(map.values().any(|other| *other == found) || left > 200, "seed {seed}");
            });
            assert_eq!(left, map.len());
            for number in 0..keys {
                assert_eq!(index.get(key(number)), map.get(&number).copied(), "seed {seed} key {number}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "a hundred thousand steps of safe code")]
    fn a_range_of_addresses_is_forgotten_and_nothing_else() {
        let index = Index::new();
        (0..50_000).for_each(|number| assert_eq!(index.insert(key(number), item(number)), None));
        assert_eq!(index.remove_range(&(Address(100)..Address(20_100))), 20_000);
        for number in 0..50_000 {
            assert_eq!(index.get(key(number)).is_none(), (100..20_100).contains(&number));
        }
        assert_eq!(index.len(), 30_000);
    }

    #[test]
    #[cfg_attr(miri, ignore = "about memory in bulk")]
    fn an_item_costs_less_than_twelve_bytes_at_any_size() {
        let index = Index::new();
        let mut number = 0;
        for count in [30_000, 70_000, 150_000, 300_000, 700_000, 1_000_000] {
            while number < count {
                index.insert(key(number), item(number));
                number += 1;
            }
            let per_item = index.memory_bytes() as f64 / index.len() as f64;
            assert!(per_item <= 12.0, "{per_item:.2} bytes an item at {count} items");
        }
        // A handful of keys of a million are taken for others.
        let removed = (0..950_000).filter(|&number| index.remove(key(number)).is_some()).count();
        assert!(removed > 949_900, "{removed} found");
        assert!(index.memory_bytes() < 2_500_000, "removed items leave {} bytes", index.memory_bytes());
    }
}
