//! The format of the queue in the snapshot of a clean close.
//!
//! ```text
//! saved    0          1         5       13        21      29
//!          | sections | regions | floor | average | begun | section …
//! section  | blocks u32 | block …
//! block    | kind u8: 0 region, 1 virtual | number u32 | worth f64 | since u64 | raised levels u32 | raises u32 |
//! ```
//! Integers are little-endian. The checksum of the enclosing snapshot covers this state.

use super::super::RegionId;
use super::super::policy::Rank;
use super::blocks::SavedBlock;
use super::queue::{BlockId, Queue};

/// The saved state of a queue.
pub(super) struct Saved {
    pub floor: f64,
    pub average: f64,
    pub begun: u64,
    /// Blocks, starting at the end of the queue.
    pub sections: Vec<Vec<(BlockId, SavedBlock)>>,
}

const REGION: u8 = 0;
const VIRTUAL: u8 = 1;

pub(super) fn encode(queue: &Queue, floor: f64, average: f64) -> Vec<u8> {
    let (sections, regions) = queue.shape();
    let mut out = vec![u8::try_from(sections).expect("at most 16 sections")];
    out.extend(count(regions));
    out.extend(floor.to_le_bytes());
    out.extend(average.to_le_bytes());
    out.extend(queue.begun().to_le_bytes());
    for blocks in queue.blocks_in_order() {
        out.extend(count(blocks.len()));
        for (id, memo) in blocks {
            let (kind, number) = match id {
                BlockId::Region(region) => (REGION, region.0),
                BlockId::Virtual(rank) => (VIRTUAL, u32::from(rank.0)),
            };
            out.push(kind);
            out.extend(number.to_le_bytes());
            out.extend(memo.worth.to_le_bytes());
            out.extend(memo.since.to_le_bytes());
            out.extend(memo.raised_levels.to_le_bytes());
            out.extend(memo.raises.to_le_bytes());
        }
    }
    out
}

/// Decodes the state of a queue of the same shape; `None` if the shape differs or no state was saved.
pub(super) fn decode(bytes: &[u8], queue: &Queue) -> Option<Saved> {
    let (sections, regions) = queue.shape();
    let mut reader = Reader(bytes);
    let [saved_sections] = reader.take()?;
    if usize::from(saved_sections) != sections || reader.u32()? as usize != regions {
        return None;
    }
    let (floor, average, begun) = (reader.f64()?, reader.f64()?, reader.u64()?);
    let sections = (0..sections).map(|_| reader.section(regions)).collect::<Option<Vec<_>>>()?;
    let all = || sections.iter().flatten().map(|&(id, _)| id);
    let mut seen = std::collections::HashSet::new();
    let sound = reader.0.is_empty() && all().all(|id| seen.insert(id));
    sound.then_some(Saved { floor, average, begun, sections })
}

fn count(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("there are less than 2^32 blocks").to_le_bytes()
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn f64(&mut self) -> Option<f64> {
        self.take().map(f64::from_le_bytes).filter(|number| number.is_finite())
    }

    fn section(&mut self, regions: usize) -> Option<Vec<(BlockId, SavedBlock)>> {
        let blocks = self.u32()?;
        (0..blocks).map(|_| self.block(regions)).collect()
    }

    fn block(&mut self, regions: usize) -> Option<(BlockId, SavedBlock)> {
        let [kind] = self.take()?;
        let number = self.u32()?;
        let id = match kind {
            REGION if (number as usize) < regions => BlockId::Region(RegionId(number)),
            VIRTUAL => BlockId::Virtual(u16::try_from(number).ok().map(Rank).filter(|rank| !rank.is_none())?),
            _ => return None,
        };
        let (worth, since) = (self.f64()?, self.u64()?);
        Some((id, SavedBlock { worth, since, raised_levels: self.u32()?, raises: self.u32()? }))
    }
}
