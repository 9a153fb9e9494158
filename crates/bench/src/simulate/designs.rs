//! Flash caches that can be simulated, by name, and their settings.

use policy::simulate::Simulator;
use policy::simulate::flash::{
    Flash, FlashCache, FlashRules, HashLog, HashLogRules, Kangaroo, KangarooRules, Log, Sets,
};

use super::regions::Regions;

/// A flash cache.
#[derive(Debug, Clone, PartialEq)]
pub enum Design {
    /// A model of a log of small blocks behind DRAM.
    Log,
    /// A model of a log in hash order behind DRAM.
    HashLog {
        /// Percentage of each region for readmitted objects.
        readmission_percent: u8,
    },
    /// A model of a set-associative cache behind DRAM.
    SetAssociative,
    /// A model of Kangaroo: a small log in front of sets, behind DRAM.
    Kangaroo,
    /// The cache engine's regions with one of the region policies.
    Regions(Regions),
}

/// Settings of simulated flash caches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlashSettings {
    /// Size of the DRAM cache in front of flash.
    pub dram_bytes: u64,
    /// Logs: bytes of DRAM for the index per byte of flash.
    pub index_ratio: f64,
    /// Overhead of each object.
    pub object_overhead_bytes: u32,
    /// Maximum size of an object, including overhead; larger ones are counted with this size.
    pub object_at_most_bytes: u32,
    /// Block size. `None` is 256 KiB for the log; for the engine's regions see [`Regions`].
    pub block_bytes: Option<u64>,
    /// Set size.
    pub set_bytes: u64,
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
        }
    }
}

impl Design {
    /// Finds a design by its name in lower case without dashes.
    pub(super) fn named(plain: &str) -> Option<Self> {
        match plain {
            "log" => Some(Self::Log),
            "hashlog" => Some(Self::HashLog { readmission_percent: 25 }),
            "hashlogfifo" => Some(Self::HashLog { readmission_percent: 0 }),
            "setassociative" => Some(Self::SetAssociative),
            "kangaroo" => Some(Self::Kangaroo),
            _ => Regions::named(plain).map(Self::Regions),
        }
    }

    /// Block size that is used if `requested_bytes` is requested; `None` if the design has no blocks.
    pub(super) fn block_bytes(&self, size_bytes: u64, requested_bytes: u64) -> Option<u64> {
        match self {
            Self::Log | Self::HashLog { .. } => Some(requested_bytes.min(size_bytes)),
            Self::SetAssociative | Self::Kangaroo => None,
            Self::Regions(regions) => Some(regions.block_bytes(size_bytes, Some(requested_bytes))),
        }
    }

    /// Creates an empty cache.
    pub(super) fn simulator(&self, size_bytes: u64, settings: &FlashSettings) -> Box<dyn Simulator> {
        let index_bytes = (size_bytes as f64 * settings.index_ratio) as u64;
        match self {
            Self::Log => {
                let block_bytes = settings.block_bytes.unwrap_or(256 << 10);
                behind_dram(Log::new(size_bytes, block_bytes), settings, index_bytes)
            }
            Self::HashLog { readmission_percent } => {
                let default = HashLogRules::of_engine(size_bytes, f64::from(*readmission_percent) / 100.0);
                let region_weight = settings.block_bytes.unwrap_or(default.region_weight);
                let rules = HashLogRules { region_weight, ..default };
                behind_dram(HashLog::new(size_bytes, rules), settings, index_bytes)
            }
            Self::SetAssociative => behind_dram(Sets::new(size_bytes, settings.set_bytes), settings, 0),
            Self::Kangaroo => {
                let rules = KangarooRules { set_weight: settings.set_bytes, ..KangarooRules::default() };
                behind_dram(Kangaroo::new(size_bytes, rules), settings, 0)
            }
            Self::Regions(regions) => regions.simulator(size_bytes, settings.block_bytes),
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
