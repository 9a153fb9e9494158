//! Recognising the disk.
//!
//! The whole disk belongs to the user, so the volume cannot store an identifier on it. These are compared instead:
//!
//! * its size;
//! * its [identity in the operating system](super::os_identity), if known: the mark of a file, the identifier of a block
//!   device;
//! * the checksums of its first and last 64 KiB as of the last close, where partition tables, file systems and databases keep what
//!   they change first; and the modification time of a file. They are compared after a clean close, and for a marked file also after a
//!   crash if the volume had not written to the disk since it was opened;
//! * clean blocks, which must be equal on flash and disk: all in the first and last MiB, and a sample of the others.
//!   [`check`](super::Volume::check) in full mode compares all.
//!
//! Not detected: writes without the cache to a block device of the same size and identifier at places that are not compared; and
//! the same to a file after a crash, if the volume had written to it.

use super::SECTOR_BYTES;
use super::error::{Result, VolumeError, VolumeErrorKind};
use super::os_identity::OsIdentity;
use super::read::crc32c;
use super::shared::Shared;
use super::superblock::{DiskIdentity, Superblock};
use crate::sets::Slot;

/// Length in bytes of the disk's start and end whose checksums are recorded.
const END_BYTES: u64 = 64 << 10;

/// Length in bytes of the disk's start and end where all clean blocks are compared. A file system's superblock is there, which
/// changes with each mount.
const COMPARED_END_BYTES: u64 = 1 << 20;

/// Other clean blocks compared in one sweep over the disk. The first sweep is always made.
const SAMPLES_PER_SWEEP: usize = 64;

/// Sweeps if time allows.
const SWEEPS: usize = 16;

/// Time limit of the comparison after the first sweep.
const TIME_LIMIT_NS: u64 = 500_000_000;

/// Checksums of the disk's first and last bytes.
pub(super) async fn ends_crc(disk: &dyn device::Device) -> Result<[u32; 2]> {
    ends_crc_of(disk, disk.geometry().capacity_bytes).await
}

/// As [`ends_crc`], for a disk of `bytes` bytes.
async fn ends_crc_of(disk: &dyn device::Device, bytes: u64) -> Result<[u32; 2]> {
    let unit = u64::from(disk.geometry().block_bytes);
    let len = END_BYTES.min(bytes) / unit * unit;
    let mut crcs = [0; 2];
    for (crc, offset) in crcs.iter_mut().zip([0, (bytes - len) / unit * unit]) {
        let read = disk.read(offset, len as usize).await;
        let bytes = read.map_err(|error| VolumeError::disk("reading the ends of the disk", error))?;
        *crc = crc32c(&bytes);
    }
    Ok(crcs)
}

/// Fails for a disk of another size.
pub(super) fn check_size(disk: &dyn device::Device, known: &DiskIdentity) -> Result<()> {
    let bytes = disk.geometry().capacity_bytes;
    if bytes == known.bytes {
        return Ok(());
    }
    Err(wrong_disk(known, &format!("it has {bytes} bytes, not {}", known.bytes)))
}

/// Fails for another disk, or for one that was changed since the last close and not by the cache.
pub(super) async fn check_disk(
    disk: &dyn device::Device,
    superblock: &Superblock,
    os_identity: &OsIdentity,
) -> Result<()> {
    let known = &superblock.disk;
    check_size(disk, known)?;
    check_traces(superblock, os_identity)?;
    if !superblock.clean && (!known.is_current || os_identity.is_written()) {
        return Ok(());
    }
    let changed_ns = os_identity.changed_ns();
    if known.changed_ns != 0 && changed_ns != 0 && known.changed_ns != changed_ns {
        return Err(wrong_disk(known, "its file was modified after the cache last wrote to it"));
    }
    if ends_crc(disk).await? != known.ends_crc {
        return Err(wrong_disk(known, "it was written to after the cache was closed"));
    }
    Ok(())
}

/// Fails for a disk that is smaller than recorded, another one, or one whose old part was changed since the last close. The
/// modification time is not compared, because growing a file changes it.
pub(super) async fn check_grown_disk(
    disk: &dyn device::Device,
    superblock: &Superblock,
    os_identity: &OsIdentity,
) -> Result<()> {
    let (known, bytes) = (&superblock.disk, disk.geometry().capacity_bytes);
    if bytes < known.bytes {
        return Err(wrong_disk(known, &format!("it has only {bytes} bytes, not {}", known.bytes)));
    }
    check_traces(superblock, os_identity)?;
    let is_known = superblock.clean || known.is_current && !os_identity.is_written();
    if is_known && ends_crc_of(disk, known.bytes).await? != known.ends_crc {
        return Err(wrong_disk(known, "it was written to after the cache was closed"));
    }
    Ok(())
}

fn check_traces(superblock: &Superblock, os_identity: &OsIdentity) -> Result<()> {
    let (known, uuid) = (&superblock.disk, superblock.uuid);
    if os_identity.is_unknown() {
        return Ok(());
    }
    if let Some(other) = os_identity.mark().filter(|&mark| mark != uuid) {
        let why = format!("the disk belongs to the cache {other:032x}, the flash to the cache {uuid:032x}");
        return Err(VolumeError::new(VolumeErrorKind::WrongDisk, why));
    }
    if known.is_marked && os_identity.mark().is_none() {
        let why = format!(
            "it lacks the mark of the cache {uuid:032x}: it is another disk, or a copy without extended attributes"
        );
        return Err(wrong_disk(known, &why));
    }
    if known.device_id != 0 && known.device_id != os_identity.device_id() {
        return Err(wrong_disk(known, "it is another device"));
    }
    Ok(())
}

fn wrong_disk(known: &DiskIdentity, why: &str) -> VolumeError {
    let label =
        if known.label.is_empty() { String::new() } else { format!(", whose disk was {}", known.label) };
    let why = format!("the disk does not match the cache{label}: {why}");
    VolumeError::new(VolumeErrorKind::WrongDisk, why)
}

impl Shared {
    /// Claims the disk for this volume. The next superblock records it.
    pub(super) fn claim_disk(&self, was_clean: bool) {
        let mut disk = self.superblock.lock().disk.clone();
        if !self.os_identity.is_unknown() {
            disk.is_marked = self.os_identity.set_mark(self.uuid);
            disk.device_id = self.os_identity.device_id();
        }
        if was_clean {
            if disk.changed_ns == 0 {
                disk.changed_ns = self.os_identity.sync_modified_time();
            }
            self.os_identity.set_written(false);
        }
        // Only a marked file can record writes after the flash has failed; otherwise it might be refused for the cache's own writes.
        disk.is_current = disk.is_marked && (was_clean || disk.is_current && !self.os_identity.is_written());
        self.superblock.lock().disk = disk;
    }

    /// Compares clean blocks on flash and disk: all at the disk's ends, then samples spread over the flash, in sweeps over the disk
    /// while time allows. Returns a description of each block whose page is damaged; such a page proves nothing about the disk.
    pub(super) async fn check_samples(&self) -> Result<Vec<String>> {
        let begun_ns = self.timer.monotonic_ns();
        let mut bad = Vec::new();
        for (sweep, samples) in self.samples().into_iter().enumerate() {
            for (slot, block) in samples {
                if sweep > FIRST_SWEEP && self.timer.monotonic_ns().saturating_sub(begun_ns) > TIME_LIMIT_NS {
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
        // With checksums, the page is known to be intact.
        let or = if superblock.checksums {
            ""
        } else {
            "; or the flash is damaged, which the cache cannot rule out without checksums"
        };
        let why = format!("it was written to without the cache, for example at byte {at}{or}");
        wrong_disk(&superblock.disk, &why)
    }

    /// The blocks to compare: those at the ends of the disk, then one list for each sweep, in disk order. Two passes avoid a list of
    /// all clean blocks, which may be too large for memory.
    fn samples(&self) -> Vec<Vec<(Slot, u64)>> {
        let state = self.state.lock();
        let block_bytes = u64::from(self.layout.block_bytes);
        let low = COMPARED_END_BYTES / block_bytes;
        let high = self.disk.bytes().saturating_sub(COMPARED_END_BYTES) / block_bytes;
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

    /// Whether a clean block is equal on flash and disk.
    pub(super) async fn is_same_on_disk(&self, slot: Slot, block: u64) -> Result<bool> {
        let copy = self.state.lock().copy(slot);
        let Some(copy) = copy else { return Ok(true) };
        let on_disk = self.read_disk_block(block).await?;
        let read =
            self.flash.read(self.layout.page_offset(copy.page), self.layout.block_bytes as usize).await;
        let page = read.map_err(|error| VolumeError::flash("reading the flash", error))?;
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

    /// Records checksums and time of the disk for the next opening.
    pub(super) async fn record_disk_state(&self) -> Result<()> {
        self.disk.flush().await.map_err(|error| VolumeError::disk("flushing the disk", error))?;
        let ends_crc = ends_crc(&*self.disk).await?;
        let changed_ns = self.os_identity.sync_modified_time();
        let disk = &mut self.superblock.lock().disk;
        (disk.ends_crc, disk.changed_ns, disk.is_current) = (ends_crc, changed_ns, true);
        Ok(())
    }
}

/// Index of the blocks at the disk's ends in the list of samples.
const AT_ENDS: usize = 0;

/// Index of the first sweep.
const FIRST_SWEEP: usize = 1;
