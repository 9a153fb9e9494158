//! Creating a volume.

use std::sync::Arc;

use device::{Device, Geometry, IoBuffer, IoError, IoSlice, Request};

use super::config::VolumeConfig;
use super::error::{Result, VolumeError, VolumeErrorKind};
use super::identity::ends_crc;
use super::journal::block::{self, JOURNAL_BLOCK_BYTES};
use super::layout::Layout;
use super::superblock::{
    self, Checkpoint, DiskIdentity, FORMAT_VERSION, LABEL_BYTES, OLDEST_FORMAT, SECTOR_SIZES, Superblock,
    is_sector_size,
};
use super::{OsIdentity, SECTOR_BYTES, Volume};
use crate::sets::{MAX_DISK_BLOCKS, SetsConfig};

/// Blocks per write that initializes the journal.
const INITIALIZED_BLOCKS: usize = 64;

impl Volume {
    /// Creates a volume on `flash` for `disk`; open it afterwards. The contents of the flash are lost; the disk is not written.
    /// `uuid` identifies the volume and must be random.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Config`] if the devices do not fit the configuration, and the devices' failures.
    pub async fn create(
        flash: &Arc<dyn Device>,
        disk: &Arc<dyn Device>,
        config: &VolumeConfig,
        uuid: u128,
    ) -> Result<Superblock> {
        Self::create_for(flash, disk, config, uuid, &OsIdentity::default()).await
    }

    /// As [`create`](Self::create), with the operating system's identity of the disk, on which the volume sets its mark.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_for(
        flash: &Arc<dyn Device>,
        disk: &Arc<dyn Device>,
        config: &VolumeConfig,
        uuid: u128,
        os_identity: &OsIdentity,
    ) -> Result<Superblock> {
        let mut superblock = superblock_of(flash, disk, config, uuid).await?;
        let earlier = os_identity.mark();
        superblock.disk.is_marked = os_identity.set_mark(uuid);
        superblock.disk.device_id = os_identity.device_id();
        superblock.disk.changed_ns = os_identity.sync_modified_time();
        superblock::write(&**flash, &superblock).await.inspect_err(|_| {
            // The earlier volume stays valid, so its mark is restored.
            match earlier {
                Some(earlier) => drop(os_identity.set_mark(earlier)),
                None => os_identity.remove_mark(uuid),
            }
        })?;
        // The journal is initialized after the superblock: if the superblock cannot be written, the earlier volume stays valid.
        let initialized = initialize_journal(&**flash, &superblock.layout, uuid).await;
        initialized.map_err(|error| VolumeError::flash("initializing the journal", error))?;
        let pages_offset = superblock.layout.pages_offset();
        let len = superblock.layout.end() - pages_offset;
        // Failure is harmless: trimming is only advice to the device.
        let _ = flash.start(Request::Trim { offset: pages_offset, len }).await;
        // The trim and the writes must be complete before the volume is used.
        let flushed = flash.start(Request::Flush).await;
        flushed.map_err(|error| VolumeError::flash("flushing the flash", error))?;
        Ok(superblock)
    }

    /// Checks whether a volume can be [created](Self::create) so. Writes nothing.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn check_config(
        flash: &Arc<dyn Device>,
        disk: &Arc<dyn Device>,
        config: &VolumeConfig,
    ) -> Result<()> {
        superblock_of(flash, disk, config, 0).await.map(drop)
    }

    /// Reads the superblock on `flash` without opening the volume.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Foreign`], [`VolumeErrorKind::NewerFormat`], [`VolumeErrorKind::Damaged`], and the flash's failures.
    pub async fn identify(flash: &Arc<dyn Device>) -> Result<Superblock> {
        superblock::read(&**flash).await
    }
}

/// Fills the journal and the intent log, so that recovery can distinguish a place that was never written from a damaged one.
pub(super) async fn initialize_journal(
    flash: &dyn Device,
    layout: &Layout,
    uuid: u128,
) -> std::result::Result<(), IoError> {
    let data: IoSlice = IoBuffer::copy_of(&block::empty(uuid).repeat(INITIALIZED_BLOCKS)).into();
    let end = layout.intent_log_offset() + layout.intent_log_blocks() * JOURNAL_BLOCK_BYTES as u64;
    let range = layout.journal_offset()..end;
    let parts = flash.geometry().transfers_of(JOURNAL_BLOCK_BYTES as u64, data.len() as u64, range);
    for part in parts {
        flash.write(part.start, data.part(0..(part.end - part.start) as usize)).await?;
    }
    Ok(())
}

async fn superblock_of(
    flash: &Arc<dyn Device>,
    disk: &Arc<dyn Device>,
    config: &VolumeConfig,
    uuid: u128,
) -> Result<Superblock> {
    let layout = Layout::compute(
        &flash.geometry(),
        config.block_bytes,
        config.ways,
        config.journal_bytes,
        config.ordered,
    )?;
    check_disk_shape(&**disk, config)?;
    if !(OLDEST_FORMAT..=FORMAT_VERSION).contains(&config.format) {
        let given = config.format;
        return Err(config_error(format!(
            "format {given}: this version writes formats {OLDEST_FORMAT} to {FORMAT_VERSION}"
        )));
    }
    if config.ordered && !config.tuning.mode.keeps_dirty() {
        let why = "an ordered cache must be write-back or write-only: other modes have no order to keep";
        return Err(config_error(why.into()));
    }
    let superblock = Superblock {
        format: config.format,
        sequence: 1,
        uuid,
        clean: true,
        checksums: config.checksums,
        layout,
        placement: config.placement,
        placement_key: (uuid ^ (uuid >> 64)) as u64,
        tuning: config.tuning,
        ordered: config.ordered,
        checkpoint: Checkpoint { next_commit: 1, ..Checkpoint::default() },
        disk: DiskIdentity {
            bytes: disk.geometry().capacity_bytes,
            ends_crc: ends_crc(&**disk).await?,
            label: config.disk_label.clone(),
            sector_bytes: sector_bytes(&**disk, config)?,
            ..DiskIdentity::default()
        },
        has_initial_blocks: true,
    };
    let sets = SetsConfig { geometry: superblock.geometry(), tuning: config.tuning };
    sets.check().map_err(|error| config_error(error.to_string()))?;
    Ok(superblock)
}

/// The sector size to record.
fn sector_bytes(disk: &dyn Device, config: &VolumeConfig) -> Result<u32> {
    let Geometry { block_bytes, capacity_bytes, .. } = disk.geometry();
    let sector_bytes = config.sector_bytes.unwrap_or(block_bytes);
    if !is_sector_size(sector_bytes) {
        let (least, most) = (SECTOR_SIZES.start(), SECTOR_SIZES.end());
        return Err(config_error(format!(
            "sectors of {sector_bytes} bytes: must be a power of two from {least} to {most}"
        )));
    }
    if !capacity_bytes.is_multiple_of(u64::from(sector_bytes)) {
        return Err(config_error(format!(
            "a disk of {capacity_bytes} bytes is not a whole number of sectors of {sector_bytes} bytes"
        )));
    }
    Ok(sector_bytes)
}

fn check_disk_shape(disk: &dyn Device, config: &VolumeConfig) -> Result<()> {
    let geometry = disk.geometry();
    if geometry.block_bytes > config.block_bytes {
        let (theirs, ours) = (geometry.block_bytes, config.block_bytes);
        return Err(config_error(format!(
            "the disk has sectors of {theirs} bytes, larger than a block of {ours}"
        )));
    }
    if geometry.capacity_bytes == 0 || !geometry.capacity_bytes.is_multiple_of(u64::from(SECTOR_BYTES)) {
        return Err(config_error(format!(
            "a disk of {} bytes is not a whole number of sectors",
            geometry.capacity_bytes
        )));
    }
    if geometry.capacity_bytes / u64::from(config.block_bytes) >= MAX_DISK_BLOCKS {
        return Err(config_error("the disk is too large for blocks of this size".into()));
    }
    if config.disk_label.len() > LABEL_BYTES {
        return Err(config_error(format!("the disk's name is longer than {LABEL_BYTES} bytes")));
    }
    Ok(())
}

pub(super) fn config_error(why: String) -> VolumeError {
    VolumeError::new(VolumeErrorKind::Config, why)
}
