//! The format of a region store's snapshot, written at a clean close.
//!
//! ```text
//! snapshot  0       8        12     16       20        24      32         40        44        48
//!           | magic | format | unit | region | regions | store | next     | regions | regions |
//!           |       |        | bytes| bytes  |         |       | sequence | held    | retired |
//!           then the regions held, next victim first; the retired regions, 4 bytes each; in format 2 the policy's
//!           state, after its length in 4 bytes; crc32c of all bytes before it
//! region    0    4          5       6          14        18
//!           | id | priority | point | sequence | entries | live | items …
//!                                                          22
//! item      a varint of 8 * d + hits mod 8, where d is the distance in units from the start of the previous item,
//!           or of the region for the first one; in format 2 another varint, of 32 * rank + hits div 8
//! ```
//! Format 2 is for policies that give each item a rank.

use device::checksum::crc32c;

use super::InsertionPoint;
use super::entry::MAX_HITS;
use super::layout::{Layout, RegionId};
use super::policy::Rank;
use super::recovery::RestoreError;

const MAGIC_VALUE: [u8; 8] = *b"FWregsnp";
const FORMAT_VALUE: u32 = 1;
const FORMAT_WITH_RANKS: u32 = 2;
const HITS_BITS: u32 = 3;
const HIGH_HITS_BITS: u32 = 5;

/// The head of a snapshot, before its regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub has_ranks: bool,
    pub unit_bytes: u32,
    pub region_bytes: u32,
    pub region_count: u32,
    pub store: u64,
    pub next_sequence: u64,
}

/// A region in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub id: RegionId,
    pub priority: u8,
    pub point: InsertionPoint,
    pub sequence: u64,
    pub entries: u32,
    /// The number of live entries.
    pub live: u32,
}

/// A live item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Live {
    /// Its offset in the region.
    pub unit: u32,
    pub hits: u8,
    pub rank: Rank,
}

/// The tail of a snapshot, between its regions and the checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tail {
    pub retired: Vec<RegionId>,
    /// The saved state of a policy that gives items ranks.
    pub policy: Option<Vec<u8>>,
}

/// Size of the checksum at the end.
pub(super) const CHECKSUM_BYTES: u64 = 4;

impl Head {
    pub fn encode(&self, held: usize, retired: usize) -> Vec<u8> {
        let mut out = MAGIC_VALUE.to_vec();
        let format = if self.has_ranks { FORMAT_WITH_RANKS } else { FORMAT_VALUE };
        for number in [format, self.unit_bytes, self.region_bytes, self.region_count] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.store.to_le_bytes());
        out.extend(self.next_sequence.to_le_bytes());
        out.extend(count(held));
        out.extend(count(retired));
        out
    }
}

impl Held {
    /// Encodes the region with its live items, in the order of their offsets.
    pub fn encode(&self, live: &[Live], has_ranks: bool, out: &mut Vec<u8>) {
        debug_assert_eq!(self.live as usize, live.len(), "the live regions are counted");
        out.extend(self.id.0.to_le_bytes());
        out.extend([self.priority, self.point.0]);
        out.extend(self.sequence.to_le_bytes());
        out.extend(self.entries.to_le_bytes());
        out.extend(count(live.len()));
        let mut before = 0;
        for &Live { unit, hits, rank } in live {
            push_varint(out, u64::from(unit - before) << HITS_BITS | u64::from(hits & MAX_HITS));
            if has_ranks {
                push_varint(out, u64::from(rank.0) << HIGH_HITS_BITS | u64::from(hits >> HITS_BITS));
            }
            before = unit;
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, RestoreError> {
        let id = RegionId(reader.u32()?);
        let [priority, point] = reader.take()?;
        let (sequence, entries, live) = (reader.u64()?, reader.u32()?, reader.u32()?);
        Ok(Self { id, priority, point: InsertionPoint(point), sequence, entries, live })
    }
}

impl Tail {
    pub fn encode(&self) -> Vec<u8> {
        let mut out: Vec<u8> = self.retired.iter().flat_map(|region| region.0.to_le_bytes()).collect();
        if let Some(policy) = &self.policy {
            out.extend(count(policy.len()));
            out.extend(policy);
        }
        out
    }
}

/// A verified snapshot with encoded items: decoded, they are several times as large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot<'a> {
    pub head: Head,
    pub held: Vec<HeldBytes<'a>>,
    pub tail: Tail,
}

/// A region of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldBytes<'a> {
    pub held: Held,
    items: Items<'a>,
}

impl<'a> Snapshot<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Self, RestoreError> {
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
        let body_end = bytes.len() - CHECKSUM_BYTES as usize;
        if bytes[body_end..] != crc32c(&bytes[..body_end]).to_le_bytes() {
            return Err(RestoreError::Damaged("its checksum does not match"));
        }
        let (unit_bytes, region_bytes, region_count) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (store, next_sequence) = (reader.u64()?, reader.u64()?);
        let head = Head { has_ranks, unit_bytes, region_bytes, region_count, store, next_sequence };
        let (held, retired) = (reader.u32()?, reader.u32()?);
        let held = (0..held).map(|_| HeldBytes::decode(has_ranks, &mut reader)).collect::<Result<_, _>>()?;
        let retired =
            (0..retired).map(|_| Ok(RegionId(reader.u32()?))).collect::<Result<_, RestoreError>>()?;
        let policy = if has_ranks { Some(reader.bytes()?) } else { None };
        if reader.0.len() as u64 != CHECKSUM_BYTES {
            return Err(RestoreError::Damaged("it has bytes after its last part"));
        }
        Ok(Self { head, held, tail: Tail { retired, policy } })
    }

    /// Checks that the layout is unchanged, because offsets depend on it.
    pub fn check(&self, layout: &Layout) -> Result<(), RestoreError> {
        for (setting, was, is) in [
            ("unit_bytes", self.head.unit_bytes, layout.unit_bytes),
            ("region_bytes", self.head.region_bytes, layout.region_bytes),
            ("region count", self.head.region_count, layout.region_count),
        ] {
            if was != is {
                return Err(RestoreError::Layout { setting, was, is });
            }
        }
        let mut ids: Vec<_> =
            self.held.iter().map(|it| it.held.id).chain(self.tail.retired.iter().copied()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() != all || ids.last().is_some_and(|last| last.0 >= layout.region_count) {
            return Err(RestoreError::Damaged("it names a region twice or one that does not exist"));
        }
        Ok(())
    }
}

impl<'a> HeldBytes<'a> {
    /// Decodes the next region and checks all its items.
    fn decode(has_ranks: bool, reader: &mut Reader<'a>) -> Result<Self, RestoreError> {
        let held = Held::decode(reader)?;
        let items = Items { reader: *reader, left: held.live, unit: 0, has_ranks };
        let mut all = items;
        all.by_ref().try_for_each(|item| item.map(drop))?;
        *reader = all.reader;
        Ok(Self { held, items })
    }

    /// Live items of the region, in the order of their offsets.
    pub fn live(&self) -> impl Iterator<Item = Live> + use<'a> {
        self.items.map_while(Result::ok)
    }
}

/// An iterator that decodes items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Items<'a> {
    reader: Reader<'a>,
    left: u32,
    /// Offset of the previous item.
    unit: u32,
    has_ranks: bool,
}

impl Items<'_> {
    fn item(&mut self) -> Result<Live, RestoreError> {
        let out_of_range = RestoreError::Damaged("an item is out of range");
        let code = self.reader.varint()?;
        let gap = u32::try_from(code >> HITS_BITS).map_err(|_| out_of_range.clone())?;
        self.unit = self.unit.checked_add(gap).ok_or(out_of_range)?;
        let more = if self.has_ranks { self.reader.varint()? } else { 0 };
        let high_hits = (more & ((1 << HIGH_HITS_BITS) - 1)) as u8;
        let rank = u16::try_from(more >> HIGH_HITS_BITS)
            .map_err(|_| RestoreError::Damaged("an item's rank is too high"))?;
        let hits = code as u8 & MAX_HITS | high_hits << HITS_BITS;
        Ok(Live { unit: self.unit, hits, rank: Rank(rank) })
    }
}

impl Iterator for Items<'_> {
    type Item = Result<Live, RestoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.item())
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

/// The bytes that are not decoded yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// Encodes the snapshot again.
#[cfg(any(test, feature = "fuzzing"))]
impl Snapshot<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut out = self.head.encode(self.held.len(), self.tail.retired.len());
        for region in &self.held {
            let live: Vec<Live> = region.live().collect();
            region.held.encode(&live, self.head.has_ranks, &mut out);
        }
        out.extend(self.tail.encode());
        out.extend(crc32c(&out).to_le_bytes());
        out
    }
}

/// For the fuzz targets: a snapshot is rejected, or encodes without loss.
#[cfg(feature = "fuzzing")]
pub(super) fn check_decoding(bytes: &[u8]) {
    if let Ok(snapshot) = Snapshot::decode(bytes) {
        let again = snapshot.encode();
        let again = Snapshot::decode(&again).map(|again| again.encode());
        assert_eq!(again.as_ref(), Ok(&snapshot.encode()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANKED: Live = Live { unit: 16, hits: 255, rank: Rank(u16::MAX) };

    fn encoded(has_ranks: bool, second: Live) -> Vec<u8> {
        let live = |unit, hits| Live { unit, hits, rank: Rank::NONE };
        let (point, sequence) = (InsertionPoint(2), 1 << 40);
        let held = |id, live| Held { id: RegionId(id), priority: 1, point, sequence, entries: 9, live };
        let head = Head {
            has_ranks,
            unit_bytes: 64,
            region_bytes: 1 << 20,
            region_count: 10,
            store: u64::MAX,
            next_sequence: 77,
        };
        let tail = Tail { retired: vec![RegionId(9)], policy: has_ranks.then(|| vec![1, 2, 3]) };
        let mut out = head.encode(2, 1);
        held(3, 3).encode(&[live(0, 7), second, live(16_000, 1)], has_ranks, &mut out);
        held(1, 0).encode(&[], has_ranks, &mut out);
        out.extend(tail.encode());
        out.extend(crc32c(&out).to_le_bytes());
        out
    }

    fn plain() -> Vec<u8> {
        encoded(false, Live { unit: 16, hits: 0, rank: Rank::NONE })
    }

    #[test]
    fn written_snapshot_is_read_back() {
        for (has_ranks, bytes) in [(false, plain()), (true, encoded(true, RANKED))] {
            let snapshot = Snapshot::decode(&bytes).expect("it is sound");
            assert_eq!(snapshot.encode(), bytes);
            assert_eq!((snapshot.head.store, snapshot.head.next_sequence), (u64::MAX, 77));
            assert_eq!(snapshot.held.iter().map(|it| it.held.id.0).collect::<Vec<_>>(), [3, 1]);
            let live: Vec<Live> = snapshot.held[0].live().collect();
            assert_eq!((live.len(), live[0].hits, live[2].unit), (3, 7, 16_000));
            assert!(!has_ranks || live[1] == RANKED);
            assert_eq!((snapshot.held[1].live().count(), &*snapshot.tail.retired), (0, &[RegionId(9)][..]));
            assert_eq!(snapshot.tail.policy, has_ranks.then(|| vec![1, 2, 3]));
        }
        // A header of 48 bytes, 22 per region, items of 1, 2 and 3 bytes, a retired region, a checksum.
        assert_eq!(plain().len(), 48 + 2 * 22 + 6 + 4 + 4);
    }

    #[test]
    fn every_flipped_bit_and_truncation_is_detected() {
        assert_finds_damage(&plain());
        assert_finds_damage(&encoded(true, RANKED));
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
    fn newer_snapshot_format_is_refused_by_number() {
        let mut bytes = plain();
        bytes[8] = 3;
        assert_eq!(Snapshot::decode(&bytes), Err(RestoreError::Format(3)));
    }

    #[test]
    fn snapshot_with_a_duplicate_or_missing_region_is_damaged() {
        let layout = Layout {
            offset_bytes: 0,
            region_bytes: 1 << 20,
            region_count: 10,
            unit_bytes: 64,
            block_bytes: 512,
            max_read_bytes: 512,
            max_write_bytes: 512,
        };
        let bytes = plain();
        let good = Snapshot::decode(&bytes).expect("it is sound");
        assert_eq!(good.check(&layout), Ok(()));
        let mut twice = good.clone();
        twice.tail.retired.push(RegionId(3));
        assert!(matches!(twice.check(&layout), Err(RestoreError::Damaged(_))));
        let mut outside = good.clone();
        outside.held[0].held.id = RegionId(10);
        assert!(matches!(outside.check(&layout), Err(RestoreError::Damaged(_))));
        let smaller = Layout { region_count: 9, ..layout };
        assert!(matches!(good.check(&smaller), Err(RestoreError::Layout { was: 10, is: 9, .. })));
    }
}
