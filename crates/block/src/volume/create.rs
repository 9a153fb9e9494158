//! Making a volume.

use std::sync::Arc;

use device::{Device, Geometry, Request};

use super::config::VolumeConfig;
use super::error::{Result, VolumeError, VolumeErrorKind};
use super::identity::ends_crc;
use super::layout::Layout;
use super::superblock::{
    self, Checkpoint, DiskIdentity, FORMAT_VERSION, LABEL_BYTES, OLDEST_FORMAT, SECTOR_SIZES, Superblock,
    is_sector_size,
};
use super::{SECTOR_BYTES, Traces, Volume};
use crate::sets::{MAX_DISK_BLOCKS, SetsConfig};

impl Volume {
    /// Makes a volume of `flash` and `disk`; open it afterwards. What the flash held is lost; the disk is not touched.
    /// `uuid` names the volume; draw it at random.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Config`] if the devices cannot be used so, and their own failures.
    pub async fn create(
        flash: &Arc<dyn Device>,
        disk: &Arc<dyn Device>,
        config: &VolumeConfig,
        uuid: u128,
    ) -> Result<Superblock> {
        Self::create_for(flash, disk, config, uuid, &Traces::default()).await
    }

    /// The same, for a disk of which the system knows something; it gets the volume's mark if it takes one.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_for(
        flash: &Arc<dyn Device>,
        disk: &Arc<dyn Device>,
        config: &VolumeConfig,
        uuid: u128,
        traces: &Traces,
    ) -> Result<Superblock> {
        let mut superblock = superblock_of(flash, disk, config, uuid).await?;
        let earlier = traces.mark();
        superblock.disk.is_marked = traces.set_mark(uuid);
        superblock.disk.device_id = traces.device_id();
        superblock.disk.changed_ns = traces.settle_time();
        superblock::write(&**flash, &superblock).await.inspect_err(|_| {
            // What was there before still belongs to it.
            match earlier {
                Some(earlier) => drop(traces.set_mark(earlier)),
                None => traces.remove_mark(uuid),
            }
        })?;
        // The journal of a volume that was here before has another uuid; its data may go. Not sooner: where a superblock could
        // not be written, that volume is still there, and would give back what a trim left of it.
        let pages_offset = superblock.layout.pages_offset();
        let len = superblock.layout.end() - pages_offset;
        // Advice: a flash that cannot be trimmed is as good.
        let _ = flash.start(Request::Trim { offset: pages_offset, len }).await;
        // What is made has no trim to come, and its flash was there to the end.
        let flushed = flash.start(Request::Flush).await;
        flushed.map_err(|error| VolumeError::flash("flushing the flash", error))?;
        Ok(superblock)
    }

    /// Whether a volume can be [made](Self::create) so: nothing is written.
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

    /// The superblock on `flash`, without opening the volume.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Foreign`], [`VolumeErrorKind::NewerFormat`], [`VolumeErrorKind::Damaged`], and the flash's failures.
    pub async fn identify(flash: &Arc<dyn Device>) -> Result<Superblock> {
        superblock::read(&**flash).await
    }
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
    };
    let sets = SetsConfig { geometry: superblock.geometry(), tuning: config.tuning };
    sets.check().map_err(|error| config_error(error.to_string()))?;
    Ok(superblock)
}

/// The sector size to be recorded.
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
