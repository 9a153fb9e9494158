//! Flash caches that can be simulated, by name, and what is common to them.

use policy::simulate::Simulator;
use policy::simulate::flash::{BlockCache, Flash, FlashCache, FlashRules, Mcdipper, OnTop, Ripq, Sets};

/// A flash cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Design {
    /// Log-structured: McDipper, in smaller blocks by default.
    Log,
    /// Set-associative.
    SetAssociative,
    /// McDipper: FIFO in large blocks.
    Mcdipper,
    /// Segmented LRU over large blocks.
    BlockCache,
    /// RIPQ with so many insertion points, or as many as the settings say, and a policy on top.
    Ripq(Option<u8>, OnTop),
}

/// What flash caches are made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlashSettings {
    /// DRAM before the flash, bytes.
    pub dram_bytes: u64,
    /// Log: bytes of that DRAM that a byte of flash takes for the index.
    pub index_ratio: f64,
    /// Bytes that every object takes besides its own.
    pub object_overhead_bytes: u32,
    /// Larger objects are taken to be as large as this, overhead included.
    pub object_at_most_bytes: u32,
    /// Bytes of a block. `None`: 256 KiB for the log, 64 MiB for the others, but no more than a 256th of the cache.
    pub block_bytes: Option<u64>,
    /// Bytes of a set.
    pub set_bytes: u64,
    /// RIPQ's insertion points.
    pub insertion_points: u8,
    /// BlockCache's segments.
    pub segments: u8,
}

impl Default for FlashSettings {
    fn default() -> Self {
        Self {
            dram_bytes: 0,
            index_ratio: 0.0,
            object_overhead_bytes: 0,
            object_at_most_bytes: u32::MAX,
            block_bytes: None,
            set_bytes: 4096,
            insertion_points: 8,
            segments: 4,
        }
    }
}

/// A cache is at least so many blocks where nobody says how large they are: fewer would be too coarse to tell policies apart.
const FEWEST_BLOCKS: u64 = 256;

impl Design {
    /// The design of this name, as it is written in the table.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "log" => Self::Log,
            "set-associative" => Self::SetAssociative,
            "mcdipper" => Self::Mcdipper,
            "blockcache" => Self::BlockCache,
            "ripq" => Self::Ripq(None, OnTop::Slru(4)),
            "ripq-lru" => Self::Ripq(None, OnTop::Lru),
            "ripq-gdsf" => Self::Ripq(None, OnTop::Gdsf),
            _ => return None,
        })
    }

    /// An empty cache of so many bytes.
    pub(super) fn simulator(self, size_bytes: u64, settings: &FlashSettings) -> Box<dyn Simulator> {
        let large = settings.block_bytes.unwrap_or((64 << 20).min(size_bytes.div_ceil(FEWEST_BLOCKS)));
        let small = settings.block_bytes.unwrap_or(256 << 10);
        let index_bytes = (size_bytes as f64 * settings.index_ratio) as u64;
        match self {
            Self::Log => behind_dram(Mcdipper::new(size_bytes, small), settings, index_bytes),
            Self::SetAssociative => behind_dram(Sets::new(size_bytes, settings.set_bytes), settings, 0),
            Self::Mcdipper => behind_dram(Mcdipper::new(size_bytes, large), settings, 0),
            Self::BlockCache => {
                behind_dram(BlockCache::new(size_bytes, large, settings.segments), settings, 0)
            }
            Self::Ripq(points, on_top) => {
                let points = points.unwrap_or(settings.insertion_points);
                behind_dram(Ripq::new(size_bytes, large, points, on_top), settings, 0)
            }
        }
    }
}

fn behind_dram<F: FlashCache + 'static>(
    flash: F,
    settings: &FlashSettings,
    index_bytes: u64,
) -> Box<dyn Simulator> {
    let rules = FlashRules {
        dram_weight: settings.dram_bytes.saturating_sub(index_bytes),
        object_overhead: settings.object_overhead_bytes,
        object_weight_at_most: settings.object_at_most_bytes,
    };
    Box::new(Flash::new(flash, rules))
}
