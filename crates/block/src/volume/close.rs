//! Closing a volume.

use std::sync::Arc;

use super::Volume;
use super::error::Result;
use super::inner::Inner;
use super::shared::Shared;
use super::superblock::Superblock;
use super::work::Work;

impl Volume {
    /// Flushes, writes a table and marks the volume as closed. Later requests are refused. Dirty blocks stay on flash; call
    /// [`clean`](Self::clean) first to write them to the disk.
    ///
    /// # Errors
    /// The devices' failures. The volume is closed nevertheless, and recovered as after a crash.
    pub async fn close(&self) -> Result<()> {
        let Inner { shared, committer, disk_io, cleaner, bypass_turn: _, blocks } = &*self.inner;
        // Later requests wait for this lock and then find the volume closed.
        let everything = blocks.lock(0..u64::MAX).await;
        let work = Work::new(shared, Some(everything));
        work.hold_range(disk_io.lock(0..u64::MAX).await);
        // An epoch in flight is written completely; other cleaning stops between two runs.
        work.hold_range(cleaner.lock_destaging().await);
        work.hold_range(committer.lock_metadata().await);
        shared.state.lock().health.check_open()?;
        let _closing = Closing(shared);
        write_end(&self.inner, &work).await
    }
}

async fn write_end(inner: &Inner, work: &Arc<Work>) -> Result<()> {
    let Inner { shared, committer, disk_io, .. } = inner;
    {
        let state = shared.state.lock();
        if state.health.has_failed() {
            return Err(state.health.error());
        }
    }
    disk_io.record_disk_state().await?;
    let superblock = Superblock { clean: true, ..shared.identity.superblock() };
    committer.write_table(work, superblock).await
}

/// Marks the volume as closed when dropped: even on failure, because the upkeep waits for that, and if the future is dropped, because the
/// superblock may already be marked.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().health.close();
    }
}
