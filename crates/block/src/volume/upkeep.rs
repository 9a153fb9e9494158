//! Background work: tables, commits and cleaning; and changes of the tuning.

use super::Volume;
use super::cleaning::Batch;
use super::error::{Result, VolumeError, VolumeErrorKind};
use super::inner::Inner;
use super::shared::Shared;
use super::work::Work;
use crate::sets::Tuning;

/// Consecutive batches without a cleaned block before a drain gives up.
const MAX_FUTILE_BATCHES: u32 = 16;

/// Sleep of the upkeep when there is nothing to do.
const IDLE_NS: u64 = 20_000_000;

/// Pause of the upkeep after an error of the disk.
const FAILURE_NS: u64 = 1_000_000_000;

impl Volume {
    /// Runs background work until the volume is closed: writes tables when the journal fills up, and cleans as the tuning
    /// requires. Needs its own thread or task.
    pub async fn run_upkeep(&self) {
        loop {
            let pause_ns = match self.upkeep().await {
                Ok(true) => 0,
                Ok(false) => IDLE_NS,
                Err(error) if error.kind() == VolumeErrorKind::Closed => return,
                // The error is counted and shows in the health. The work is retried.
                Err(_) => FAILURE_NS,
            };
            if pause_ns > 0 {
                device::timer::sleep(&*self.inner.shared.timer, pause_ns).await;
            }
        }
    }

    /// Performs one step of background work. Returns false if there was nothing to do.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Closed`] when the volume is closed, and the devices' failures.
    pub async fn upkeep(&self) -> Result<bool> {
        let Inner { shared, committer, cleaner, .. } = &*self.inner;
        let table_due = {
            let mut state = shared.state.lock();
            state.health.check_open()?;
            state.sets.age(shared.timer.monotonic_ns() / 1_000_000_000);
            state.journal.is_half_full() && state.health.is_healthy()
        };
        let table = if table_due { committer.write_table_if_needed().await } else { Ok(()) };
        if !cleaner.clients_commit_soon(&shared.state.lock()) {
            committer.commit_clean_blocks();
        }
        // A failed table does not prevent cleaning.
        let Batch { cleaned, failed } = cleaner.clean_batch().await?;
        table?;
        committer.confirm_last_flush();
        match failed {
            Some(error) if cleaned == 0 => Err(error),
            _ => Ok(cleaned > 0 || table_due),
        }
    }

    /// Writes all dirty blocks to the disk. Blocks written meanwhile may stay dirty. If the future is dropped, cleaning ends after
    /// the I/O in flight, unless another caller also waits for it.
    ///
    /// # Errors
    /// The devices' failures. Unaffected blocks are cleaned nevertheless.
    pub async fn clean(&self) -> Result<()> {
        let Inner { shared, committer, cleaner, .. } = &*self.inner;
        shared.state.lock().health.check_open()?;
        if shared.identity.is_ordered() {
            return cleaner.destage_all().await;
        }
        let (_request, failed_before) = {
            let mut state = shared.state.lock();
            state.sets.start_drain();
            (DrainRequest(shared), state.drains.begin())
        };
        let mut futile_batches = 0;
        loop {
            let left = {
                let state = shared.state.lock();
                state.health.check_open()?;
                state.sets.blocks_to_drain()
            };
            if left == 0 {
                break;
            }
            let Batch { cleaned, failed } = cleaner.clean_batch().await?;
            match failed {
                Some(error) if cleaned == 0 && futile_batches == MAX_FUTILE_BATCHES => return Err(error),
                Some(_) if cleaned == 0 => futile_batches += 1,
                _ => futile_batches = 0,
            }
            // The remaining blocks are in use or being cleaned by another task.
            if cleaned == 0 {
                device::timer::sleep(&*shared.timer, 1_000_000).await;
            }
        }
        let (change, failed) = {
            let state = shared.state.lock();
            (state.journal.last_change(), state.drains.failure_after(failed_before))
        };
        committer.commit(change).await?;
        failed.map_or(Ok(()), Err)
    }

    /// Changes the tuning and records it in the superblock.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Config`] if a setting is out of bounds, and the devices' failures.
    pub async fn set_tuning(&self, tuning: Tuning) -> Result<()> {
        let Inner { shared, committer, cleaner, blocks, .. } = &*self.inner;
        if shared.identity.is_ordered() && !tuning.mode.keeps_dirty() {
            let why = "an ordered cache must be write-back or write-only: other modes have no order to keep";
            return Err(VolumeError::new(VolumeErrorKind::Config, why));
        }
        // The mode decides whether recovery restores clean blocks, so no write may run during the change.
        let work = Work::new(shared, Some(blocks.lock(0..u64::MAX).await));
        shared.state.lock().health.check_open()?;
        let target = shared.state.lock().journal.last_change();
        // Before `metadata_writer` is locked, because the commit may have to write a table.
        committer.commit(target).await?;
        work.hold_range(committer.lock_metadata().await);
        let old = {
            let mut state = shared.state.lock();
            // The commit did not reach a failed flash, so recovery may restore outdated clean blocks.
            if state.health.has_failed() {
                return Err(state.health.error());
            }
            let old = *state.sets.tuning();
            let changed = state.sets.set_tuning(tuning);
            changed.map_err(|error| VolumeError::new(VolumeErrorKind::Config, error.to_string()))?;
            if tuning.mode.keeps_dirty() {
                state.journal.set_recovers_clean(true);
            }
            old
        };
        let mut superblock = shared.identity.superblock();
        superblock.tuning = tuning;
        // If recovery restores clean blocks from now on, flash needs records of all clean blocks. If recovery no longer restores them,
        // their pages may change without a commit, so recovery must not compare these pages with the last commit.
        let written = match tuning.mode.keeps_dirty() != old.mode.keeps_dirty() {
            true => committer.write_table(&work, superblock).await,
            false => committer.write_superblock(&work, superblock).await,
        };
        if let Err(error) = written {
            let back = shared.state.lock().sets.set_tuning(old);
            debug_assert!(back.is_ok(), "the former settings were valid");
            return Err(error);
        }
        shared.state.lock().journal.set_recovers_clean(tuning.mode.keeps_dirty());
        // An unchanged gate keeps its measurements.
        if tuning.latency_gate_ms != old.latency_gate_ms {
            cleaner.set_latency_gate(tuning.latency_gate_ms);
        }
        Ok(())
    }
}

/// A caller that waits until everything is clean.
struct DrainRequest<'a>(&'a Shared);

impl Drop for DrainRequest<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if state.drains.end() {
            state.sets.stop_drain();
        }
    }
}
