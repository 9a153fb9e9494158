//! Writing entries of the [intent log](super::intent_log).

use std::sync::Arc;

use device::{Completion, IoError, IoSlice, Request};

use super::block::{JOURNAL_BLOCK_BYTES, blocks_for};
use super::commit::Committer;
use crate::volume::error::{Result, VolumeError};
use crate::volume::record::Record;
use crate::volume::state::State;

/// Idle time after a flush before an empty entry confirms it. Clients that flush continuously thus cause no extra writes.
const CONFIRM_AFTER_NS: u64 = 100_000_000;

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
struct WaitingWrite<'a>(&'a Committer);

impl Drop for WaitingWrite<'_> {
    fn drop(&mut self) {
        self.0.state().journal.intent_log.end_waiting();
    }
}

/// A segment that is being written to flash and will wait for an entry.
pub(in crate::volume) struct IncomingWrite(Arc<Committer>);

impl IncomingWrite {
    pub(in crate::volume) fn new(committer: &Arc<Committer>) -> Self {
        committer.state().journal.intent_log.add_incoming();
        Self(Arc::clone(committer))
    }
}

impl Drop for IncomingWrite {
    fn drop(&mut self) {
        let may_begin = self.0.state().journal.intent_log.end_incoming();
        if may_begin {
            self.0.log_advanced.notify(usize::MAX);
        }
    }
}

/// An entry being written. Each completion submits its next part, as for a commit.
pub(super) struct LogWrite {
    committer: Arc<Committer>,
    /// Parts of the ring to write, in reverse order.
    parts: Vec<(u64, IoSlice)>,
    /// All changes up to this one are in the entry.
    number: u64,
}

impl Committer {
    /// Waits until all changes so far survive a kill of the process.
    pub(in crate::volume) async fn log_changes(self: &Arc<Self>) -> Result<()> {
        let target = {
            let mut state = self.state();
            state.journal.intent_log.add_waiting();
            state.journal.changes.number()
        };
        let _waiting = WaitingWrite(self);
        loop {
            let listener = self.log_advanced.listen();
            let begin = {
                let mut state = self.state();
                if state.journal.intent_log.logged().max(state.journal.durable) >= target {
                    return Ok(());
                }
                if !state.health.is_healthy() {
                    return Err(state.health.error());
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
        if log.is_writing() || journal.is_writing_blocks || is_early {
            return Begin::Wait;
        }
        let most_blocks = blocks_for(state.journal.changes.units_to_log());
        if !journal.intent_log.has_space_for(most_blocks) {
            return Begin::Commit;
        }
        let number = state.journal.changes.number();
        let records = state.journal.changes.take_unlogged();
        if records.is_empty() {
            state.journal.intent_log.skip_entry(number);
            return Begin::Nothing;
        }
        Begin::Run(self.begin_log_entry(state, &records, number))
    }

    /// Writes an empty entry that confirms the last flush, if nothing on flash does so yet and the journal is idle.
    pub(in crate::volume) fn confirm_last_flush(self: &Arc<Self>) {
        let now_ns = self.now_ns();
        let write = {
            let mut state = self.state();
            let journal = &state.journal;
            let log = &journal.intent_log;
            let is_busy =
                journal.running || log.is_writing() || log.is_flushing() || !state.health.is_healthy();
            let is_news = log.is_unconfirmed(journal.confirmed_commit);
            let flushed_ns = journal.committed_ns.max(log.flushed_ns());
            let is_quiet = now_ns.saturating_sub(flushed_ns) >= CONFIRM_AFTER_NS;
            if is_busy || !is_news || !is_quiet || !log.has_space_for(1) {
                return;
            }
            let number = log.logged();
            self.begin_log_entry(&mut state, &[], number)
        };
        write.run();
    }

    /// Begins an entry with all changes up to `number`.
    fn begin_log_entry(self: &Arc<Self>, state: &mut State, records: &[Record], number: u64) -> LogWrite {
        let journal = &mut state.journal;
        let (first_sequence, blocks) =
            journal.intent_log.begin_entry(journal.uuid, journal.confirmed_commit, records);
        state.io.intent_log_writes += u64::from(!records.is_empty());
        state.io.metadata_ssd_writes += (blocks.len() / JOURNAL_BLOCK_BYTES) as u64;
        let ring = (self.shared.layout.intent_log_offset(), self.shared.layout.intent_log_blocks());
        let parts = self.ring_parts(ring, first_sequence, &blocks);
        LogWrite { committer: Arc::clone(self), parts, number }
    }
}

impl LogWrite {
    pub(super) fn run(mut self) {
        let flash = Arc::clone(&self.committer.shared.flash);
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
            let log = &mut self.committer.state().journal.intent_log;
            log.end_entry(self.number);
            log.is_nearly_full()
        };
        self.committer.log_advanced.notify(usize::MAX);
        if is_nearly_full {
            self.committer.commit_in_background();
        }
    }

    fn fail(self, error: IoError) {
        let now_ns = self.committer.now_ns();
        {
            let mut state = self.committer.state();
            state.journal.intent_log.fail_entry();
            state.fail_flash(VolumeError::flash("writing the intent log", error), now_ns);
        }
        self.committer.journal_advanced();
    }
}
