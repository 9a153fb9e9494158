//! The division of a flash device into superblocks, snapshot area, regions and buckets.
//!
//! ```text
//!      0             128 KiB                                                        capacity
//!      +-------------+----------------+---------------------- ··· -+--------+-------------+
//!      | superblocks | snapshot       | region 0 | region 1 |  ···  | unused | SOC buckets |
//!      +-------------+----------------+---------------------- ··· -+--------+-------------+
//!                    ^ metadata_offset ^ regions_offset                      ^ soc_offset
//! ```

use device::Geometry;

use super::SUPERBLOCKS_BYTES;

/// Space in the snapshot area for section names, lengths and checksums.
const SNAPSHOT_FRAME_BYTES: u64 = 4096;

/// Requested contents of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutConfig {
    /// Bytes for small objects, rounded down to whole buckets; 0 means none.
    pub soc_bytes: u64,
    /// Bytes of a small-object bucket.
    pub bucket_bytes: u32,
    /// Bytes of the small-object cache's snapshot.
    pub soc_snapshot_bytes: u64,
    /// Bytes of a region. Regions take all remaining space; 0 means no regions.
    pub region_bytes: u64,
    /// Minimum number of regions of the region store.
    pub least_regions: u32,
    /// Upper limit of the region store's snapshot, per region.
    pub snapshot_bytes_per_region: u64,
    /// Alignment of the first region's offset, in addition to the device's block: the unit of a stripe, so that no region spans two
    /// devices. 0 and 1 mean no further alignment.
    pub region_alignment_bytes: u64,
    /// Alignment of all areas, in addition to the device's block. 0 and 1 mean no further alignment.
    pub area_alignment_bytes: u64,
    /// Bytes of the snapshot area; `None` computes them from the other settings.
    pub metadata_bytes: Option<u64>,
}

/// The division of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the device.
    pub device_bytes: u64,
    /// The device's block.
    pub block_bytes: u32,
    /// Bytes of a small-object bucket.
    pub bucket_bytes: u32,
    /// Offset of the snapshot area.
    pub metadata_offset: u64,
    /// Its length.
    pub metadata_bytes: u64,
    /// Offset of region 0.
    pub regions_offset: u64,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// Number of regions.
    pub regions: u64,
    /// Offset of the small-object buckets.
    pub soc_offset: u64,
    /// Bytes of all buckets.
    pub soc_bytes: u64,
}

/// Why a device cannot be divided as requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum LayoutError {
    #[error("{what} of {bytes} bytes is not a multiple of the device's block of {block_bytes}")]
    Unaligned { what: &'static str, bytes: u64, block_bytes: u32 },
    #[error("device blocks of {block_bytes} bytes do not fit into the space of a superblock")]
    BlockTooLarge { block_bytes: u32 },
    #[error("neither small objects nor regions are configured")]
    Nothing,
    #[error("{soc_bytes} bytes for small objects are less than one bucket of {bucket_bytes}")]
    SocTooSmall { soc_bytes: u64, bucket_bytes: u32 },
    #[error(
        "a device of {device_bytes} bytes is too small: with {regions} regions of {region_bytes} bytes, the least, and \
         {soc_percent} % for small objects it takes {needed_bytes}; smaller regions take less"
    )]
    DeviceTooSmall { device_bytes: u64, needed_bytes: u64, regions: u32, region_bytes: u64, soc_percent: u8 },
    #[error("a snapshot area of {given_bytes} bytes is too small: a snapshot may take {needed_bytes}")]
    MetadataTooSmall { given_bytes: u64, needed_bytes: u64 },
}

impl Layout {
    /// Divides a device.
    ///
    /// # Errors
    /// The first part that does not fit, with the numbers.
    pub fn compute(device: &Geometry, config: &LayoutConfig) -> Result<Self, LayoutError> {
        let block_bytes = u64::from(device.block_bytes);
        check_units(device, config)?;
        let soc_bytes = whole_buckets(config)?;
        let room_after_superblocks = (device.capacity_bytes.checked_sub(SUPERBLOCKS_BYTES + soc_bytes))
            .ok_or_else(|| too_small(device, config))?;
        // More metadata leaves fewer regions, which need less metadata: the estimate is too high by at most the share of one region.
        let most_regions = room_after_superblocks.checked_div(config.region_bytes).unwrap_or(0);
        let unit_bytes = block_bytes.max(config.area_alignment_bytes);
        let metadata_bytes = metadata_bytes(config, most_regions)?.next_multiple_of(unit_bytes);
        let alignment = config.region_alignment_bytes.max(1).next_multiple_of(unit_bytes);
        let regions_offset = match config.region_bytes {
            0 => SUPERBLOCKS_BYTES + metadata_bytes,
            _ => (SUPERBLOCKS_BYTES + metadata_bytes).next_multiple_of(alignment),
        };
        let soc_offset = floor(device.capacity_bytes - soc_bytes, unit_bytes);
        let room = soc_offset.checked_sub(regions_offset).ok_or_else(|| too_small(device, config))?;
        let regions = room.checked_div(config.region_bytes).unwrap_or(0);
        if config.region_bytes > 0 && regions < u64::from(config.least_regions) {
            return Err(too_small(device, config));
        }
        Ok(Self {
            device_bytes: device.capacity_bytes,
            block_bytes: device.block_bytes,
            bucket_bytes: config.bucket_bytes,
            metadata_offset: SUPERBLOCKS_BYTES,
            metadata_bytes: regions_offset - SUPERBLOCKS_BYTES,
            regions_offset,
            region_bytes: config.region_bytes,
            regions,
            soc_offset,
            soc_bytes,
        })
    }

    /// Bytes between the last region and the buckets, too few for one more region.
    #[must_use]
    pub fn unused_bytes(&self) -> u64 {
        self.soc_offset - (self.regions_offset + self.regions * self.region_bytes)
    }
}

fn check_units(device: &Geometry, config: &LayoutConfig) -> Result<(), LayoutError> {
    let block_bytes = device.block_bytes;
    if u64::from(block_bytes) > SUPERBLOCKS_BYTES / 2 {
        return Err(LayoutError::BlockTooLarge { block_bytes });
    }
    let alignment = config.region_alignment_bytes;
    let units = [
        ("a region", config.region_bytes),
        ("a bucket", u64::from(config.bucket_bytes)),
        ("the snapshot area", config.metadata_bytes.unwrap_or(0)),
        ("the regions' alignment", if alignment == 1 { 0 } else { alignment }),
    ];
    match units.into_iter().find(|(_, bytes)| !bytes.is_multiple_of(u64::from(block_bytes))) {
        Some((what, bytes)) => Err(LayoutError::Unaligned { what, bytes, block_bytes }),
        None if config.soc_bytes == 0 && config.region_bytes == 0 => Err(LayoutError::Nothing),
        None => Ok(()),
    }
}

fn whole_buckets(config: &LayoutConfig) -> Result<u64, LayoutError> {
    let &LayoutConfig { soc_bytes, bucket_bytes, .. } = config;
    if soc_bytes == 0 {
        return Ok(0);
    }
    if bucket_bytes == 0 || soc_bytes < u64::from(bucket_bytes) {
        return Err(LayoutError::SocTooSmall { soc_bytes, bucket_bytes });
    }
    Ok(floor(soc_bytes, u64::from(bucket_bytes)))
}

fn metadata_bytes(config: &LayoutConfig, regions: u64) -> Result<u64, LayoutError> {
    let needed_bytes =
        SNAPSHOT_FRAME_BYTES + config.soc_snapshot_bytes + regions * config.snapshot_bytes_per_region;
    match config.metadata_bytes {
        Some(given_bytes) if given_bytes < needed_bytes => {
            Err(LayoutError::MetadataTooSmall { given_bytes, needed_bytes })
        }
        given => Ok(given.unwrap_or(needed_bytes)),
    }
}

/// The error with the size of a device that is large enough for the same share of small objects and the same region size.
fn too_small(device: &Geometry, config: &LayoutConfig) -> LayoutError {
    let regions = if config.region_bytes > 0 { config.least_regions } else { 0 };
    let soc_share = config.soc_bytes as f64 / device.capacity_bytes as f64;
    // On a larger device the snapshot is larger too, in proportion to the buckets.
    let snapshot_share = config.soc_snapshot_bytes as f64 / device.capacity_bytes as f64;
    let alignment = config.region_alignment_bytes.max(u64::from(device.block_bytes));
    let roundings = SNAPSHOT_FRAME_BYTES
        + 2 * alignment
        + u64::from(config.bucket_bytes)
        + config.snapshot_bytes_per_region;
    let snapshot_bytes =
        config.metadata_bytes.unwrap_or(u64::from(regions) * config.snapshot_bytes_per_region);
    let fixed = SUPERBLOCKS_BYTES + snapshot_bytes + roundings + u64::from(regions) * config.region_bytes;
    let needed = fixed as f64 / (1.0 - soc_share - snapshot_share).max(0.01);
    LayoutError::DeviceTooSmall {
        device_bytes: device.capacity_bytes,
        needed_bytes: (needed as u64).next_multiple_of(u64::from(device.block_bytes)),
        regions,
        region_bytes: config.region_bytes,
        soc_percent: (100.0 * soc_share).round() as u8,
    }
}

fn floor(bytes: u64, unit: u64) -> u64 {
    bytes - bytes % unit
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn device(capacity_bytes: u64) -> Geometry {
        Geometry {
            capacity_bytes,
            block_bytes: 4096,
            max_io_bytes: 1 << 20,
            indirection_bytes: 4096,
            placement_handles: 0,
            buffered: false,
        }
    }

    fn config() -> LayoutConfig {
        LayoutConfig {
            soc_bytes: 10 * MIB + 5,
            bucket_bytes: 4096,
            soc_snapshot_bytes: 21_000,
            region_bytes: MIB,
            least_regions: 3,
            snapshot_bytes_per_region: 1000,
            region_alignment_bytes: 0,
            area_alignment_bytes: 1,
            metadata_bytes: None,
        }
    }

    #[test]
    fn areas_start_at_multiples_of_their_alignment() {
        for capacity_bytes in [64 * MIB, 64 * MIB - 512, 64 * MIB - 3584] {
            let device = Geometry { block_bytes: 512, ..device(capacity_bytes) };
            let config = LayoutConfig { soc_snapshot_bytes: 1000, area_alignment_bytes: 4096, ..config() };
            let layout = Layout::compute(&device, &config).unwrap();
            assert_eq!([layout.regions_offset % 4096, layout.soc_offset % 4096], [0, 0], "{capacity_bytes}");
        }
    }

    #[test]
    fn parts_are_consecutive_and_fill_the_device() {
        for alignment in [0, 1, MIB] {
            let config = LayoutConfig { region_alignment_bytes: alignment, ..config() };
            let layout = Layout::compute(&device(64 * MIB), &config).unwrap();
            assert_eq!(layout.metadata_offset, SUPERBLOCKS_BYTES);
            assert_eq!(layout.regions_offset, layout.metadata_offset + layout.metadata_bytes);
            assert!(layout.regions_offset.is_multiple_of(alignment.max(4096)));
            assert!(layout.metadata_bytes >= 4096 + 21_000 + layout.regions * 1000);
            assert_eq!((layout.soc_bytes, layout.soc_offset + layout.soc_bytes), (10 * MIB, 64 * MIB));
            assert!(layout.unused_bytes() < MIB && layout.regions == 53);
        }
    }

    #[test]
    fn each_engine_can_have_the_whole_device() {
        let only_regions = LayoutConfig { soc_bytes: 0, soc_snapshot_bytes: 0, ..config() };
        let layout = Layout::compute(&device(8 * MIB), &only_regions).unwrap();
        assert_eq!((layout.soc_bytes, layout.regions), (0, 7));
        let only_soc = LayoutConfig { region_bytes: 0, soc_bytes: 7 * MIB, ..config() };
        let layout = Layout::compute(&device(8 * MIB), &only_soc).unwrap();
        assert_eq!((layout.soc_bytes, layout.regions), (7 * MIB, 0));
    }

    #[test]
    fn parts_larger_than_the_device_are_refused() {
        use LayoutError as E;
        let refused =
            |capacity, config: LayoutConfig| Layout::compute(&device(capacity), &config).unwrap_err();
        let big = 64 * MIB;
        assert!(matches!(refused(MIB, config()), E::DeviceTooSmall { .. }));
        assert!(matches!(refused(10 * MIB + 200_000, config()), E::DeviceTooSmall { .. }));
        assert!(matches!(refused(13 * MIB, config()), E::DeviceTooSmall { regions: 3, .. }));
        assert!(matches!(refused(big, LayoutConfig { region_bytes: 5000, ..config() }), E::Unaligned { .. }));
        assert!(matches!(refused(big, LayoutConfig { soc_bytes: 9, ..config() }), E::SocTooSmall { .. }));
        let nothing = LayoutConfig { soc_bytes: 0, region_bytes: 0, ..config() };
        assert_eq!(refused(big, nothing), E::Nothing);
        let tight = LayoutConfig { metadata_bytes: Some(4096), ..config() };
        assert!(matches!(refused(big, tight), E::MetadataTooSmall { given_bytes: 4096, .. }));
    }
}
