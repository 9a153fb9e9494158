//! The snapshot of a clean close: regions with their fences, and the index.
//!
//! ```text
//!      0                        24       32       40          40 + regions x (24 + 2 x pages)
//!      +------------------------+--------+--------+-----------+---------------+
//!      | shape, six u32         | oldest | newest | regions   | index lines   |
//!      |                        | u64    | u64    |           | u64 words     |
//!      +------------------------+--------+--------+-----------+---------------+
//!
//!      0          8             12      16           24
//!      +----------+-------------+-------+------------+------------------------+
//!      | sequence | scale pages | pages | live items | deviations of fences   |
//!      | u64      | u32         | u32   | i64        | i16 each, then zeros   |
//!      +----------+-------------+-------+------------+------------------------+
//! ```
//!
//! Little-endian. A region of 0 pages is absent. The snapshot that contains this section has the checksum.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::config::Shape;
use super::fences::Fences;
use super::{HashLog, LogConfig, Region, SHARDS};

const HEADER_BYTES: usize = 40;
const REGION_HEADER_BYTES: usize = 24;
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
    shape_snapshot_bytes(&config.shape(SHARDS))
}

fn shape_snapshot_bytes(shape: &Shape) -> u64 {
    let lines = SHARDS as u64 * u64::from(shape.lines_per_shard) * 64;
    HEADER_BYTES as u64 + u64::from(shape.regions) * region_bytes(shape) as u64 + lines
}

fn region_bytes(shape: &Shape) -> usize {
    REGION_HEADER_BYTES + shape.pages_per_region as usize * size_of::<i16>()
}

fn shape_bytes(shape: &Shape) -> Vec<u8> {
    let fields = [
        shape.page_bytes,
        shape.pages_per_region,
        shape.regions,
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
    /// If items are in memory: the snapshot would contain older versions of them.
    pub fn snapshot(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        assert_eq!(self.stats().pending_items, 0, "a snapshot is taken of a drained log");
        let mut header = shape_bytes(&self.shape);
        let live = self.live();
        header.extend(live.min.to_le_bytes());
        header.extend(live.max.to_le_bytes());
        let regions = (0..self.shape.regions as usize).map(|place| self.region_piece(place));
        let lines = self.shards.iter().flat_map(|shard| {
            let words: Vec<u64> = shard.lock().lines.words().collect();
            let pieces =
                words.chunks(PIECE_WORDS).map(|words| words.iter().flat_map(|w| w.to_le_bytes()).collect());
            pieces.collect::<Vec<Vec<u8>>>()
        });
        std::iter::once(header).chain(regions).chain(lines)
    }

    fn region_piece(&self, place: usize) -> Vec<u8> {
        let mut piece = Vec::with_capacity(region_bytes(&self.shape));
        if let Some(region) = &self.regions.read()[place] {
            let deviations = region.fences.deviations();
            piece.extend(region.sequence.to_le_bytes());
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
    pub fn restore(&self, snapshot: &[u8]) -> Result<(), RestoreError> {
        if snapshot.len() as u64 != shape_snapshot_bytes(&self.shape)
            || !snapshot.starts_with(&shape_bytes(&self.shape))
        {
            return Err(RestoreError::Shape);
        }
        let (header, rest) = snapshot.split_at(HEADER_BYTES);
        let (oldest, newest) = (u64_at(header, 24), u64_at(header, 32));
        let is_in_range = newest >= (1 << self.shape.sequence_bits) - 1
            && oldest <= newest.saturating_add(1)
            && newest < u64::MAX / 2
            && newest + 1 - oldest <= u64::from(self.shape.regions);
        if !is_in_range {
            return Err(RestoreError::Damaged);
        }
        let (regions, lines) = rest.split_at(self.shape.regions as usize * region_bytes(&self.shape));
        let decoded: Option<Vec<_>> = regions
            .chunks_exact(region_bytes(&self.shape))
            .enumerate()
            .map(|(place, bytes)| decode_region(bytes, place as u64, &self.shape))
            .collect();
        let decoded = decoded.ok_or(RestoreError::Damaged)?;
        for (place, (region, live_items)) in decoded.into_iter().enumerate() {
            self.live_items[place].store(live_items, Ordering::Relaxed);
            self.regions.write()[place] = region;
        }
        let mut words = lines.chunks_exact(8).map(|word| u64_at(word, 0));
        for shard in &self.shards {
            shard.lock().lines.restore(words.by_ref().take(self.shape.lines_per_shard as usize * 8));
        }
        self.oldest.store(oldest, Ordering::Release);
        self.newest.store(newest, Ordering::Release);
        self.filling.lock().open = newest + 1;
        Ok(())
    }
}

/// The region of a place in the ring, with its live items; `None` if a field is out of range.
fn decode_region(bytes: &[u8], place: u64, shape: &Shape) -> Option<(Option<Arc<Region>>, i64)> {
    let sequence = u64_at(bytes, 0);
    let (scale_pages, pages) = (u32_at(bytes, 8), u32_at(bytes, 12));
    if pages == 0 {
        return Some((None, 0));
    }
    if pages > shape.pages_per_region
        || !(1..=shape.pages_per_region).contains(&scale_pages)
        || sequence % u64::from(shape.regions) != place
    {
        return None;
    }
    let deviations = bytes[REGION_HEADER_BYTES..].chunks_exact(2).take(pages as usize);
    let deviations = deviations.map(|bytes| i16::from_le_bytes([bytes[0], bytes[1]])).collect();
    let region = Region { sequence, fences: Fences::restored(scale_pages, deviations) };
    Some((Some(Arc::new(region)), u64_at(bytes, 16).cast_signed()))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
