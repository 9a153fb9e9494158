//! The intent log: records of acknowledged writes that no flush has covered yet, so that they survive a kill of the process.
//!
//! A disk loses unflushed writes in a power cut, but not when a program ends. Here the map of the written blocks is in the
//! process's memory. So before a write is acknowledged, its records are *written* to flash without a flush: one small write for
//! all waiting requests. The next commit repeats all of them, so entries matter only until then, and a ring
//! suffices.
//!
//! The entry only has to be in memory that outlives the process, so a file or a block device [absorbs](device::Device::absorb) it
//! and nothing waits for the device.
//!
//! An entry names the commit that it follows (`commit` in its blocks) and is chained to the entry before it; the first one is
//! chained to the last block of that commit. No entry is written while the blocks of a commit are being written.
//! [`recovery`](super::super::recovery) describes how entries are replayed.
//!
//! Each entry also records what had been flushed before: commits, and entries after them ([`flush`](super::flush)). Recovery uses it
//! to distinguish damage from a power cut before the flush. If no entry follows a flush for a while, an empty one records it.
//!
//! Writes that arrive together share an entry: it begins when at least half as many writes wait for one as are on their way to
//! flash.
//!
//! Entries record dirty blocks that were written and pages that were replaced. They never record that a block became clean,
//! because recovering it as dirty loses nothing. They may record that a clean block left the cache, because the disk was flushed before the
//! block was called clean.

use std::sync::Arc;

use device::{Completion, IoBuffer, IoError, IoSlice, Request};

use super::block::{self, BlockHeader, BlockKind, JOURNAL_BLOCK_BYTES};
use super::commit::{blocks_for, chunks_of};
use crate::volume::Shared;
use crate::volume::config::Health;
use crate::volume::error::{Result, VolumeError, VolumeErrorKind};
use crate::volume::record::Record;
use crate::volume::state::State;

/// Idle time after a flush before an empty entry confirms it. Clients that flush continuously thus cause no extra writes.
const CONFIRM_AFTER_NS: u64 = 100_000_000;

/// The ring of entries.
pub(in crate::volume) struct IntentLog {
    blocks: u64,
    /// The next block to write.
    next_sequence: u64,
    /// The first block that recovery may need.
    oldest_sequence: u64,
    /// The first block after commit [`base`](Self::base).
    base_sequence: u64,
    /// The commit that new entries follow.
    base: u64,
    /// Checksum of the previous block.
    chain: u32,
    /// An entry is being written.
    running: bool,
    /// All changes up to this one survive a kill of the process.
    logged: u64,
    /// The block after the last entry that is written completely.
    written_sequence: u64,
    /// Blocks before this one are flushed.
    pub(super) flushed_sequence: u64,
    /// The commit and the block of the log that the last entry or a superblock records as flushed.
    confirmed: (u64, u64),
    /// Whether the flash is being flushed for entries.
    pub(super) is_flushing: bool,
    /// End of the last such flush.
    pub(super) flushed_ns: u64,
    /// Writes that wait for an entry.
    waiting: u32,
    /// Segments that are being written to flash and will wait for an entry.
    incoming: u32,
}

impl IntentLog {
    /// An empty log after commit `base`, whose last block has checksum `chain`. Commits up to `confirmed` are known to be flushed.
    pub(super) fn new(blocks: u64, base: u64, chain: u32, confirmed: u64) -> Self {
        Self {
            blocks,
            next_sequence: 0,
            oldest_sequence: 0,
            base_sequence: 0,
            base,
            chain,
            running: false,
            logged: 0,
            written_sequence: 0,
            flushed_sequence: 0,
            confirmed: (confirmed, 0),
            is_flushing: false,
            flushed_ns: 0,
            waiting: 0,
            incoming: 0,
        }
    }

    /// Whether enough writes wait for an entry, compared with those still being written.
    fn has_gathered(&self) -> bool {
        self.waiting * 2 >= self.incoming
    }

    /// Makes new entries follow `commit`, whose blocks are encoded.
    pub(in crate::volume) fn follow(&mut self, commit: u64, chain: u32) {
        (self.base, self.chain, self.base_sequence) = (commit, chain, self.next_sequence);
    }

    /// The blocks of a commit with all changes up to `number` are written.
    pub(super) fn commit_written(&mut self, number: u64) {
        self.logged = self.logged.max(number);
    }

    /// The last commit is durable, so entries before it are no longer needed.
    pub(super) fn commit_durable(&mut self) {
        self.oldest_sequence = self.base_sequence;
        self.flushed_sequence = self.flushed_sequence.max(self.base_sequence);
    }

    /// The commit that entries follow, and the checksum to which the first of them is chained.
    pub(in crate::volume) fn start(&self) -> (u64, u32) {
        (self.base, self.chain)
    }

    /// All changes up to this one survive a kill of the process.
    pub(super) fn logged(&self) -> u64 {
        self.logged
    }

    /// The block after the last entry that is written completely.
    pub(super) fn written_sequence(&self) -> u64 {
        self.written_sequence
    }

    /// The first block of the log after the last durable commit that is not known to be flushed; 0 if none before it is. Entries record it.
    fn known_flushed(&self) -> u64 {
        if self.flushed_sequence > self.oldest_sequence { self.flushed_sequence } else { 0 }
    }

    /// Whether a client's flush should empty the ring by a commit.
    pub(super) fn is_half_full(&self) -> bool {
        self.used() * 2 >= self.blocks
    }

    fn has_space_for(&self, blocks: u64) -> bool {
        self.used() + blocks <= self.blocks
    }

    fn used(&self) -> u64 {
        self.next_sequence - self.oldest_sequence
    }

    /// Whether a commit should empty the ring soon, before a write has to wait for it.
    fn is_nearly_full(&self) -> bool {
        self.used() * 4 >= self.blocks * 3
    }
}

/// When an entry may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// When enough writes wait for an entry.
    Gathered,
    /// Now: a client flushes.
    Now,
}

/// Result of an attempt to write an entry.
pub(super) enum Begin {
    Run(LogWrite),
    Wait,
    /// The ring is full: a commit is needed.
    Commit,
    Nothing,
}

/// A write that waits for an entry.
struct WaitingWrite<'a>(&'a Shared);

impl Drop for WaitingWrite<'_> {
    fn drop(&mut self) {
        self.0.state.lock().journal.intent_log.waiting -= 1;
    }
}

/// A segment that is being written to flash and will wait for an entry.
pub(in crate::volume) struct IncomingWrite(Arc<Shared>);

impl IncomingWrite {
    pub(in crate::volume) fn new(shared: &Arc<Shared>) -> Self {
        shared.state.lock().journal.intent_log.incoming += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for IncomingWrite {
    fn drop(&mut self) {
        let may_begin = {
            let log = &mut self.0.state.lock().journal.intent_log;
            log.incoming -= 1;
            log.waiting > 0 && !log.running && log.has_gathered()
        };
        if may_begin {
            self.0.log_advanced.notify(usize::MAX);
        }
    }
}

/// An entry being written. Each completion submits its next part, as for a commit.
pub(super) struct LogWrite {
    shared: Arc<Shared>,
    /// Parts of the ring to write, in reverse order.
    parts: Vec<(u64, IoSlice)>,
    /// All changes up to this one are in the entry.
    number: u64,
}

impl Shared {
    /// Waits until all changes so far survive a kill of the process.
    pub(in crate::volume) async fn log_changes(self: &Arc<Self>) -> Result<()> {
        let target = {
            let mut state = self.state.lock();
            state.journal.intent_log.waiting += 1;
            state.changes.number()
        };
        let _waiting = WaitingWrite(self);
        loop {
            let listener = self.log_advanced.listen();
            let begin = {
                let mut state = self.state.lock();
                if state.journal.intent_log.logged.max(state.journal.durable) >= target {
                    return Ok(());
                }
                if state.health != Health::Healthy {
                    return Err(health_error(&state));
                }
                self.begin_log_write(&mut state, When::Gathered)
            };
            match begin {
                Begin::Run(write) => write.run(),
                Begin::Wait => {}
                Begin::Commit => return self.commit(target).await,
                Begin::Nothing => return Ok(()),
            }
            listener.await;
        }
    }

    pub(super) fn begin_log_write(self: &Arc<Self>, state: &mut State, when: When) -> Begin {
        let journal = &state.journal;
        let log = &journal.intent_log;
        let is_early = when == When::Gathered && !log.has_gathered();
        if log.running || journal.is_writing_blocks || is_early {
            return Begin::Wait;
        }
        let most_blocks = blocks_for(state.changes.units_to_log());
        if !journal.intent_log.has_space_for(most_blocks) {
            return Begin::Commit;
        }
        let number = state.changes.number();
        let records = state.changes.take_unlogged();
        if records.is_empty() {
            state.journal.intent_log.logged = number;
            return Begin::Nothing;
        }
        let parts = self.encode_log_entry(state, &records);
        state.journal.intent_log.running = true;
        Begin::Run(LogWrite { shared: Arc::clone(self), parts, number })
    }

    /// Writes an empty entry that confirms the last flush, if nothing on flash does so yet and the journal is idle.
    pub(in crate::volume) fn confirm_last_flush(self: &Arc<Self>) {
        let now_ns = self.timer.monotonic_ns();
        let write = {
            let mut state = self.state.lock();
            let journal = &state.journal;
            let log = &journal.intent_log;
            let is_busy =
                journal.running || log.running || log.is_flushing || state.health != Health::Healthy;
            let is_news = log.confirmed < (journal.confirmed_commit, log.known_flushed());
            let flushed_ns = journal.committed_ns.max(log.flushed_ns);
            let is_quiet = now_ns.saturating_sub(flushed_ns) >= CONFIRM_AFTER_NS;
            if is_busy || !is_news || !is_quiet || !log.has_space_for(1) {
                return;
            }
            let parts = self.encode_log_entry(&mut state, &[]);
            state.journal.intent_log.running = true;
            LogWrite { shared: Arc::clone(self), parts, number: state.journal.intent_log.logged }
        };
        write.run();
    }

    fn encode_log_entry(&self, state: &mut State, records: &[Record]) -> Vec<(u64, IoSlice)> {
        let chunks = chunks_of(records.iter().copied());
        let mut buffer = IoBuffer::zeroed(chunks.len() * JOURNAL_BLOCK_BYTES);
        let confirmed = state.journal.confirmed_commit;
        let log = &mut state.journal.intent_log;
        let flushed = log.known_flushed();
        log.confirmed = (confirmed, flushed);
        let first_sequence = log.next_sequence;
        for (number, units) in chunks.iter().enumerate() {
            let header = BlockHeader {
                sequence: log.next_sequence,
                commit: log.base,
                chain: log.chain,
                ends_commit: number + 1 == chunks.len(),
                confirmed,
                flushed,
            };
            let into = &mut buffer[number * JOURNAL_BLOCK_BYTES..][..JOURNAL_BLOCK_BYTES];
            log.chain = block::encode(BlockKind::IntentLog, self.uuid, &header, units, into);
            log.next_sequence += 1;
        }
        state.io.intent_log_writes += u64::from(!records.is_empty());
        state.io.metadata_ssd_writes += chunks.len() as u64;
        let ring = (self.layout.intent_log_offset(), self.layout.intent_log_blocks());
        let mut parts = self.ring_parts(ring, first_sequence, &buffer.into());
        parts.reverse();
        parts
    }
}

/// The error for requests to a failed flash or a closed volume.
pub(in crate::volume) fn health_error(state: &State) -> VolumeError {
    if state.health == Health::Closed {
        return VolumeError::new(VolumeErrorKind::Closed, "the volume is closed");
    }
    state
        .journal
        .flash_failure
        .clone()
        .unwrap_or_else(|| VolumeError::new(VolumeErrorKind::Flash, "the flash failed"))
}

impl LogWrite {
    pub(super) fn run(mut self) {
        let flash = Arc::clone(&self.shared.flash);
        while let Some((offset, data)) = self.parts.pop() {
            match flash.absorb(offset, &data) {
                Some(Ok(())) => {}
                Some(Err(error)) => return self.fail(error),
                None => {
                    let completion = Completion::new(move |outcome| match outcome {
                        Ok(_) => self.run(),
                        Err(error) => self.fail(error),
                    });
                    return flash.submit(Request::write(offset, data), completion);
                }
            }
        }
        self.succeed();
    }

    fn succeed(self) {
        let is_nearly_full = {
            let log = &mut self.shared.state.lock().journal.intent_log;
            log.running = false;
            log.logged = log.logged.max(self.number);
            log.written_sequence = log.next_sequence;
            log.is_nearly_full()
        };
        self.shared.log_advanced.notify(usize::MAX);
        if is_nearly_full {
            self.shared.commit_in_background();
        }
    }

    fn fail(self, error: IoError) {
        let now_ns = self.shared.timer.monotonic_ns();
        {
            let mut state = self.shared.state.lock();
            state.journal.intent_log.running = false;
            state.fail_flash(VolumeError::flash("writing the intent log", error), now_ns);
        }
        self.shared.journal_advanced();
    }
}
