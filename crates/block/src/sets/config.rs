//! The configuration of a cache, checked before anything is built from it.

use policy::eviction::mid_point::SetPolicy;

use super::placement::Placement;

/// What happens to writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// To flash now, to the disk some time later.
    WriteBack,
    /// To both now.
    WriteThrough,
    /// To the disk; a cached copy is dropped.
    WriteAround,
    /// As write-back, but reads that miss bring nothing in.
    WriteOnly,
}

impl Mode {
    /// Whether blocks of the cache may be newer than the disk's.
    #[must_use]
    pub fn keeps_dirty(self) -> bool {
        matches!(self, Self::WriteBack | Self::WriteOnly)
    }
}

/// How large the cache is, and where blocks may lie: fixed when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block; a power of two.
    pub block_bytes: u32,
    /// Sets.
    pub sets: u32,
    /// Slots of a set.
    pub ways: u32,
    /// How runs of the disk are dealt out to sets.
    pub placement: Placement,
    /// Drawn when the cache is created; scattering placements depend on it.
    pub placement_key: u64,
}

/// What may be changed while the cache runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// What happens to writes.
    pub mode: Mode,
    /// Which block of a set leaves first.
    pub policy: SetPolicy,
    /// Dirty blocks of a set, percent, above which the oldest are cleaned. 100 is no threshold.
    pub dirty_percent: u8,
    /// On a miss, dirty blocks among this many next victims are cleaned, independent of the threshold. 0 disables it.
    pub lazy_depth: u32,
    /// Dirty blocks unused for this long are cleaned (within twice the time). 0 disables it. In an ordered volume, all data flushed before
    /// them is cleaned with them.
    pub idle_seconds: u32,
    /// Idle blocks cleaned a second, at most; in an ordered volume, all blocks that are cleaned for their sake.
    pub idle_blocks_per_second: u32,
    /// Limit of a set's runs in flight to the disk.
    pub cleanings_per_set: u16,
    /// Limit of all sets' runs in flight to the disk.
    pub cleanings_total: u32,
    /// Blocks of one cleaning, at most: neighbours on disk go together. A volume has 16 MiB of them at most, and fewer if its journal
    /// is small.
    pub clean_run_blocks: u32,
    /// A stream of reads longer than this is not cached. 0 caches all streams.
    pub read_bypass_bytes: u64,
    /// The same of writes.
    pub write_bypass_bytes: u64,
    /// Cleaning pauses when more than one read or write in a hundred takes longer than this, and while they do; 0 cleans at full
    /// speed. The volume's affair: the sets do not measure.
    pub latency_gate_ms: u32,
}

/// A cache, whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetsConfig {
    /// Fixed when it is created.
    pub geometry: Geometry,
    /// Changes while it runs.
    pub tuning: Tuning,
}

/// Names for settings after the two that Flashcache shipped with, as the engineers of Facebook describe them.
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
    /// The preset's settings for a cache of this many bytes of data, in blocks of 4 KiB and sets of 512. A last set
    /// that is not whole is left out; there is one set at least.
    #[must_use]
    pub fn config(self, cache_bytes: u64) -> SetsConfig {
        let (block_bytes, ways) = (4096, 512);
        let sets = (cache_bytes / u64::from(block_bytes * ways)).clamp(1, u64::from(u32::MAX / ways)) as u32;
        let geometry = Geometry { block_bytes, sets, ways, placement: self.placement(), placement_key: 0 };
        SetsConfig { geometry, tuning: self.tuning() }
    }

    /// Where the preset puts runs of the disk.
    #[must_use]
    pub fn placement(self) -> Placement {
        match self {
            Self::V2 => Placement::Linear,
            Self::V3 => Placement::Permuted { run_bytes: 64 << 10 },
        }
    }

    /// The preset's settings that may change while the cache runs.
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

/// A setting that makes no cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {given}: {must}")]
pub struct ConfigError {
    /// The setting.
    pub setting: &'static str,
    /// Its value.
    pub given: u64,
    /// What it must be.
    pub must: &'static str,
}

/// Blocks of the disk are numbered below this; the word of a slot has the other bits for its state. At 4 KiB a block
/// this is 64 PiB.
pub const MAX_DISK_BLOCKS: u64 = (1 << 44) - 1;

impl SetsConfig {
    /// Whether a cache can be built from this.
    ///
    /// # Errors
    /// The first setting that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.geometry.check()?;
        self.tuning.check()
    }
}

impl Geometry {
    /// Slots of all sets.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.sets * self.ways
    }

    /// Whether a cache can have this shape.
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
    /// Whether a cache can behave so.
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
