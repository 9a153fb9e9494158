//! Configuration of the sets, validated before use.

use policy::eviction::mid_point::SetPolicy;

use super::placement::Placement;

/// How writes are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Written to flash; to the disk later.
    WriteBack,
    /// Written to both.
    WriteThrough,
    /// Written to the disk; a cached copy is dropped.
    WriteAround,
    /// As write-back, but read misses do not insert blocks.
    WriteOnly,
}

impl Mode {
    /// Whether cached blocks may be newer than the disk.
    #[must_use]
    pub fn keeps_dirty(self) -> bool {
        matches!(self, Self::WriteBack | Self::WriteOnly)
    }
}

/// Size and placement of the cache, fixed when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Block size in bytes; a power of two.
    pub block_bytes: u32,
    /// Number of sets.
    pub sets: u32,
    /// Slots per set.
    pub ways: u32,
    /// How runs of the disk are mapped to sets.
    pub placement: Placement,
    /// Random key of the placement, drawn when the cache is created.
    pub placement_key: u64,
}

/// Settings that can be changed while the cache runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// How writes are handled.
    pub mode: Mode,
    /// Eviction policy of each set.
    pub policy: SetPolicy,
    /// Percentage of dirty blocks per set above which the oldest are cleaned. 100 disables the threshold.
    pub dirty_percent: u8,
    /// On a miss, dirty blocks among this many next victims are cleaned, independent of the threshold. 0 disables it.
    pub lazy_depth: u32,
    /// Dirty blocks unused for this long are cleaned (within twice the time). 0 disables it. In an ordered volume, all data flushed before
    /// them is cleaned with them.
    pub idle_seconds: u32,
    /// Limit of idle blocks cleaned per second; in an ordered volume, of all blocks cleaned for their sake.
    pub idle_blocks_per_second: u32,
    /// Limit of a set's runs in flight to the disk.
    pub cleanings_per_set: u16,
    /// Limit of all sets' runs in flight to the disk.
    pub cleanings_total: u32,
    /// Maximum length of a run in blocks. A volume limits runs to 16 MiB, and to less if its journal is
    /// small.
    pub clean_run_blocks: u32,
    /// A stream of reads longer than this is not cached. 0 caches all streams.
    pub read_bypass_bytes: u64,
    /// As `read_bypass_bytes`, for writes.
    pub write_bypass_bytes: u64,
    /// Cleaning pauses while more than 1 % of reads and writes take longer than this; 0 disables the gate. The volume implements it: the
    /// sets do not measure time.
    pub latency_gate_ms: u32,
}

/// The complete configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetsConfig {
    /// Fixed part.
    pub geometry: Geometry,
    /// Changeable part.
    pub tuning: Tuning,
}

/// Settings of the two published versions of Flashcache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Flashcache 1 and 2: FIFO, linear sets, a fifth of each set dirty.
    V2,
    /// Flashcache 3: LRU-2Q with the mid-point at 75, scattered runs, dirty blocks up to 70 % of a set. Two differences: runs of 64 KiB are
    /// scattered evenly, where Flashcache hashes runs of 256 KiB; and a dirty block next in eviction order is not cleaned, because such
    /// blocks are often rewritten, and the disk does less work without it in every workload tried.
    V3,
}

impl Preset {
    /// The preset's settings for a cache of this many bytes of data, in blocks of 4 KiB and sets of 512. An incomplete last set
    /// is left out; there is at least one set.
    #[must_use]
    pub fn config(self, cache_bytes: u64) -> SetsConfig {
        let (block_bytes, ways) = (4096, 512);
        let sets = (cache_bytes / u64::from(block_bytes * ways)).clamp(1, u64::from(u32::MAX / ways)) as u32;
        let geometry = Geometry { block_bytes, sets, ways, placement: self.placement(), placement_key: 0 };
        SetsConfig { geometry, tuning: self.tuning() }
    }

    /// The preset's placement.
    #[must_use]
    pub fn placement(self) -> Placement {
        match self {
            Self::V2 => Placement::Linear,
            Self::V3 => Placement::Permuted { run_bytes: 64 << 10 },
        }
    }

    /// The preset's changeable settings.
    #[must_use]
    pub fn tuning(self) -> Tuning {
        let common = Tuning {
            mode: Mode::WriteBack,
            policy: SetPolicy::Fifo,
            dirty_percent: 20,
            lazy_depth: 0,
            idle_seconds: 900,
            idle_blocks_per_second: 100,
            cleanings_per_set: 2,
            cleanings_total: 4,
            clean_run_blocks: 256,
            read_bypass_bytes: 0,
            write_bypass_bytes: 0,
            latency_gate_ms: 0,
        };
        match self {
            Self::V2 => common,
            Self::V3 => Tuning {
                policy: SetPolicy::Lru2q { hot_percent: 75, promote_hits: 2 },
                dirty_percent: 70,
                ..common
            },
        }
    }
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {given}: {must}")]
pub struct ConfigError {
    /// Name of the setting.
    pub setting: &'static str,
    /// Given value.
    pub given: u64,
    /// Permitted values.
    pub must: &'static str,
}

/// Upper bound of block numbers of the disk; the other bits of a slot's word hold its state. 64 PiB with blocks of 4 KiB.
pub const MAX_DISK_BLOCKS: u64 = (1 << 44) - 1;

impl SetsConfig {
    /// Validates the configuration.
    ///
    /// # Errors
    /// The first setting that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.geometry.check()?;
        self.tuning.check()
    }
}

impl Geometry {
    /// Total number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.sets * self.ways
    }

    /// Validates the geometry.
    ///
    /// # Errors
    /// The first setting that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self { block_bytes, sets, ways, placement, .. } = *self;
        let block_fits = block_bytes.is_power_of_two() && (512..=1 << 20).contains(&block_bytes);
        ensure("block_bytes", block_bytes, block_fits, "must be a power of two from 512 to 1 MiB")?;
        ensure("ways", ways, (1..=1 << 15).contains(&ways), "must be from 1 to 32768")?;
        let sets_fit = sets > 0 && sets.checked_mul(ways).is_some_and(|slots| slots < u32::MAX);
        ensure("sets", sets, sets_fit, "must be at least 1, with fewer than 2^32 blocks in all")?;
        if let Placement::Hashed { run_bytes } | Placement::Permuted { run_bytes } = placement {
            let set_bytes = u64::from(ways) * u64::from(block_bytes);
            let run_fits =
                run_bytes.is_power_of_two() && run_bytes >= block_bytes && u64::from(run_bytes) <= set_bytes;
            ensure("run_bytes", run_bytes, run_fits, "must be a power of two from a block to a set")?;
        }
        Ok(())
    }
}

impl Tuning {
    /// Validates the tuning.
    ///
    /// # Errors
    /// The first setting that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let SetPolicy::Lru2q { hot_percent, promote_hits } = self.policy {
            ensure("hot_percent", hot_percent, hot_percent <= 100, "must be at most 100")?;
            let promotes = (1..128).contains(&promote_hits);
            ensure("promote_hits", promote_hits, promotes, "must be from 1 to 127")?;
        }
        ensure("dirty_percent", self.dirty_percent, self.dirty_percent <= 100, "must be at most 100")?;
        let nonzero = |setting, value: u32| ensure(setting, value, value > 0, "must be at least 1");
        nonzero("cleanings_per_set", self.cleanings_per_set.into())?;
        nonzero("cleanings_total", self.cleanings_total)?;
        nonzero("clean_run_blocks", self.clean_run_blocks)?;
        nonzero("idle_blocks_per_second", self.idle_blocks_per_second)
    }
}

fn ensure(
    setting: &'static str,
    given: impl Into<u64>,
    holds: bool,
    must: &'static str,
) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError { setting, given: given.into(), must }) }
}
