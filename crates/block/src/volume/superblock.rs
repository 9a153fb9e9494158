//! The superblock: identity, layout, tuning, the table in force, and whether the volume was closed.
//!
//! Two copies, each at the start of 64 KiB, each within 512 bytes, which a device writes atomically. Little-endian;
//! `crc` is CRC-32C of the 512 bytes with this field zero. Magic, version and crc have the same place in every version, so
//! a newer format is recognised. The fields are those of [`encoding::Block`].
//!
//! # Protocol
//!
//! An update writes the first copy, flushes, writes the second, flushes. The valid copy with the higher sequence is in force.
//! A power cut at any moment leaves one whole; damage after the update leaves the other one, which is as new. The previous table and
//! journal are overwritten only after both copies are written.

use device::{Device, IoBuffer, Request};

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::layout::{Layout, SUPERBLOCKS_BYTES};
use crate::sets::{Geometry, Placement, Tuning};

mod encoding;

pub use encoding::Unreadable;
use encoding::{Block, SUPERBLOCK_BYTES};

/// The newest format, which new volumes get. Version 2 adds the policy state to records.
pub const FORMAT_VERSION: u32 = 2;

/// The oldest supported format. A volume keeps it until it is [upgraded](super::Volume::upgrade).
pub const OLDEST_FORMAT: u32 = 1;

/// The first format whose records have the policy state.
pub const FORMAT_WITH_POLICY_STATE: u32 = 2;

/// Maximum length of a disk's label.
pub const LABEL_BYTES: usize = 128;

/// Offsets of the copies.
const COPIES: [u64; 2] = [0, SUPERBLOCKS_BYTES / 2];

/// The contents of a superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The format of table and journal.
    pub format: u32,
    /// Number of the update.
    pub sequence: u64,
    /// The volume's identifier, which every block of journal and tables carries.
    pub uuid: u128,
    /// Whether the volume was closed and not changed since.
    pub clean: bool,
    /// Whether checksums of pages are kept.
    pub checksums: bool,
    /// How the flash is divided.
    pub layout: Layout,
    /// How blocks of the disk are mapped to sets.
    pub placement: Placement,
    /// Random key of the mapping, drawn when the volume was created.
    pub placement_key: u64,
    /// Settings that can be changed while the volume runs.
    pub tuning: Tuning,
    /// Whether dirty blocks must reach the disk in the order of flushes.
    pub ordered: bool,
    /// The table in force.
    pub checkpoint: Checkpoint,
    /// Identity of the disk.
    pub disk: DiskIdentity,
    /// Whether the whole journal and intent log were initialized when the volume was created. Older programs did not do that.
    pub has_initial_blocks: bool,
}

/// The table in force, and where the journal continues after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// Index of the table, 0 or 1.
    pub table: u8,
    /// Number of the table, which its blocks carry.
    pub number: u64,
    /// Length in blocks; 0 for an empty table.
    pub table_blocks: u64,
    /// Sequence number of the first journal block after the table.
    pub journal_sequence: u64,
    /// Chain value of the first journal block after the table.
    pub journal_chain: u32,
    /// Commit that the first journal block after the table belongs to.
    pub next_commit: u64,
    /// Last commit that is known to be flushed.
    pub confirmed_commit: u64,
}

/// The recorded identity and state of the disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskIdentity {
    /// Size in bytes.
    pub bytes: u64,
    /// CRC-32C of the first and the last 64 KiB at the last close.
    pub ends_crc: [u32; 2],
    /// Name, as in `/dev/disk/by-id`; for messages only, because names change.
    pub label: String,
    /// The disk is a file with the volume's mark.
    pub is_marked: bool,
    /// Hash of a block device's identifier; 0 if unknown.
    pub device_id: u64,
    /// Modification time of the disk's file at the last close; 0 if unknown.
    pub changed_ns: u64,
    /// Whether checksums and time are current: the volume has not written to the disk since the last close.
    pub is_current: bool,
    /// Sector size presented to clients; 0 if unknown (older programs present 512).
    pub sector_bytes: u32,
}

/// Permitted sector sizes; powers of two.
pub const SECTOR_SIZES: std::ops::RangeInclusive<u32> = 512..=65536;

impl Superblock {
    /// The geometry of the sets.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.layout.block_bytes,
            sets: self.layout.sets,
            ways: self.layout.ways,
            placement: self.placement,
            placement_key: self.placement_key,
        }
    }

    /// Encodes the superblock.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        zerocopy::transmute!(Block::from(self))
    }

    /// Decodes a superblock.
    ///
    /// # Errors
    /// [`Unreadable`], with the reason.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Self, Unreadable> {
        Block::verified(bytes)?.decode().ok_or(Unreadable::Damaged)
    }
}

/// Whether a cache can present sectors of `bytes`.
#[must_use]
pub fn is_sector_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && SECTOR_SIZES.contains(&bytes)
}

/// Writes both copies in the order of the protocol.
///
/// # Errors
/// If the flash fails; then the previous superblock may still be in force.
pub async fn write(flash: &dyn Device, superblock: &Superblock) -> Result<()> {
    for step in steps(flash, superblock) {
        flash.start(step).await.map_err(|error| VolumeError::flash("writing a superblock", error))?;
    }
    Ok(())
}

/// The requests that write both copies. Each must complete before the next is submitted.
pub(super) fn steps(flash: &dyn Device, superblock: &Superblock) -> impl Iterator<Item = Request> + use<> {
    let block = (flash.geometry().block_bytes as usize).max(SUPERBLOCK_BYTES);
    let mut buffer = IoBuffer::zeroed(block);
    buffer[..SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
    let data: device::IoSlice = buffer.into();
    COPIES.into_iter().flat_map(move |offset| [Request::write(offset, data.clone()), Request::Flush])
}

/// Relation of the two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// Both copies are valid and equal.
    Agree,
    /// Both copies are valid and the first is newer: the update was interrupted.
    HalfWritten,
    /// A copy is damaged or unreadable, or the copies cannot result from an interrupted update.
    Damaged,
}

/// Compares the two copies.
pub async fn copies(flash: &dyn Device) -> Copies {
    let block = (flash.geometry().block_bytes as usize).max(SUPERBLOCK_BYTES);
    let mut copies = Vec::new();
    for offset in COPIES {
        copies.push(match flash.read(offset, block).await {
            Ok(bytes) => Superblock::decode(&bytes),
            Err(_) => Err(Unreadable::Damaged),
        });
    }
    match &copies[..] {
        [Ok(first), Ok(second)] if first == second => Copies::Agree,
        [Ok(first), Ok(second)] if first.uuid == second.uuid && first.sequence > second.sequence => {
            Copies::HalfWritten
        }
        _ => Copies::Damaged,
    }
}

/// Reads the superblock in force.
///
/// # Errors
/// [`VolumeErrorKind::Foreign`] if the flash holds no volume, [`VolumeErrorKind::NewerFormat`],
/// [`VolumeErrorKind::Damaged`] if both copies are damaged, and the flash's failures.
pub async fn read(flash: &dyn Device) -> Result<Superblock> {
    let foreign = || VolumeError::new(VolumeErrorKind::Foreign, "there is no cache on the flash");
    if flash.geometry().capacity_bytes < SUPERBLOCKS_BYTES {
        return Err(foreign());
    }
    let block = (flash.geometry().block_bytes as usize).max(SUPERBLOCK_BYTES);
    let mut found: Vec<Superblock> = Vec::new();
    let mut reasons = Vec::new();
    for offset in COPIES {
        match flash.read(offset, block).await {
            Ok(bytes) => match Superblock::decode(&bytes) {
                Ok(superblock) => found.push(superblock),
                Err(reason) => reasons.push(reason),
            },
            // One unreadable copy is tolerated.
            Err(error) if offset > 0 && found.is_empty() => {
                return Err(VolumeError::flash("reading both superblocks", error));
            }
            Err(_) => reasons.push(Unreadable::Damaged),
        }
    }
    // A newer program was interrupted after one copy, so the older copy is not in force.
    if let Some(Unreadable::Newer(version)) =
        reasons.iter().find(|reason| matches!(reason, Unreadable::Newer(_)))
    {
        let why = format!(
            "the cache on the flash has format {version}; this version knows {OLDEST_FORMAT} to {FORMAT_VERSION}"
        );
        return Err(VolumeError::new(VolumeErrorKind::NewerFormat, why));
    }
    match found.into_iter().max_by_key(|superblock| superblock.sequence) {
        Some(superblock) => Ok(superblock),
        None if reasons.contains(&Unreadable::Damaged) => {
            let why = "both superblocks of the cache on the flash are damaged";
            Err(VolumeError::new(VolumeErrorKind::Damaged, why))
        }
        None => Err(foreign()),
    }
}

#[cfg(test)]
mod tests;
