//! Moving a volume to another flash device, larger or smaller, with its blocks.
//!
//! The pages and a new table are written to places that nothing refers to; the superblock is written last. Until then the old flash holds
//! the volume; it is only read. Blocks keep their order and policy state.
//!
//! Pages can be [copied ahead](super::copy_ahead) while the volume is open.
//!
//! A flash of another size has another number of sets. If a new set is full, it keeps the dirty blocks and those clean blocks that
//! would be evicted last.

use std::collections::HashMap;
use std::sync::Arc;

use device::timer::Timer;
use device::{Device, IoBuffer, Request};

use super::copy_ahead::{CopiedAhead, Places};
use super::create::{config_error, initialize_journal};
use super::error::{Result, VolumeError, VolumeErrorKind};
use super::flash_map::{FlashMap, KeptBlocks, Recovery};
use super::inner::Inner;
use super::layout::{Layout, SUPERBLOCKS_BYTES};
use super::page_copy::{Move, PAGES_AT_ONCE, copy_pages};
use super::recovery::check_flash;
use super::shared::Shared;
use super::superblock::{self, Checkpoint, Superblock};
use super::work::Work;
use super::{OsIdentity, Volume, identity};

/// The result of a move to another flash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// The superblock on the new flash.
    pub superblock: Superblock,
    /// Blocks copied.
    pub blocks: u64,
    /// Copied blocks that are dirty.
    pub dirty_blocks: u64,
    /// Clean blocks left out, because their new set was full or they could not be read.
    pub left_out_blocks: u64,
    /// Dirty blocks lost, because they could not be read.
    pub lost_blocks: u64,
    /// The state of the old flash.
    pub recovery: Recovery,
}

impl Volume {
    /// Copies the volume on `old`, which must not be open, to `new`, whose contents are lost. `old` is only read: afterwards both hold
    /// the volume, and one of them must be overwritten. Pages that are `ahead` already are not copied again. With `accepts_loss`,
    /// unreadable dirty blocks are left out.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Config`] if `new` is too small for the dirty blocks, or an ordered volume has dirty blocks;
    /// [`VolumeErrorKind::Flash`] if a dirty block cannot be read; and as [`open`](Self::open). `new` holds no volume then.
    pub async fn replace_flash(
        old: &Arc<dyn Device>,
        new: &Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
        os_identity: OsIdentity,
        ahead: Option<CopiedAhead>,
        accepts_loss: bool,
    ) -> Result<Replaced> {
        let known = superblock::read(&**old).await?;
        check_flash(&**old, &known)?;
        identity::check_disk(&*disk, &known, &os_identity).await?;
        let (found, mut recovery) = FlashMap::read(&**old, &known).await?;
        let mut superblock = moved_superblock(&known, &**new)?;
        let is_unprepared = ahead.is_none();
        let places = match ahead {
            Some(ahead) => ahead.into_places(&superblock)?,
            None => Places::new(&known.layout, &superblock)?,
        };
        let (mut moved, moves) = moved(found, places, &known, &superblock, &mut recovery)?;
        if is_unprepared {
            wipe(&**new, &superblock).await?;
        }
        let mut replaced = Replaced {
            superblock: superblock.clone(),
            blocks: 0,
            dirty_blocks: 0,
            left_out_blocks: recovery.dropped_blocks,
            lost_blocks: 0,
            recovery,
        };
        copy(old, new, &known, &mut moved, &moves, accepts_loss, &mut replaced).await?;
        superblock.clean = true;
        let mut found = Recovery { was_clean: true, ..Recovery::default() };
        let (state, _) = moved.into_state(&superblock, &mut found, KeptBlocks::All)?;
        (replaced.blocks, replaced.dirty_blocks) = (found.blocks, found.dirty_blocks);
        let shared = Shared::new(Arc::clone(new), disk, timer, os_identity, superblock, state);
        let inner = Inner::new(shared);
        let Inner { shared, committer, disk_io, .. } = &*inner;
        shared.identity.claim_disk(known.clean);
        disk_io.record_disk_state().await?;
        let work = Work::new(shared, Some(committer.lock_metadata().await));
        committer.write_recovered_table(&work).await?;
        replaced.superblock = shared.identity.superblock();
        Ok(replaced)
    }
}

/// The superblock for a new flash, with an empty journal and no table.
pub(super) fn moved_superblock(known: &Superblock, new: &dyn Device) -> Result<Superblock> {
    let layout =
        Layout::compute(&new.geometry(), known.layout.block_bytes, known.layout.ways, None, known.ordered)?;
    let checkpoint = Checkpoint { next_commit: 1, ..Checkpoint::default() };
    // Higher than on the old flash, which keeps its superblock until it is overwritten.
    let sequence = known.sequence + 1;
    Ok(Superblock { layout, checkpoint, sequence, has_initial_blocks: true, ..known.clone() })
}

/// The contents of `found` at their places on the new flash, and the pages to copy.
fn moved(
    found: FlashMap,
    mut places: Places,
    known: &Superblock,
    superblock: &Superblock,
    recovery: &mut Recovery,
) -> Result<(FlashMap, Vec<Move>)> {
    let keeps_clean = known.clean || known.tuning.mode.keeps_dirty();
    let mut held: HashMap<u32, u32> = HashMap::new();
    let mut kept = Vec::new();
    for page in found.pages_to_keep_first() {
        let (block, dirty) = found.block_of(page);
        if dirty && known.ordered {
            let why = "an ordered cache with dirty blocks cannot be moved: write them to the disk first (block flush)";
            return Err(config_error(why.into()));
        }
        let in_set = held.entry(places.set_of(block)).or_default();
        if *in_set >= superblock.layout.ways || (!dirty && !keeps_clean) {
            if dirty {
                let why = "the new flash is too small for the dirty blocks: write them to the disk first (block flush)";
                return Err(config_error(why.into()));
            }
            recovery.dropped_blocks += 1;
            continue;
        }
        *in_set += 1;
        kept.push(page);
    }
    places.keep_only(&kept);
    let mut all = Vec::new();
    let mut to_copy = Vec::new();
    for page in kept {
        let (block, dirty) = found.block_of(page);
        let is_copied = places.has_copy(page);
        let to = places.place(page, block).expect("a group has a page for each of its slots");
        let step = Move { block, dirty, from: page, to, crc: found.known_crc(page) };
        all.push(step);
        if !is_copied {
            to_copy.push(step);
        }
    }
    let moved = found.moved(superblock, &all);
    to_copy.sort_unstable_by_key(|step| step.from);
    Ok((moved, to_copy))
}

/// Overwrites the superblocks of an earlier volume, trims the rest, and initializes tables and journal.
pub(super) async fn wipe(new: &dyn Device, superblock: &Superblock) -> Result<()> {
    let layout = &superblock.layout;
    let failed = |error| VolumeError::flash("preparing the new flash", error);
    new.write(0, IoBuffer::zeroed(SUPERBLOCKS_BYTES as usize)).await.map_err(failed)?;
    new.start(Request::Flush).await.map_err(failed)?;
    // Failure is harmless: trimming is only advice to the device.
    let (offset, len) = (SUPERBLOCKS_BYTES, layout.end() - SUPERBLOCKS_BYTES);
    let _ = new.start(Request::Trim { offset, len }).await;
    // An earlier journal has another UUID, unless it belonged to this volume.
    new.write_zeros(layout.table_offset(0)..layout.journal_offset()).await.map_err(failed)?;
    initialize_journal(new, layout, superblock.uuid).await.map_err(failed)
}

async fn copy(
    old: &Arc<dyn Device>,
    new: &Arc<dyn Device>,
    known: &Superblock,
    moved: &mut FlashMap,
    moves: &[Move],
    accepts_loss: bool,
    replaced: &mut Replaced,
) -> Result<()> {
    let layouts = [known.layout, replaced.superblock.layout];
    for part in moves.chunks(PAGES_AT_ONCE) {
        for (step, why) in copy_pages([&**old, &**new], layouts, part).await? {
            leave_out(moved, &step, &why, accepts_loss, replaced)?;
        }
    }
    Ok(())
}

/// Omits a page that cannot be read. A clean block is on the disk too.
fn leave_out(
    moved: &mut FlashMap,
    step: &Move,
    why: &str,
    accepts_loss: bool,
    replaced: &mut Replaced,
) -> Result<()> {
    if step.dirty && !accepts_loss {
        let why = format!("dirty block {} on page {} of the old flash is lost: {why}", step.block, step.from);
        return Err(VolumeError::new(VolumeErrorKind::Flash, why));
    }
    *(if step.dirty { &mut replaced.lost_blocks } else { &mut replaced.left_out_blocks }) += 1;
    moved.drop_page(step.to);
    Ok(())
}
