//! What the start of the flash says: whose it is, how it is divided, where the table is, whether it was closed.
//!
//! ```text
//!      0        8         12      16                                     16 + 8 n
//!      +--------+---------+-------+------------+--------+-- ··· --------+------------+------------+--------------+
//!      | magic  | version | crc   | sequence   | uuid   | words         | label      | traces     | write bypass |
//!      | 8 B    | u32     | u32   | u64        | 2 words| u64 each      | 128 B      | 3 words    | u64          |
//!      +--------+---------+-------+------------+--------+-- ··· --------+------------+------------+--------------+
//! ```
//!
//! Two copies, each at the start of 64 KiB, each within 512 bytes: a device writes it whole or not at all. Little-endian;
//! `crc` is CRC-32C of the 512 bytes with itself zero. Magic, version and crc stay where they are in every version, so
//! that a newer format is recognised as such. Words come in the order of [`Superblock::words`].
//!
//! The traces of the disk are in every format. Programs that do not know them write zeros there, which say that nothing is
//! known.
//!
//! # Protocol
//!
//! An update writes the first copy, flushes, writes the second, flushes. The valid copy with the higher sequence counts:
//! a power cut at any moment leaves one whole, and later damage to either leaves the other, equally new. What the old
//! contents pointed at (table, journal) is given up only after both are written.

use device::{Device, IoBuffer, PlacementHandle, Request};

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::layout::{Layout, SUPERBLOCKS_BYTES};
use crate::sets::{Geometry, Mode, PLACEMENT_VERSION, Placement, SetPolicy, Tuning};

/// The newest format, in which volumes are made. Version 2 has how blocks stand with the policy in its records.
pub const FORMAT_VERSION: u32 = 2;

/// The oldest format that is read, and written where a volume has it, until it is [upgraded](super::Volume::upgrade).
pub const OLDEST_FORMAT: u32 = 1;

/// The first format whose records tell how blocks stand with the policy.
pub const FORMAT_WITH_STANDING: u32 = 2;

const MAGIC: &[u8; 8] = b"FWBLKVOL";
const SUPERBLOCK_BYTES: usize = 512;
const VERSION_AT: usize = 8;
const CRC_AT: usize = VERSION_AT + 4;
const WORDS_AT: usize = CRC_AT + 4;
const WORDS: usize = 39;
const LABEL_AT: usize = WORDS_AT + WORDS * 8;
/// Longest name of a disk that is remembered.
pub const LABEL_BYTES: usize = 128;
/// More than is ever written: counts of superblocks, tables and commits are below.
const MOST_COUNTED: u64 = 1 << 62;
const TRACES_AT: usize = LABEL_AT + LABEL_BYTES;
const TRACES: usize = 3;
const WRITE_BYPASS_AT: usize = TRACES_AT + TRACES * 8;
const _: () = assert!(WRITE_BYPASS_AT + 8 <= SUPERBLOCK_BYTES);
/// The first of the words of the traces.
const IS_MARKED: u64 = 1;
const HOLDS: u64 = 2;

/// Where the copies lie.
const COPIES: [u64; 2] = [0, SUPERBLOCKS_BYTES / 2];

/// What a superblock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The version of the format that table and journal have.
    pub format: u32,
    /// Counts updates.
    pub sequence: u64,
    /// The volume's name; every block of journal and tables carries it.
    pub uuid: u128,
    /// Whether the volume was closed, and nothing changed since.
    pub clean: bool,
    /// Whether checksums of pages are kept.
    pub checksums: bool,
    /// How the flash is divided.
    pub layout: Layout,
    /// How runs of the disk are dealt out to sets.
    pub placement: Placement,
    /// Drawn when the volume was made.
    pub placement_key: u64,
    /// What may change while it runs, as last set.
    pub tuning: Tuning,
    /// Whether dirty blocks reach the disk in the order of flushes.
    pub ordered: bool,
    /// The table, and where the journal goes on from it.
    pub checkpoint: Checkpoint,
    /// What is known of the disk.
    pub disk: DiskIdentity,
}

/// The table that counts, and where the journal goes on from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// Which of both tables.
    pub table: u8,
    /// Its number; its blocks carry it.
    pub number: u64,
    /// Blocks it has. 0 is an empty table.
    pub table_blocks: u64,
    /// The journal block that comes after it.
    pub journal_sequence: u64,
    /// What that block has as its chain.
    pub journal_chain: u32,
    /// The commit that this block belongs to.
    pub next_commit: u64,
    /// Commits up to this one are on flash for certain.
    pub confirmed_commit: u64,
}

/// What is known of the disk, to recognise it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskIdentity {
    /// Its size.
    pub bytes: u64,
    /// CRC-32C of its first and its last 64 KiB as of the last close.
    pub ends_crc: [u32; 2],
    /// What it was called, as by `/dev/disk/by-id`. For messages only: names move.
    pub label: String,
    /// The disk is a file and has the volume's mark.
    pub is_marked: bool,
    /// What a block device calls itself, hashed; 0 is not known.
    pub device_id: u64,
    /// When the disk's file had been changed last, as of the last close; 0 is not known.
    pub changed_ns: u64,
    /// Nothing of ours went to the disk since the last close: ends and time still are as they were then.
    pub holds: bool,
    /// Sector size that the cache shows its clients; 0 if none was recorded, by a program that showed 512 bytes.
    pub sector_bytes: u32,
}

/// Sector sizes that a cache can show, powers of two.
pub const SECTOR_SIZES: std::ops::RangeInclusive<u32> = 512..=65536;

impl DiskIdentity {
    fn traces(&self) -> [u64; TRACES] {
        let flags = if self.is_marked { IS_MARKED } else { 0 } | if self.holds { HOLDS } else { 0 };
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
        traces: [u64; TRACES],
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
        // Counted from one write to the next: what no volume lives to see would overflow.
        let count = |at: usize| Some(words[at]).filter(|&count| count < MOST_COUNTED);
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
                // Programs that do not know it write 0, which is the limit for reads.
                write_bypass_bytes: write_bypass.checked_sub(1).unwrap_or(words[25]),
                // Programs that do not know it write 0, which is none.
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
                is_marked: traces[0] & IS_MARKED != 0,
                device_id: traces[1],
                changed_ns: traces[2],
                holds: traces[0] & HOLDS != 0,
                // Programs that do not know it write 0, which is none.
                sector_bytes: small(38).filter(|&bytes| bytes == 0 || is_sector_size(bytes))?,
            },
        })
        .filter(|_| words[10] == u64::from(PLACEMENT_VERSION))
    }

    /// The shape of the sets.
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

    /// The 512 bytes.
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
        for (word, place) in self.disk.traces().iter().zip(bytes[TRACES_AT..].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[WRITE_BYPASS_AT..][..8].copy_from_slice(&self.write_bypass_word().to_le_bytes());
        let crc = crc_of(&bytes);
        bytes[CRC_AT..][..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The encoded limit for streams of writes: 0 stands for the same limit as for reads, n for n - 1 bytes.
    fn write_bypass_word(&self) -> u64 {
        let Tuning { read_bypass_bytes, write_bypass_bytes, .. } = self.tuning;
        if write_bypass_bytes == read_bypass_bytes { 0 } else { write_bypass_bytes.saturating_add(1) }
    }

    /// What 512 bytes say.
    ///
    /// # Errors
    /// [`Unreadable`], with the reason.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Self, Unreadable> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes.len() < SUPERBLOCK_BYTES || bytes[..8] != *MAGIC {
            return Err(Unreadable::NotOurs);
        }
        // The checksum first: a flipped bit in the version is damage, and no newer format.
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
        let traces = std::array::from_fn(|i| word(TRACES_AT + i * 8));
        let label = &bytes[LABEL_AT..][..LABEL_BYTES];
        Self::from_words(format, &words, label, traces, word(WRITE_BYPASS_AT)).ok_or(Unreadable::Damaged)
    }
}

/// Why 512 bytes are no superblock of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// No magic.
    NotOurs,
    /// The magic, and nonsense behind it.
    Damaged,
    /// A whole superblock of a newer format.
    Newer(u32),
}

/// Whether `bytes` is a sector size that a cache can show.
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

/// Writes both copies, as the protocol says.
///
/// # Errors
/// If the flash fails; then the older contents may still count.
pub async fn write(flash: &dyn Device, superblock: &Superblock) -> Result<()> {
    for step in steps(flash, superblock) {
        flash.start(step).await.map_err(|error| VolumeError::flash("writing a superblock", error))?;
    }
    Ok(())
}

/// The requests that write both copies, each after the end of the one before.
pub(super) fn steps(flash: &dyn Device, superblock: &Superblock) -> impl Iterator<Item = Request> + use<> {
    let block = (flash.geometry().block_bytes as usize).max(SUPERBLOCK_BYTES);
    let mut buffer = IoBuffer::zeroed(block);
    buffer[..SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
    let data: device::IoSlice = buffer.into();
    COPIES.into_iter().flat_map(move |offset| {
        let placement = PlacementHandle::DEFAULT;
        [Request::Write { offset, data: data.clone(), placement }, Request::Flush]
    })
}

/// How the two copies stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// Both are whole and say the same.
    Agree,
    /// Both are whole, and the first is newer: whoever wrote them ended in between.
    HalfWritten,
    /// One is damaged or cannot be read, or they cannot have been written so.
    Damaged,
}

/// How the two copies stand to each other.
pub async fn copies(flash: &dyn Device) -> Copies {
    let block = (flash.geometry().block_bytes as usize).max(SUPERBLOCK_BYTES);
    let mut copies = Vec::new();
    for offset in COPIES {
        copies.push(match flash.read(offset, IoBuffer::zeroed(block)).await {
            Ok(bytes) => Superblock::decode(&bytes.expect("a read gives its buffer back")),
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

/// The newest superblock on the flash.
///
/// # Errors
/// [`VolumeErrorKind::Foreign`] with the name of what is there instead, [`VolumeErrorKind::NewerFormat`],
/// [`VolumeErrorKind::Damaged`] if both copies are, and the flash's own failures.
pub async fn read(flash: &dyn Device) -> Result<Superblock> {
    let foreign = || VolumeError::new(VolumeErrorKind::Foreign, "there is no cache on the flash");
    if flash.geometry().capacity_bytes < SUPERBLOCKS_BYTES {
        return Err(foreign());
    }
    let block = (flash.geometry().block_bytes as usize).max(SUPERBLOCK_BYTES);
    let mut found: Vec<Superblock> = Vec::new();
    let mut reasons = Vec::new();
    for offset in COPIES {
        match flash.read(offset, IoBuffer::zeroed(block)).await {
            Ok(bytes) => match Superblock::decode(&bytes.expect("a read gives its buffer back")) {
                Ok(superblock) => found.push(superblock),
                Err(reason) => reasons.push(reason),
            },
            // One copy that cannot be read is what the other is for.
            Err(error) if offset > 0 && found.is_empty() => {
                return Err(VolumeError::flash("reading both superblocks", error));
            }
            Err(_) => reasons.push(Unreadable::Damaged),
        }
    }
    // A newer program wrote one copy before it was cut off: the older copy must not be believed.
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
