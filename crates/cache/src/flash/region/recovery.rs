//! A clean shutdown and the way back: two bytes an item, four where items have ranks.
//!
//! A snapshot says which regions hold what filling, in which order they will leave, and which of their entries are live.
//! Hashes, lengths and expiry times are not in it: they are in the regions' tables, which is where a restart reads
//! them. After a crash there is no snapshot; the store is then created anew with another identity, and no old region is
//! believed: an entry alone cannot know that it was removed.
//!
//! ```text
//! snapshot  0       8        12     16       20        24      32         40        44        48
//!           | magic | format | unit | region | regions | store | next     | regions | regions |
//!           |       |        | bytes| bytes  |         |       | sequence | held    | retired |
//!           then the regions held, next victim first; the retired regions, 4 bytes each; in format 2 what the policy
//!           saved: its length in 4 bytes, and it; crc32c of all before
//! region    0    4          5       6          14        18
//!           | id | priority | point | sequence | entries | live | items …
//!                                                          22
//! item      a varint of 8 * units from the beginning of the item before (the first: from the region's) + hits mod 8;
//!           in format 2 another, of 32 * rank + hits div 8
//! ```
//! Format 2 is that of policies which give items places of their own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Clock, Device};
use futures_util::future::join_all;

use crate::flash::Waiting;

use super::InsertionPoint;
use super::config::{ConfigError, RegionConfig};
use super::entry::{MAX_HITS, crc32c};
use super::index::Found;
use super::layout::{Layout, RegionId, SizeHint};
use super::policy::Rank;
use super::stats::Counters;
use super::store::{Content, RegionStore, StoreId};
use super::table::{Filling, Record};

const MAGIC_VALUE: [u8; 8] = *b"FWregsnp";
const FORMAT_VALUE: u32 = 1;
const FORMAT_WITH_RANKS: u32 = 2;
const HITS_BITS: u32 = 3;
const HIGH_HITS_BITS: u32 = 5;

/// Tables read side by side at a restart.
const TABLES_AT_ONCE: usize = 32;

/// Why a store could not be brought back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The configuration does not fit the device.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The snapshot is damaged or cut short.
    #[error("the region store's snapshot is damaged: {0}")]
    Damaged(&'static str),
    /// The snapshot is of a format that this version does not know.
    #[error("the region store's snapshot is of format {0}; this version reads formats 1 and 2")]
    Format(u32),
    /// The store was made with another layout.
    #[error("the region store was created with {setting} {was}, but is now configured with {is}")]
    Layout {
        /// What differs.
        setting: &'static str,
        /// In the snapshot.
        was: u32,
        /// In the configuration.
        is: u32,
    },
}

/// A region as a snapshot tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    id: RegionId,
    priority: u8,
    point: InsertionPoint,
    sequence: u64,
    entries: u32,
    live: Vec<Live>,
}

/// A live item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Live {
    /// Where it begins.
    unit: u32,
    hits: u8,
    rank: Rank,
}

/// A snapshot, in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Snapshot {
    unit_bytes: u32,
    region_bytes: u32,
    region_count: u32,
    store: u64,
    next_sequence: u64,
    held: Vec<Held>,
    retired: Vec<RegionId>,
    /// What the policy saved, if it gives items ranks.
    policy: Option<Vec<u8>>,
}

impl RegionStore {
    /// What a restart needs to know. Taken after [`drain`](Self::drain), when nothing else runs: what is not on flash is
    /// not in it.
    ///
    /// Whoever keeps it must destroy it before the store is used again after a restart. A snapshot that is older than
    /// the last remove or insert would bring back what is gone.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        self.snapshot_within(u64::MAX)
    }

    /// The same in so many bytes, if it can be: of regions full of items smaller than there is room for, those that would
    /// leave first are left out, and come back clean. Better than nothing at all.
    #[must_use]
    pub fn snapshot_within(&self, most_bytes: u64) -> Vec<u8> {
        let mut items = Vec::with_capacity(self.index.len());
        self.index.for_each(|found| items.push((found.address, found.hits, found.rank)));
        items.sort_unstable();
        let mut policy = self.policy.lock();
        let (in_order, saved) = (policy.in_order(), self.needs.items.then(|| policy.save()));
        drop(policy);
        let held = in_order.into_iter().filter_map(|(id, priority)| {
            let Content::Flash { filling, entries, point } = *self.region(id).content.lock() else {
                return None;
            };
            let addresses = self.layout.addresses(id);
            let first = items.partition_point(|item| item.0 < addresses.start);
            let end = items.partition_point(|item| item.0 < addresses.end);
            let place = |&(address, hits, rank)| Live { unit: self.layout.place(address).1, hits, rank };
            let live = items[first..end].iter().map(place).collect();
            Some(Held { id, priority, point, sequence: filling.sequence, entries, live })
        });
        let is_retired = |id: &RegionId| matches!(*self.region(*id).content.lock(), Content::Retired);
        Snapshot {
            unit_bytes: self.layout.unit_bytes,
            region_bytes: self.layout.region_bytes,
            region_count: self.layout.region_count,
            store: self.id.0,
            next_sequence: self.next_sequence.load(Ordering::Relaxed),
            held: held.collect(),
            retired: (0..self.layout.region_count).map(RegionId).filter(is_retired).collect(),
            policy: saved,
        }
        .encode_within(most_bytes)
    }

    /// Brings a store back from its [`snapshot`](Self::snapshot). A region whose table is damaged is dropped, and
    /// counted, alone.
    ///
    /// # Errors
    /// If the snapshot is damaged or of another layout, or the configuration does not fit the device.
    pub async fn restore(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: RegionConfig,
        snapshot: &[u8],
        waiting: Waiting,
    ) -> Result<Self, RestoreError> {
        let snapshot = Snapshot::decode(snapshot)?;
        let store = Self::assemble(device, clock, config, StoreId(snapshot.store))?;
        snapshot.check(&store.layout)?;
        store.next_sequence.store(snapshot.next_sequence, Ordering::Relaxed);
        let knows_ranks = snapshot.policy.as_ref().is_some_and(|saved| store.policy.lock().recall(saved));
        let mut in_order = Vec::with_capacity(snapshot.held.len());
        for some in snapshot.held.chunks(TABLES_AT_ONCE) {
            let read = join_all(some.iter().map(|held| store.read_held(held, waiting))).await;
            let take_in = |(held, records): &(&Held, Option<Vec<Record>>)| {
                store.take_in(held, records.as_deref(), knows_ranks)
            };
            let kept = some.iter().zip(read).filter(take_in);
            in_order.extend(kept.map(|(held, _)| (held.id, held.priority)));
        }
        store.policy.lock().restore(&in_order);
        for &region in &snapshot.retired {
            *store.region(region).content.lock() = Content::Retired;
            store.supply.retire_region();
        }
        let is_clean = |id: &RegionId| matches!(*store.region(*id).content.lock(), Content::Clean);
        let clean = (0..store.layout.region_count).map(RegionId).filter(is_clean);
        clean.for_each(|region| store.supply.give_region(region));
        Ok(store)
    }

    async fn read_held(&self, held: &Held, waiting: Waiting) -> Option<Vec<Record>> {
        let filling = Filling { store: self.id.0, sequence: held.sequence };
        self.read_table(held.id, held.entries, filling, waiting).await
    }

    /// Puts the live items of a region into the index, with their ranks if those mean something; `false` if the region's
    /// table is lost.
    fn take_in(&self, held: &Held, records: Option<&[Record]>, knows_ranks: bool) -> bool {
        let Some(records) = records else {
            Counters::add(&self.counters.items_unrestored, held.live.len());
            return false;
        };
        let mut records = records.iter();
        let mut restored = 0;
        let mut policy = self.policy.lock();
        for &Live { unit, hits, rank } in &held.live {
            // Both are in the order of their places; a live item that the table does not know is not believed.
            let Some(record) = records.by_ref().find(|record| record.unit >= unit) else { break };
            if record.unit == unit && record.live {
                let address = self.layout.address(held.id, unit);
                let rank = if knows_ranks { rank } else { Rank::NONE };
                let found = Found { address, size: SizeHint::of_units(record.units), hits, rank };
                let rank = policy.reenter(&self.resident(found));
                self.index.insert_new(record.hash, Found { rank, ..found });
                restored += 1;
            }
        }
        Counters::add(&self.counters.items_restored, restored);
        Counters::add(&self.counters.items_unrestored, held.live.len() - restored);
        let filling = Filling { store: self.id.0, sequence: held.sequence };
        let content = Content::Flash { filling, entries: held.entries, point: held.point };
        *self.region(held.id).content.lock() = content;
        true
    }
}

impl Snapshot {
    /// Layout and configuration must be what they were: places are counted in them.
    fn check(&self, layout: &Layout) -> Result<(), RestoreError> {
        for (setting, was, is) in [
            ("unit_bytes", self.unit_bytes, layout.unit_bytes),
            ("region_bytes", self.region_bytes, layout.region_bytes),
            ("region count", self.region_count, layout.region_count),
        ] {
            if was != is {
                return Err(RestoreError::Layout { setting, was, is });
            }
        }
        let mut ids: Vec<_> =
            self.held.iter().map(|held| held.id).chain(self.retired.iter().copied()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() != all || ids.last().is_some_and(|last| last.0 >= layout.region_count) {
            return Err(RestoreError::Damaged("it names a region twice or one that does not exist"));
        }
        Ok(())
    }

    /// The encoding without as many of the regions held, from the first on, as make it too long.
    fn encode_within(mut self, most_bytes: u64) -> Vec<u8> {
        let whole = self.encode();
        let mut over_bytes = (whole.len() as u64).saturating_sub(most_bytes);
        if over_bytes == 0 {
            return whole;
        }
        let has_ranks = self.policy.is_some();
        let is_left_out = |held: &Held| {
            let is_left_out = over_bytes > 0;
            let mut encoded = Vec::new();
            if is_left_out {
                held.encode(has_ranks, &mut encoded);
            }
            over_bytes = over_bytes.saturating_sub(encoded.len() as u64);
            is_left_out
        };
        let left_out = self.held.iter().map(is_left_out).take_while(|&is_left_out| is_left_out).count();
        self.held.drain(..left_out);
        self.encode()
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC_VALUE.to_vec();
        let format = if self.policy.is_some() { FORMAT_WITH_RANKS } else { FORMAT_VALUE };
        for number in [format, self.unit_bytes, self.region_bytes, self.region_count] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.store.to_le_bytes());
        out.extend(self.next_sequence.to_le_bytes());
        out.extend(count(self.held.len()));
        out.extend(count(self.retired.len()));
        self.held.iter().for_each(|held| held.encode(self.policy.is_some(), &mut out));
        self.retired.iter().for_each(|region| out.extend(region.0.to_le_bytes()));
        if let Some(policy) = &self.policy {
            out.extend(count(policy.len()));
            out.extend(policy);
        }
        out.extend(crc32c(&out).to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, RestoreError> {
        let mut reader = Reader(bytes);
        if reader.take()? != MAGIC_VALUE {
            return Err(RestoreError::Damaged("it does not begin with its header"));
        }
        let format = reader.u32()?;
        let has_ranks = match format {
            FORMAT_VALUE => false,
            FORMAT_WITH_RANKS => true,
            _ => return Err(RestoreError::Format(format)),
        };
        let body_end = bytes.len() - 4;
        if bytes[body_end..] != crc32c(&bytes[..body_end]).to_le_bytes() {
            return Err(RestoreError::Damaged("its checksum does not match"));
        }
        let (unit_bytes, region_bytes, region_count) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (store, next_sequence) = (reader.u64()?, reader.u64()?);
        let (held, retired) = (reader.u32()?, reader.u32()?);
        let held = (0..held).map(|_| Held::decode(has_ranks, &mut reader)).collect::<Result<_, _>>()?;
        let retired =
            (0..retired).map(|_| Ok(RegionId(reader.u32()?))).collect::<Result<_, RestoreError>>()?;
        let policy = if has_ranks { Some(reader.bytes()?) } else { None };
        if reader.0.len() != 4 {
            return Err(RestoreError::Damaged("it has bytes after its last part"));
        }
        Ok(Self { unit_bytes, region_bytes, region_count, store, next_sequence, held, retired, policy })
    }
}

/// For the fuzz targets: a snapshot is refused, or says nothing that is lost when it is written again.
#[cfg(feature = "fuzzing")]
pub(super) fn check_decoding(bytes: &[u8]) {
    if let Ok(snapshot) = Snapshot::decode(bytes) {
        assert_eq!(Snapshot::decode(&snapshot.encode()).as_ref(), Ok(&snapshot));
    }
}

impl Held {
    fn encode(&self, has_ranks: bool, out: &mut Vec<u8>) {
        out.extend(self.id.0.to_le_bytes());
        out.extend([self.priority, self.point.0]);
        out.extend(self.sequence.to_le_bytes());
        out.extend(self.entries.to_le_bytes());
        out.extend(count(self.live.len()));
        let mut before = 0;
        for &Live { unit, hits, rank } in &self.live {
            push_varint(out, u64::from(unit - before) << HITS_BITS | u64::from(hits & MAX_HITS));
            if has_ranks {
                push_varint(out, u64::from(rank.0) << HIGH_HITS_BITS | u64::from(hits >> HITS_BITS));
            }
            before = unit;
        }
    }

    fn decode(has_ranks: bool, reader: &mut Reader<'_>) -> Result<Self, RestoreError> {
        let id = RegionId(reader.u32()?);
        let [priority, point] = reader.take()?;
        let (sequence, entries, live) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let mut unit = 0_u32;
        let item = |_| {
            let code = reader.varint()?;
            let gap = u32::try_from(code >> HITS_BITS)
                .map_err(|_| RestoreError::Damaged("an item is out of range"))?;
            unit = unit.checked_add(gap).ok_or(RestoreError::Damaged("an item is out of range"))?;
            let more = if has_ranks { reader.varint()? } else { 0 };
            let high_hits = (more & ((1 << HIGH_HITS_BITS) - 1)) as u8;
            let rank = u16::try_from(more >> HIGH_HITS_BITS)
                .map_err(|_| RestoreError::Damaged("an item's rank is too high"))?;
            Ok(Live { unit, hits: code as u8 & MAX_HITS | high_hits << HITS_BITS, rank: Rank(rank) })
        };
        let live = (0..live).map(item).collect::<Result<_, RestoreError>>()?;
        Ok(Self { id, priority, point: InsertionPoint(point), sequence, entries, live })
    }
}

fn count(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("there are less than 2^32 regions, and entries in a region").to_le_bytes()
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RestoreError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(RestoreError::Damaged("it is truncated"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, RestoreError> {
        self.take().map(u32::from_le_bytes)
    }

    fn bytes(&mut self) -> Result<Vec<u8>, RestoreError> {
        let len = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(RestoreError::Damaged("it is truncated"))?;
        self.0 = rest;
        Ok(bytes.to_vec())
    }

    fn u64(&mut self) -> Result<u64, RestoreError> {
        self.take().map(u64::from_le_bytes)
    }

    fn varint(&mut self) -> Result<u64, RestoreError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(RestoreError::Damaged("a number is not terminated"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let held = |id, live| Held {
            id: RegionId(id),
            priority: 1,
            point: InsertionPoint(2),
            sequence: 1 << 40,
            entries: 9,
            live,
        };
        let live = |unit, hits| Live { unit, hits, rank: Rank::NONE };
        Snapshot {
            unit_bytes: 64,
            region_bytes: 1 << 20,
            region_count: 10,
            store: u64::MAX,
            next_sequence: 77,
            held: vec![held(3, vec![live(0, 7), live(16, 0), live(16_000, 1)]), held(1, vec![])],
            retired: vec![RegionId(9)],
            policy: None,
        }
    }

    fn with_ranks() -> Snapshot {
        let mut ranked = snapshot();
        ranked.policy = Some(vec![1, 2, 3]);
        ranked.held[0].live[1] = Live { unit: 16, hits: 255, rank: Rank(u16::MAX) };
        ranked
    }

    #[test]
    fn a_snapshot_reads_back_as_it_was_written() {
        assert_eq!(Snapshot::decode(&snapshot().encode()), Ok(snapshot()));
        assert_eq!(Snapshot::decode(&with_ranks().encode()), Ok(with_ranks()));
        // 48 of header, 22 a region, items of 1, 2 and 3 bytes, a retired region, a checksum.
        assert_eq!(snapshot().encode().len(), 48 + 2 * 22 + 6 + 4 + 4);
    }

    #[test]
    fn a_snapshot_that_is_too_long_does_without_the_regions_that_leave_first() {
        for whole in [snapshot(), with_ranks()] {
            let len = whole.encode().len() as u64;
            let mut shorter = whole.clone();
            shorter.held.remove(0);
            let encoded_within = |most_bytes| whole.clone().encode_within(most_bytes);
            assert_eq!(encoded_within(len), whole.encode());
            assert_eq!(encoded_within(len - 1), shorter.encode());
            assert_eq!(encoded_within(shorter.encode().len() as u64), shorter.encode());
            shorter.held.clear();
            assert_eq!(encoded_within(0), shorter.encode());
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        assert_finds_damage(&snapshot().encode());
        assert_finds_damage(&with_ranks().encode());
    }

    fn assert_finds_damage(good: &[u8]) {
        for bit in 0..good.len() * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Snapshot::decode(&bytes).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(Snapshot::decode(&good[..len]).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_by_its_number() {
        let mut bytes = snapshot().encode();
        bytes[8] = 3;
        assert_eq!(Snapshot::decode(&bytes), Err(RestoreError::Format(3)));
    }

    #[test]
    fn a_snapshot_that_names_a_region_twice_or_none_is_damaged() {
        let layout = Layout {
            offset_bytes: 0,
            region_bytes: 1 << 20,
            region_count: 10,
            unit_bytes: 64,
            block_bytes: 512,
            max_read_bytes: 512,
            max_write_bytes: 512,
        };
        assert_eq!(snapshot().check(&layout), Ok(()));
        let mut twice = snapshot();
        twice.retired.push(RegionId(3));
        assert!(matches!(twice.check(&layout), Err(RestoreError::Damaged(_))));
        let mut outside = snapshot();
        outside.held[0].id = RegionId(10);
        assert!(matches!(outside.check(&layout), Err(RestoreError::Damaged(_))));
        let smaller = Layout { region_count: 9, ..layout };
        assert!(matches!(snapshot().check(&smaller), Err(RestoreError::Layout { was: 10, is: 9, .. })));
    }
}
