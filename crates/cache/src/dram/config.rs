//! The configuration of the DRAM tier, and the layout computed from it.

use std::sync::Arc;

use policy::Eviction;

use super::chunks::TABLE_BYTES_PER_SLAB;
use super::item::HEADER_BYTES;

/// Creates the eviction policy of one size class. The policy is notified of its capacity, in items, whenever the class gains or loses a
/// slab.
pub type PolicyFactory = Arc<dyn Fn() -> Box<dyn Eviction> + Send + Sync>;

/// Configuration of the DRAM tier.
#[derive(Clone)]
pub struct DramConfig {
    /// Memory for items in bytes. Only whole slabs are used: see [`DramConfig::slab_bytes`].
    pub dram_bytes: u64,
    /// Size of a slab, a power of two of at least 64 KiB. `None` selects 4 MiB, or less if `dram_bytes` would have fewer than 1024
    /// slabs, but at least the largest allocation. That in turn is limited to a 64th of `dram_bytes` (or 64 KiB): see
    /// [`DramConfig::max_item_bytes`].
    pub slab_bytes: Option<u32>,
    /// Pools and their shares; one by default.
    pub pools: Vec<PoolConfig>,
    /// Ratio of neighbouring chunk sizes. `None` selects 1.03, or more if that would yield more sizes than a pool has slabs, or more than
    /// 256.
    pub alloc_factor: Option<f64>,
    /// Smallest chunk size.
    pub min_item_bytes: u32,
    /// Largest value. The largest chunk also holds a header and a key of up to [`KEY_ALLOWANCE_BYTES`]; the bytes of a longer key beyond
    /// that count as bytes of the value. If `slab_bytes` is `None` and there would be fewer than 64 slabs of that size, the limit is
    /// lowered to a 64th of the memory (but at least 64 KiB), and larger items are refused: with few large slabs, most classes would have
    /// none.
    pub max_item_bytes: u32,
    /// Largest chunk, header and key included. `None` computes it from `max_item_bytes`; otherwise that has no effect.
    pub max_chunk_bytes: Option<u32>,
    /// Explicit chunk sizes, ascending; if not empty, factor, smallest and largest size are ignored. Each is rounded up to a multiple of 8.
    pub alloc_sizes: Vec<u32>,
    /// The eviction policy.
    pub policy: PolicyFactory,
}

impl DramConfig {
    /// A tier of `dram_bytes` in one pool, with the default sizes.
    #[must_use]
    pub fn new(dram_bytes: u64, policy: PolicyFactory) -> Self {
        Self {
            dram_bytes,
            slab_bytes: None,
            pools: vec![PoolConfig { name: "default".into(), share: 1.0 }],
            alloc_factor: None,
            min_item_bytes: 64,
            max_item_bytes: 1 << 20,
            max_chunk_bytes: None,
            alloc_sizes: Vec::new(),
            policy,
        }
    }

    /// Memory of the policy per chunk.
    pub(crate) fn policy_bytes_per_slot(&self) -> u64 {
        u64::from((self.policy)().bytes_per_slot())
    }

    /// Memory of the tables that map the policies' slots to slabs, if every class has one; 0 for an invalid configuration.
    pub(crate) fn slab_table_bytes(&self) -> u64 {
        let of =
            |layout: Layout| layout.sizes.len() as u64 * u64::from(layout.slab_count) * TABLE_BYTES_PER_SLAB;
        Layout::of(self).map_or(0, of)
    }
}

impl std::fmt::Debug for DramConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DramConfig")
            .field("dram_bytes", &self.dram_bytes)
            .field("slab_bytes", &self.slab_bytes)
            .field("pools", &self.pools)
            .field("alloc_factor", &self.alloc_factor)
            .field("min_item_bytes", &self.min_item_bytes)
            .field("max_item_bytes", &self.max_item_bytes)
            .field("max_chunk_bytes", &self.max_chunk_bytes)
            .field("alloc_sizes", &self.alloc_sizes)
            .finish_non_exhaustive()
    }
}

/// A pool: items of one pool never evict items of another.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// The name in reports.
    pub name: String,
    /// Its share of the slabs, 0 to 1.
    pub share: f64,
}

/// A pool, by its place in [`DramConfig::pools`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u8);

/// Why a [`DramConfig`] is invalid.
#[derive(Debug, thiserror::Error)]
pub enum DramConfigError {
    /// An invalid setting.
    #[error("{setting}: {why}")]
    Setting {
        /// The field of [`DramConfig`]; the [builder](crate::Builder) calls it the same.
        setting: &'static str,
        /// The error.
        why: String,
    },
    /// The system refused to map memory.
    #[error("mapping {bytes} bytes: {source}")]
    Map {
        /// The requested size.
        bytes: u64,
        /// The system's error.
        source: std::io::Error,
    },
}

const MIN_SLAB_BYTES: u32 = 64 << 10;
const USUAL_SLAB_BYTES: u32 = 4 << 20;
const LEAST_CHUNK_BYTES: u32 = 64;
/// With fewer slabs, classes that need little memory would occupy too much.
const WANTED_SLABS: u64 = 1024;
/// With fewer slabs, most classes would have none, so the largest item is limited instead.
const LEAST_SLABS: u64 = 64;
const MAX_SIZES: usize = 256;
/// The default ratio of neighbouring chunk sizes.
const USUAL_ALLOC_FACTOR: f64 = 1.03;
const MAX_POOLS: usize = 64;
/// Longest key that has space beside a value of [`DramConfig::max_item_bytes`]. CacheLib's and memcached's keys are no longer.
pub const KEY_ALLOWANCE_BYTES: usize = 255;
/// Space in the largest chunk beside the value; a multiple of 8, as chunks are.
const BESIDE_VALUE_BYTES: usize = (HEADER_BYTES + KEY_ALLOWANCE_BYTES).next_multiple_of(8);
/// A slab whose size is a power of two is enlarged by up to this many bytes to fit the largest chunk. Otherwise a value of a power of two
/// would double the slab, because of the header, the key and the caller's own header.
const SLAB_EXCESS_BYTES: u32 = 512;

impl DramConfig {
    /// The largest requested chunk.
    fn largest_chunk_bytes(&self) -> u32 {
        self.max_chunk_bytes.unwrap_or(self.max_item_bytes.saturating_add(BESIDE_VALUE_BYTES as u32))
    }

    /// The least memory that holds values of `value_bytes`.
    pub(crate) fn least_dram_bytes(value_bytes: u32) -> u64 {
        LEAST_SLABS * u64::from(value_bytes.checked_next_power_of_two().unwrap_or(1 << 31))
    }

    /// The resulting largest value: [`max_item_bytes`](Self::max_item_bytes), or less if memory is small.
    ///
    /// # Errors
    /// The error with which [opening](crate::Builder::open) a cache would fail.
    pub fn max_value_bytes(&self) -> Result<usize, DramConfigError> {
        Layout::of(self).map(|layout| layout.max_value_bytes)
    }

    /// The resulting chunk sizes, ascending. An item with its header and key is never larger than the last.
    ///
    /// # Errors
    /// The error with which [opening](crate::Builder::open) a cache would fail.
    pub fn chunk_sizes(&self) -> Result<Vec<u32>, DramConfigError> {
        Layout::of(self).map(|layout| layout.sizes)
    }
}

/// Values derived from the configuration.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub slab_bytes: u32,
    pub slab_count: u32,
    /// Number of bits of an item reference that select the chunk within its slab.
    pub chunk_bits: u32,
    /// Chunk sizes, ascending, multiples of 8.
    pub sizes: Vec<u32>,
    /// The largest value, with a key of up to [`KEY_ALLOWANCE_BYTES`].
    pub max_value_bytes: usize,
    /// Larger values are refused though a chunk may hold them: the limit of `max_item_bytes` is exact.
    pub refused_above_bytes: usize,
    /// Slabs of each pool.
    pub quotas: Vec<u32>,
}

impl Layout {
    pub(super) fn of(config: &DramConfig) -> Result<Self, DramConfigError> {
        check_pools(config)?;
        let (sizes, slab_bytes) = if config.alloc_sizes.is_empty() {
            let range = size_range(config)?;
            let slab_bytes = slab_bytes(config, range.1)?;
            let slabs = config.dram_bytes / u64::from(slab_bytes);
            let factor =
                config.alloc_factor.unwrap_or_else(|| factor_for(range, smallest_quota(config, slabs)));
            (widened(&geometric(range, factor)?, slab_bytes), slab_bytes)
        } else {
            let sizes = explicit_sizes(&config.alloc_sizes)?;
            let slab_bytes = slab_bytes(config, *sizes.last().expect("there is a size"))?;
            (sizes, slab_bytes)
        };
        let smallest = sizes[0];
        let slabs = config.dram_bytes / u64::from(slab_bytes);
        // The few bytes by which a slab exceeds a power of two are ignored: they would cost a bit of each reference.
        let whole_bytes = 1 << slab_bytes.ilog2();
        let chunk_bits = (whole_bytes / smallest).max(1).next_power_of_two().trailing_zeros();
        let largest_value =
            (*sizes.last().expect("there is a size") as usize).saturating_sub(BESIDE_VALUE_BYTES);
        let is_computed = config.alloc_sizes.is_empty() && config.max_chunk_bytes.is_none();
        let requested_bytes = if is_computed { config.max_item_bytes as usize } else { usize::MAX };
        let max_value_bytes = largest_value.min(requested_bytes);
        let refused_above_bytes = if is_computed { max_value_bytes } else { usize::MAX };
        // The number of a slab within its class also has 16 bits.
        let max_slabs = ((1_u64 << (32 - chunk_bits)) - 1).min(1 << 16);
        if slabs > max_slabs {
            let max = max_slabs * u64::from(slab_bytes);
            let raised = if config.alloc_sizes.is_empty() { "min_item_bytes" } else { "alloc_sizes" };
            // References have 32 bits; larger smallest chunks address more memory.
            return Err(wrong(
                "dram_bytes",
                format!(
                    "{} bytes are more than the {max} that can be addressed with smallest chunks of {smallest} bytes; \
                     raise {raised}",
                    config.dram_bytes
                ),
            ));
        }
        let slab_count = slabs as u32;
        let quotas = quotas(config, slab_count).map_err(|what| {
            let dram_bytes = config.dram_bytes;
            let why =
                format!("{dram_bytes} bytes are enough for {slabs} slabs of {slab_bytes} bytes; {what}");
            wrong("dram_bytes", why)
        })?;
        Ok(Self { slab_bytes, slab_count, chunk_bits, sizes, max_value_bytes, refused_above_bytes, quotas })
    }
}

fn wrong(setting: &'static str, why: String) -> DramConfigError {
    DramConfigError::Setting { setting, why }
}

/// The smallest and the largest chunk size, if sizes are computed.
fn size_range(config: &DramConfig) -> Result<(u32, u32), DramConfigError> {
    let (min, max) = (config.min_item_bytes, config.largest_chunk_bytes());
    if min > max {
        let (setting, max) = match config.max_chunk_bytes {
            Some(max) => ("max_chunk_bytes", max),
            None => ("max_item_bytes", config.max_item_bytes),
        };
        return Err(wrong("min_item_bytes", format!("{min} is above {setting} {max}")));
    }
    check_smallest("min_item_bytes", min)?;
    let (min, max) = (multiple_of_8(min), multiple_of_8(max));
    if config.slab_bytes.is_some() {
        return Ok((min, max));
    }
    // A small tier would hold too few larger chunks.
    let share = (config.dram_bytes / LEAST_SLABS).max(1);
    let share = u32::try_from(share).map_or(1 << 31, |bytes| 1 << bytes.ilog2());
    let beside = if config.max_chunk_bytes.is_some() { 0 } else { BESIDE_VALUE_BYTES as u32 };
    Ok((min, max.min(share.max(MIN_SLAB_BYTES) + beside).max(min)))
}

fn explicit_sizes(sizes: &[u32]) -> Result<Vec<u32>, DramConfigError> {
    let wrong = |why: String| Err(wrong("alloc_sizes", why));
    let sizes: Vec<u32> = sizes.iter().map(|&size| multiple_of_8(size)).collect();
    if sizes.len() > MAX_SIZES {
        return wrong(format!("{} sizes; at most {MAX_SIZES} are supported", sizes.len()));
    }
    if !sizes.is_sorted_by(|a, b| a < b) {
        return wrong(format!("{sizes:?} must ascend by at least 8 bytes each"));
    }
    check_smallest("alloc_sizes", sizes[0])?;
    Ok(sizes)
}

/// Checks that the smallest chunk holds a header.
fn check_smallest(setting: &'static str, bytes: u32) -> Result<(), DramConfigError> {
    if bytes < LEAST_CHUNK_BYTES {
        let why = format!("the smallest chunk is {bytes} bytes; the minimum is {LEAST_CHUNK_BYTES}");
        return Err(wrong(setting, why));
    }
    Ok(())
}

fn multiple_of_8(size: u32) -> u32 {
    size.checked_next_multiple_of(8).unwrap_or(size & !7)
}

/// Sizes from the smallest to the largest, each by `factor` larger than the one before.
fn geometric((min, max): (u32, u32), factor: f64) -> Result<Vec<u32>, DramConfigError> {
    let wrong = |why: String| Err(wrong("alloc_factor", why));
    if !(factor > 1.0 && factor.is_finite()) {
        return wrong(format!("{factor} is not above 1"));
    }
    let mut sizes = vec![min];
    while let Some(&last) = sizes.last()
        && last < max
    {
        if sizes.len() == MAX_SIZES {
            let least = (factor_of_count((min, max), MAX_SIZES as u64) * 1e3).ceil() / 1e3;
            return wrong(format!(
                "{factor} makes more than {MAX_SIZES} sizes of {min} to {max} bytes; the least is {least}"
            ));
        }
        let next = multiple_of_8((f64::from(last) * factor).ceil().min(f64::from(u32::MAX - 8)) as u32);
        sizes.push(next.max(last + 8).min(max));
    }
    Ok(sizes)
}

/// The growth factor for a pool of `slabs` slabs: fine, but with at least one slab per class. A class without a slab must take one from
/// another class, with all items in it.
fn factor_for(range: (u32, u32), slabs: u64) -> f64 {
    factor_of_count(range, slabs.clamp(1, MAX_SIZES as u64)).max(USUAL_ALLOC_FACTOR)
}

/// The smallest factor that yields at most `count` sizes, one more than the steps between them.
fn factor_of_count((min, max): (u32, u32), count: u64) -> f64 {
    let steps = count.saturating_sub(1).max(1);
    (f64::from(max) / f64::from(min)).powf(1.0 / steps as f64)
}

/// The number of slabs of the smallest pool.
fn smallest_quota(config: &DramConfig, slabs: u64) -> u64 {
    let least = config.pools.iter().map(|pool| pool.share).fold(1.0, f64::min);
    (least * slabs as f64) as u64
}

/// Raises each size as long as a slab holds the same number of chunks, so that the rest at a slab's end is divided among its chunks.
fn widened(sizes: &[u32], slab_bytes: u32) -> Vec<u32> {
    let largest = *sizes.last().expect("checked: there is a size");
    let mut wide: Vec<u32> = sizes.iter().map(|&size| (slab_bytes / (slab_bytes / size)) & !7).collect();
    *wide.last_mut().expect("as many as sizes") = largest;
    wide.retain(|&size| size <= largest);
    wide.dedup();
    wide
}

/// The smallest slab for chunks of up to `largest` bytes: a power of two, or a few bytes more.
fn slab_for(largest: u32) -> u32 {
    let power = largest.saturating_sub(SLAB_EXCESS_BYTES).checked_next_power_of_two().unwrap_or(1 << 31);
    power.max(MIN_SLAB_BYTES).max(largest.checked_next_multiple_of(64).unwrap_or(largest))
}

fn slab_bytes(config: &DramConfig, largest: u32) -> Result<u32, DramConfigError> {
    let least = slab_for(largest);
    let slab_bytes = match config.slab_bytes {
        Some(bytes) if !bytes.is_power_of_two() || bytes < MIN_SLAB_BYTES => {
            let why = format!("{bytes} is not a power of two, at least {MIN_SLAB_BYTES}");
            return Err(wrong("slab_bytes", why));
        }
        Some(bytes) => bytes,
        None => {
            let for_wanted = (config.dram_bytes / WANTED_SLABS).max(1);
            let for_wanted = u32::try_from(for_wanted).map_or(u32::MAX, |bytes| 1 << bytes.ilog2());
            for_wanted.min(USUAL_SLAB_BYTES).max(least)
        }
    };
    if largest > slab_bytes {
        let setting = match config.max_chunk_bytes {
            _ if !config.alloc_sizes.is_empty() => "alloc_sizes",
            Some(_) => "max_chunk_bytes",
            None => "max_item_bytes",
        };
        let why = format!("the largest chunk is {largest} bytes, more than a slab of {slab_bytes} bytes");
        return Err(wrong(setting, why));
    }
    Ok(slab_bytes)
}

fn check_pools(config: &DramConfig) -> Result<(), DramConfigError> {
    let wrong = |why: String| Err(wrong("pools", why));
    let count = config.pools.len();
    if count == 0 || count > MAX_POOLS {
        return wrong(format!("{count} are configured; 1 to {MAX_POOLS} are supported"));
    }
    if let Some(pool) = config.pools.iter().find(|pool| !(pool.share > 0.0 && pool.share <= 1.0)) {
        return wrong(format!(
            "the share of {:?} is {}: it must be above 0 and at most 1",
            pool.name, pool.share
        ));
    }
    // Reports and lookups identify pools by name.
    let mut names: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return wrong(format!("two pools have the name {:?}", pair[0]));
    }
    let sum: f64 = config.pools.iter().map(|pool| pool.share).sum();
    if sum > 1.0 + 1e-6 {
        return wrong(format!("the shares sum to {sum}, more than 1"));
    }
    Ok(())
}

/// Whole slabs for each pool. If the shares sum to 1, slabs lost to rounding are given one by one to the first pools.
fn quotas(config: &DramConfig, slab_count: u32) -> Result<Vec<u32>, String> {
    if slab_count == 0 {
        return Err("at least one is needed".into());
    }
    let shares = config.pools.iter().map(|pool| pool.share);
    let mut quotas: Vec<u32> = shares.clone().map(|share| (share * f64::from(slab_count)) as u32).collect();
    if shares.sum::<f64>() > 1.0 - 1e-6 {
        let left = slab_count.saturating_sub(quotas.iter().sum());
        quotas.iter_mut().take(left as usize).for_each(|quota| *quota += 1);
    }
    match quotas.iter().position(|&quota| quota == 0) {
        Some(pool) => Err(format!("pool {:?} gets none", config.pools[pool].name)),
        None => Ok(quotas),
    }
}

#[cfg(test)]
mod tests {
    use policy::eviction::S3Fifo;

    use super::*;

    fn layout(dram_bytes: u64, change: impl Fn(&mut DramConfig)) -> Layout {
        let mut config = DramConfig::new(dram_bytes, Arc::new(|| Box::new(S3Fifo::new(0))));
        change(&mut config);
        Layout::of(&config).unwrap()
    }

    fn largest(layout: &Layout) -> u32 {
        *layout.sizes.last().unwrap()
    }

    #[test]
    fn small_tier_has_about_64_slabs_and_no_larger_value_than_one_holds() {
        for (dram_bytes, slab_bytes, slabs) in
            [(2_300_000, 64 << 10, 34), (5 << 20, 64 << 10, 79), (16 << 20, 256 << 10, 63)]
        {
            let layout = layout(dram_bytes, |_| ());
            let chunk_bytes = slab_bytes + 280;
            let whole = (layout.slab_bytes, layout.slab_count, largest(&layout));
            assert_eq!(whole, (slab_bytes + 320, slabs, chunk_bytes), "{dram_bytes} bytes");
            assert_eq!(layout.max_value_bytes, slab_bytes as usize);
            assert!(layout.sizes.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn tier_with_64_slabs_of_the_largest_item_accepts_it() {
        for dram_bytes in [64 << 20, 1 << 30] {
            let layout = layout(dram_bytes, |_| ());
            assert_eq!((largest(&layout), layout.slab_bytes), ((1 << 20) + 280, (1 << 20) + 320));
            assert_eq!(layout.max_value_bytes, 1 << 20);
        }
        assert_eq!(layout(8 << 30, |_| ()).slab_bytes, 4 << 20);
    }

    #[test]
    fn explicit_settings_are_not_capped() {
        let slabs = layout(4 << 20, |config| {
            (config.slab_bytes, config.max_chunk_bytes) = (Some(1 << 20), Some(1 << 20));
        });
        assert_eq!((largest(&slabs), slabs.slab_bytes), (1 << 20, 1 << 20));
        let sizes = layout(4 << 20, |config| config.alloc_sizes = vec![64, 1 << 20]);
        assert_eq!((largest(&sizes), sizes.slab_bytes), (1 << 20, 1 << 20));
        let smallest = layout(4 << 20, |config| config.min_item_bytes = 100_000);
        assert_eq!((largest(&smallest), smallest.slab_bytes), (100_000, 128 << 10));
    }

    /// A class without a slab would take one from another class at each insert.
    #[test]
    fn small_tier_has_at_most_one_size_per_slab() {
        for (dram_bytes, sizes) in [(16 << 20, 50..=64), (64 << 20, 50..=64), (128 << 20, 90..=128)] {
            let layout = layout(dram_bytes, |_| ());
            assert!(sizes.contains(&layout.sizes.len()), "{dram_bytes} bytes: {} sizes", layout.sizes.len());
        }
        let fine = layout(1 << 30, |config| config.max_item_bytes = 4096);
        assert_eq!(
            fine.sizes,
            layout(1 << 30, |config| {
                config.max_item_bytes = 4096;
                config.alloc_factor = Some(1.03);
            })
            .sizes
        );
    }

    #[test]
    fn small_pool_has_at_most_one_size_per_slab() {
        let shares = [0.9, 0.1].map(|share| PoolConfig { name: share.to_string(), share });
        let layout = layout(128 << 20, |config| config.pools = shares.to_vec());
        assert!(layout.sizes.len() <= layout.quotas[1] as usize, "{} sizes", layout.sizes.len());
    }

    /// The default factor is raised as far as the limit of sizes requires.
    #[test]
    fn any_size_range_is_possible_without_a_factor() {
        for least in [64, 4096, 16 << 10] {
            for most in [1 << 20, 2 << 20, 16 << 20, 64 << 20, 1 << 30] {
                let sizes = |config: &mut DramConfig| {
                    (config.min_item_bytes, config.max_item_bytes) = (least, most);
                };
                let layout = layout(128 << 30, sizes);
                assert_eq!(layout.max_value_bytes, most as usize);
                assert_eq!(largest(&layout), most + 280);
                assert!(layout.sizes.len() <= MAX_SIZES);
            }
        }
        let given_count = DramConfig {
            alloc_factor: Some(1.02),
            ..DramConfig::new(1 << 30, Arc::new(|| Box::new(S3Fifo::new(0))))
        };
        let error = Layout::of(&given_count).unwrap_err().to_string();
        assert!(
            error.starts_with("alloc_factor: 1.02 makes") && error.contains("the least is 1.039"),
            "{error}"
        );
    }

    fn refused(change: impl Fn(&mut DramConfig)) -> String {
        let mut config = DramConfig::new(64 << 20, Arc::new(|| Box::new(S3Fifo::new(0))));
        change(&mut config);
        Layout::of(&config).unwrap_err().to_string()
    }

    #[test]
    fn two_pools_of_one_name_are_refused() {
        let shares = [("a", 0.4), ("b", 0.2), ("a", 0.4)];
        let pools = shares.map(|(name, share)| PoolConfig { name: name.into(), share });
        assert_eq!(refused(|config| config.pools = pools.to_vec()), "pools: two pools have the name \"a\"");
    }

    #[test]
    fn errors_name_settings_as_the_builder_does() {
        for (error, setting) in [
            (
                refused(|config| config.min_item_bytes = 2 << 20),
                "min_item_bytes: 2097152 is above max_item_bytes",
            ),
            (refused(|config| config.min_item_bytes = 10), "min_item_bytes: the smallest chunk is 10 bytes"),
            (
                refused(|config| config.alloc_sizes = vec![10, 100]),
                "alloc_sizes: the smallest chunk is 16 bytes",
            ),
            (refused(|config| config.alloc_factor = Some(1.0)), "alloc_factor: 1 is not above 1"),
            (refused(|config| config.slab_bytes = Some(3)), "slab_bytes: 3 is not"),
            (refused(|config| config.slab_bytes = Some(64 << 10)), "max_item_bytes: the largest chunk is"),
            (
                refused(|config| config.dram_bytes = 1 << 50),
                "dram_bytes: 1125899906842624 bytes are more than",
            ),
            (refused(|config| config.dram_bytes = 1), "dram_bytes: 1 bytes are enough for 0 slabs"),
        ] {
            assert!(error.starts_with(setting), "{error}");
        }
        assert!(refused(|config| config.dram_bytes = 1 << 50).ends_with("; raise min_item_bytes"));
    }
}
