//! Recognising the disk.
//!
//! The disk is the user's from the first to the last byte, so nothing of ours can lie on it. This is compared:
//!
//! * its size, always;
//! * its [traces](super::traces), where the system has them: the mark of a file, the identity of a block device;
//! * the checksums of its first and last 64 KiB, which the superblock has since the last close: where partition tables,
//!   file systems and databases keep what they change first. And of a file the time when it was last changed. Both after a clean
//!   close; of a marked file for as long as nothing of ours went to it since: before the first such write the superblock
//!   says that they do not hold any more;
//! * clean blocks, always: what flash has of them, the disk must have too, whenever the volume was opened or cut off.
//!   All those in the first and the last MiB, and a sample of the others. [`check`](super::Volume::check) in full
//!   compares them all.
//!
//! What this cannot find: a block device of the same size and identity, written without its cache in none of the places that
//! are looked at; and the same of a file after a crash, if the cache had written to it since it was opened.

use std::sync::Arc;

use device::{IoBuffer, Request};

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::read::crc32c;
use super::superblock::{DiskIdentity, Superblock};
use super::traces::Traces;
use super::work::Work;
use super::{SECTOR_BYTES, Shared};
use crate::sets::Slot;

/// Bytes at each end of the disk whose checksums are kept.
const END_BYTES: u64 = 64 << 10;

/// Bytes at each end of the disk of which all clean blocks are compared when a volume is opened: a file system's superblock is
/// there, which it changes whenever it is mounted.
const COMPARED_END_BYTES: u64 = 1 << 20;

/// Clean blocks beside them that are compared in one sweep over the disk. The first is made in any case.
const SAMPLES_PER_SWEEP: usize = 64;

/// Sweeps that are made if there is time.
const SWEEPS: usize = 16;

/// No sweep but the first begins, and none goes on, when the comparison has taken longer than this.
const MOST_NS: u64 = 500_000_000;

/// Checksums of the disk's first and last bytes.
pub(super) async fn ends_crc(disk: &dyn device::Device) -> Result<[u32; 2]> {
    ends_crc_of(disk, disk.geometry().capacity_bytes).await
}

/// The same of the first `bytes` of it.
async fn ends_crc_of(disk: &dyn device::Device, bytes: u64) -> Result<[u32; 2]> {
    let unit = u64::from(disk.geometry().block_bytes);
    let len = END_BYTES.min(bytes) / unit * unit;
    let mut crcs = [0; 2];
    for (crc, offset) in crcs.iter_mut().zip([0, (bytes - len) / unit * unit]) {
        let read = disk.start(Request::Read { offset, buffer: IoBuffer::zeroed(len as usize) }).await;
        let bytes = read.map_err(|error| VolumeError::disk("reading the ends of the disk", error))?;
        *crc = crc32c(&bytes.expect("a read gives its buffer back"));
    }
    Ok(crcs)
}

/// Refuses a disk of another size.
pub(super) fn check_size(disk: &dyn device::Device, known: &DiskIdentity) -> Result<()> {
    let bytes = disk.geometry().capacity_bytes;
    if bytes == known.bytes {
        return Ok(());
    }
    Err(wrong_disk(known, &format!("it has {bytes} bytes, not {}", known.bytes)))
}

/// Refuses a disk of another size, another's, or one that was changed since the last close and not by the cache.
pub(super) async fn check_disk(
    disk: &dyn device::Device,
    superblock: &Superblock,
    traces: &Traces,
) -> Result<()> {
    let known = &superblock.disk;
    check_size(disk, known)?;
    check_traces(superblock, traces)?;
    if !superblock.clean && (!known.holds || traces.is_written()) {
        return Ok(());
    }
    let changed_ns = traces.changed_ns();
    if known.changed_ns != 0 && changed_ns != 0 && known.changed_ns != changed_ns {
        return Err(wrong_disk(known, "its file was changed after the cache had written to it last"));
    }
    if ends_crc(disk).await? != known.ends_crc {
        return Err(wrong_disk(known, "it was written to after the cache was closed"));
    }
    Ok(())
}

/// Refuses a disk that is smaller than it was, another's, or whose old part was changed since the last close and not by the cache.
/// The time of a file says nothing: growing changes it.
pub(super) async fn check_grown_disk(
    disk: &dyn device::Device,
    superblock: &Superblock,
    traces: &Traces,
) -> Result<()> {
    let (known, bytes) = (&superblock.disk, disk.geometry().capacity_bytes);
    if bytes < known.bytes {
        return Err(wrong_disk(known, &format!("it has only {bytes} bytes, not {}", known.bytes)));
    }
    check_traces(superblock, traces)?;
    let is_known = superblock.clean || known.holds && !traces.is_written();
    if is_known && ends_crc_of(disk, known.bytes).await? != known.ends_crc {
        return Err(wrong_disk(known, "it was written to after the cache was closed"));
    }
    Ok(())
}

fn check_traces(superblock: &Superblock, traces: &Traces) -> Result<()> {
    let (known, uuid) = (&superblock.disk, superblock.uuid);
    if traces.are_untold() {
        return Ok(());
    }
    if let Some(other) = traces.mark().filter(|&mark| mark != uuid) {
        let why = format!("the disk belongs to the cache {other:032x}, the flash to the cache {uuid:032x}");
        return Err(VolumeError::new(VolumeErrorKind::WrongDisk, why));
    }
    if known.is_marked && traces.mark().is_none() {
        let why = format!("it lacks the mark of the cache {uuid:032x}: it is another, or a copy without it");
        return Err(wrong_disk(known, &why));
    }
    if known.device_id != 0 && known.device_id != traces.device_id() {
        return Err(wrong_disk(known, "it is another device"));
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
    /// The disk is the volume's from now on. To be told by the next superblock.
    pub(super) fn adopt_disk(&self, was_clean: bool) {
        let mut disk = self.superblock.lock().disk.clone();
        if !self.traces.are_untold() {
            disk.is_marked = self.traces.set_mark(self.uuid);
            disk.device_id = self.traces.device_id();
        }
        if was_clean {
            if disk.changed_ns == 0 {
                disk.changed_ns = self.traces.settle_time();
            }
            self.traces.set_written(false);
        }
        // Only of a disk that can tell it where the flash has failed: it must not be refused for what the cache itself wrote.
        disk.holds = disk.is_marked && (was_clean || disk.holds && !self.traces.is_written());
        self.superblock.lock().disk = disk;
    }

    /// Before the first change of the disk since the volume was opened, flash is told that what it knows of the disk does not
    /// hold any more; and where it fails, the disk's own attributes.
    pub(super) async fn before_disk_changes(self: &Arc<Self>) {
        if !self.superblock.lock().disk.holds {
            return;
        }
        let work = Work::new(self, Some(self.keeper.lock(0..1).await));
        let mut superblock = self.superblock.lock().clone();
        if superblock.disk.holds {
            superblock.disk.holds = false;
            // The failure is the volume's: whoever needs the flash hears of it.
            if self.write_superblock(&work, superblock).await.is_err() {
                self.traces.set_written(true);
            }
            self.superblock.lock().disk.holds = false;
        }
    }

    /// Compares clean blocks of flash with the disk's: all at its ends, and of the others the lowest, the highest, and some
    /// spread evenly over the flash, in sweeps over the disk for as long as there is time. What is wrong with those that flash has not
    /// kept: they say nothing of the disk, which will serve their blocks.
    pub(super) async fn check_samples(&self) -> Result<Vec<String>> {
        let begun_ns = self.timer.monotonic_ns();
        let mut bad = Vec::new();
        for (sweep, samples) in self.samples().into_iter().enumerate() {
            for (slot, block) in samples {
                if sweep > FIRST_SWEEP && self.timer.monotonic_ns().saturating_sub(begun_ns) > MOST_NS {
                    return Ok(bad);
                }
                match self.is_same_on_disk(slot, block).await {
                    Ok(true) => {}
                    Ok(false) => return Err(self.differs(block)),
                    Err(error) if error.kind() == VolumeErrorKind::Flash => {
                        bad.push(format!("block {block}: {error}"));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(bad)
    }

    fn differs(&self, block: u64) -> VolumeError {
        let superblock = self.superblock.lock();
        let at = block * u64::from(self.layout.block_bytes);
        // The page has the bytes that were written there, if anybody can tell.
        let or = if superblock.checksums {
            ""
        } else {
            "; or the flash is damaged: without checksums nobody can tell"
        };
        let why = format!("it was written to without the cache, at byte {at} among others{or}");
        wrong_disk(&superblock.disk, &why)
    }

    /// Those at the ends of the disk, and then a sweep's each, all in the disk's order. Found in two passes: there may be more
    /// clean blocks than a list of them all would have memory for.
    fn samples(&self) -> Vec<Vec<(Slot, u64)>> {
        let state = self.state.lock();
        let block_bytes = u64::from(self.layout.block_bytes);
        let low = COMPARED_END_BYTES / block_bytes;
        let high = self.disk_bytes.saturating_sub(COMPARED_END_BYTES) / block_bytes;
        let clean = || {
            let clean = state.sets.held().filter(|(_, word)| !word.is_dirty());
            clean.filter_map(|(slot, word)| Some((slot, word.block()?)))
        };
        let is_at_end = |block: u64| block < low || block >= high;
        let mut sweeps = vec![Vec::new(); FIRST_SWEEP + SWEEPS];
        let (mut count, mut lowest, mut highest) = (0, None, None);
        for (slot, block) in clean() {
            if is_at_end(block) {
                sweeps[AT_ENDS].push((slot, block));
                continue;
            }
            count += 1;
            lowest = lowest.filter(|&(_, known)| known < block).or(Some((slot, block)));
            highest = highest.filter(|&(_, known)| known > block).or(Some((slot, block)));
        }
        let most = SAMPLES_PER_SWEEP * SWEEPS;
        let used = count.min(most).div_ceil(SAMPLES_PER_SWEEP).max(1);
        let others = clean().filter(|&(_, block)| !is_at_end(block)).enumerate();
        let spread = others.filter(|(number, _)| number * most % count < most);
        for (number, (_, sample)) in spread.enumerate() {
            sweeps[FIRST_SWEEP + number % used].push(sample);
        }
        sweeps[FIRST_SWEEP].extend(lowest.into_iter().chain(highest));
        for sweep in &mut sweeps {
            sweep.sort_unstable_by_key(|&(_, block)| block);
            sweep.dedup();
        }
        sweeps
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
        if copy.crc.is_some_and(|known| known != crc32c(&page)) {
            let why = format!("the checksum of page {} is wrong", copy.page);
            return Err(VolumeError::new(VolumeErrorKind::Flash, why));
        }
        let sectors = copy.partial.unwrap_or(self.whole(block));
        let sector = SECTOR_BYTES as usize;
        let same = |run: std::ops::Range<u32>| {
            let bytes = run.start as usize * sector..run.end as usize * sector;
            page[bytes.clone()] == on_disk[bytes]
        };
        Ok(sectors.runs().all(same))
    }

    /// Notes how the disk is left, for the next opening.
    pub(super) async fn note_disk_ends(&self) -> Result<()> {
        Self::flush_device(&*self.disk)
            .await
            .map_err(|error| VolumeError::disk("flushing the disk", error))?;
        let ends_crc = ends_crc(&*self.disk).await?;
        let changed_ns = self.traces.settle_time();
        let disk = &mut self.superblock.lock().disk;
        (disk.ends_crc, disk.changed_ns, disk.holds) = (ends_crc, changed_ns, true);
        Ok(())
    }
}

/// The place of the blocks at the ends of the disk among the samples.
const AT_ENDS: usize = 0;

/// And that of the first sweep.
const FIRST_SWEEP: usize = 1;
