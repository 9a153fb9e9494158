//! The configuration of a region store, and its check.

use device::Geometry;

use super::entry::{HEADER_BYTES, MAX_HITS};
use super::layout::{ADDRESS_UNITS, Layout, MAX_POINTS, StoreId};
use super::order_config::OrderConfig;
use super::ripq::{Caching, RipqConfig};
use super::table;
use crate::flash::journal::{self, JournalOptions, JournalPlace};

/// Configuration of a region store. [`Layout`] has the sizes computed from it.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionConfig {
    /// First byte of the store on its device; a multiple of the device's block.
    pub offset_bytes: u64,
    /// Bytes for the store. The remainder of a division into regions stays unused.
    pub capacity_bytes: u64,
    /// Bytes of a region; a multiple of the device's block, at most 1 GiB. A larger item, including its key and some tens of bytes, is
    /// never written to flash: see [`max_item_bytes`](Self::max_item_bytes).
    pub region_bytes: u32,
    /// Entries begin at multiples of this; a power of two from 16 to 512. An entry wastes half of it on average, and the store can address
    /// 2^40 units. With another value than before, no item is recovered after a restart.
    pub unit_bytes: u32,
    /// Regions kept empty for new items while others are being reclaimed.
    pub clean_regions: u32,
    /// Region buffers in memory: regions being filled and regions being flushed.
    pub buffers: u32,
    /// Longest single write. A region is written as several concurrent ones.
    pub max_write_bytes: u32,
    /// Whether values carry a checksum. Headers and keys always do.
    pub value_checksums: bool,
    /// Whether a reclaimed region is trimmed before it is filled again.
    pub trim: bool,
    /// Whether a region is written from end to end, with zeros in its unused part. Otherwise the unused part keeps the bytes of an earlier
    /// filling: without a trim, the drive treats them as live data and relocates them. This costs writing the unused part.
    pub write_whole: bool,
    /// Which region is reclaimed first.
    pub order: OrderConfig,
    /// Which items of a reclaimed region are reinserted, unless the order decides that itself.
    pub reinsertion: Reinsertion,
    /// Whether reinserted items have regions and a placement handle of their own, under an order with a single priority. They live longer
    /// than other items, from which a drive that places data profits.
    pub separate_reinserted: bool,
    /// Whether each insertion point of a queue of items has a placement handle of its own; otherwise they share one.
    pub separate_points: bool,
    /// Concurrent transfers of a flush or a reclaim; 0 is no limit. Fewer transfers leave the device free for reads in between.
    pub transfers_at_once: u32,
    /// Consecutive attempts to write a region. If all fail, the region is retried after a pause.
    pub write_attempts: u8,
    /// Failures after which a region is retired, counted only while other regions can be written. A retired region is tested by a write
    /// from time to time and returns to service when the write succeeds.
    pub retire_after_failures: u8,
    /// The journal with which the store is recovered after a kill; `None` for recovery after a clean close only. It takes the last of the
    /// regions that fit the capacity.
    pub journal: Option<JournalOptions>,
}

/// Blocks of a journal in addition to those for the removals of the expected items.
const LEAST_JOURNAL_BLOCKS: u64 = 16;
/// Expected mean size of an item, which sizes the journal. If smaller items are often removed or replaced, the oldest regions may not be
/// recovered.
const EXPECTED_ITEM_BYTES: u64 = 4096;

impl RegionConfig {
    /// The defaults for a store of `capacity_bytes` at the start of a device.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            offset_bytes: 0,
            capacity_bytes,
            region_bytes: 16 << 20,
            unit_bytes: 64,
            clean_regions: 2,
            buffers: 4,
            max_write_bytes: 1 << 20,
            value_checksums: true,
            trim: false,
            write_whole: false,
            order: OrderConfig::Fifo,
            reinsertion: Reinsertion::Never,
            separate_reinserted: false,
            separate_points: true,
            transfers_at_once: 0,
            write_attempts: 2,
            retire_after_failures: 3,
            journal: None,
        }
    }

    /// McDipper: FIFO over blocks of 64 MiB, which are written whole. Smaller stores have 64 smaller blocks.
    #[must_use]
    pub fn mcdipper(capacity_bytes: u64) -> Self {
        Self { region_bytes: 64 << 20, write_whole: true, ..Self::new(capacity_bytes) }.cut_into(64)
    }

    /// Largest key and value together that a region holds; larger items are not written.
    #[must_use]
    pub fn max_item_bytes(&self) -> usize {
        let space = (self.region_bytes as usize).saturating_sub(table::table_bytes(1));
        (space - space % (self.unit_bytes as usize).max(1)).saturating_sub(HEADER_BYTES)
    }

    /// Halves the region size until there are at least `regions` regions, but not below 1 MiB.
    #[must_use]
    pub fn cut_into(mut self, regions: u64) -> Self {
        while self.region_bytes > 1 << 20 && self.capacity_bytes / u64::from(self.region_bytes) < regions {
            self.region_bytes /= 2;
        }
        self
    }

    /// BlockCache: segmented LRU with four segments over blocks as in [`mcdipper`](Self::mcdipper).
    #[must_use]
    pub fn blockcache(capacity_bytes: u64) -> Self {
        Self { order: OrderConfig::SegmentedLru { segments: 4 }, ..Self::mcdipper(capacity_bytes) }
    }

    /// RIPQ: a priority queue of items over blocks as in [`mcdipper`](Self::mcdipper), with eight insertion points and all refinements.
    /// Each point has a block in memory, and there are two more.
    #[must_use]
    pub fn ripq(capacity_bytes: u64, caching: Caching) -> Self {
        let order = OrderConfig::Ripq(RipqConfig::new(caching));
        let mut config = Self { order, transfers_at_once: 2, ..Self::mcdipper(capacity_bytes) };
        config.buffers = u32::try_from(config.points()).expect("at most 16") + 2;
        config
    }

    /// Number of insertion points: one per priority, or a second one for reinserted items.
    #[must_use]
    pub fn points(&self) -> usize {
        let second = usize::from(self.separate_reinserted && self.reinsertion != Reinsertion::Never);
        self.order.priorities().max(1 + second)
    }

    /// The name under which an insertion point requests a placement handle. Points of the same name share a handle.
    #[must_use]
    pub fn consumer(&self, point: usize) -> String {
        match &self.order {
            OrderConfig::Ripq(_) if self.separate_points => format!("ripq-point-{point}"),
            OrderConfig::Ripq(_) => "ripq".to_owned(),
            _ if point == 0 => "loc".to_owned(),
            _ => format!("loc-reinserted-{point}"),
        }
    }

    /// Checks the configuration against a device and computes the layout.
    ///
    /// # Errors
    /// The first invalid setting, with the reason. Nothing is rounded, but the space behind the last whole region stays unused.
    pub fn check(&self, geometry: &Geometry) -> Result<Layout, RegionConfigError> {
        self.check_sizes(geometry)?;
        self.check_counts()?;
        let regions =
            (self.capacity_bytes / u64::from(self.region_bytes)).saturating_sub(self.journal_regions());
        let units = regions * u64::from(self.region_bytes / self.unit_bytes);
        require(units <= ADDRESS_UNITS, "unit_bytes", || {
            format!("{units} units are more than the 2^40 that can be addressed; use a larger unit")
        })?;
        let region_count = u32::try_from(regions).map_err(|_| {
            RegionConfigError::new("region_bytes", format!("{regions} regions are more than 2^32"))
        })?;
        let least = self.least_regions();
        require(region_count >= least, "capacity_bytes", || {
            format!(
                "{region_count} regions fit, but this many clean regions and insertion points need {least}"
            )
        })?;
        Ok(Layout {
            offset_bytes: self.offset_bytes,
            region_bytes: self.region_bytes,
            region_count,
            unit_bytes: self.unit_bytes,
            block_bytes: geometry.block_bytes,
            max_read_bytes: geometry.max_io_bytes,
            max_write_bytes: self.max_write_bytes.min(geometry.max_io_bytes),
        })
    }

    /// The minimum number of regions: an open region at each insertion point, the clean regions, and two more, so that one region can be
    /// reclaimed while another is filled.
    #[must_use]
    pub fn least_regions(&self) -> u32 {
        let open = u32::try_from(self.points()).expect("at most 16") + 2;
        open.saturating_add(self.clean_regions)
    }

    /// Number of regions that the journal occupies.
    fn journal_regions(&self) -> u64 {
        self.journal_blocks().map_or(0, |(blocks, options)| {
            let place = JournalPlace { offset_bytes: 0, blocks, generation: 0, options };
            let is_aligned = u64::from(self.region_bytes).is_multiple_of(journal::PAGE_BYTES);
            let unaligned_bytes = if is_aligned { 0 } else { journal::PAGE_BYTES };
            (place.bytes() + unaligned_bytes).div_ceil(u64::from(self.region_bytes))
        })
    }

    /// Number of regions that the journal occupies in a store of the minimum capacity.
    #[must_use]
    pub(crate) fn least_journal_regions(&self) -> u32 {
        let capacity_bytes = u64::from(self.least_regions()) * u64::from(self.region_bytes);
        let least = Self { capacity_bytes, ..self.clone() };
        u32::try_from(least.journal_regions()).unwrap_or(u32::MAX)
    }

    /// Blocks of the journal's ring, enough for a removal of each expected item.
    fn journal_blocks(&self) -> Option<(u64, JournalOptions)> {
        let options = self.journal?;
        let items = self.capacity_bytes / EXPECTED_ITEM_BYTES;
        let blocks = items.div_ceil(journal::words_per_block(options.block_bytes));
        Some((blocks + LEAST_JOURNAL_BLOCKS, options))
    }

    /// The location of the journal of store `id`, behind the regions.
    pub(in crate::flash) fn journal_place(&self, id: StoreId) -> Option<JournalPlace> {
        let (blocks, options) = self.journal_blocks()?;
        let region_bytes = u64::from(self.region_bytes);
        let regions = (self.capacity_bytes / region_bytes).checked_sub(self.journal_regions())?;
        let offset_bytes = self.offset_bytes + (regions * region_bytes).next_multiple_of(journal::PAGE_BYTES);
        Some(JournalPlace { offset_bytes, blocks, generation: id.0, options })
    }

    /// Maximum size of the journal's position in a snapshot; 0 without a journal.
    #[must_use]
    pub(crate) fn journal_position_bytes(&self) -> u64 {
        self.journal_blocks().map_or(0, |(blocks, _)| journal::Position::max_bytes(blocks))
    }

    fn check_sizes(&self, geometry: &Geometry) -> Result<(), RegionConfigError> {
        let block = geometry.block_bytes;
        let aligned = |bytes: u64| bytes.is_multiple_of(u64::from(block));
        let not_a_multiple = || format!("not a multiple of the device's {block}-byte block");
        require(aligned(self.offset_bytes), "offset_bytes", not_a_multiple)?;
        require(aligned(u64::from(self.region_bytes)), "region_bytes", not_a_multiple)?;
        require(aligned(u64::from(self.max_write_bytes)), "max_write_bytes", not_a_multiple)?;
        require(self.max_write_bytes >= block, "max_write_bytes", || {
            format!("below the {block}-byte block")
        })?;
        require(
            self.unit_bytes.is_power_of_two() && (16..=512).contains(&self.unit_bytes),
            "unit_bytes",
            || format!("{} is not a power of two from 16 to 512", self.unit_bytes),
        )?;
        let least = HEADER_BYTES + table::RECORD_BYTES + table::TRAILER_BYTES + self.unit_bytes as usize;
        require(self.region_bytes as usize >= least && self.region_bytes <= 1 << 30, "region_bytes", || {
            format!("{} is not between {least} bytes and 1 GiB", self.region_bytes)
        })?;
        let end = self.offset_bytes.checked_add(self.capacity_bytes);
        require(end.is_some_and(|end| end <= geometry.capacity_bytes), "capacity_bytes", || {
            format!("reaches past the device's {} bytes", geometry.capacity_bytes)
        })
    }

    fn check_counts(&self) -> Result<(), RegionConfigError> {
        let points = self.points();
        require(points <= MAX_POINTS, "order", || {
            format!("{points} priorities; at most {MAX_POINTS} are supported")
        })?;
        self.order.fault().map_or(Ok(()), |why| Err(RegionConfigError::new("order", why)))?;
        let decides_twice = self.order.protects_items() && self.reinsertion != Reinsertion::Never;
        require(!decides_twice, "reinsertion", || {
            "this order itself decides which items are written again".into()
        })?;
        require(self.clean_regions >= 1, "clean_regions", || "must be at least 1".into())?;
        require(self.write_attempts >= 1, "write_attempts", || "must be at least 1".into())?;
        require(self.retire_after_failures >= 1, "retire_after_failures", || "must be at least 1".into())?;
        require(self.buffers as usize > points, "buffers", || {
            format!("{} for {points} insertion points; at least one more than points is needed", self.buffers)
        })?;
        match self.reinsertion {
            Reinsertion::Hits { at_least } => {
                require((1..=MAX_HITS).contains(&at_least), "reinsertion", || {
                    format!("the number of hits must be from 1 to {MAX_HITS}, not {at_least}")
                })
            }
            Reinsertion::Percent { percent, .. } => {
                require(percent <= 100, "reinsertion", || format!("{percent} percent is above 100"))
            }
            Reinsertion::Never => Ok(()),
        }
    }
}

fn require(
    holds: bool,
    setting: &'static str,
    why: impl FnOnce() -> String,
) -> Result<(), RegionConfigError> {
    if holds { Ok(()) } else { Err(RegionConfigError::new(setting, why())) }
}

/// Which items of a region survive its reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reinsertion {
    /// No item survives.
    Never,
    /// Items read at least this often since they were written.
    Hits {
        /// From 1 to 7.
        at_least: u8,
    },
    /// A random share of the items.
    Percent {
        /// From 0 to 100.
        percent: u8,
        /// The same seed chooses the same items.
        seed: u64,
    },
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("regions.{setting}: {why}")]
pub struct RegionConfigError {
    /// The field of [`RegionConfig`].
    pub setting: &'static str,
    /// The reason.
    pub why: String,
}

impl RegionConfigError {
    fn new(setting: &'static str, why: String) -> Self {
        Self { setting, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        capacity_bytes: 1 << 30,
        block_bytes: 4096,
        max_io_bytes: 1 << 20,
        indirection_bytes: 4096,
        placement_handles: 0,
        buffered: false,
    };

    fn refused(change: impl FnOnce(&mut RegionConfig)) -> &'static str {
        let mut config = RegionConfig::new(1 << 30);
        change(&mut config);
        config.check(&GEOMETRY).expect_err("must be refused").setting
    }

    #[test]
    fn each_insertion_point_requests_a_named_placement_handle() {
        let config = RegionConfig::new(1 << 30);
        assert_eq!([0, 1].map(|point| config.consumer(point)), ["loc", "loc-reinserted-1"]);
        let ripq = RegionConfig::ripq(1 << 30, Caching::Slru { segments: 4 });
        for (separate_points, names) in [(false, ["ripq", "ripq"]), (true, ["ripq-point-0", "ripq-point-1"])]
        {
            let config = RegionConfig { separate_points, ..ripq.clone() };
            assert_eq!([0, 1].map(|point| config.consumer(point)), names);
        }
    }

    #[test]
    fn default_configuration_is_valid() {
        let layout = RegionConfig::new(1 << 30).check(&GEOMETRY).unwrap();
        assert_eq!(layout.region_count, 64);
    }

    #[test]
    fn photo_cache_configurations_are_valid() {
        for config in [
            RegionConfig::mcdipper(1 << 30),
            RegionConfig::blockcache(1 << 30),
            RegionConfig::ripq(1 << 30, Caching::GDSF),
        ] {
            assert_eq!(config.check(&GEOMETRY).unwrap().region_count, 64);
        }
        assert_eq!(RegionConfig::ripq(1 << 40, Caching::Lru).region_bytes, 64 << 20);
    }

    #[test]
    fn two_reinsertion_rules_are_refused() {
        let mut config = RegionConfig::ripq(1 << 30, Caching::Lru);
        config.reinsertion = Reinsertion::Hits { at_least: 1 };
        assert_eq!(config.check(&GEOMETRY).unwrap_err().setting, "reinsertion");
    }

    #[test]
    fn setting_that_does_not_fit_is_refused_by_name() {
        assert_eq!(refused(|c| c.offset_bytes = 512), "offset_bytes");
        assert_eq!(refused(|c| c.capacity_bytes += 4096), "capacity_bytes");
        assert_eq!(refused(|c| c.capacity_bytes = 64 << 20), "capacity_bytes");
        assert_eq!(refused(|c| c.region_bytes = 5000), "region_bytes");
        assert_eq!(refused(|c| c.region_bytes = (1 << 30) + 4096), "region_bytes");
        assert_eq!(refused(|c| c.region_bytes = 0), "region_bytes");
        assert_eq!(refused(|c| c.unit_bytes = 48), "unit_bytes");
        assert_eq!(refused(|c| c.unit_bytes = 8), "unit_bytes");
        assert_eq!(refused(|c| c.max_write_bytes = 0), "max_write_bytes");
        assert_eq!(refused(|c| c.clean_regions = 0), "clean_regions");
        assert_eq!(refused(|c| c.buffers = 1), "buffers");
        assert_eq!(refused(|c| c.write_attempts = 0), "write_attempts");
        assert_eq!(refused(|c| c.retire_after_failures = 0), "retire_after_failures");
        assert_eq!(refused(|c| c.reinsertion = Reinsertion::Hits { at_least: 8 }), "reinsertion");
        assert_eq!(
            refused(|c| c.reinsertion = Reinsertion::Percent { percent: 101, seed: 0 }),
            "reinsertion"
        );
        assert_eq!(refused(|c| c.order = OrderConfig::SegmentedFifo { shares: vec![1, 0] }), "order");
        assert_eq!(refused(|c| c.order = OrderConfig::SegmentedFifo { shares: vec![] }), "order");
        assert_eq!(refused(|c| c.order = OrderConfig::SegmentedFifo { shares: vec![1; 17] }), "order");
        assert_eq!(refused(|c| c.order = OrderConfig::SegmentedLru { segments: 0 }), "order");
    }
}
