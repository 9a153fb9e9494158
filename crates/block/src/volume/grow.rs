//! Growing the disk of a closed or crashed volume.
//!
//! The cached blocks are kept. Only the block at the old end of the disk may be shorter than the others: its page lacks the
//! sectors that the disk gained, so it is cleaned and dropped. Then a table and the superblock are written. A power cut
//! leaves the old size or the new one.

use std::sync::Arc;

use device::Device;
use device::timer::Timer;

use super::create::config_error;
use super::error::Result;
use super::flash_map::KeptBlocks;
use super::inner::Inner;
use super::page_map::FlashCopy;
use super::record::Sectors;
use super::recovery::{check_flash, load};
use super::samples::check_samples;
use super::shared::Shared;
use super::superblock::{self, DiskIdentity, Superblock};
use super::work::Work;
use super::{OsIdentity, SECTOR_BYTES, Volume, identity};
use crate::sets::{MAX_DISK_BLOCKS, Slot};

impl Volume {
    /// Records the size of a disk that was enlarged. Returns the old and the new size. The volume must not be open. After a crash
    /// it is recovered first.
    ///
    /// # Errors
    /// [`VolumeErrorKind::WrongDisk`](super::VolumeErrorKind::WrongDisk) if the disk is smaller than recorded or another one;
    /// [`VolumeErrorKind::Config`](super::VolumeErrorKind::Config) if its size is unchanged or unsupported; and as [`open`](Self::open).
    pub async fn grow_disk(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
        os_identity: OsIdentity,
    ) -> Result<(u64, u64)> {
        let mut superblock = superblock::read(&*flash).await?;
        check_flash(&*flash, &superblock)?;
        let (old_bytes, new_bytes) = (superblock.disk.bytes, disk.geometry().capacity_bytes);
        identity::check_grown_disk(&*disk, &superblock, &os_identity).await?;
        check_size(new_bytes, old_bytes, superblock.layout.block_bytes)?;
        superblock.disk.bytes = new_bytes;
        let (inner, _, dropped) = load(flash, disk, timer, os_identity, superblock, KeptBlocks::All).await?;
        let Inner { shared, committer, .. } = &*inner;
        let work = Work::new(shared, Some(committer.lock_metadata().await));
        let dirty = drop_clean_last_block(shared, old_bytes);
        // Compared before anything is written, because it may be the wrong disk.
        check_samples(shared).await?;
        if let Some((slot, block)) = dirty {
            clean_last_block(&inner, &work, slot, block, old_bytes).await?;
            shared.state.lock().forget(slot, block);
        }
        // The recorded checksums are of the old end.
        shared.identity.claim_disk(false);
        let known = shared.identity.superblock();
        let disk = DiskIdentity { is_current: false, ..known.disk.clone() };
        shared.identity.install(Superblock { clean: false, disk, ..known });
        committer.write_recovered_table(&work).await?;
        drop(work);
        shared.state.lock().free_pages(dropped);
        Self { inner, may_cache: true }.close().await?;
        Ok((old_bytes, new_bytes))
    }
}

fn check_size(new_bytes: u64, old_bytes: u64, block_bytes: u32) -> Result<()> {
    if new_bytes == old_bytes {
        return Err(config_error(format!("the disk has not grown: it still has {new_bytes} bytes")));
    }
    if !new_bytes.is_multiple_of(u64::from(SECTOR_BYTES)) {
        return Err(config_error(format!("a disk of {new_bytes} bytes is not a whole number of sectors")));
    }
    if new_bytes / u64::from(block_bytes) >= MAX_DISK_BLOCKS {
        return Err(config_error("the disk is too large for blocks of this size".into()));
    }
    Ok(())
}

/// Drops the block at the old end of the disk if it is short and clean. Returns it if it is dirty.
fn drop_clean_last_block(shared: &Shared, old_bytes: u64) -> Option<(Slot, u64)> {
    let block_bytes = u64::from(shared.layout.block_bytes);
    let (block, rest) = (old_bytes / block_bytes, old_bytes % block_bytes);
    let mut state = shared.state.lock();
    let slot = state.sets.find(block).filter(|_| rest > 0)?;
    if state.sets.word(slot).is_dirty() {
        return Some((slot, block));
    }
    state.forget(slot, block);
    None
}

/// Writes the sectors of that block that lie before the old end to the disk.
async fn clean_last_block(
    inner: &Inner,
    work: &Arc<Work>,
    slot: Slot,
    block: u64,
    old_bytes: u64,
) -> Result<()> {
    let Inner { shared, committer, disk_io, cleaner, .. } = inner;
    if shared.identity.is_ordered() {
        let why = format!(
            "block {block} at the old end of the disk is dirty and cannot be written out of order: restore the old size of the \
             disk, write all dirty blocks to it (block flush), and then grow it"
        );
        return Err(config_error(why));
    }
    // The disk's end changes. A power cut before the table leaves the old size.
    let grown = shared.identity.superblock();
    let disk = DiskIdentity { bytes: old_bytes, is_current: false, ..grown.disk.clone() };
    committer.write_superblock(work, Superblock { clean: false, disk, ..grown }).await?;
    let mut written = shared.identity.superblock();
    written.disk.bytes = shared.disk.bytes();
    shared.identity.install(written);
    let copy = shared.state.lock().map.copy(slot);
    let Some(copy) = copy else { return Ok(()) };
    let rest = old_bytes % u64::from(shared.layout.block_bytes);
    let has = Sectors::range(0, (rest / u64::from(SECTOR_BYTES)) as u32);
    let has = copy.partial.map_or(has, |known| Sectors(known.0 & has.0));
    let failed_before = shared.disk.flushes_failed();
    cleaner.write_copies(work, &[(block, FlashCopy { partial: Some(has), ..copy })]).await?;
    disk_io.flush_since(failed_before).await?;
    shared.state.lock().sets.mark_clean(slot);
    Ok(())
}
