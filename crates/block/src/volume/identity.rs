//! Recognising the disk.
//!
//! The disk is the user's from the first to the last byte, so nothing of ours can lie on it. Three things are compared:
//!
//! * its size, always;
//! * the checksums of its first and last 64 KiB, which the superblock has since the last close: where partition tables,
//!   file systems and databases keep what they change first. Only after a clean close: while the volume is open they change;
//! * clean blocks, always: what flash has of them, the disk must have too, whenever the volume was opened or cut off.
//!   A sample is read from both and compared. [`check`](super::Volume::check) in full compares them all.
//!
//! What this cannot find: a disk of the same size, written without its cache in none of the places that are looked at. A
//! cache that holds nothing clean, after a crash, has only the size to go by.

use device::{IoBuffer, Request};

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::read::crc32c;
use super::superblock::DiskIdentity;
use super::{SECTOR_BYTES, Shared};
use crate::sets::Slot;

/// Bytes at each end of the disk whose checksums are kept.
const END_BYTES: u64 = 64 << 10;

/// Clean blocks that are compared when a volume is opened.
const SAMPLES: usize = 64;

/// Checksums of the disk's first and last bytes.
pub(super) async fn ends_crc(disk: &dyn device::Device) -> Result<[u32; 2]> {
    let geometry = disk.geometry();
    let unit = u64::from(geometry.block_bytes);
    let len = END_BYTES.min(geometry.capacity_bytes) / unit * unit;
    let mut crcs = [0; 2];
    for (crc, offset) in crcs.iter_mut().zip([0, (geometry.capacity_bytes - len) / unit * unit]) {
        let read = disk.start(Request::Read { offset, buffer: IoBuffer::zeroed(len as usize) }).await;
        let bytes = read.map_err(|error| VolumeError::disk("reading the ends of the disk", error))?;
        *crc = crc32c(&bytes.expect("a read gives its buffer back"));
    }
    Ok(crcs)
}

/// Refuses a disk of another size, and after a clean close one with other ends.
pub(super) async fn check_disk(disk: &dyn device::Device, known: &DiskIdentity, clean: bool) -> Result<()> {
    let bytes = disk.geometry().capacity_bytes;
    if bytes != known.bytes {
        return Err(wrong_disk(known, &format!("it has {bytes} bytes, not {}", known.bytes)));
    }
    if clean && ends_crc(disk).await? != known.ends_crc {
        return Err(wrong_disk(known, "it was written to after the cache was closed"));
    }
    Ok(())
}

fn wrong_disk(known: &DiskIdentity, why: &str) -> VolumeError {
    let its =
        if known.label.is_empty() { "it".into() } else { format!("its own, which was {}", known.label) };
    let why = format!("the disk is not as the cache left {its}: {why}");
    VolumeError::new(VolumeErrorKind::WrongDisk, why)
}

impl Shared {
    /// Compares clean blocks of flash with the disk's: the lowest, the highest, and others spread evenly over the flash.
    pub(super) async fn check_samples(&self) -> Result<()> {
        for (slot, block) in self.samples() {
            let is_same = match self.is_same_on_disk(slot, block).await {
                // A page that cannot be read says nothing of the disk, which will serve its block.
                Err(error) if error.kind() == VolumeErrorKind::Flash => continue,
                is_same => is_same?,
            };
            if !is_same {
                let known = self.superblock.lock().disk.clone();
                let at = block * u64::from(self.layout.block_bytes);
                let why = format!("it was written to without the cache, at byte {at} among others");
                return Err(wrong_disk(&known, &why));
            }
        }
        Ok(())
    }

    /// Found in two passes: there may be more clean blocks than a list of them all would have memory for.
    fn samples(&self) -> Vec<(Slot, u64)> {
        let state = self.state.lock();
        let clean = || {
            let clean = state.sets.held().filter(|(_, word)| !word.is_dirty());
            clean.filter_map(|(slot, word)| Some((slot, word.block()?)))
        };
        let (mut count, mut lowest, mut highest) = (0, None, None);
        for (slot, block) in clean() {
            count += 1;
            lowest = lowest.filter(|&(_, known)| known < block).or(Some((slot, block)));
            highest = highest.filter(|&(_, known)| known > block).or(Some((slot, block)));
        }
        let spread = clean().enumerate().filter(|(number, _)| number * SAMPLES % count < SAMPLES);
        let mut samples: Vec<_> = spread.map(|(_, sample)| sample).collect();
        samples.extend(lowest.into_iter().chain(highest));
        samples.sort_unstable_by_key(|&(_, block)| block);
        samples.dedup();
        samples
    }

    /// Whether the disk has the same of a clean block as flash has.
    pub(super) async fn is_same_on_disk(&self, slot: Slot, block: u64) -> Result<bool> {
        let copy = self.state.lock().copy(slot);
        let Some(copy) = copy else { return Ok(true) };
        let on_disk = self.read_disk_block(block).await?;
        let buffer = IoBuffer::zeroed(self.layout.block_bytes as usize);
        let read =
            self.flash.start(Request::Read { offset: self.layout.page_offset(copy.page), buffer }).await;
        let page = read.map_err(|error| VolumeError::flash("reading the flash", error))?;
        let page = page.expect("a read gives its buffer back");
        let sectors = copy.partial.unwrap_or(self.whole(block));
        let sector = SECTOR_BYTES as usize;
        let same = |run: std::ops::Range<u32>| {
            let bytes = run.start as usize * sector..run.end as usize * sector;
            page[bytes.clone()] == on_disk[bytes]
        };
        Ok(sectors.runs().all(same))
    }

    /// Notes the ends of the disk for the next opening.
    pub(super) async fn note_disk_ends(&self) -> Result<()> {
        Self::flush_device(&*self.disk)
            .await
            .map_err(|error| VolumeError::disk("flushing the disk", error))?;
        let crcs = ends_crc(&*self.disk).await?;
        self.superblock.lock().disk.ends_crc = crcs;
        Ok(())
    }
}
