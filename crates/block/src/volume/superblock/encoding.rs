//! The bytes of a superblock. Little-endian, without padding.

use device::checksum::crc32c_without_field;
use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{
    Checkpoint, DiskIdentity, FORMAT_VERSION, LABEL_BYTES, OLDEST_FORMAT, Superblock, is_sector_size,
};
use crate::sets::{Mode, PLACEMENT_VERSION, Placement, SetPolicy, Tuning};
use crate::volume::layout::Layout;

/// Length of an encoded superblock.
pub(super) const SUPERBLOCK_BYTES: usize = size_of::<Block>();
const _: () = assert!(SUPERBLOCK_BYTES == 512);

const MAGIC: [u8; 8] = *b"FWBLKVOL";
/// Upper bound of counters: higher than any number of superblocks, tables or commits.
pub(super) const COUNTER_LIMIT: u64 = 1 << 62;
/// [`Block::flags`].
const IS_MARKED: u64 = 1;
const IS_CURRENT: u64 = 2;
const HAS_INITIAL_BLOCKS: u64 = 4;

/// An encoded superblock. Programs that do not know one of the last fields write zero to it.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Block {
    magic: [u8; 8],
    format: U32,
    /// CRC-32C of the whole block with this field zero.
    crc: U32,
    sequence: U64,
    uuid: U128,
    clean: U64,
    checksums: U64,
    block_bytes: U64,
    sets: U64,
    ways: U64,
    layout_table_blocks: U64,
    layout_journal_blocks: U64,
    placement_version: U64,
    placement: U64,
    run_bytes: U64,
    placement_key: U64,
    mode: U64,
    policy: U64,
    hot_percent: U64,
    promote_hits: U64,
    dirty_percent: U64,
    lazy_depth: U64,
    idle_seconds: U64,
    idle_blocks_per_second: U64,
    cleanings_per_set: U64,
    cleanings_total: U64,
    clean_run_blocks: U64,
    read_bypass_bytes: U64,
    ordered: U64,
    table: U64,
    checkpoint_number: U64,
    checkpoint_table_blocks: U64,
    journal_sequence: U64,
    journal_chain: U64,
    next_commit: U64,
    confirmed_commit: U64,
    disk_bytes: U64,
    disk_ends_crc: [U64; 2],
    latency_gate_ms: U64,
    /// 0 if unknown.
    sector_bytes: U64,
    /// UTF-8, filled with zeros.
    label: [u8; LABEL_BYTES],
    pub flags: U64,
    /// 0 if unknown.
    device_id: U64,
    /// 0 if unknown.
    changed_ns: U64,
    /// The limit plus 1; 0 for the same limit as for reads.
    pub write_bypass: U64,
    reserved: [u8; 24],
}

impl Block {
    /// The block in `bytes`.
    ///
    /// # Errors
    /// [`Unreadable`], with the reason.
    pub fn verified(bytes: &[u8]) -> Result<&Self, Unreadable> {
        let (block, _) = Self::ref_from_prefix(bytes).map_err(|_| Unreadable::NotOurs)?;
        if block.magic != MAGIC {
            return Err(Unreadable::NotOurs);
        }
        // The checksum first: a flipped bit in the version is damage, not a newer format.
        if block.crc != block.computed_crc() {
            return Err(Unreadable::Damaged);
        }
        match block.format.get() {
            format if format > FORMAT_VERSION => Err(Unreadable::Newer(format)),
            format if format < OLDEST_FORMAT => Err(Unreadable::Damaged),
            _ => Ok(block),
        }
    }

    /// Sets the checksum of the other fields.
    pub fn seal(&mut self) {
        self.crc = self.computed_crc().into();
    }

    fn computed_crc(&self) -> u32 {
        crc32c_without_field(self.as_bytes(), std::mem::offset_of!(Self, crc))
    }

    /// The superblock, or `None` if a field has no valid value.
    pub fn decode(&self) -> Option<Superblock> {
        if self.placement_version != u64::from(PLACEMENT_VERSION) {
            return None;
        }
        Some(Superblock {
            format: self.format.get(),
            sequence: counter(self.sequence)?,
            uuid: self.uuid.get(),
            clean: boolean(self.clean)?,
            checksums: boolean(self.checksums)?,
            layout: Layout {
                block_bytes: narrow(self.block_bytes)?,
                sets: narrow(self.sets)?,
                ways: narrow(self.ways)?,
                table_blocks: self.layout_table_blocks.get(),
                journal_blocks: self.layout_journal_blocks.get(),
            },
            placement: self.placement()?,
            placement_key: self.placement_key.get(),
            tuning: self.tuning()?,
            ordered: boolean(self.ordered)?,
            checkpoint: self.checkpoint()?,
            disk: self.disk()?,
            has_initial_blocks: self.flags.get() & HAS_INITIAL_BLOCKS != 0,
        })
    }

    fn placement(&self) -> Option<Placement> {
        let run_bytes = narrow(self.run_bytes)?;
        match self.placement.get() {
            0 => Some(Placement::Linear),
            1 => Some(Placement::Hashed { run_bytes }),
            2 => Some(Placement::Permuted { run_bytes }),
            _ => None,
        }
    }

    fn policy(&self) -> Option<SetPolicy> {
        match self.policy.get() {
            0 => Some(SetPolicy::Fifo),
            1 => Some(SetPolicy::Lru),
            2 => Some(SetPolicy::Lru2q {
                hot_percent: narrow(self.hot_percent)?,
                promote_hits: narrow(self.promote_hits)?,
            }),
            _ => None,
        }
    }

    fn tuning(&self) -> Option<Tuning> {
        Some(Tuning {
            mode: mode_of(self.mode.get())?,
            policy: self.policy()?,
            dirty_percent: narrow(self.dirty_percent)?,
            lazy_depth: narrow(self.lazy_depth)?,
            idle_seconds: narrow(self.idle_seconds)?,
            idle_blocks_per_second: narrow(self.idle_blocks_per_second)?,
            cleanings_per_set: narrow(self.cleanings_per_set)?,
            cleanings_total: narrow(self.cleanings_total)?,
            clean_run_blocks: narrow(self.clean_run_blocks)?,
            read_bypass_bytes: self.read_bypass_bytes.get(),
            write_bypass_bytes: self
                .write_bypass
                .get()
                .checked_sub(1)
                .unwrap_or(self.read_bypass_bytes.get()),
            latency_gate_ms: narrow(self.latency_gate_ms)?,
        })
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        Some(Checkpoint {
            table: narrow(self.table).filter(|&table: &u8| table < 2)?,
            number: counter(self.checkpoint_number)?,
            table_blocks: self.checkpoint_table_blocks.get(),
            journal_sequence: counter(self.journal_sequence)?,
            journal_chain: narrow(self.journal_chain)?,
            next_commit: counter(self.next_commit)?,
            confirmed_commit: counter(self.confirmed_commit)?,
        })
    }

    fn disk(&self) -> Option<DiskIdentity> {
        let label = self.label.split(|&byte| byte == 0).next().unwrap_or_default();
        Some(DiskIdentity {
            bytes: self.disk_bytes.get(),
            ends_crc: [narrow(self.disk_ends_crc[0])?, narrow(self.disk_ends_crc[1])?],
            label: String::from_utf8_lossy(label).into_owned(),
            is_marked: self.flags.get() & IS_MARKED != 0,
            device_id: self.device_id.get(),
            changed_ns: self.changed_ns.get(),
            is_current: self.flags.get() & IS_CURRENT != 0,
            sector_bytes: narrow(self.sector_bytes).filter(|&bytes| bytes == 0 || is_sector_size(bytes))?,
        })
    }
}

impl From<&Superblock> for Block {
    fn from(superblock: &Superblock) -> Self {
        let Superblock { layout, tuning, checkpoint, disk, .. } = superblock;
        let (placement, run_bytes) = match superblock.placement {
            Placement::Linear => (0, 0),
            Placement::Hashed { run_bytes } => (1, run_bytes),
            Placement::Permuted { run_bytes } => (2, run_bytes),
        };
        let (policy, hot_percent, promote_hits) = match tuning.policy {
            SetPolicy::Fifo => (0, 0, 0),
            SetPolicy::Lru => (1, 0, 0),
            SetPolicy::Lru2q { hot_percent, promote_hits } => (2, hot_percent, promote_hits),
        };
        let mut label = [0; LABEL_BYTES];
        let label_bytes = disk.label.len().min(LABEL_BYTES);
        label[..label_bytes].copy_from_slice(&disk.label.as_bytes()[..label_bytes]);
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let write_bypass = match tuning.write_bypass_bytes {
            bytes if bytes == tuning.read_bypass_bytes => 0,
            bytes => bytes.saturating_add(1),
        };
        let mut block = Self {
            magic: MAGIC,
            format: superblock.format.into(),
            crc: 0.into(),
            sequence: superblock.sequence.into(),
            uuid: superblock.uuid.into(),
            clean: wide(superblock.clean),
            checksums: wide(superblock.checksums),
            block_bytes: wide(layout.block_bytes),
            sets: wide(layout.sets),
            ways: wide(layout.ways),
            layout_table_blocks: layout.table_blocks.into(),
            layout_journal_blocks: layout.journal_blocks.into(),
            placement_version: wide(PLACEMENT_VERSION),
            placement: placement.into(),
            run_bytes: wide(run_bytes),
            placement_key: superblock.placement_key.into(),
            mode: mode_number(tuning.mode).into(),
            policy: policy.into(),
            hot_percent: wide(hot_percent),
            promote_hits: wide(promote_hits),
            dirty_percent: wide(tuning.dirty_percent),
            lazy_depth: wide(tuning.lazy_depth),
            idle_seconds: wide(tuning.idle_seconds),
            idle_blocks_per_second: wide(tuning.idle_blocks_per_second),
            cleanings_per_set: wide(tuning.cleanings_per_set),
            cleanings_total: wide(tuning.cleanings_total),
            clean_run_blocks: wide(tuning.clean_run_blocks),
            read_bypass_bytes: tuning.read_bypass_bytes.into(),
            ordered: wide(superblock.ordered),
            table: wide(checkpoint.table),
            checkpoint_number: checkpoint.number.into(),
            checkpoint_table_blocks: checkpoint.table_blocks.into(),
            journal_sequence: checkpoint.journal_sequence.into(),
            journal_chain: wide(checkpoint.journal_chain),
            next_commit: checkpoint.next_commit.into(),
            confirmed_commit: checkpoint.confirmed_commit.into(),
            disk_bytes: disk.bytes.into(),
            disk_ends_crc: disk.ends_crc.map(wide),
            latency_gate_ms: wide(tuning.latency_gate_ms),
            sector_bytes: wide(disk.sector_bytes),
            label,
            flags: (flag(disk.is_marked, IS_MARKED)
                | flag(disk.is_current, IS_CURRENT)
                | flag(superblock.has_initial_blocks, HAS_INITIAL_BLOCKS))
            .into(),
            device_id: disk.device_id.into(),
            changed_ns: disk.changed_ns.into(),
            write_bypass: write_bypass.into(),
            reserved: [0; 24],
        };
        block.seal();
        block
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

fn wide(value: impl Into<u64>) -> U64 {
    U64::new(value.into())
}

fn narrow<T: TryFrom<u64>>(field: U64) -> Option<T> {
    field.get().try_into().ok()
}

fn boolean(field: U64) -> Option<bool> {
    narrow(field).filter(|&value: &u8| value < 2).map(|value| value == 1)
}

/// Larger counters would overflow with the next updates.
fn counter(field: U64) -> Option<u64> {
    Some(field.get()).filter(|&count| count < COUNTER_LIMIT)
}
