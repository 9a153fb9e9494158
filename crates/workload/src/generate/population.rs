//! The keys of one pool and their properties.
//!
//! A key's value length, TTL and chain are functions of its index, so a key that is set twice has the same size both times. CacheBench
//! draws tables in advance instead (32,768 sizes in `online`, one per key in `workload`), so the mean depends on chance: ± 11 % for heavy
//! tails. Here the index passes through a low-discrepancy sequence (Roberts 2018, "The unreasonable effectiveness of quasirandom
//! sequences": multiples of the generalised golden ratio's powers, modulo 1) and then the inverse distribution function. Any range of
//! neighbouring keys, and so any band of popularity, then has the distribution's mean in every run.

use super::Distribution;
use super::error::{ConfigError, Problem};
use super::keys::KeyFormat;
use super::mix::Kinds;
use super::popularity::Draw;
use super::random::scramble;
use super::sizes::Sizes;
use crate::RequestKind;

// The fractions 1/φ, 1/φ², 1/φ³, 1/φ⁴ of 2^64, φ being the real root of x^5 = x + 1: one dimension per property.
pub(super) const KEY_LENGTH_STRIDE: u64 = 0xdb4f_0b91_75ae_2165;
const VALUE_STRIDE: u64 = 0xbbe0_5633_03a4_615f;
const TTL_STRIDE: u64 = 0xa0f2_ec75_a1fe_1575;
const CHAIN_STRIDE: u64 = 0x89e1_8285_7d9e_d689;

/// The point of key `index` in the dimension of `stride`.
#[inline]
pub(super) fn point(index: u64, stride: u64) -> u64 {
    index.wrapping_mul(stride)
}

/// The keys of a pool, their popularity and their properties.
pub(super) struct Population<S> {
    pub(super) format: S,
    pub(super) popularity: Draw,
    pub(super) kinds: Kinds,
    values: Sizes,
    ttl: Option<Sizes>,
    chains: Option<Chains>,
}

struct Chains {
    items: Sizes,
    values: Sizes,
}

impl<S: KeyFormat> Population<S> {
    /// The population of pool number `pool`, whose keys are written by `format`.
    pub(super) fn new(distribution: &Distribution, format: S, pool: usize) -> Result<Self, ConfigError> {
        let in_pool = |part: &str| format!("pool {pool}: {part}");
        let popularity = Draw::new(&distribution.popularity, format.keys());
        let sizes =
            |table: &super::Table, part: &str| table.sizes().map_err(|problem| problem.of(in_pool(part)));
        let ttl = distribution.ttl_seconds.as_ref().map(|table| sizes(table, "ttl_seconds")).transpose()?;
        let chains = match (&distribution.chain_items, &distribution.chain_value_bytes) {
            (Some(items), Some(values)) => Some(Chains {
                items: sizes(items, "chain_items")?,
                values: sizes(values, "chain_value_bytes")?,
            }),
            (Some(_), None) => return Err(Problem::NoChainSizes.of(in_pool("chain_value_bytes"))),
            (None, _) if distribution.mix.add_chained > 0.0 => {
                return Err(Problem::NoChains.of(in_pool("chain_items")));
            }
            (None, _) => None,
        };
        Ok(Self {
            format,
            popularity: popularity.map_err(|problem| problem.of(in_pool("popularity")))?,
            kinds: Kinds::new(&distribution.mix).map_err(|problem| problem.of(in_pool("mix")))?,
            values: sizes(&distribution.value_bytes, "value_bytes")?,
            ttl,
            chains,
        })
    }

    #[inline]
    pub(super) fn value_bytes(&self, index: u64) -> u64 {
        self.values.at(point(index, VALUE_STRIDE))
    }

    #[inline]
    pub(super) fn ttl_seconds(&self, index: u64) -> Option<u32> {
        let seconds = self.ttl.as_ref()?.at(point(index, TTL_STRIDE));
        // A TTL of 0 means none, as in CacheBench.
        if seconds == 0 { None } else { Some(u32::try_from(seconds).unwrap_or(u32::MAX)) }
    }

    /// Writes the lengths of the key's chained items to `chain`; none for requests that do not use values.
    #[inline]
    pub(super) fn write_chain(&self, index: u64, kind: RequestKind, chain: &mut Vec<u32>) {
        chain.clear();
        let Some(chains) = &self.chains else { return };
        if matches!(kind, RequestKind::Delete | RequestKind::CouldExist) || kind.is_lone() {
            return;
        }
        let items = chains.items.at(point(index, CHAIN_STRIDE));
        let length =
            |item| u32::try_from(chains.values.at(scramble(scramble(index) ^ item))).unwrap_or(u32::MAX);
        chain.extend((0..items).map(length));
    }
}
