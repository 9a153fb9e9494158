//! Cleaning: writing dirty blocks to the disk.
//!
//! The sets select runs of adjacent blocks. A batch of runs is written in disk order and flushed once. Then its blocks are clean,
//! unless they were rewritten meanwhile. Writes do not wait for cleaning: a rewritten block gets another page, and the
//! disk gets the complete older version.
//!
//! A block must be committed, or durable by the intent log, before it is written to the disk: otherwise recovery could restore a clean
//! copy that is older than the disk's (rule 4 in the [parent module](super)). Blocks are cleaned oldest first, so most are.

mod order;
mod slot_wait;

use std::collections::HashSet;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use device::{IoBuffer, IoSlice};
use event_listener::Event;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;

use super::disk_io::{DiskIo, DiskWrite};
use super::error::{Result, VolumeError, VolumeErrorKind};
use super::journal::Committer;
use super::pace::Pace;
use super::page_map::FlashCopy;
use super::ranges::{RangeGuard, RangeLock};
use super::segment::{Part, runs};
use super::shared::Shared;
use super::state::State;
use super::work::Work;
use crate::sets::{Cleaning, Slot};

pub(super) use slot_wait::QueuedWrite;

/// Runs that share a flush of the disk, at most.
const RUNS_PER_BATCH: usize = 32;

/// Approximate limit of bytes that are written concurrently.
const MAX_CONCURRENT_BYTES: usize = 64 << 20;

/// Blocks of a failed run that are retried one by one before the rest is given up for now.
const MAX_RETRIED_BLOCKS: usize = 8;

/// Interval at which paused cleaning checks the latency gate.
const PAUSE_NS: u64 = 5_000_000;

/// Cleaning leaves the commit to clients if one of them flushed within this time.
const CLIENTS_FLUSH_NS: u64 = 1_000_000_000;

/// Cleans and destages dirty blocks, at the rate that the latency gate permits.
pub(super) struct Cleaner {
    shared: Arc<Shared>,
    committer: Arc<Committer>,
    disk_io: Arc<DiskIo>,
    /// A mutex (the range 0..1) held by the batch of dirty blocks that is being written to the disk.
    turn: Arc<RangeLock>,
    /// A mutex (the range 0..1) held while the oldest epoch is written to the disk.
    destager: Arc<RangeLock>,
    pace: Mutex<Pace>,
    /// Whether latencies are measured for [`Pace`].
    is_paced: AtomicBool,
    /// Notified when a cleaning ends, for writes in the [slot queue](super::slot_queue).
    slots_freed: Event,
}

/// A block being cleaned.
#[derive(Debug, Clone)]
struct DirtyBlock {
    slot: Slot,
    block: u64,
    copy: FlashCopy,
}

/// A run being cleaned. Dropping it returns its blocks to the sets.
struct Run {
    cleaner: Arc<Cleaner>,
    cleaning: Option<Cleaning>,
    blocks: Vec<DirtyBlock>,
    /// Slots that could not be read or written.
    failed: HashSet<Slot>,
}

/// The runs of the next batch.
struct Gathered {
    runs: Vec<Run>,
    /// The change that must be committed first, if any.
    uncommitted: Option<u64>,
    /// Concurrent runs. Only one if no request waits for them, because the disk also serves clients.
    concurrent_runs: usize,
    /// Whether a write waits for slots.
    is_urgent: bool,
}

/// The result of a batch of runs.
#[derive(Default)]
pub(super) struct Batch {
    /// Blocks that were cleaned or found rewritten.
    pub(super) cleaned: usize,
    /// The error that prevented the others from being cleaned.
    pub(super) failed: Option<VolumeError>,
}

impl Cleaner {
    pub(super) fn new(shared: Arc<Shared>, committer: Arc<Committer>, disk_io: Arc<DiskIo>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            committer,
            disk_io,
            turn: Arc::default(),
            destager: Arc::default(),
            pace: Mutex::default(),
            is_paced: AtomicBool::new(false),
            slots_freed: Event::new(),
        })
    }

    /// Waits until no epoch is being written to the disk.
    pub(super) async fn lock_destaging(&self) -> RangeGuard {
        self.destager.lock(0..1).await
    }

    /// Sets the latency gate in milliseconds; 0 disables it.
    pub(super) fn set_latency_gate(&self, gate_ms: u32) {
        self.pace.lock().set_gate(u64::from(gate_ms) * 1_000_000);
        self.is_paced.store(gate_ms > 0, Relaxed);
    }

    pub(super) fn begin_measure(&self) -> Option<u64> {
        self.is_paced.load(Relaxed).then(|| self.shared.timer.monotonic_ns())
    }

    pub(super) fn end_measure(&self, begun_ns: Option<u64>) {
        if let Some(begun_ns) = begun_ns {
            let now_ns = self.shared.timer.monotonic_ns();
            self.pace.lock().note(now_ns, now_ns.saturating_sub(begun_ns));
        }
    }

    /// 99th percentile of recent latencies, and estimated seconds to clean `blocks`.
    pub(super) fn rates(&self, blocks: u64) -> (Option<u64>, Option<f64>) {
        let pace = self.pace.lock();
        (pace.p99_ns(), pace.seconds_for(blocks))
    }

    /// Cleans the blocks that the sets select, up to one flush of the disk. A block that cannot be read or written does not stop
    /// the others.
    pub(super) async fn clean_batch(self: &Arc<Self>) -> Result<Batch> {
        if self.shared.identity.is_ordered() {
            return Ok(Batch { cleaned: self.destage_as_needed().await?, failed: None });
        }
        if self.must_pause() {
            device::timer::sleep(&*self.shared.timer, PAUSE_NS).await;
            return Ok(Batch::default());
        }
        let work = Work::new(&self.shared, None);
        let gathered = self.gather(&work);
        if gathered.runs.is_empty() {
            return Ok(Batch::default());
        }
        if let Some(change) = gathered.uncommitted {
            self.committer.commit(change).await?;
        }
        // Batches run one after the other: concurrent ones would end together and leave the disk idle.
        let turn = self.turn.lock(0..1).await;
        let (begun_ns, failed_before) = (self.shared.timer.monotonic_ns(), self.shared.disk.flushes_failed());
        let (written, batch) = self.write_runs(gathered).await?;
        drop(turn);
        if batch.cleaned > 0 {
            self.disk_io.flush_since(failed_before).await?;
        }
        self.pace.lock().cleaned(batch.cleaned, self.shared.timer.monotonic_ns().saturating_sub(begun_ns));
        let uncleanable = uncleanable_sets(&written);
        for run in written {
            self.end_run(run, batch.failed.as_ref()).await?;
        }
        self.shared.state.lock().slot_queue.mark_futile(|set| uncleanable.contains(&set));
        self.slots_freed.notify(usize::MAX);
        self.shared.changed.notify(usize::MAX);
        Ok(batch)
    }

    /// Writes runs in disk order. Returns those that ended, and their result. When the latency gate closes, no further run begins,
    /// and the remaining ones return to their sets.
    async fn write_runs(self: &Arc<Self>, gathered: Gathered) -> Result<(Vec<Run>, Batch)> {
        let Gathered { mut runs, concurrent_runs, is_urgent, .. } = gathered;
        runs.sort_by_key(|run| run.blocks.first().map(|dirty| dirty.block));
        let has_uncommitted = runs.iter().any(|run| !run.failed.is_empty());
        let failed = has_uncommitted.then(|| self.shared.state.lock().health.error());
        let (mut written, mut batch) = (Vec::with_capacity(runs.len()), Batch { cleaned: 0, failed });
        let mut writes = runs.into_iter().map(|mut run| async move {
            let result = self.write_run(&mut run).await;
            (run, result)
        });
        let is_stopped = AtomicBool::new(false);
        let next = || if is_stopped.load(Relaxed) { None } else { writes.next() };
        let mut writes = pin!(stream::iter(std::iter::from_fn(next)).buffer_unordered(concurrent_runs));
        while let Some((run, result)) = writes.next().await {
            match result {
                Err(error) if error.kind() == VolumeErrorKind::Closed => return Err(error),
                Err(error) => batch.failed = batch.failed.or(Some(error)),
                Ok(()) => {}
            }
            batch.cleaned += run.blocks.len() - run.failed.len();
            written.push(run);
            if !is_urgent && self.must_pause() {
                is_stopped.store(true, Relaxed);
            }
        }
        Ok((written, batch))
    }

    /// Ends a run as soon as the journal has space for its records.
    async fn end_run(self: &Arc<Self>, run: Run, failed: Option<&VolumeError>) -> Result<()> {
        loop {
            let listener = self.shared.changed.listen();
            let change = {
                let mut state = self.shared.state.lock();
                if state.has_space_for_changes(run.blocks.len()) {
                    run.end(&mut state, failed);
                    return Ok(());
                }
                state.journal.space_freeing_change()
            };
            match change {
                Some(change) => self.committer.commit(change).await?,
                None => listener.await,
            }
        }
    }

    /// Selects the next runs and keeps their pages from being reused.
    fn gather(self: &Arc<Self>, work: &Arc<Work>) -> Gathered {
        // Declared before the lock, because dropping a run locks the state.
        let mut skipped = Vec::new();
        let mut state = self.shared.state.lock();
        let is_urgent = !state.slot_queue.is_empty();
        let cleanings =
            if is_urgent { state.next_for_waiting_writes() } else { state.next_cleanings(RUNS_PER_BATCH) };
        let waits_for_clients = !is_urgent && self.clients_commit_soon(&state);
        let (mut runs, mut all_committed) = (Vec::with_capacity(cleanings.len()), true);
        for cleaning in cleanings {
            let mut run = Run::new(self, cleaning, &state);
            let uncommitted = run.uncommitted_slots(&state);
            if waits_for_clients && !uncommitted.is_empty() {
                skipped.push(run);
                continue;
            }
            all_committed &= uncommitted.is_empty();
            run.blocks.iter().for_each(|dirty| work.read_page(&mut state, dirty.copy.page));
            // A failed flash accepts no commit, so uncommitted blocks must stay dirty.
            if state.health.has_failed() {
                run.failed = uncommitted;
            }
            runs.push(run);
        }
        // A commit in flight may fail, so it is awaited; later changes are not.
        let running = state.journal.in_flight();
        let uncommitted = (!all_committed && (state.health.is_healthy() || running.is_some()))
            .then(|| state.journal.last_change());
        let longest = runs.iter().map(|run| run.blocks.len()).max().unwrap_or(0);
        let is_awaited = is_urgent || state.drains.have_callers();
        let concurrent_runs = if is_awaited {
            concurrent_runs_for(longest * self.shared.layout.block_bytes as usize)
        } else {
            1
        };
        Gathered { runs, uncommitted: uncommitted.or(running), concurrent_runs, is_urgent }
    }

    /// Whether clients flush so often that uncommitted blocks will be committed soon, which saves a flush for cleaning alone. Not
    /// if a caller waits for these blocks.
    pub(super) fn clients_commit_soon(&self, state: &State) -> bool {
        let since = |flushed_ns| self.shared.timer.monotonic_ns().saturating_sub(flushed_ns);
        let is_flushed_often =
            state.journal.client_flushed_ns().map(since).is_some_and(|ns| ns < CLIENTS_FLUSH_NS);
        is_flushed_often && !state.drains.have_callers() && state.health.is_healthy()
    }

    /// Commits if the journal may lack space for changes of `blocks` more blocks.
    pub(super) async fn commit_for_space(self: &Arc<Self>, blocks: usize) -> Result<()> {
        let change = {
            let state = self.shared.state.lock();
            (!state.has_space_for_changes(blocks)).then(|| state.journal.last_change())
        };
        match change {
            Some(change) => self.committer.commit(change).await,
            None => Ok(()),
        }
    }

    /// Writes a run to the disk and adds the blocks that fail to `run.failed`.
    async fn write_run(self: &Arc<Self>, run: &mut Run) -> Result<()> {
        let (Some(first), Some(last)) = (run.blocks.first(), run.blocks.last()) else { return Ok(()) };
        let range = self.disk_io.lock(first.block..last.block + 1).await;
        let work = Work::new(&self.shared, Some(range));
        let blocks = {
            let state = self.shared.state.lock();
            // A closed volume has recorded checksums of its disk, which must not change.
            state.health.check_open()?;
            // Some blocks may have been rewritten meanwhile.
            let mut blocks = run.unchanged(&state);
            blocks.retain(|dirty| !run.failed.contains(&dirty.slot));
            blocks
        };
        let copies: Vec<_> = blocks.iter().map(|dirty| (dirty.block, dirty.copy)).collect();
        let Err(first_error) = self.write_copies(&work, &copies).await else { return Ok(()) };
        let mut is_futile = copies.len() < 2;
        for (dirty, copy) in blocks.iter().zip(&copies) {
            if !is_futile {
                match self.write_copies(&work, std::slice::from_ref(copy)).await {
                    Ok(()) => continue,
                    // A disk that fails every write is not tried for each block.
                    Err(error) if error.kind() == VolumeErrorKind::Disk => {
                        is_futile = run.failed.len() >= MAX_RETRIED_BLOCKS;
                    }
                    Err(_) => {}
                }
            }
            run.failed.insert(dirty.slot);
        }
        Err(first_error)
    }

    /// Writes blocks to the disk in order, adjacent ones together. The caller's `work` keeps their pages.
    pub(super) async fn write_copies(
        self: &Arc<Self>,
        work: &Arc<Work>,
        blocks: &[(u64, FlashCopy)],
    ) -> Result<()> {
        let whole = 0..self.shared.layout.block_bytes as usize;
        let part = |&(block, copy): &(u64, FlashCopy)| (Part { block, within: whole.clone(), at: 0 }, copy);
        let pages = self.shared.read_copies_of(work, blocks.iter().map(part).collect()).await?;
        for extent in self.extents_of(blocks) {
            let bytes = self.bytes_of_extent(&extent, blocks, &pages);
            self.disk_io.write(work, DiskWrite::Cleaning, extent.start, bytes).await?;
        }
        Ok(())
    }

    /// Whether the latency gate requires a pause. Never while a write waits for cleaning.
    fn must_pause(&self) -> bool {
        !self.shared.state.lock().has_waiting_writes()
            && self.pace.lock().must_pause(self.shared.timer.monotonic_ns())
    }

    /// Waits until the latency gate permits cleaning.
    pub(super) async fn pause(&self) {
        while self.must_pause() {
            device::timer::sleep(&*self.shared.timer, PAUSE_NS).await;
        }
    }

    /// Byte extents of the disk that the blocks' sectors cover.
    fn extents_of(&self, blocks: &[(u64, FlashCopy)]) -> Vec<Range<u64>> {
        let sector = u64::from(super::SECTOR_BYTES);
        let sectors = blocks.iter().flat_map(|&(block, copy)| {
            let start = block * u64::from(self.shared.layout.block_bytes);
            let there = copy.partial.unwrap_or(self.shared.grid.whole(block));
            let to_bytes = move |run: Range<u32>| {
                start + u64::from(run.start) * sector..start + u64::from(run.end) * sector
            };
            there.runs().map(to_bytes).collect::<Vec<_>>()
        });
        let sectors: Vec<Range<u64>> = sectors.collect();
        let joined = runs(&sectors, |one, next| one.end == next.start);
        joined.into_iter().map(|run| sectors[run.start].start..sectors[run.end - 1].end).collect()
    }

    fn bytes_of_extent(
        &self,
        extent: &Range<u64>,
        blocks: &[(u64, FlashCopy)],
        pages: &[IoSlice],
    ) -> IoSlice {
        let block_bytes = u64::from(self.shared.layout.block_bytes);
        let mut bytes = IoBuffer::zeroed((extent.end - extent.start) as usize);
        for ((block, _), page) in blocks.iter().zip(pages) {
            let start = block * block_bytes;
            let (from, to) = (extent.start.max(start), extent.end.min(start + block_bytes));
            if from < to {
                let place = (from - extent.start) as usize..(to - extent.start) as usize;
                bytes[place].copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
            }
        }
        bytes.into()
    }
}

impl Run {
    fn new(cleaner: &Arc<Cleaner>, cleaning: Cleaning, state: &State) -> Self {
        let dirty = |&slot: &Slot| {
            let (copy, block) = (state.map.copy(slot)?, state.sets.word(slot).block()?);
            Some(DirtyBlock { slot, block, copy })
        };
        let blocks = cleaning.slots.iter().filter_map(dirty).collect();
        Self { cleaner: Arc::clone(cleaner), cleaning: Some(cleaning), blocks, failed: HashSet::new() }
    }

    /// The blocks that are neither in a commit nor durable by the intent log.
    fn uncommitted_slots(&self, state: &State) -> HashSet<Slot> {
        let has_uncommitted = |dirty: &&DirtyBlock| !state.journal.is_committed(dirty.copy.page);
        self.blocks.iter().filter(has_uncommitted).map(|dirty| dirty.slot).collect()
    }

    /// The blocks that were not rewritten.
    fn unchanged(&self, state: &State) -> Vec<DirtyBlock> {
        let is_same =
            |dirty: &&DirtyBlock| state.map.copy(dirty.slot).is_some_and(|copy| copy.page == dirty.copy.page);
        self.blocks.iter().filter(is_same).cloned().collect()
    }

    /// Marks the blocks as clean, except those that failed.
    fn end(mut self, state: &mut State, failed: Option<&VolumeError>) {
        let Some(cleaning) = self.cleaning.take() else { return };
        if self.failed.iter().any(|&slot| state.sets.is_in_drain(slot)) {
            state.drains.fail(failed.cloned());
        }
        state.sets.end_cleaning_of(&cleaning, |slot| !self.failed.contains(&slot));
        for dirty in self.unchanged(state) {
            if !state.sets.word(dirty.slot).is_dirty() {
                state.record_clean(dirty.slot);
            }
        }
    }
}

/// Concurrent runs for a given length of the longest one.
fn concurrent_runs_for(longest_bytes: usize) -> usize {
    (MAX_CONCURRENT_BYTES / longest_bytes.max(1)).clamp(1, RUNS_PER_BATCH)
}

/// Sets whose runs all failed completely.
fn uncleanable_sets(runs: &[Run]) -> HashSet<u32> {
    let sets = |has_failed: bool| {
        let is_so = move |run: &&Run| (run.failed.len() == run.blocks.len()) == has_failed;
        runs.iter()
            .filter(is_so)
            .filter_map(|run| Some(run.cleaning.as_ref()?.set()))
            .collect::<HashSet<u32>>()
    };
    &sets(true) - &sets(false)
}

impl Drop for Run {
    /// Called with `cleaning` still set if the run failed, or its future was dropped.
    fn drop(&mut self) {
        if let Some(cleaning) = self.cleaning.take() {
            self.cleaner.shared.state.lock().sets.end_cleaning(&cleaning, false);
            self.cleaner.slots_freed.notify(usize::MAX);
            self.cleaner.shared.changed.notify(usize::MAX);
        }
    }
}
