//! The snapshot of a clean close: regions with their fences, and the index.
//!
//! ```text
//!      0                        32       40       48          56          56 + regions x (32 + 2 x pages)
//!      +------------------------+--------+--------+-----------+-----------+---------------+
//!      | format and shape,      | oldest | newest | next page | regions   | index lines   |
//!      | eight u32              | u64    | u64    | u64       |           | u64 words     |
//!      +------------------------+--------+--------+-----------+-----------+---------------+
//!
//!      0          8            16            20      24           32
//!      +----------+------------+-------------+-------+------------+------------------------+
//!      | sequence | start page | scale pages | pages | live items | deviations of fences   |
//!      | u64      | u64        | u32         | u32   | i64        | i16 each, then zeros   |
//!      +----------+------------+-------------+-------+------------+------------------------+
//! ```
//!
//! With a [journal](crate::flash::journal) its position follows, then zeros up to the size of the largest position.
//!
//! Little-endian. Live regions have the sequence numbers from `oldest` to `newest`, each in the place of its number modulo their count;
//! other places are zeros. The snapshot that contains this section has the checksum.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::config::Shape;
use super::fences::Fences;
use super::hit_pages::HitPages;
use super::{HashLog, LogConfig, Region, SHARDS};
use crate::flash::journal::{Journal, Position};

const FORMAT: u32 = 2;
const HEADER_BYTES: usize = 56;
const REGION_HEADER_BYTES: usize = 32;
/// Words of the index per piece of the snapshot.
const PIECE_WORDS: usize = 8192;

/// The reason why a snapshot is refused. The log stays empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The snapshot is of a log with other sizes.
    #[error("the snapshot of the small-item log is of another size or configuration")]
    Shape,
    /// A field is out of range.
    #[error("the snapshot of the small-item log is damaged")]
    Damaged,
}

/// Bytes of the snapshot of a checked configuration.
#[must_use]
pub fn snapshot_bytes(config: &LogConfig) -> u64 {
    let shape = config.shape(SHARDS);
    let regions = u64::from(shape.max_regions) * region_bytes(&shape) as u64;
    HEADER_BYTES as u64 + regions + lines_bytes(&shape) as u64 + journal_bytes(config)
}

fn lines_bytes(shape: &Shape) -> usize {
    SHARDS * shape.lines_per_shard as usize * 64
}

fn journal_bytes(config: &LogConfig) -> u64 {
    config.journal_place().map_or(0, |place| Position::max_bytes(place.blocks))
}

fn region_bytes(shape: &Shape) -> usize {
    REGION_HEADER_BYTES + shape.pages_per_region as usize * size_of::<i16>()
}

fn shape_bytes(shape: &Shape) -> Vec<u8> {
    let fields = [
        FORMAT,
        shape.page_bytes,
        shape.pages_per_region,
        shape.max_regions,
        u32::try_from(shape.log_pages).unwrap_or(u32::MAX),
        shape.slot_bits(),
        shape.lines_per_shard,
        shape.fingerprint_bits,
    ];
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

impl HashLog {
    /// The snapshot, in pieces. [`drain`](Self::drain) the log first.
    ///
    /// # Panics
    /// If items are in memory: the snapshot would lack them.
    pub fn snapshot(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        assert_eq!(self.stats().pending_items, 0, "a snapshot is taken of a drained log");
        let mut header = shape_bytes(&self.shape);
        let live = self.live();
        header.extend(live.min.to_le_bytes());
        header.extend(live.max.to_le_bytes());
        header.extend(self.next_page.load(Ordering::Acquire).to_le_bytes());
        let regions = (0..self.shape.max_regions as usize).map(|place| self.region_piece(place));
        let lines = self.shards.iter().flat_map(|shard| {
            let words: Vec<u64> = shard.lock().lines.words().collect();
            let pieces =
                words.chunks(PIECE_WORDS).map(|words| words.iter().flat_map(|w| w.to_le_bytes()).collect());
            pieces.collect::<Vec<Vec<u8>>>()
        });
        // Keys that are removed from now on are in neither part, or the snapshot is repeated.
        let journal = self.journal.iter().map(|journal| {
            journal.complete_block();
            self.acknowledge();
            let mut position = journal.closed_position().to_bytes();
            position.resize(journal_bytes(&self.config) as usize, 0);
            position
        });
        std::iter::once(header).chain(regions).chain(lines).chain(journal)
    }

    fn region_piece(&self, place: usize) -> Vec<u8> {
        let mut piece = Vec::with_capacity(region_bytes(&self.shape));
        if let Some(region) = &self.regions.read()[place] {
            let deviations = region.fences.deviations();
            piece.extend(region.sequence.to_le_bytes());
            piece.extend(region.start_page.to_le_bytes());
            piece.extend(region.fences.scale_pages().to_le_bytes());
            piece.extend((deviations.len() as u32).to_le_bytes());
            piece.extend(self.live_items[place].load(Ordering::Relaxed).to_le_bytes());
            piece.extend(deviations.iter().flat_map(|deviation| deviation.to_le_bytes()));
        }
        piece.resize(region_bytes(&self.shape), 0);
        piece
    }

    /// Loads a snapshot into a new log of the generation in which the snapshot was taken.
    ///
    /// # Errors
    /// See [`RestoreError`].
    pub fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        if snapshot.len() as u64 != snapshot_bytes(&self.config)
            || !snapshot.starts_with(&shape_bytes(&self.shape))
        {
            return Err(RestoreError::Shape);
        }
        let (header, rest) = snapshot.split_at(HEADER_BYTES);
        let (oldest, newest, next_page) = (u64_at(header, 32), u64_at(header, 40), u64_at(header, 48));
        let is_in_range = newest >= (1 << self.shape.sequence_bits) - 1
            && oldest <= newest.saturating_add(1)
            && newest < u64::MAX / 2
            && newest + 1 - oldest <= u64::from(self.shape.max_regions)
            && next_page < u64::MAX / 2;
        if !is_in_range {
            return Err(RestoreError::Damaged);
        }
        let (regions, lines) = rest.split_at(self.shape.max_regions as usize * region_bytes(&self.shape));
        let (lines, position) = lines.split_at(lines_bytes(&self.shape));
        let journal = self.continued_journal(position)?;
        let decoded = decode_regions(regions, oldest..newest + 1, next_page, &self.shape);
        for (region, live_items) in decoded.ok_or(RestoreError::Damaged)? {
            let place = self.place(region.sequence);
            self.live_items[place].store(live_items, Ordering::Relaxed);
            self.regions.write()[place] = Some(Arc::new(region));
        }
        let mut words = lines.chunks_exact(8).map(|word| u64_at(word, 0));
        for shard in &self.shards {
            shard.lock().lines.restore(words.by_ref().take(self.shape.lines_per_shard as usize * 8));
        }
        self.journal = journal;
        self.oldest.store(oldest, Ordering::Release);
        self.newest.store(newest, Ordering::Release);
        self.next_page.store(next_page, Ordering::Release);
        self.filling.lock().open = newest + 1;
        Ok(())
    }
}

impl HashLog {
    /// The journal from the position in a snapshot on, if the log has one.
    fn continued_journal(&self, position: &[u8]) -> Result<Option<Journal>, RestoreError> {
        let Some(place) = self.config.journal_place() else { return Ok(None) };
        let position = Position::from_bytes(position, place.blocks).ok_or(RestoreError::Damaged)?;
        Ok(Some(Journal::continued(Arc::clone(&self.device), self.placement, place, position)))
    }
}

/// The live regions with their numbers of live items; `None` if a field is out of range.
fn decode_regions(
    bytes: &[u8],
    sequences: Range<u64>,
    next_page: u64,
    shape: &Shape,
) -> Option<Vec<(Region, i64)>> {
    let region_bytes = region_bytes(shape);
    let mut regions = Vec::new();
    let mut end_page = None;
    for sequence in sequences {
        let place = (sequence % u64::from(shape.max_regions)) as usize;
        let (region, live_items) = decode_region(&bytes[place * region_bytes..][..region_bytes], shape)?;
        // Regions follow each other without gaps.
        let follows = end_page.is_none_or(|end_page| region.start_page == end_page);
        if region.sequence != sequence || !follows {
            return None;
        }
        end_page = region.start_page.checked_add(region.pages());
        regions.push((region, live_items));
    }
    let first_page = regions.first().map_or(next_page, |(region, _)| region.start_page);
    let is_in_log = end_page.is_none_or(|end_page| end_page == next_page)
        && next_page.checked_sub(first_page).is_some_and(|pages| pages <= shape.log_pages);
    is_in_log.then_some(regions)
}

fn decode_region(bytes: &[u8], shape: &Shape) -> Option<(Region, i64)> {
    let (scale_pages, pages) = (u32_at(bytes, 16), u32_at(bytes, 20));
    if pages > shape.pages_per_region || !(1..=shape.pages_per_region).contains(&scale_pages) {
        return None;
    }
    let deviations = bytes[REGION_HEADER_BYTES..].chunks_exact(2).take(pages as usize);
    let deviations = deviations.map(|bytes| i16::from_le_bytes([bytes[0], bytes[1]])).collect();
    let fences = Fences::restored(scale_pages, deviations);
    // The index has the items that were read, but not their pages.
    let hit_pages = HitPages::all(pages as usize);
    let region = Region { sequence: u64_at(bytes, 0), start_page: u64_at(bytes, 8), fences, hit_pages };
    Some((region, u64_at(bytes, 24).cast_signed()))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
