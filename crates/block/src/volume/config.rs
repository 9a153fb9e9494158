//! What a volume is told to be.

use super::superblock::FORMAT_VERSION;
use crate::sets::{Placement, Preset, Tuning};

/// A volume to be made: see [`Volume::create`](super::Volume::create).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeConfig {
    /// Bytes of a block: a power of two from 4096 to 65536. A write of less rewrites a whole block on flash.
    pub block_bytes: u32,
    /// Blocks of a set, from 1 to 32768.
    pub ways: u32,
    /// How runs of the disk are dealt out to sets.
    pub placement: Placement,
    /// What may change while the volume runs.
    pub tuning: Tuning,
    /// Keep a checksum of every cached block in memory (4 bytes each) and check it whenever the block is read.
    pub checksums: bool,
    /// Dirty blocks reach the disk in the order of flushes: without the flash, the disk is as it was at some flush.
    pub ordered: bool,
    /// Bytes of the journal; chosen by the size of the flash if not given.
    pub journal_bytes: Option<u64>,
    /// Format on flash: an older one than [`FORMAT_VERSION`], if an older program is to open it too.
    pub format: u32,
    /// What the disk is called, for messages.
    pub disk_label: String,
    /// Sector size that clients see; the disk's block size if not given.
    pub sector_bytes: Option<u32>,
}

impl VolumeConfig {
    /// A preset's settings, with the usual shape.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        Self {
            block_bytes: 4096,
            ways: 512,
            placement: preset.placement(),
            tuning: preset.tuning(),
            checksums: false,
            ordered: false,
            journal_bytes: None,
            format: FORMAT_VERSION,
            disk_label: String::new(),
            sector_bytes: None,
        }
    }
}

impl Default for VolumeConfig {
    /// Write-back with the settings of [`Preset::V3`].
    fn default() -> Self {
        Self::preset(Preset::V3)
    }
}

/// What the volume can still do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Everything.
    Healthy,
    /// Everything, as far as the disk takes part: it has failed requests lately. Those failed; what is dirty stays on flash until
    /// the disk takes it.
    DiskErrors,
    /// The flash failed a write or a flush. What it holds is still served and cleaned; nothing comes in. Writes of blocks it
    /// holds and flushes that need it fail; what it does not hold is served by the disk.
    FlashFailed,
    /// Closed.
    Closed,
}
