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

use device::checksum::crc32c;
use parking_lot::Mutex;

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::os_identity::OsIdentity;
use super::superblock::{DiskIdentity, Superblock};

/// Length in bytes of the disk's start and end whose checksums are recorded.
const END_BYTES: u64 = 64 << 10;

/// The superblock in force, and the disk that it names.
pub(super) struct Identity {
    uuid: u128,
    superblock: Mutex<Superblock>,
    os_identity: OsIdentity,
}

impl Identity {
    pub(super) fn new(superblock: Superblock, os_identity: OsIdentity) -> Self {
        Self { uuid: superblock.uuid, superblock: Mutex::new(superblock), os_identity }
    }

    pub(super) fn uuid(&self) -> u128 {
        self.uuid
    }

    pub(super) fn superblock(&self) -> Superblock {
        self.superblock.lock().clone()
    }

    /// Puts a superblock into force that is on flash, or will be written before the first request.
    pub(super) fn install(&self, superblock: Superblock) {
        *self.superblock.lock() = superblock;
    }

    /// Numbers a superblock before it is written. Even if the write fails, one copy may be on flash, and the next superblock must be newer.
    pub(super) fn number(&self, superblock: &mut Superblock) {
        superblock.sequence += 1;
        self.superblock.lock().sequence = superblock.sequence;
    }

    /// Whether dirty blocks must reach the disk in the order of flushes.
    pub(super) fn is_ordered(&self) -> bool {
        self.superblock.lock().ordered
    }

    pub(super) fn keeps_checksums(&self) -> bool {
        self.superblock.lock().checksums
    }

    /// Whether the recorded checksums of the disk are valid.
    pub(super) fn is_disk_current(&self) -> bool {
        self.superblock.lock().disk.is_current
    }

    /// The recorded checksums of the disk are no longer valid. If the flash could not record that, the file's attributes do.
    pub(super) fn disk_changes(&self, is_recorded: bool) {
        if !is_recorded {
            self.os_identity.set_written(true);
        }
        self.superblock.lock().disk.is_current = false;
    }

    /// Records the checksums and the time of the flushed disk for the next opening. The next superblock has them.
    pub(super) fn record_disk(&self, ends_crc: [u32; 2]) {
        let changed_ns = self.os_identity.sync_modified_time();
        let disk = &mut self.superblock.lock().disk;
        (disk.ends_crc, disk.changed_ns, disk.is_current) = (ends_crc, changed_ns, true);
    }

    /// The error for a disk whose `byte` differs from a clean block.
    pub(super) fn disk_differs(&self, byte: u64) -> VolumeError {
        let superblock = self.superblock.lock();
        // With checksums, the page is known to be intact.
        let or = if superblock.checksums {
            ""
        } else {
            "; or the flash is damaged, which the cache cannot rule out without checksums"
        };
        let why = format!("it was written to without the cache, for example at byte {byte}{or}");
        wrong_disk(&superblock.disk, &why)
    }

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
}

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
