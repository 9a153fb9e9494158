//! Bringing dirty blocks to the disk.
//!
//! The sets say which blocks, in runs of neighbours. A batch of runs is written in the order of the disk and flushed
//! once; then its blocks are clean, unless they were written again meanwhile. Nothing waits for it: a write of a block
//! on its way takes another page, and what goes to the disk is the older version, in one piece.
//!
//! What goes to the disk must have been committed: else a crash would bring back a clean copy older than the disk (rule 4
//! in the [parent module](super)). It usually is; what is oldest is cleaned first.

use std::collections::HashSet;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use device::{IoBuffer, IoSlice};
use futures_util::{StreamExt, stream};

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::journal::notes::why_unhealthy;
use super::piece::{Part, runs};
use super::state::{Copy, State};
use super::trouble::DiskTask;
use super::work::Work;
use super::write::DiskWrite;
use super::{Health, Shared, Volume};
use crate::sets::{Cleaning, Slot, Tuning};

/// Runs that share a flush of the disk, at most.
const RUNS_PER_BATCH: usize = 32;

/// Bytes of runs that are written side by side, about.
const MOST_BYTES_AT_ONCE: usize = 64 << 20;

/// Blocks of a run that the disk does not take, of which each is tried by itself before the rest is given up for now.
const MOST_BAD: usize = 8;

/// Batches in a row of which nothing can be cleaned, before the cleaning of everything is given up.
const MOST_IN_VAIN: u32 = 16;

/// How long the upkeep sleeps when there is nothing to do.
const IDLE_NS: u64 = 20_000_000;

/// How long cleaning waits before it looks again whether clients have been held up too much.
const PAUSE_NS: u64 = 5_000_000;

/// Clients who had something made durable within this long will again before cleaning has to do it for them.
const CLIENTS_FLUSH_NS: u64 = 1_000_000_000;

/// How long it waits after a failure of the disk.
const FAILURE_NS: u64 = 1_000_000_000;

/// A block on its way.
#[derive(Debug, Clone)]
struct Leaving {
    slot: Slot,
    block: u64,
    copy: Copy,
}

/// A run on its way; ended in any case.
struct Run {
    shared: Arc<Shared>,
    cleaning: Option<Cleaning>,
    blocks: Vec<Leaving>,
    /// Of those that could not be read or written.
    failed: HashSet<Slot>,
}

/// What is to be written next.
struct Gathered {
    runs: Vec<Run>,
    /// The change to be committed first, if some is not.
    uncommitted: Option<u64>,
    /// Runs to be written side by side. One where nobody waits for them: the disk has others to serve.
    at_once: usize,
    /// Whether somebody waits for room.
    is_urgent: bool,
}

/// What became of the runs that shared a flush.
#[derive(Default)]
pub(super) struct Batch {
    /// Blocks cleaned or found rewritten.
    pub(super) cleaned: usize,
    /// What kept others from being cleaned.
    pub(super) failed: Option<VolumeError>,
}

impl Volume {
    /// Does the background work until the volume is closed: tables when the journal fills, cleaning as the tuning asks. To be
    /// driven by a thread or task of its own.
    pub async fn run_upkeep(&self) {
        loop {
            let pause_ns = match self.upkeep().await {
                Ok(true) => 0,
                Ok(false) => IDLE_NS,
                Err(error) if error.kind() == VolumeErrorKind::Closed => return,
                // It is counted, and the state says so; what failed stays to be done.
                Err(_) => FAILURE_NS,
            };
            if pause_ns > 0 {
                device::timer::sleep(&*self.shared.timer, pause_ns).await;
            }
        }
    }

    /// One step of it. False if there was nothing to do.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Closed`] when the volume is closed, and the devices' failures.
    pub async fn upkeep(&self) -> Result<bool> {
        let table_due = {
            let mut state = self.shared.state.lock();
            self.shared.check_open(&state)?;
            state.sets.age(self.shared.timer.monotonic_ns() / 1_000_000_000);
            state.journal.is_half_full() && state.health == Health::Healthy
        };
        let table = if table_due { self.shared.write_table_if_needed().await } else { Ok(()) };
        // What a table that cannot be written does not concern goes to the disk all the same.
        let Batch { cleaned, failed } = self.shared.clean_batch().await?;
        table?;
        self.shared.confirm_last_commit();
        match failed {
            Some(error) if cleaned == 0 => Err(error),
            _ => Ok(cleaned > 0 || table_due),
        }
    }

    /// Brings everything that is dirty to the disk. What is written meanwhile may stay dirty. When the future is dropped it ends
    /// with what is under way, unless somebody else waits for the same.
    ///
    /// # Errors
    /// The devices' failures; what they did not concern is cleaned.
    pub async fn clean(&self) -> Result<()> {
        let shared = &self.shared;
        shared.check_open(&shared.state.lock())?;
        if shared.is_ordered() {
            return shared.destage_all().await;
        }
        let (_asked, failed_before) = {
            let mut state = shared.state.lock();
            state.sets.owe_everything();
            state.cleans_asked_for += 1;
            (AskedFor(shared), state.cleanings_failed)
        };
        let mut in_vain = 0;
        loop {
            let owed = {
                let state = shared.state.lock();
                shared.check_open(&state)?;
                state.sets.owed_blocks()
            };
            if owed == 0 {
                break;
            }
            let Batch { cleaned, failed } = shared.clean_batch().await?;
            match failed {
                Some(error) if cleaned == 0 && in_vain == MOST_IN_VAIN => return Err(error),
                Some(_) if cleaned == 0 => in_vain += 1,
                _ => in_vain = 0,
            }
            // Nothing to begin although something is dirty: it is in use, or on its way with somebody else.
            if cleaned == 0 {
                device::timer::sleep(&*shared.timer, 1_000_000).await;
            }
        }
        let (change, failed) = {
            let state = shared.state.lock();
            let failed = (state.cleanings_failed > failed_before).then(|| state.cleaning_failure.clone());
            (state.changes.number(), failed.flatten())
        };
        shared.commit(change).await?;
        failed.map_or(Ok(()), Err)
    }

    /// Changes how the cache behaves; the superblock remembers it.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Config`] if a setting is out of bounds, and the devices' failures.
    pub async fn set_tuning(&self, tuning: Tuning) -> Result<()> {
        let shared = &self.shared;
        if shared.is_ordered() && !tuning.mode.keeps_dirty() {
            let why = "an ordered cache must be write-back or write-only: other modes have no order to keep";
            return Err(VolumeError::new(VolumeErrorKind::Config, why));
        }
        // Whether clean blocks survive a crash depends on the mode: no write may fall between the old and the new one.
        let work = Work::new(shared, Some(shared.blocks.lock(0..u64::MAX).await));
        shared.check_open(&shared.state.lock())?;
        let target = shared.state.lock().changes.number();
        // Before the keeper's range is held: the commit may need a table first, which is the keeper's.
        shared.commit(target).await?;
        work.hold_range(shared.keeper.lock(0..1).await);
        let old = {
            let mut state = shared.state.lock();
            // The commit has told it nothing then, and it may say of clean blocks what has not been true for long.
            if state.health == Health::FlashFailed {
                return Err(why_unhealthy(&state));
            }
            let old = *state.sets.tuning();
            let changed = state.sets.set_tuning(tuning);
            changed.map_err(|error| VolumeError::new(VolumeErrorKind::Config, error.to_string()))?;
            state.brings_back_clean |= tuning.mode.keeps_dirty();
            old
        };
        let mut superblock = shared.superblock.lock().clone();
        superblock.tuning = tuning;
        if let Err(error) = shared.write_superblock(&work, superblock).await {
            let back = shared.state.lock().sets.set_tuning(old);
            debug_assert!(back.is_ok(), "it was in force before");
            return Err(error);
        }
        shared.state.lock().brings_back_clean = tuning.mode.keeps_dirty();
        // The same one goes on with what it has measured.
        if tuning.latency_gate_ms != old.latency_gate_ms {
            shared.set_latency_gate(tuning.latency_gate_ms);
        }
        Ok(())
    }
}

/// Somebody waits for everything to be clean.
struct AskedFor<'a>(&'a Shared);

impl Drop for AskedFor<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.cleans_asked_for -= 1;
        if state.cleans_asked_for == 0 {
            state.sets.owe_nothing();
        }
    }
}

impl Shared {
    /// Cleans what the sets ask for, as much as one flush of the disk is to cover. What cannot be read or written keeps
    /// nothing else from the disk.
    pub(super) async fn clean_batch(self: &Arc<Self>) -> Result<Batch> {
        if self.is_ordered() {
            return Ok(Batch { cleaned: self.destage_as_needed().await?, failed: None });
        }
        if self.must_pause() {
            device::timer::sleep(&*self.timer, PAUSE_NS).await;
            return Ok(Batch::default());
        }
        let work = Work::new(self, None);
        let gathered = self.gather(&work);
        if gathered.runs.is_empty() {
            return Ok(Batch::default());
        }
        if let Some(change) = gathered.uncommitted {
            self.commit(change).await?;
        }
        // One batch after the other: side by side they would end together, and the disk would wait for both.
        let turn = self.cleaners.lock(0..1).await;
        let (begun_ns, failed_before) = (self.timer.monotonic_ns(), self.disk_trouble.flushes_failed());
        let (written, batch) = self.write_runs(gathered).await?;
        drop(turn);
        if batch.cleaned > 0 {
            self.flush_disk(failed_before).await?;
        }
        self.pace.lock().cleaned(batch.cleaned, self.timer.monotonic_ns().saturating_sub(begun_ns));
        let hopeless = hopeless_sets(&written);
        for run in written {
            self.end_run(run, batch.failed.as_ref()).await?;
        }
        self.state.lock().room.give_up(|set| hopeless.contains(&set));
        self.room.notify(usize::MAX);
        self.changed.notify(usize::MAX);
        Ok(batch)
    }

    /// Writes runs in the order of the disk. Those that came to their end, and what came of them. When the latency gate closes no
    /// more are begun, and those that were not go back to their sets: this may take long.
    async fn write_runs(self: &Arc<Self>, gathered: Gathered) -> Result<(Vec<Run>, Batch)> {
        let Gathered { mut runs, at_once, is_urgent, .. } = gathered;
        runs.sort_by_key(|run| run.blocks.first().map(|leaving| leaving.block));
        let is_untold = runs.iter().any(|run| !run.failed.is_empty());
        let failed = is_untold.then(|| why_unhealthy(&self.state.lock()));
        let (mut written, mut batch) = (Vec::with_capacity(runs.len()), Batch { cleaned: 0, failed });
        let mut writes = runs.into_iter().map(|mut run| async move {
            let result = self.write_run(&mut run).await;
            (run, result)
        });
        let is_stopped = AtomicBool::new(false);
        let next = || if is_stopped.load(Relaxed) { None } else { writes.next() };
        let mut writes = pin!(stream::iter(std::iter::from_fn(next)).buffer_unordered(at_once));
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

    /// Ends a run as soon as the journal has room to tell so.
    async fn end_run(self: &Arc<Self>, run: Run, failed: Option<&VolumeError>) -> Result<()> {
        loop {
            let listener = self.changed.listen();
            let change = {
                let mut state = self.state.lock();
                if state.has_room_for_changes(run.blocks.len()) {
                    run.end(&mut state, failed);
                    return Ok(());
                }
                state.makes_room()
            };
            match change {
                Some(change) => self.commit(change).await?,
                None => listener.await,
            }
        }
    }

    /// The next runs, with their pages kept from being written.
    fn gather(self: &Arc<Self>, work: &Arc<Work>) -> Gathered {
        // Those put aside go back to their sets after the state is given back, which that takes.
        let mut put_aside = Vec::new();
        let mut state = self.state.lock();
        let is_urgent = !state.room.is_empty();
        let cleanings = if is_urgent { state.next_for_room() } else { state.next_cleanings(RUNS_PER_BATCH) };
        let waits_for_clients = !is_urgent && self.clients_commit_soon(&state);
        let (mut runs, mut all_told) = (Vec::with_capacity(cleanings.len()), true);
        for cleaning in cleanings {
            let mut run = Run::new(self, cleaning, &state);
            let untold = run.untold(&state);
            if waits_for_clients && !untold.is_empty() {
                put_aside.push(run);
                continue;
            }
            all_told &= untold.is_empty();
            run.blocks.iter().for_each(|leaving| work.read_page(&mut state, leaving.copy.page));
            // What a failed flash was not told of it never will be, and must stay where it is.
            if state.health == Health::FlashFailed {
                run.failed = untold;
            }
            runs.push(run);
        }
        // One that is under way may yet fail, and tell nothing. What came after it need not be waited for.
        let running = state.journal.running.then_some(state.journal.taken);
        let untold = (!all_told && (state.health == Health::Healthy || running.is_some()))
            .then(|| state.changes.number());
        let longest = runs.iter().map(|run| run.blocks.len()).max().unwrap_or(0);
        let is_waited_for = is_urgent || state.cleans_asked_for > 0;
        let at_once =
            if is_waited_for { side_by_side(longest * self.layout.block_bytes as usize) } else { 1 };
        Gathered { runs, uncommitted: untold.or(running), at_once, is_urgent }
    }

    /// Whether clients make so much durable that what is not yet will be soon, and a flush of flash for nobody but the cleaning
    /// can be saved. Not if somebody waits for what is to be cleaned.
    fn clients_commit_soon(&self, state: &State) -> bool {
        let since = |flushed_ns| self.timer.monotonic_ns().saturating_sub(flushed_ns);
        let is_flushed_often =
            state.journal.client_flushed_ns.map(since).is_some_and(|ns| ns < CLIENTS_FLUSH_NS);
        is_flushed_often && state.cleans_asked_for == 0 && state.health == Health::Healthy
    }

    /// Commits, if the journal may not have room for what waits and so many blocks more.
    pub(super) async fn make_room_for_changes(self: &Arc<Self>, blocks: usize) -> Result<()> {
        let change = {
            let state = self.state.lock();
            (!state.has_room_for_changes(blocks)).then(|| state.changes.number())
        };
        match change {
            Some(change) => self.commit(change).await,
            None => Ok(()),
        }
    }

    /// Writes what can be written of a run, which then knows the rest.
    async fn write_run(self: &Arc<Self>, run: &mut Run) -> Result<()> {
        let (Some(first), Some(last)) = (run.blocks.first(), run.blocks.last()) else { return Ok(()) };
        let range = self.disk_writers.lock(first.block..last.block + 1).await;
        let work = Work::new(self, Some(range));
        let blocks = {
            let state = self.state.lock();
            // The volume was closed meanwhile, and knows how the ends of its disk are.
            self.check_open(&state)?;
            // Clients may have written some of them anew meanwhile.
            let mut blocks = run.still_same(&state);
            blocks.retain(|leaving| !run.failed.contains(&leaving.slot));
            blocks
        };
        let copies: Vec<_> = blocks.iter().map(|leaving| (leaving.block, leaving.copy)).collect();
        let Err(told) = self.write_copies(&work, &copies).await else { return Ok(()) };
        let mut is_in_vain = copies.len() < 2;
        for (leaving, copy) in blocks.iter().zip(&copies) {
            if !is_in_vain {
                match self.write_copies(&work, std::slice::from_ref(copy)).await {
                    Ok(()) => continue,
                    // A disk that takes nothing at all is not asked for each block.
                    Err(error) if error.kind() == VolumeErrorKind::Disk => {
                        is_in_vain = run.failed.len() >= MOST_BAD;
                    }
                    Err(_) => {}
                }
            }
            run.failed.insert(leaving.slot);
        }
        Err(told)
    }

    /// Writes blocks to the disk, in its order, neighbours together. The caller's work keeps their pages.
    pub(super) async fn write_copies(
        self: &Arc<Self>,
        work: &Arc<Work>,
        blocks: &[(u64, Copy)],
    ) -> Result<()> {
        let whole = 0..self.layout.block_bytes as usize;
        let part = |&(block, copy): &(u64, Copy)| (Part { block, within: whole.clone(), at: 0 }, copy);
        let pages = self.read_copies_of(work, blocks.iter().map(part).collect()).await?;
        for stretch in self.stretches(blocks) {
            let bytes = self.bytes_of_stretch(&stretch, blocks, &pages);
            self.write_disk_range(work, DiskWrite::Cleaning, stretch.start, bytes).await?;
        }
        Ok(())
    }

    /// Whether the latency gate asks to leave the disk to the clients. Not while one of them waits for the cleaning itself.
    fn must_pause(&self) -> bool {
        !self.state.lock().has_waiting_writes() && self.pace.lock().must_pause(self.timer.monotonic_ns())
    }

    /// Leaves it to them for so long.
    pub(super) async fn pause(&self) {
        while self.must_pause() {
            device::timer::sleep(&*self.timer, PAUSE_NS).await;
        }
    }

    /// Makes the disk keep what was written to it since `failed_before` of its flushes had failed.
    pub(super) async fn flush_disk(&self, failed_before: u64) -> Result<()> {
        let flushed = Self::flush_device(&*self.disk).await;
        let flushed = flushed.and_then(|()| self.none_failed_since(failed_before));
        flushed.map_err(|error| self.disk_failed(DiskTask::Flush, error))?;
        self.state.lock().io.disk_flushes += 1;
        Ok(())
    }

    /// Stretches of the disk, in bytes, that the blocks' sectors make up.
    fn stretches(&self, blocks: &[(u64, Copy)]) -> Vec<Range<u64>> {
        let sector = u64::from(super::SECTOR_BYTES);
        let sectors = blocks.iter().flat_map(|&(block, copy)| {
            let start = block * u64::from(self.layout.block_bytes);
            let there = copy.partial.unwrap_or(self.whole(block));
            let to_bytes = move |run: Range<u32>| {
                start + u64::from(run.start) * sector..start + u64::from(run.end) * sector
            };
            there.runs().map(to_bytes).collect::<Vec<_>>()
        });
        let sectors: Vec<Range<u64>> = sectors.collect();
        let joined = runs(&sectors, |one, next| one.end == next.start);
        joined.into_iter().map(|run| sectors[run.start].start..sectors[run.end - 1].end).collect()
    }

    fn bytes_of_stretch(&self, stretch: &Range<u64>, blocks: &[(u64, Copy)], pages: &[IoSlice]) -> IoSlice {
        let block_bytes = u64::from(self.layout.block_bytes);
        let mut bytes = IoBuffer::zeroed((stretch.end - stretch.start) as usize);
        for ((block, _), page) in blocks.iter().zip(pages) {
            let start = block * block_bytes;
            let (from, to) = (stretch.start.max(start), stretch.end.min(start + block_bytes));
            if from < to {
                let place = (from - stretch.start) as usize..(to - stretch.start) as usize;
                bytes[place].copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
            }
        }
        bytes.into()
    }
}

impl Run {
    fn new(shared: &Arc<Shared>, cleaning: Cleaning, state: &State) -> Self {
        let leaving = |&slot: &Slot| {
            let (copy, block) = (state.copy(slot)?, state.sets.word(slot).block()?);
            Some(Leaving { slot, block, copy })
        };
        let blocks = cleaning.slots.iter().filter_map(leaving).collect();
        Self { shared: Arc::clone(shared), cleaning: Some(cleaning), blocks, failed: HashSet::new() }
    }

    /// Its blocks that are in no commit yet.
    fn untold(&self, state: &State) -> HashSet<Slot> {
        let is_untold = |leaving: &&Leaving| !state.changes.is_told(leaving.copy.page);
        self.blocks.iter().filter(is_untold).map(|leaving| leaving.slot).collect()
    }

    /// Its blocks that are still where they were.
    fn still_same(&self, state: &State) -> Vec<Leaving> {
        let is_same =
            |leaving: &&Leaving| state.copy(leaving.slot).is_some_and(|copy| copy.page == leaving.copy.page);
        self.blocks.iter().filter(is_same).cloned().collect()
    }

    /// The disk has them, but for those that `failed`.
    fn end(mut self, state: &mut State, failed: Option<&VolumeError>) {
        let Some(cleaning) = self.cleaning.take() else { return };
        if self.failed.iter().any(|&slot| state.sets.is_owed(slot)) {
            state.cleanings_failed += 1;
            state.cleaning_failure = failed.cloned();
        }
        state.sets.end_cleaning_of(&cleaning, |slot| !self.failed.contains(&slot));
        for leaving in self.still_same(state) {
            if !state.sets.word(leaving.slot).is_dirty() {
                state.tell_clean(leaving.slot);
            }
        }
    }
}

/// Runs of so many bytes to be written at once.
fn side_by_side(longest_bytes: usize) -> usize {
    (MOST_BYTES_AT_ONCE / longest_bytes.max(1)).clamp(1, RUNS_PER_BATCH)
}

/// Sets whose runs were tried, and of which the disk took nothing.
fn hopeless_sets(runs: &[Run]) -> HashSet<u32> {
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
    /// It failed, or whoever drove it went away.
    fn drop(&mut self) {
        if let Some(cleaning) = self.cleaning.take() {
            self.shared.state.lock().sets.end_cleaning(&cleaning, false);
            self.shared.room.notify(usize::MAX);
            self.shared.changed.notify(usize::MAX);
        }
    }
}
