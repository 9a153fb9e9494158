//! A drive's shape, and the figures derived from it.

use std::fmt;

use crate::mapping::Mapping;
use crate::placement::{HandleKind, Isolation};

/// A mapping unit of the host's address space: one indirection unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalPage(pub u32);

/// A location on the medium that holds one mapping unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhysicalPage(pub u32);

/// A reclaim unit: collected and erased as a whole (a superblock).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u32);

/// The parameters of a modelled drive. [`Shape::layout`] checks them and computes the rest.
///
/// Space has three parts, because published figures differ in which of them they call spare: `logical_pages` is the
/// space that the host can fill (S); `units` are the reclaim units that are full when collection is in balance (P);
/// `reserve_units` are additional units that are open or being collected. Over-provisioning is (P − S) / S, without the
/// reserve.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Bytes of a logical block: a power of two, at least 512.
    pub block_bytes: u32,
    /// Bytes of a page, the unit of mapping (indirection unit): a power of two from 4 KiB to 64 KiB.
    pub page_bytes: u32,
    /// Pages of a reclaim unit.
    pub unit_pages: u32,
    /// Reclaim units that can be full at the same time, in all reclaim groups together (P).
    pub units: u32,
    /// Additional reclaim units in all groups together; 0 means the fewest that the drive can work with.
    pub reserve_units: u32,
    /// Pages that the host sees (S).
    pub logical_pages: u32,
    /// Reclaim groups; `units` and `reserve_units` are divided among them.
    pub groups: u16,
    /// The separation of data by placement.
    pub isolation: Isolation,
}

/// A checked [`Shape`] and the values derived from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    shape: Shape,
    group_units: u32,
    group_limit: u32,
}

/// The reason why a drive's parameters are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeError {
    /// The invalid key.
    pub key: &'static str,
    /// The reason.
    pub reason: String,
}

/// Fewest pages of a reclaim unit: with one page per unit, there is nothing to collect.
pub const MIN_UNIT_PAGES: u32 = 2;

/// Most reclaim groups of a drive: a unit stores the number of its group in one byte.
pub const MAX_GROUPS: u16 = 256;

/// Page numbers have 32 bits, and the last one means "not mapped".
pub const MAX_PAGES: u64 = u32::MAX as u64 - 1;

impl Shape {
    /// The over-provisioning ratio, (P − S) / S.
    #[must_use]
    pub fn op_ratio(&self) -> f64 {
        let (user, physical) = (f64::from(self.logical_pages), self.data_pages() as f64);
        (physical - user) / user
    }

    /// Pages of all units that can be full at the same time (P).
    #[must_use]
    pub fn data_pages(&self) -> u64 {
        u64::from(self.units) * u64::from(self.unit_pages)
    }

    /// Fewest reserve units that this drive can work with: in each group one for every frontier that may be open there,
    /// one that collection moves data into, and one that is being erased.
    #[must_use]
    pub fn least_reserve_units(&self) -> u32 {
        u32::from(self.groups) * (self.isolation.frontiers_in_a_group(self.groups) + 2)
    }

    /// Checks the shape.
    ///
    /// # Errors
    /// The first invalid key, and the reason.
    pub fn layout(mut self) -> Result<Layout, ShapeError> {
        self.check_sizes()?;
        self.isolation.check()?;
        if self.reserve_units == 0 {
            self.reserve_units = self.least_reserve_units();
        }
        self.check_counts()?;
        self.check_space()?;
        let groups = u32::from(self.groups);
        let group_units = (self.units + self.reserve_units) / groups;
        let group_limit = self.units / groups;
        Ok(Layout { shape: self, group_units, group_limit })
    }

    fn check_sizes(&self) -> Result<(), ShapeError> {
        let Self { block_bytes, page_bytes, .. } = *self;
        if !block_bytes.is_power_of_two() || !(512..=65536).contains(&block_bytes) {
            return refuse("block_bytes", format!("{block_bytes} is not a power of two from 512 to 65536"));
        }
        if !page_bytes.is_power_of_two() || !(4096..=65536).contains(&page_bytes) {
            return refuse("page_bytes", format!("{page_bytes} is not a power of two from 4096 to 65536"));
        }
        if page_bytes < block_bytes {
            return refuse("page_bytes", format!("{page_bytes} is less than a block of {block_bytes} bytes"));
        }
        match self.groups {
            0 => refuse("groups", "a drive needs at least one reclaim group".into()),
            groups if groups > MAX_GROUPS => {
                refuse("groups", format!("{groups} reclaim groups are more than the maximum of {MAX_GROUPS}"))
            }
            _ => Ok(()),
        }
    }

    fn check_counts(&self) -> Result<(), ShapeError> {
        let groups = u32::from(self.groups);
        if self.unit_pages < MIN_UNIT_PAGES {
            let pages = self.unit_pages;
            return refuse(
                "unit_pages",
                format!("{pages} pages are fewer than the minimum of {MIN_UNIT_PAGES}"),
            );
        }
        for (key, units) in [("units", self.units), ("reserve_units", self.reserve_units)] {
            if !units.is_multiple_of(groups) {
                return refuse(
                    key,
                    format!("{units} units cannot be divided evenly among {groups} reclaim groups"),
                );
            }
        }
        let least = self.least_reserve_units();
        if self.reserve_units < least {
            let units = self.reserve_units;
            return refuse(
                "reserve_units",
                format!("{units} units are too few: open units and garbage collection need {least}"),
            );
        }
        Ok(())
    }

    fn check_space(&self) -> Result<(), ShapeError> {
        let units = u64::from(self.units) + u64::from(self.reserve_units);
        let pages = units * u64::from(self.unit_pages);
        if pages > MAX_PAGES {
            return refuse(
                "page_bytes",
                format!(
                    "{pages} pages of {} bytes are more than the maximum of {MAX_PAGES}: choose larger pages",
                    self.page_bytes
                ),
            );
        }
        let logical = u64::from(self.logical_pages);
        if logical == 0 {
            return refuse("logical_pages", "the drive has no logical pages".into());
        }
        let spare = u64::from(self.groups) * u64::from(self.unit_pages);
        let physical = self.data_pages();
        if logical + spare > physical {
            return refuse(
                "logical_pages",
                format!(
                    "{logical} pages leave no spare unit in each of {} group(s): the medium has {physical} pages in units of {}",
                    self.groups, self.unit_pages
                ),
            );
        }
        Ok(())
    }
}

impl Layout {
    /// The shape, with the reserve filled in.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// All reclaim units, the reserve included.
    #[must_use]
    pub fn total_units(&self) -> u32 {
        self.group_units * u32::from(self.shape.groups)
    }

    /// Reclaim units of one group, its reserve included.
    #[must_use]
    pub fn group_units(&self) -> u32 {
        self.group_units
    }

    /// Units of one group that can be full before collection must begin.
    #[must_use]
    pub fn group_limit(&self) -> u32 {
        self.group_limit
    }

    /// Bytes that the host sees.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.shape.logical_pages) * u64::from(self.shape.page_bytes)
    }

    /// Bytes of memory for the drive's mapping, which is nearly all of the model's memory.
    #[must_use]
    pub fn mapping_bytes(&self) -> u64 {
        let physical_pages = u64::from(self.total_units()) * u64::from(self.shape.unit_pages);
        Mapping::bytes(self.shape.logical_pages, physical_pages)
    }

    /// Bytes of a reclaim unit.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        u64::from(self.shape.unit_pages) * u64::from(self.shape.page_bytes)
    }

    /// Handles that the host may choose among; 1 on a conventional drive.
    #[must_use]
    pub fn handles(&self) -> &[HandleKind] {
        self.shape.isolation.handles()
    }
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)
    }
}

impl std::error::Error for ShapeError {}

pub(crate) fn refuse<T>(key: &'static str, reason: String) -> Result<T, ShapeError> {
    Err(ShapeError { key, reason })
}
