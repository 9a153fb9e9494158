//! The superblock: identity, layout, tuning, the table in force, and whether the volume was closed.
//!
//! ```text
//!      0        8         12      16                                     16 + 8 n
//!      +--------+---------+-------+------------+--------+-- ··· --------+------------+------------+--------------+
//!      | magic  | version | crc   | sequence   | uuid   | words         | label      | identity   | write bypass |
//!      | 8 B    | u32     | u32   | u64        | 2 words| u64 each      | 128 B      | 3 words    | u64          |
//!      +--------+---------+-------+------------+--------+-- ··· --------+------------+------------+--------------+
//! ```
//!
//! Two copies, each at the start of 64 KiB, each within 512 bytes, which a device writes atomically. Little-endian;
//! `crc` is CRC-32C of the 512 bytes with this field zero. Magic, version and crc have the same place in every version, so
//! a newer format is recognised. Words come in the order of [`Superblock::words`].
//!
//! Every format has the operating system's identity of the disk. Programs that do not know this field write zeros, which mean
//! unknown.
//!
//! # Protocol
//!
//! An update writes the first copy, flushes, writes the second, flushes. The valid copy with the higher sequence is in force.
//! A power cut at any moment leaves one whole; damage after the update leaves the other one, which is as new. The previous table and
//! journal are overwritten only after both copies are written.

use device::{Device, IoBuffer, Request};

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::layout::{Layout, SUPERBLOCKS_BYTES};
use crate::sets::{Geometry, Mode, PLACEMENT_VERSION, Placement, SetPolicy, Tuning};

/// The newest format, which new volumes get. Version 2 adds the policy state to records.
pub const FORMAT_VERSION: u32 = 2;

/// The oldest supported format. A volume keeps it until it is [upgraded](super::Volume::upgrade).
pub const OLDEST_FORMAT: u32 = 1;

/// The first format whose records have the policy state.
pub const FORMAT_WITH_STANDING: u32 = 2;

const MAGIC: &[u8; 8] = b"FWBLKVOL";
const SUPERBLOCK_BYTES: usize = 512;
const VERSION_AT: usize = 8;
const CRC_AT: usize = VERSION_AT + 4;
const WORDS_AT: usize = CRC_AT + 4;
const WORDS: usize = 39;
const LABEL_AT: usize = WORDS_AT + WORDS * 8;
/// Maximum length of a disk's label.
pub const LABEL_BYTES: usize = 128;
/// Upper bound of counters: higher than any number of superblocks, tables or commits.
const COUNTER_LIMIT: u64 = 1 << 62;
const OS_IDENTITY_AT: usize = LABEL_AT + LABEL_BYTES;
const OS_IDENTITY_WORDS: usize = 3;
const WRITE_BYPASS_AT: usize = OS_IDENTITY_AT + OS_IDENTITY_WORDS * 8;
const _: () = assert!(WRITE_BYPASS_AT + 8 <= SUPERBLOCK_BYTES);
/// Flags in the first word of the identity.
const IS_MARKED: u64 = 1;
const IS_CURRENT: u64 = 2;
const HAS_INITIAL_BLOCKS: u64 = 4;

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

impl DiskIdentity {
    fn os_identity(&self) -> [u64; OS_IDENTITY_WORDS] {
        let flags = if self.is_marked { IS_MARKED } else { 0 } | if self.is_current { IS_CURRENT } else { 0 };
        [flags, self.device_id, self.changed_ns]
    }
}

impl Superblock {
    fn words(&self) -> [u64; WORDS] {
        let (layout, tuning, checkpoint) = (&self.layout, &self.tuning, &self.checkpoint);
        let (placement, run_bytes) = match self.placement {
            Placement::Linear => (0, 0),
            Placement::Hashed { run_bytes } => (1, run_bytes),
            Placement::Permuted { run_bytes } => (2, run_bytes),
        };
        let (policy, hot_percent, promote_hits) = match tuning.policy {
            SetPolicy::Fifo => (0, 0, 0),
            SetPolicy::Lru => (1, 0, 0),
            SetPolicy::Lru2q { hot_percent, promote_hits } => (2, hot_percent, promote_hits),
        };
        [
            self.sequence,
            self.uuid as u64,
            (self.uuid >> 64) as u64,
            u64::from(self.clean),
            u64::from(self.checksums),
            u64::from(layout.block_bytes),
            u64::from(layout.sets),
            u64::from(layout.ways),
            layout.table_blocks,
            layout.journal_blocks,
            u64::from(PLACEMENT_VERSION),
            placement,
            u64::from(run_bytes),
            self.placement_key,
            mode_number(tuning.mode),
            policy,
            u64::from(hot_percent),
            u64::from(promote_hits),
            u64::from(tuning.dirty_percent),
            u64::from(tuning.lazy_depth),
            u64::from(tuning.idle_seconds),
            u64::from(tuning.idle_blocks_per_second),
            u64::from(tuning.cleanings_per_set),
            u64::from(tuning.cleanings_total),
            u64::from(tuning.clean_run_blocks),
            tuning.read_bypass_bytes,
            u64::from(self.ordered),
            u64::from(checkpoint.table),
            checkpoint.number,
            checkpoint.table_blocks,
            checkpoint.journal_sequence,
            u64::from(checkpoint.journal_chain),
            checkpoint.next_commit,
            checkpoint.confirmed_commit,
            self.disk.bytes,
            u64::from(self.disk.ends_crc[0]),
            u64::from(self.disk.ends_crc[1]),
            u64::from(tuning.latency_gate_ms),
            u64::from(self.disk.sector_bytes),
        ]
    }

    fn from_words(
        format: u32,
        words: &[u64; WORDS],
        label: &[u8],
        os_identity: [u64; OS_IDENTITY_WORDS],
        write_bypass: u64,
    ) -> Option<Self> {
        let small = |at: usize| u32::try_from(words[at]).ok();
        let flag = |at: usize| match words[at] {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let run_bytes = small(12)?;
        let placement = match words[11] {
            0 => Placement::Linear,
            1 => Placement::Hashed { run_bytes },
            2 => Placement::Permuted { run_bytes },
            _ => return None,
        };
        let policy = match words[15] {
            0 => SetPolicy::Fifo,
            1 => SetPolicy::Lru,
            2 => SetPolicy::Lru2q {
                hot_percent: u8::try_from(words[16]).ok()?,
                promote_hits: u8::try_from(words[17]).ok()?,
            },
            _ => return None,
        };
        // Larger counters would overflow with the next updates.
        let count = |at: usize| Some(words[at]).filter(|&count| count < COUNTER_LIMIT);
        let end = label.iter().position(|&byte| byte == 0).unwrap_or(label.len());
        Some(Self {
            format,
            sequence: count(0)?,
            uuid: u128::from(words[1]) | u128::from(words[2]) << 64,
            clean: flag(3)?,
            checksums: flag(4)?,
            layout: Layout {
                block_bytes: small(5)?,
                sets: small(6)?,
                ways: small(7)?,
                table_blocks: words[8],
                journal_blocks: words[9],
            },
            placement,
            placement_key: words[13],
            tuning: Tuning {
                mode: mode_of(words[14])?,
                policy,
                dirty_percent: u8::try_from(words[18]).ok()?,
                lazy_depth: small(19)?,
                idle_seconds: small(20)?,
                idle_blocks_per_second: small(21)?,
                cleanings_per_set: u16::try_from(words[22]).ok()?,
                cleanings_total: small(23)?,
                clean_run_blocks: small(24)?,
                read_bypass_bytes: words[25],
                // Older programs write 0, which selects the limit for reads.
                write_bypass_bytes: write_bypass.checked_sub(1).unwrap_or(words[25]),
                // Older programs write 0, which disables the gate.
                latency_gate_ms: small(37)?,
            },
            ordered: flag(26)?,
            checkpoint: Checkpoint {
                table: u8::try_from(words[27]).ok().filter(|&table| table < 2)?,
                number: count(28)?,
                table_blocks: words[29],
                journal_sequence: count(30)?,
                journal_chain: small(31)?,
                next_commit: count(32)?,
                confirmed_commit: count(33)?,
            },
            disk: DiskIdentity {
                bytes: words[34],
                ends_crc: [small(35)?, small(36)?],
                label: String::from_utf8_lossy(&label[..end]).into_owned(),
                is_marked: os_identity[0] & IS_MARKED != 0,
                device_id: os_identity[1],
                changed_ns: os_identity[2],
                is_current: os_identity[0] & IS_CURRENT != 0,
                // Older programs write 0, which means unknown.
                sector_bytes: small(38).filter(|&bytes| bytes == 0 || is_sector_size(bytes))?,
            },
            has_initial_blocks: os_identity[0] & HAS_INITIAL_BLOCKS != 0,
        })
        .filter(|_| words[10] == u64::from(PLACEMENT_VERSION))
    }

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
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[VERSION_AT..][..4].copy_from_slice(&self.format.to_le_bytes());
        for (word, place) in self.words().iter().zip(bytes[WORDS_AT..LABEL_AT].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let label = self.disk.label.as_bytes();
        let label = &label[..label.len().min(LABEL_BYTES)];
        bytes[LABEL_AT..][..label.len()].copy_from_slice(label);
        let mut identity = self.disk.os_identity();
        identity[0] |= if self.has_initial_blocks { HAS_INITIAL_BLOCKS } else { 0 };
        for (word, place) in identity.iter().zip(bytes[OS_IDENTITY_AT..].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[WRITE_BYPASS_AT..][..8].copy_from_slice(&self.write_bypass_word().to_le_bytes());
        let crc = crc_of(&bytes);
        bytes[CRC_AT..][..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The encoded limit for sequential writes: 0 for the same limit as for reads, otherwise the limit plus 1.
    fn write_bypass_word(&self) -> u64 {
        let Tuning { read_bypass_bytes, write_bypass_bytes, .. } = self.tuning;
        if write_bypass_bytes == read_bypass_bytes { 0 } else { write_bypass_bytes.saturating_add(1) }
    }

    /// Decodes a superblock.
    ///
    /// # Errors
    /// [`Unreadable`], with the reason.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Self, Unreadable> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes.len() < SUPERBLOCK_BYTES || bytes[..8] != *MAGIC {
            return Err(Unreadable::NotOurs);
        }
        // The checksum first: a flipped bit in the version is damage, not a newer format.
        if u32_at(CRC_AT) != crc_of(bytes) {
            return Err(Unreadable::Damaged);
        }
        let format = u32_at(VERSION_AT);
        if format > FORMAT_VERSION {
            return Err(Unreadable::Newer(format));
        }
        if format < OLDEST_FORMAT {
            return Err(Unreadable::Damaged);
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let words = std::array::from_fn(|i| word(WORDS_AT + i * 8));
        let os_identity = std::array::from_fn(|i| word(OS_IDENTITY_AT + i * 8));
        let label = &bytes[LABEL_AT..][..LABEL_BYTES];
        Self::from_words(format, &words, label, os_identity, word(WRITE_BYPASS_AT)).ok_or(Unreadable::Damaged)
    }
}

/// Why a superblock cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// The magic number is missing.
    NotOurs,
    /// The checksum or a field is invalid.
    Damaged,
    /// A valid superblock of a newer format.
    Newer(u32),
}

/// Whether a cache can present sectors of `bytes`.
#[must_use]
pub fn is_sector_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && SECTOR_SIZES.contains(&bytes)
}

fn mode_number(mode: Mode) -> u64 {
    match mode {
        Mode::WriteBack => 0,
        Mode::WriteThrough => 1,
        Mode::WriteAround => 2,
        Mode::WriteOnly => 3,
    }
}

fn mode_of(number: u64) -> Option<Mode> {
    [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly]
        .into_iter()
        .find(|&mode| mode_number(mode) == number)
}

fn crc_of(bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..CRC_AT]);
    digest.update(&[0; 4]);
    digest.update(&bytes[WORDS_AT..SUPERBLOCK_BYTES]);
    digest.finalize() as u32
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
