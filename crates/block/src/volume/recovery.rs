//! Opening a volume, after a close or a crash.
//!
//! The table is read, and the journal's commits are applied to it. A power cut may have come after all blocks of the last
//! commit were on flash and before all of its pages were. That commit is valid only if the checksums of its pages match (rule 2 in
//! the [parent module](super)). Then the intent log's entries after the last commit are applied. Those that a later entry records as
//! flushed count in any case. Of the others, the longest prefix counts after which every page has its recorded contents: all entries
//! after a kill of the process; after a power cut at least those of acknowledged flushes. Finally the result is flushed, and a commit
//! repeats it, so that the next recovery reaches the same result. If the journal has no space, a table is written instead without a
//! commit, so repeated interrupted recoveries use no journal space.
//!
//! The policy state is that of the table, followed by the blocks of the journal and the intent log in their order. After a close it is
//! complete. After a crash the hits since the table are lost, except the hit counts that were recorded when blocks were written.

use std::sync::Arc;

use device::timer::Timer;
use device::{Device, Request};

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::flash_map::{FlashMap, KeptBlocks, Recovery, damaged};
use super::identity;
use super::inner::Inner;
use super::journal::commit::{CommitReason, Committed};
use super::samples::check_samples;
use super::shared::Shared;
use super::superblock::{self, Superblock};
use super::work::Work;
use super::{OsIdentity, Pairing, Volume};

impl Volume {
    /// Opens a volume. `timer` is its clock.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Foreign`], [`VolumeErrorKind::NewerFormat`] and [`VolumeErrorKind::Damaged`] for the contents of the flash,
    /// [`VolumeErrorKind::WrongDisk`], and the devices' failures.
    pub async fn open(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
    ) -> Result<(Self, Recovery)> {
        Self::open_as(flash, disk, timer, Pairing::default()).await
    }

    /// Reads the state on `flash` without its disk: the superblock, and the block counts that [`open`](Self::open) would report.
    /// Writes nothing. The volume must not be open.
    ///
    /// # Errors
    /// As [`open`](Self::open), except those of the disk.
    pub async fn survey(flash: &Arc<dyn Device>) -> Result<(Superblock, Recovery)> {
        let superblock = superblock::read(&**flash).await?;
        check_flash(&**flash, &superblock)?;
        let (found, mut recovery) = FlashMap::read(&**flash, &superblock).await?;
        found.into_state(&superblock, &mut recovery, KeptBlocks::All)?;
        Ok((superblock, recovery))
    }

    /// As [`open`](Self::open), given the operating system's identity of the disk, on which the volume sets its mark. `is_forced` accepts a
    /// disk that does not match.
    ///
    /// # Errors
    /// As [`open`](Self::open). A disk of another size is refused even if forced.
    pub async fn open_as(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
        pairing: Pairing,
    ) -> Result<(Self, Recovery)> {
        let begun_ns = timer.monotonic_ns();
        let Pairing { os_identity, is_forced } = pairing;
        let again = (Arc::clone(&flash), Arc::clone(&disk), Arc::clone(&timer));
        let kept = if is_forced { os_identity.duplicate() } else { OsIdentity::default() };
        let loaded = match sampled(flash, disk, timer, os_identity).await {
            Err(error) if is_forced && error.kind() == VolumeErrorKind::WrongDisk => {
                let (flash, disk, timer) = again;
                let superblock = superblock::read(&*flash).await?;
                load(flash, disk, timer, kept, superblock, KeptBlocks::DirtyOnly).await
            }
            loaded => loaded,
        };
        Self::begin(loaded?, begun_ns).await
    }

    /// Opens a volume that this process closed, on a disk that it has kept open. So clean blocks are not compared with the disk.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn reopen(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
        os_identity: OsIdentity,
    ) -> Result<(Self, Recovery)> {
        let begun_ns = timer.monotonic_ns();
        Self::begin(verified(flash, disk, timer, os_identity).await?, begun_ns).await
    }

    async fn begin(loaded: Loaded, begun_ns: u64) -> Result<(Self, Recovery)> {
        let (inner, mut recovery, dropped) = loaded;
        let shared = &inner.shared;
        let gate_ms = shared.identity.superblock().tuning.latency_gate_ms;
        inner.cleaner.set_latency_gate(gate_ms);
        shared.identity.claim_disk(recovery.was_clean);
        make_durable(&inner, &recovery, &dropped).await?;
        *shared.state.lock().sets.counters_mut() = crate::sets::Counters::default();
        recovery.elapsed_ns = shared.timer.monotonic_ns().saturating_sub(begun_ns);
        Ok((Self { inner, may_cache: true }, recovery))
    }
}

/// A recovered volume before any write, and the pages of dropped blocks.
pub(super) type Loaded = (Arc<Inner>, Recovery, Vec<u32>);

/// Loads a volume whose disk matches, apart from the comparison of blocks.
pub(super) async fn verified(
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    os_identity: OsIdentity,
) -> Result<Loaded> {
    let superblock = superblock::read(&*flash).await?;
    check_flash(&*flash, &superblock)?;
    identity::check_disk(&*disk, &superblock, &os_identity).await?;
    load(flash, disk, timer, os_identity, superblock, KeptBlocks::All).await
}

/// As [`verified`], and compares some clean blocks with the disk.
async fn sampled(
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    os_identity: OsIdentity,
) -> Result<Loaded> {
    let loaded = verified(flash, disk, timer, os_identity).await?;
    // Damaged pages are counted when a client reads them.
    let _bad = check_samples(&loaded.0.shared).await?;
    Ok(loaded)
}

pub(super) async fn load(
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    os_identity: OsIdentity,
    mut superblock: Superblock,
    kept: KeptBlocks,
) -> Result<Loaded> {
    identity::check_size(&*disk, &superblock.disk)?;
    if kept == KeptBlocks::DirtyOnly {
        // Treated as a crash: clean blocks are dropped, and the recorded state of the disk is void.
        superblock.clean = false;
        superblock.disk.is_current = false;
    }
    let (found, mut recovery) = FlashMap::read(&*flash, &superblock).await?;
    let (state, dropped) = found.into_state(&superblock, &mut recovery, kept)?;
    recovery.was_forced = kept == KeptBlocks::DirtyOnly;
    let shared = Shared::new(flash, disk, timer, os_identity, superblock, state);
    Ok((Inner::new(shared), recovery, dropped))
}

pub(super) fn check_flash(flash: &dyn Device, superblock: &Superblock) -> Result<()> {
    let has = flash.geometry().capacity_bytes;
    if !superblock.layout.is_possible_on(has) {
        let why =
            format!("the recorded layout is impossible on {has} bytes of flash: {:?}", superblock.layout);
        return Err(VolumeError::new(VolumeErrorKind::Damaged, why));
    }
    let needs = superblock.layout.end();
    if has < needs {
        let why = format!("the flash has {has} bytes; the cache on it needs {needs}");
        return Err(VolumeError::new(VolumeErrorKind::Damaged, why));
    }
    Ok(())
}

/// Makes the recovered state durable and marks the volume as open (rule 6).
async fn make_durable(inner: &Inner, recovery: &Recovery, dropped: &[u32]) -> Result<()> {
    let Inner { shared, committer, .. } = inner;
    let work = Work::new(shared, Some(committer.lock_metadata().await));
    let flushed = shared.flash.start(Request::Flush).await;
    flushed.map_err(|error| VolumeError::flash("flushing the recovered state", error))?;
    if recovery.was_clean {
        let open = Superblock { clean: false, ..shared.identity.superblock() };
        committer.write_superblock(&work, open).await?;
        return Ok(());
    }
    let needs_table = {
        let state = shared.state.lock();
        recovery.was_forced
            || !dropped.is_empty()
            // A commit would make the damaged one appear whole.
            || state.map.has_damaged()
            || state.journal.has_foreign_blocks()
            || recovery.damaged_blocks > 0
            || !state.journal.fits_changes()
    };
    if needs_table {
        committer.write_recovered_table(&work).await?;
    } else if superblock::copies(&*shared.flash).await != superblock::Copies::Agree {
        // Otherwise damage to the newer copy would bring back a superblock whose journal is being overwritten.
        let superblock = shared.identity.superblock();
        committer.write_superblock(&work, superblock).await?;
    }
    if !needs_table && committer.commit_once(0, CommitReason::Table).await? == Committed::JournalFull {
        return Err(damaged("the journal has no space for the commit that ends recovery"));
    }
    shared.state.lock().free_pages(dropped.iter().copied());
    // Writes of the previous process to the disk may not be durable yet; the next flush must include the disk.
    shared.state.lock().journal.disk_written(shared.disk.flushes_failed());
    Ok(())
}
