//! The region policies by name, and their settings.

use super::order::RegionOrder;
use super::ripq::RipqConfig;

/// A region policy by name.
#[derive(Debug, Clone, PartialEq)]
pub enum OrderConfig {
    /// The oldest region first. With reinsertion by hits this approximates LRU: McDipper.
    Fifo,
    /// The least recently read region first.
    Lru,
    /// Segments of regions, each a FIFO queue; a segment above its share hands its oldest region to the segment below.
    SegmentedFifo {
        /// The segments' shares of all regions, lowest priority first; one segment per priority.
        shares: Vec<u32>,
    },
    /// Segmented LRU over regions: a hit promotes the whole region. BlockCache.
    SegmentedLru {
        /// Number of segments, of equal shares.
        segments: u8,
    },
    /// A priority queue of items, approximated by regions: RIPQ.
    Ripq(RipqConfig),
    /// An order of regions from another crate.
    Own(OwnOrder),
}

/// An order of regions from another crate. Two with the same name are considered equal.
#[derive(Debug, Clone, Copy)]
pub struct OwnOrder {
    /// Its name in results.
    pub name: &'static str,
    /// Builds the order for a number of regions.
    pub build: fn(regions: usize) -> Box<dyn RegionOrder>,
}

impl PartialEq for OwnOrder {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl OrderConfig {
    /// Number of regions filled concurrently, one per priority.
    #[must_use]
    pub fn priorities(&self) -> usize {
        match self {
            Self::Fifo | Self::Lru | Self::SegmentedLru { .. } | Self::Own(_) => 1,
            Self::SegmentedFifo { shares } => shares.len(),
            Self::Ripq(config) => config.points(),
        }
    }

    /// Whether the policy itself decides which items survive a reclaim.
    #[must_use]
    pub fn protects_items(&self) -> bool {
        matches!(self, Self::Ripq(_))
    }

    /// Describes the setting that is out of range, if any.
    pub(super) fn fault(&self) -> Option<String> {
        match self {
            Self::Fifo | Self::Lru | Self::Own(_) => None,
            Self::SegmentedFifo { shares } => (shares.is_empty() || shares.contains(&0))
                .then(|| "every segment needs a share of at least 1".to_owned()),
            Self::SegmentedLru { segments } => {
                (*segments == 0).then(|| "a segmented LRU needs at least one segment".to_owned())
            }
            Self::Ripq(config) => config.fault(),
        }
    }
}
