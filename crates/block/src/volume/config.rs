//! Configuration and health of a volume.

use super::superblock::FORMAT_VERSION;
use crate::sets::{Placement, Preset, Tuning};

/// Configuration of a new volume, for [`Volume::create`](super::Volume::create).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeConfig {
    /// Block size in bytes: a power of two from 4096 to 65536. A shorter write rewrites the whole block on flash.
    pub block_bytes: u32,
    /// Blocks per set, from 1 to 32768.
    pub ways: u32,
    /// How blocks of the disk are mapped to sets.
    pub placement: Placement,
    /// Settings that can be changed while the volume runs.
    pub tuning: Tuning,
    /// Keep a checksum of each cached block in memory (4 bytes each) and verify it at each read.
    pub checksums: bool,
    /// Write dirty blocks to the disk in the order of flushes: without the flash, the disk has the state of a flush.
    pub ordered: bool,
    /// Journal size in bytes; derived from the size of the flash if `None`.
    pub journal_bytes: Option<u64>,
    /// Format on flash. Older than [`FORMAT_VERSION`] if an older program must open the volume too.
    pub format: u32,
    /// Name of the disk, for messages.
    pub disk_label: String,
    /// Sector size presented to clients; the disk's block size if `None`.
    pub sector_bytes: Option<u32>,
}

impl VolumeConfig {
    /// The settings of a preset, with blocks of 4 KiB and sets of 512.
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

/// Which operations the volume can still perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// All operations.
    Healthy,
    /// The disk failed requests recently. Those requests failed; dirty blocks stay on flash until the disk accepts them.
    DiskErrors,
    /// The flash failed a write or a flush. Cached blocks are still read and cleaned, and none is inserted. Writes of cached blocks
    /// and flushes that need the flash fail; other blocks are read from and written to the disk.
    FlashFailed,
    /// The volume is closed.
    Closed,
}
