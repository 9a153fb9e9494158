//! One way to lay out a cache, and what the trace makes of it.

use cache::flash::region::{ENTRY_HEADER_BYTES, RegionConfig};
use cache::flash::soc::{BUCKET_HEADER_BYTES, ENTRY_BYTES};
use policy::simulate::Access;
use policy::simulate::flash::{Hybrid, HybridCounts, HybridRules};

use super::Figure;
use crate::report::noise::ratio_of_sums;
use crate::simulate::Batch;
use crate::simulate::crew::Work;

/// A layout, at full size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    /// DRAM of the cache, bytes.
    pub dram_bytes: u64,
    /// Share of the drive that the cache takes; the rest is never written.
    pub utilization: f64,
    /// Bytes of the cache on flash.
    pub flash_bytes: u64,
    /// Share of them that small objects have.
    pub small_share: f64,
    /// The chance that an object that leaves DRAM is let into flash.
    pub admission: f64,
}

/// A set of small objects: CacheLib's default, and the page of most drives.
pub const SET_BYTES: u32 = 4096;
/// Objects of so many bytes, key included, are small: CacheBench's default.
pub const SMALL_AT_MOST: u32 = 2048;
/// A region of large objects, where there is room for so many of them.
const REGION_BYTES: u64 = 16 << 20;
const REGIONS: u64 = 512;
const LEAST_REGION_BYTES: u64 = 256 << 10;
/// What an item takes in DRAM besides its own: header and index, as the engine with an LRU measures it (DESIGN.md).
const DRAM_OVERHEAD_BYTES: u32 = 59;

impl Layout {
    /// The cache at `1/scale`.
    pub(super) fn rules(&self, scale: u32, seed: u64) -> HybridRules {
        let scaled = |bytes: f64| (bytes / f64::from(scale)) as u64;
        let flash = self.flash_bytes as f64;
        let large_weight = scaled(flash * (1.0 - self.small_share));
        let block_weight = (large_weight / REGIONS).clamp(LEAST_REGION_BYTES, REGION_BYTES);
        HybridRules {
            dram_weight: scaled(self.dram_bytes as f64),
            dram_overhead: DRAM_OVERHEAD_BYTES,
            small_weight: scaled(flash * self.small_share),
            small_at_most: if self.small_share > 0.0 { SMALL_AT_MOST } else { 0 },
            set_weight: SET_BYTES,
            set_header: BUCKET_HEADER_BYTES as u32,
            small_overhead: ENTRY_BYTES as u32,
            large_weight,
            block_weight,
            large_overhead: ENTRY_HEADER_BYTES as u32,
            large_unit: RegionConfig::new(large_weight).unit_bytes,
            admission: self.admission,
            seed,
        }
    }
}

/// Windows that the counted part of a trace is cut into.
const WINDOWS: u64 = 40;
/// The chance that a figure lies outside of its bounds.
const OUTSIDE: f64 = 0.05;

/// How far the engine was measured to be from the simulation, at scales where it has few slabs and puts more of its changes
/// into one write of a set than it would at full size (docs/predict.md).
pub(super) const HITS_OFF: f64 = 0.02;
pub(super) const DRAM_HITS_OFF: f64 = 0.04;
pub(super) const WRITES_LESS: f64 = 0.07;
pub(super) const WRITES_MORE: f64 = 0.04;

/// A simulation of a layout.
pub(super) struct Candidate {
    hybrid: Hybrid,
    /// What is warm after so many accesses, and ends a window.
    ends: Vec<u64>,
    seen: u64,
    /// The counts at each of the ends so far.
    marks: Vec<HybridCounts>,
    /// Sets, and bytes of regions: what must be written before flash is full.
    room: (u64, u64),
}

/// What it foretells of an access.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Traffic {
    /// Gets that hit.
    pub hit_ratio: Option<Figure>,
    /// Those that DRAM had.
    pub hit_ratio_dram: Option<Figure>,
    /// Bytes that the host writes over bytes of the objects taken.
    pub alwa: Option<Figure>,
    /// Bytes that the host writes for an access.
    pub host_bytes: Figure,
    /// Of them, those of sets.
    pub set_bytes: f64,
    /// Pages that are read for an access.
    pub reads: f64,
    /// Whether flash was full when counting began.
    pub is_filled: bool,
}

impl Candidate {
    /// A layout before a trace of so many accesses, of which the first share is not counted.
    pub(super) fn new(rules: HybridRules, accesses: u64, warm_up: f64) -> Self {
        let warm = (accesses as f64 * warm_up) as u64;
        let ends = (0..=WINDOWS).map(|window| warm + (accesses - warm) * window / WINDOWS);
        let mut candidate = Self {
            room: (rules.small_weight / u64::from(SET_BYTES), rules.large_weight),
            hybrid: Hybrid::new(rules),
            ends: ends.collect(),
            seen: 0,
            marks: Vec::new(),
        };
        candidate.mark();
        candidate
    }

    fn mark(&mut self) {
        while self.ends.get(self.marks.len()).is_some_and(|end| *end == self.seen) {
            self.marks.push(self.hybrid.counts());
        }
    }

    fn accesses(&mut self, mut accesses: &[Access]) {
        while !accesses.is_empty() {
            let end = self.ends.get(self.marks.len()).map_or(u64::MAX, |end| end - self.seen);
            let (now, later) = accesses.split_at((accesses.len() as u64).min(end) as usize);
            self.hybrid.run(now);
            self.seen += now.len() as u64;
            self.mark();
            accesses = later;
        }
    }

    /// What came of it; `None` where the trace was not run to its end.
    pub(super) fn traffic(&self, page_bytes: u32) -> Option<Traffic> {
        let (first, last) = (self.marks.first()?, self.marks.get(WINDOWS as usize)?);
        let windows: Vec<HybridCounts> = self.marks.windows(2).map(|pair| pair[1].since(&pair[0])).collect();
        let ratio = |above: fn(&HybridCounts) -> u64, below: fn(&HybridCounts) -> u64| {
            let parts: Vec<(f64, f64)> =
                windows.iter().map(|it| (above(it) as f64, below(it) as f64)).collect();
            let estimate = ratio_of_sums(&parts)?;
            let (low, high) = estimate.within(OUTSIDE);
            Some(Figure { value: estimate.value, low: low.max(0.0), high })
        };
        let hits = |of: fn(&HybridCounts) -> u64, off: f64| {
            ratio(of, |it| it.gets).map(|it| it.widened(off, off).clamp(0.0, 1.0))
        };
        let all = last.since(first);
        // Nobody writes a region once for several.
        let of_sets = set_bytes(&all) as f64 / host_bytes(&all).max(1) as f64;
        let writes = |below: fn(&HybridCounts) -> u64| {
            let all = ratio(host_bytes, below)?;
            Some(all.widened(all.low * WRITES_LESS * of_sets, all.high * WRITES_MORE))
        };
        let accesses = calls(&all) as f64;
        let pages = |bytes: u64| bytes as f64 / f64::from(page_bytes);
        // A large object begins anywhere in a page: it lies in one more than its bytes fill.
        let reads = all.hits_small as f64 + all.hits_large as f64 + pages(all.hit_weight_large);
        Some(Traffic {
            hit_ratio: hits(HybridCounts::hits, HITS_OFF),
            hit_ratio_dram: hits(|it| it.hits_dram, DRAM_HITS_OFF),
            alwa: writes(|it| it.taken_weight),
            host_bytes: writes(calls)?,
            set_bytes: set_bytes(&all) as f64 / accesses,
            reads: reads / accesses,
            is_filled: first.sets_written >= self.room.0 && first.log_weight >= self.room.1,
        })
    }
}

fn calls(counts: &HybridCounts) -> u64 {
    counts.gets + counts.sets + counts.removals
}

fn set_bytes(counts: &HybridCounts) -> u64 {
    counts.sets_written * u64::from(SET_BYTES)
}

fn host_bytes(counts: &HybridCounts) -> u64 {
    set_bytes(counts) + counts.log_weight
}

impl Work for Candidate {
    fn cost(&self) -> u32 {
        1
    }

    fn run(&mut self, batch: &Batch) {
        self.accesses(&batch.accesses);
    }
}
