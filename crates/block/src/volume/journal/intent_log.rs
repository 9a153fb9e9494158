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

use device::IoSlice;

use super::block::{BlockHeader, BlockKind, encode_records};
use crate::volume::record::Record;

/// The ring of entries.
pub(super) struct IntentLog {
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
    flushed_sequence: u64,
    /// The commit and the block of the log that the last entry or a superblock records as flushed.
    confirmed: (u64, u64),
    /// Whether the flash is being flushed for entries.
    is_flushing: bool,
    /// End of the last such flush.
    flushed_ns: u64,
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

    /// Makes new entries follow `commit`, whose blocks are encoded.
    pub(super) fn follow(&mut self, commit: u64, chain: u32) {
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
    pub(super) fn start(&self) -> (u64, u32) {
        (self.base, self.chain)
    }

    pub(super) fn logged(&self) -> u64 {
        self.logged
    }

    pub(super) fn add_waiting(&mut self) {
        self.waiting += 1;
    }

    pub(super) fn end_waiting(&mut self) {
        self.waiting -= 1;
    }

    /// Adds a segment that is being written to flash and will wait for an entry.
    pub(super) fn add_incoming(&mut self) {
        self.incoming += 1;
    }

    /// The segment is written. Returns whether the entry may begin for which other writes wait.
    pub(super) fn end_incoming(&mut self) -> bool {
        self.incoming -= 1;
        self.waiting > 0 && !self.running && self.has_gathered()
    }

    /// Whether enough writes wait for an entry, compared with those still being written.
    pub(super) fn has_gathered(&self) -> bool {
        self.waiting * 2 >= self.incoming
    }

    pub(super) fn is_writing(&self) -> bool {
        self.running
    }

    /// Records that no change up to `number` needs an entry.
    pub(super) fn skip_entry(&mut self, number: u64) {
        self.logged = number;
    }

    /// Begins an entry with `records`, which records commits up to `confirmed` as flushed. Returns the sequence number of its first block,
    /// and its blocks.
    pub(super) fn begin_entry(&mut self, uuid: u128, confirmed: u64, records: &[Record]) -> (u64, IoSlice) {
        let (first_sequence, flushed) = (self.next_sequence, self.known_flushed());
        let (sequence, commit, chain) = (first_sequence, self.base, self.chain);
        let mut next = BlockHeader { sequence, commit, chain, ends_commit: false, confirmed, flushed };
        let blocks = encode_records(BlockKind::IntentLog, uuid, &mut next, records.iter().copied());
        (self.next_sequence, self.chain) = (next.sequence, next.chain);
        self.confirmed = (confirmed, flushed);
        self.running = true;
        (first_sequence, blocks)
    }

    /// The entry with all changes up to `number` is written.
    pub(super) fn end_entry(&mut self, number: u64) {
        self.running = false;
        self.logged = self.logged.max(number);
        self.written_sequence = self.next_sequence;
    }

    /// The entry could not be written.
    pub(super) fn fail_entry(&mut self) {
        self.running = false;
    }

    pub(super) fn is_flushing(&self) -> bool {
        self.is_flushing
    }

    /// Begins a flush of the flash for the entries written so far. Returns the sequence number of the block after them; `None` if they
    /// are flushed already.
    pub(super) fn begin_flush(&mut self) -> Option<u64> {
        self.is_flushing = self.written_sequence > self.flushed_sequence;
        self.is_flushing.then_some(self.written_sequence)
    }

    /// A flush ended. If it succeeded, the blocks before `flushed` are durable.
    pub(super) fn end_flush(&mut self, flushed: Option<u64>, now_ns: u64) {
        self.is_flushing = false;
        if let Some(sequence) = flushed {
            (self.flushed_sequence, self.flushed_ns) = (self.flushed_sequence.max(sequence), now_ns);
        }
    }

    pub(super) fn flushed_ns(&self) -> u64 {
        self.flushed_ns
    }

    /// Whether neither an entry nor a superblock records the flushes of commit `confirmed` and of the entries after it.
    pub(super) fn is_unconfirmed(&self, confirmed: u64) -> bool {
        self.confirmed < (confirmed, self.known_flushed())
    }

    /// The first block of the log after the last durable commit that is not known to be flushed; 0 if none before it is. Entries record it.
    fn known_flushed(&self) -> u64 {
        if self.flushed_sequence > self.oldest_sequence { self.flushed_sequence } else { 0 }
    }

    /// Whether a client's flush should empty the ring by a commit.
    pub(super) fn is_half_full(&self) -> bool {
        self.used() * 2 >= self.blocks
    }

    /// Whether a commit should empty the ring soon, before a write has to wait for it.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.used() * 4 >= self.blocks * 3
    }

    /// Whether an entry of `blocks` blocks fits.
    pub(super) fn has_space_for(&self, blocks: u64) -> bool {
        self.used() + blocks <= self.blocks
    }

    fn used(&self) -> u64 {
        self.next_sequence - self.oldest_sequence
    }
}
