//! Flushes of clients, usually without a commit.
//!
//! Recovery replays the intent log's entries after the last commit up to the first whose pages are not as written. If the flash is
//! flushed after an entry, that entry and all before it are complete. So a client's flush writes one entry for the changes that no
//! earlier entry records, and flushes the flash. A write with its flush then takes a page and an entry, and no block of the journal.
//!
//! A commit is made instead if the disk must be flushed too, in an ordered volume, whose epochs are commits, if the log is half full,
//! and once a second if blocks were inserted clean or became clean, which the log does not record.

use std::sync::Arc;

use device::{Completion, Outcome, Request};

use super::commit::Committer;
use super::log_write::{Begin, LogWrite, When};
use crate::volume::error::{Result, VolumeError};
use crate::volume::state::State;

/// Time after which a flush, or the upkeep if clients do not flush, commits blocks that were inserted clean or became clean.
const COMMIT_CLEAN_AFTER_NS: u64 = 1_000_000_000;

/// The next step of a client's flush.
enum Step {
    Done,
    Commit,
    Log(LogWrite),
    Flush(LogFlush),
    Wait,
}

/// A flush of the flash in flight for the entries written before it. It runs without a future, like a commit.
struct LogFlush {
    committer: Arc<Committer>,
    /// Number of the last change that is in the flushed entries.
    number: u64,
    /// Sequence number of the block after the flushed entries.
    sequence: u64,
}

impl Committer {
    /// Waits until change `target` and all earlier ones are durable.
    pub(in crate::volume) async fn flush_changes(self: &Arc<Self>, target: u64) -> Result<()> {
        loop {
            let listener = self.log_advanced.listen();
            let step = self.next_flush_step(&mut self.state(), target);
            match step {
                Step::Done => return Ok(()),
                Step::Commit => return self.commit(target).await,
                Step::Log(write) => write.run(),
                Step::Flush(flush) => flush.run(),
                Step::Wait => {}
            }
            listener.await;
        }
    }

    /// Commits blocks that were inserted clean or became clean if that is due.
    pub(in crate::volume) fn commit_clean_blocks(self: &Arc<Self>) {
        if self.is_commit_of_clean_due(&self.state()) {
            self.commit_in_background();
        }
    }

    fn is_commit_of_clean_due(&self, state: &State) -> bool {
        let since = self.now_ns().saturating_sub(state.journal.committed_ns);
        let (journal, changes) = (&state.journal, &state.journal.changes);
        let has_clean = changes.has_cleaned() || journal.recovers_clean && changes.clean_inserted() > 0;
        has_clean && since >= COMMIT_CLEAN_AFTER_NS
    }

    fn next_flush_step(self: &Arc<Self>, state: &mut State, target: u64) -> Step {
        let (journal, changes) = (&state.journal, &state.journal.changes);
        if journal.durable.max(changes.log_durable()) >= target {
            return Step::Done;
        }
        if !state.health.is_healthy() || state.epochs.is_some() || changes.is_disk_written() {
            return Step::Commit;
        }
        let log = &journal.intent_log;
        // A commit in flight may have the change. All that wait for a flush of the log share the next entry.
        if journal.running || log.is_flushing() {
            return Step::Wait;
        }
        if journal.is_commit_due || log.is_half_full() || self.is_commit_of_clean_due(state) {
            return Step::Commit;
        }
        if log.logged() >= target {
            return self.begin_log_flush(state);
        }
        match self.begin_log_write(state, When::Now) {
            Begin::Run(write) => Step::Log(write),
            Begin::Wait => Step::Wait,
            Begin::Commit => Step::Commit,
            Begin::Nothing => self.begin_log_flush(state),
        }
    }

    fn begin_log_flush(self: &Arc<Self>, state: &mut State) -> Step {
        let log = &mut state.journal.intent_log;
        let number = log.logged();
        let Some(sequence) = log.begin_flush() else {
            // Since the last flush only clean blocks have changed.
            state.journal.changes.log_flushed(number);
            return Step::Done;
        };
        Step::Flush(LogFlush { committer: Arc::clone(self), number, sequence })
    }
}

impl LogFlush {
    fn run(self) {
        let flash = Arc::clone(&self.committer.shared.flash);
        flash.submit(Request::Flush, Completion::new(move |outcome| self.end(outcome)));
    }

    fn end(self, outcome: Outcome) {
        let Self { committer, number, sequence } = self;
        let now_ns = committer.now_ns();
        let is_commit_due = {
            let mut state = committer.state();
            let state = &mut *state;
            state.journal.intent_log.end_flush(outcome.is_ok().then_some(sequence), now_ns);
            match outcome {
                Ok(_) => {
                    state.journal.changes.log_flushed(number);
                    state.io.ssd_flushes += 1;
                }
                Err(error) => state.fail_flash(VolumeError::flash("flushing the flash", error), now_ns),
            }
            state.journal.is_commit_due
        };
        if is_commit_due {
            committer.commit_in_background();
        }
        committer.journal_advanced();
    }
}
