//! Replays a block trace on the core of the block cache.
//!
//! Each request completes before the next. Cleaning is done between requests, and in each second without requests. Adjacent
//! blocks of a request with the same disk operation are merged into one, and so are the complete blocks of a cleaning. A
//! partially written block stays partial, as in a volume, and is read first only if the limit of partial blocks is reached. A
//! write to the disk covers only the requested bytes.

use std::ops::Range;

use block::sets::{Admit, ConfigError, Counters, Read, Sets, SetsConfig, Slot, Streams, Tuning, Word, Write};
use block::volume::record::Sectors;
use workload::block::{BlockKind, BlockRequest};

use super::disk::{Disk, DiskModel};
use super::partial::PartialBlocks;

/// A block cache over a disk, in virtual time.
pub struct Replay {
    sets: Sets,
    partial: PartialBlocks,
    streams: Streams,
    disk: Disk,
    /// The disk's work without a cache.
    bare: Disk,
    requests: u64,
    /// The disk range that waits to be merged with the next one.
    run: Run,
    /// Second of the last request; `None` before the first.
    seconds: Option<u64>,
    highest_dirty: u64,
}

/// Adjacent bytes that become one disk operation.
#[derive(Debug, Clone, Default)]
struct Run {
    bytes: Range<u64>,
    kind: RunKind,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum RunKind {
    #[default]
    Read,
    Write,
}

/// Results of a replay.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Requests after the warm-up.
    pub requests: u64,
    /// Flashcache's counters.
    pub counters: Counters,
    /// Work of the disk.
    pub disk: Disk,
    /// Work of the disk without a cache.
    pub bare: Disk,
    /// Share of the disk's work that the busier half of the sets causes.
    pub busier_half: f64,
    /// Share of the misses that the busier half of the sets causes.
    pub busier_half_misses: f64,
    /// Missed blocks and cleaned blocks of each set.
    pub by_set: Vec<(u64, u64)>,
    /// Dirty blocks at the end.
    pub dirty_blocks: u64,
    /// Peak of dirty blocks.
    pub highest_dirty_blocks: u64,
    /// Blocks cached at the end.
    pub held_blocks: u64,
}

impl Replay {
    /// Creates an empty cache over an idle disk.
    ///
    /// # Errors
    /// A setting is out of bounds.
    pub fn new(config: SetsConfig, disk: DiskModel) -> Result<Self, ConfigError> {
        Ok(Self {
            sets: Sets::new(config)?,
            partial: PartialBlocks::of(&config.geometry),
            streams: Streams::new(),
            disk: Disk::new(disk),
            bare: Disk::new(disk),
            requests: 0,
            run: Run::default(),
            seconds: None,
            highest_dirty: 0,
        })
    }

    /// The sets of the cache.
    #[must_use]
    pub fn sets(&self) -> &Sets {
        &self.sets
    }

    /// Resets all counters at the end of the warm-up.
    pub fn zero_counts(&mut self) {
        self.sets.zero_counters();
        self.disk.zero();
        self.bare.zero();
        self.requests = 0;
        self.highest_dirty = self.sets.dirty_blocks();
    }

    /// Replays one request.
    pub fn request(&mut self, request: &BlockRequest) {
        self.requests += 1;
        self.pass_time(request.time_ns / 1_000_000_000);
        match request.kind {
            BlockKind::Read => self.read(request),
            BlockKind::Write => self.write(request),
            BlockKind::Discard => self.discard(request),
            BlockKind::Flush => {}
        }
        self.clean();
    }

    /// Results since the counters were reset.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let sets = self.sets.geometry().sets;
        let by_set: Vec<(u64, u64)> = (0..sets)
            .map(|set| self.sets.set(set).operations)
            .map(|it| (it.read_misses + it.write_misses, it.cleaned))
            .collect();
        let mut counters = *self.sets.counters();
        counters.disk_reads = self.disk.reads;
        counters.disk_writes = self.disk.writes;
        Summary {
            requests: self.requests,
            counters,
            disk: self.disk,
            bare: self.bare,
            busier_half: busier_half(by_set.iter().map(|&(missed, cleaned)| missed + cleaned)),
            busier_half_misses: busier_half(by_set.iter().map(|&(missed, _)| missed)),
            by_set,
            dirty_blocks: self.sets.dirty_blocks(),
            highest_dirty_blocks: self.highest_dirty,
            held_blocks: self.sets.held_blocks(),
        }
    }

    /// Advances the time in steps, with the cleaning that becomes due, as a volume does without requests. If nothing is dirty,
    /// the time advances in one step.
    fn pass_time(&mut self, seconds: u64) {
        let Some(mut now) = self.seconds else {
            self.seconds = Some(seconds);
            return self.sets.age(seconds);
        };
        let idle_seconds = self.sets.tuning().idle_seconds;
        // Long enough that each step examines at least one slot, because a gap can be years long.
        let step = u64::from((idle_seconds / self.sets.geometry().slots()).max(1));
        while now < seconds {
            let waits = self.sets.dirty_blocks() > 0 && idle_seconds > 0;
            now = if waits { seconds.min(now + step) } else { seconds };
            self.sets.age(now);
            self.clean();
        }
        self.seconds = Some(now);
    }

    fn admit(&mut self, request: &BlockRequest, limit: fn(&Tuning) -> u64) -> Admit {
        let limit = limit(self.sets.tuning());
        let stream_bytes = self.streams.record(request.first_byte, request.bytes);
        if limit > 0 && stream_bytes > limit { Admit::Sequential } else { Admit::Yes }
    }

    fn read(&mut self, request: &BlockRequest) {
        self.bare.read(request.first_byte, request.bytes);
        let admit = self.admit(request, |tuning| tuning.read_bypass_bytes);
        for block in request.blocks(self.block_bytes()) {
            let fills = match self.sets.read(block, admit) {
                Read::Hit(slot) => {
                    self.sets.counters_mut().ssd_reads += 1;
                    if self.partial.has(slot, &self.part_of(block, request)) {
                        continue;
                    }
                    Some(slot)
                }
                Read::Fill { slot, .. } => Some(slot),
                Read::Around => None,
            };
            if let Some(slot) = fills {
                self.partial.forget(slot);
                self.sets.counters_mut().ssd_writes += 1;
            }
            self.use_disk(RunKind::Read, self.bytes_of(block));
        }
        self.end_run();
    }

    fn write(&mut self, request: &BlockRequest) {
        self.bare.write(request.first_byte, request.bytes);
        let admit = self.admit(request, |tuning| tuning.write_bypass_bytes);
        let alone = self.sets.tuning().mode.keeps_dirty();
        // All slots are assigned first, then the disk is read, then it is written.
        let (mut to_flash, mut to_disk) = (Vec::new(), Vec::new());
        for block in request.blocks(self.block_bytes()) {
            let requested_part = self.part_of(block, request);
            let slot = match self.sets.write(block, admit) {
                Write::Hit(slot) => {
                    to_flash.push((slot, Some(self.partial.begin_write(slot, alone)), block));
                    Some(slot)
                }
                Write::Taken { slot, .. } => {
                    self.partial.forget(slot);
                    to_flash.push((slot, None, block));
                    Some(slot)
                }
                Write::Around(stale) => {
                    self.drop_stale(stale);
                    None
                }
            };
            if let Some(slot) = slot.filter(|_| alone) {
                self.sets.mark_dirty(slot);
            } else {
                to_disk.push(requested_part);
            }
        }
        for (slot, old, block) in to_flash {
            self.write_flash(slot, old, block, &self.part_of(block, request));
        }
        self.partial.end_writes();
        to_disk.into_iter().for_each(|bytes| self.use_disk(RunKind::Write, bytes));
        self.end_run();
        self.highest_dirty = self.highest_dirty.max(self.sets.dirty_blocks());
    }

    /// Writes the bytes to flash. `old` are the valid sectors of the slot. The rest of the block is read from the disk if it
    /// cannot stay invalid.
    fn write_flash(&mut self, slot: Slot, old: Option<Sectors>, block: u64, bytes: &Range<u64>) {
        let whole = self.bytes_of(block);
        if old.is_some() && *bytes != whole {
            self.sets.counters_mut().ssd_reads += 1;
        }
        if self.partial.write(slot, old.unwrap_or_default(), bytes) {
            self.disk.read(whole.start, whole.end - whole.start);
        }
        self.sets.counters_mut().ssd_writes += 1;
    }

    /// Removes the blocks that are discarded completely; others stay cached.
    fn discard(&mut self, request: &BlockRequest) {
        let block_bytes = u64::from(self.block_bytes());
        let whole = request.first_byte.div_ceil(block_bytes)..request.end_byte() / block_bytes;
        // A discard of a whole disk covers more blocks than the cache has.
        let held: Vec<Slot> =
            if whole.end.saturating_sub(whole.start) > u64::from(self.sets.geometry().slots()) {
                let lies_within = |word: Word| word.block().is_some_and(|block| whole.contains(&block));
                self.sets.held().filter(|&(_, word)| lies_within(word)).map(|(slot, _)| slot).collect()
            } else {
                whole.filter_map(|block| self.sets.find(block)).collect()
            };
        for slot in held {
            self.drop_stale(Some(slot));
            self.sets.counters_mut().trim_blocks += 1;
        }
    }

    fn drop_stale(&mut self, slot: Option<Slot>) {
        if let Some(slot) = slot {
            assert!(self.sets.forget(slot), "no request is in flight");
            self.partial.forget(slot);
        }
    }

    fn clean(&mut self) {
        while let Some(cleaning) = self.sets.next_cleaning() {
            self.sets.counters_mut().ssd_reads += cleaning.slots.len() as u64;
            for (block, &slot) in (cleaning.first_block..).zip(&cleaning.slots) {
                let runs = self.partial.runs(slot, block);
                runs.for_each(|bytes| self.use_disk(RunKind::Write, bytes));
            }
            self.end_run();
            self.sets.end_cleaning(&cleaning, true);
        }
    }

    fn use_disk(&mut self, kind: RunKind, bytes: Range<u64>) {
        if !self.run.bytes.is_empty() && self.run.kind == kind && self.run.bytes.end == bytes.start {
            self.run.bytes.end = bytes.end;
            return;
        }
        self.end_run();
        self.run = Run { bytes, kind };
    }

    fn end_run(&mut self) {
        let Run { bytes, kind } = std::mem::take(&mut self.run);
        match kind {
            _ if bytes.is_empty() => {}
            RunKind::Read => self.disk.read(bytes.start, bytes.end - bytes.start),
            RunKind::Write => self.disk.write(bytes.start, bytes.end - bytes.start),
        }
    }

    fn bytes_of(&self, block: u64) -> Range<u64> {
        let block_bytes = u64::from(self.block_bytes());
        block * block_bytes..(block + 1) * block_bytes
    }

    /// The part of `block` that `request` covers.
    fn part_of(&self, block: u64, request: &BlockRequest) -> Range<u64> {
        let whole = self.bytes_of(block);
        whole.start.max(request.first_byte)..whole.end.min(request.end_byte())
    }

    fn block_bytes(&self) -> u32 {
        self.sets.geometry().block_bytes
    }
}

/// Share of the work of the busier half of the sets; with an odd number the middle one counts half.
fn busier_half(work: impl Iterator<Item = u64>) -> f64 {
    let mut work: Vec<u64> = work.collect();
    let all: u64 = work.iter().sum();
    work.sort_unstable_by(|a, b| b.cmp(a));
    let half: u64 = work[..work.len() / 2].iter().sum();
    let middle = if work.len() % 2 == 1 { work[work.len() / 2] as f64 / 2.0 } else { 0.0 };
    if all == 0 { 0.5 } else { (half as f64 + middle) / all as f64 }
}

#[cfg(test)]
mod tests {
    use block::sets::Preset;

    use super::*;

    fn replay(config: SetsConfig) -> Replay {
        Replay::new(config, DiskModel::default()).unwrap()
    }

    fn ask(kind: BlockKind, first_byte: u64, bytes: u64) -> BlockRequest {
        BlockRequest { time_ns: 0, kind, first_byte, bytes }
    }

    #[test]
    fn read_merges_adjacent_misses_and_is_split_by_hits() {
        let mut replay = replay(Preset::V2.config(4 << 20));
        replay.request(&ask(BlockKind::Read, 4096, 4096));
        assert_eq!(replay.disk.reads, 1);
        replay.request(&ask(BlockKind::Read, 0, 16384));
        assert_eq!(replay.disk.reads, 3, "block 1 is cached, so block 0, and blocks 2 and 3");
        let summary = replay.summary();
        assert_eq!((summary.counters.reads, summary.counters.read_hits), (5, 1));
        assert_eq!(summary.bare.reads, 2);
    }

    #[test]
    fn partial_block_is_filled_from_disk_on_read_of_missing_sectors() {
        let mut replay = replay(Preset::V2.config(4 << 20));
        replay.request(&ask(BlockKind::Write, 512, 512));
        replay.request(&ask(BlockKind::Write, 1024, 512));
        replay.request(&ask(BlockKind::Read, 512, 1024));
        assert_eq!((replay.disk.reads, replay.disk.writes), (0, 0));
        replay.request(&ask(BlockKind::Read, 0, 1024));
        replay.request(&ask(BlockKind::Read, 0, 4096));
        assert_eq!(replay.disk.reads, 1, "the block is complete now");
    }

    #[test]
    fn partial_blocks_beyond_the_limit_are_read_first() {
        let mut replay = replay(Preset::V2.config(4 << 20));
        (0..40).for_each(|block| replay.request(&ask(BlockKind::Write, block * 8192, 512)));
        assert_eq!(replay.disk.reads, 40 - 1024 / 32);
        replay.request(&ask(BlockKind::Write, 4096, 100));
        assert_eq!(replay.disk.reads, 9, "the write is not aligned to sectors");
        replay.request(&ask(BlockKind::Write, 4096, 100));
        assert_eq!(replay.disk.reads, 9, "the block is complete");
    }

    #[test]
    fn cleaning_of_partial_block_writes_only_valid_sectors() {
        let mut config = Preset::V2.config(4 << 20);
        config.tuning.dirty_percent = 0;
        config.tuning.mode = block::sets::Mode::WriteBack;
        let mut replay = replay(config);
        replay.request(&ask(BlockKind::Write, 3584, 1024));
        assert_eq!((replay.disk.writes, replay.disk.written_bytes, replay.disk.reads), (1, 1024, 0));
    }

    /// Each request writes half a block; the disk must not write whole blocks, nor seek back for the second half.
    #[test]
    fn write_through_and_around_write_only_requested_bytes() {
        let mut through = Preset::V2.config(4 << 20);
        through.tuning.mode = block::sets::Mode::WriteThrough;
        let mut around = through;
        around.tuning.mode = block::sets::Mode::WriteAround;
        for config in [around, through] {
            let mut replay = replay(config);
            (0..64).for_each(|part| replay.request(&ask(BlockKind::Write, part * 2048, 2048)));
            let Summary { disk, bare, .. } = replay.summary();
            assert_eq!((disk.writes, disk.written_bytes, disk.reads), (64, 64 * 2048, 0));
            assert_eq!(disk.busy_ns, bare.busy_ns);
        }
    }

    #[test]
    fn dirty_blocks_above_the_threshold_are_cleaned_with_their_neighbours() {
        let mut replay = replay(Preset::V2.config(2 << 20));
        // 20 % of 512 blocks are 102. The 103rd starts a cleaning, which includes the neighbours of the oldest block.
        (0..102).for_each(|block| replay.request(&ask(BlockKind::Write, block * 8192, 4096)));
        assert_eq!(replay.disk.writes, 0);
        replay.request(&ask(BlockKind::Write, 4096, 4096));
        assert_eq!((replay.disk.writes, replay.disk.written_bytes), (1, 3 * 4096));
        assert_eq!(replay.summary().counters.back_merge, 2);
    }

    /// Idle time before and between requests allows cleaning, however long it is.
    #[test]
    fn idle_dirty_blocks_are_cleaned_during_gaps_between_requests() {
        let outcome = |seconds: &[u64]| {
            let mut replay = replay(Preset::V3.config(64 << 20));
            let mut ask_at = |seconds: u64, kind, first_byte| {
                replay.request(&BlockRequest {
                    time_ns: seconds * 1_000_000_000,
                    kind,
                    first_byte,
                    bytes: 4096,
                });
            };
            (0..1000).for_each(|block| ask_at(77, BlockKind::Write, block * 8192));
            seconds.iter().for_each(|&seconds| ask_at(seconds, BlockKind::Read, 8 << 30));
            ask_at(10_000, BlockKind::Write, 0);
            let Summary { counters, dirty_blocks, .. } = replay.summary();
            (counters.fallow_cleanings, counters.dirty_write_hits, dirty_blocks)
        };
        assert_eq!(outcome(&[]), (1000, 0, 1));
        assert_eq!(
            outcome(&(78..10_000).collect::<Vec<_>>()),
            (1000, 0, 1),
            "the same as with a request in each second"
        );
    }

    #[test]
    fn pass_time_over_500_years_is_fast() {
        let mut config = Preset::V3.config(2 << 20);
        config.tuning.idle_seconds = u32::MAX;
        let mut replay = replay(config);
        for years in [0, 500] {
            let time_ns = years * 365 * 86_400 * 1_000_000_000;
            replay.request(&BlockRequest { time_ns, ..ask(BlockKind::Write, years << 20, 4096) });
        }
        let Summary { counters, dirty_blocks, .. } = replay.summary();
        assert_eq!((counters.fallow_cleanings, dirty_blocks), (1, 1));
    }

    #[test]
    fn discard_removes_whole_blocks_without_writing_dirty_ones() {
        let mut replay = replay(Preset::V3.config(2 << 20));
        replay.request(&ask(BlockKind::Write, 0, 8192));
        replay.request(&ask(BlockKind::Discard, 0, 6000));
        assert_eq!((replay.sets.held_blocks(), replay.sets.dirty_blocks()), (1, 1));
        assert_eq!(replay.disk.operations(), 0);
    }

    #[test]
    fn write_to_the_last_allowed_sector_is_cached() {
        let mut config = Preset::V3.config(2 << 20);
        config.geometry.block_bytes = 512;
        let mut replay = replay(config);
        replay.request(&ask(BlockKind::Write, (1 << 53) - 1024, 512));
        assert_eq!(replay.sets.dirty_blocks(), 1);
    }

    #[test]
    fn discard_of_whole_disk_scans_only_cached_blocks() {
        let mut replay = replay(Preset::V2.config(2 << 20));
        (1..4).for_each(|block| replay.request(&ask(BlockKind::Write, block * 4096, 4096)));
        replay.request(&ask(BlockKind::Discard, 4097, 1 << 53));
        assert_eq!((replay.sets.held_blocks(), replay.summary().counters.trim_blocks), (1, 2));
    }

    #[test]
    fn busier_half_has_the_share_of_the_busiest_sets() {
        assert!((busier_half([1, 1, 1, 1].into_iter()) - 0.5).abs() < 1e-12);
        assert!((busier_half([4, 0, 0, 4].into_iter()) - 1.0).abs() < 1e-12);
        assert!((busier_half([2, 2, 2].into_iter()) - 0.5).abs() < 1e-12);
    }
}
