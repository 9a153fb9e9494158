//! Checks the distributions of requests: sizes, TTLs and popularity with their weights, and the ratios of operations.

use super::super::findings::{Findings, join};
use super::super::keys::Distribution;

/// The lengths of all items of a chain are in memory together.
const MAX_CHAIN_ITEMS: f64 = (1 << 20) as f64;

/// Checks one distribution. `needed`: whether requests are generated from it.
pub(super) fn check(pool: &Distribution, needed: bool, at: &str, findings: &mut Findings) {
    edges(&pool.key_sizes, &pool.key_size_weights, ("keySizeRange", "keySizeRangeProbability"), at, findings);
    sizes(
        &pool.value_sizes,
        &pool.value_size_weights,
        ("valSizeRange", "valSizeRangeProbability"),
        at,
        findings,
    );
    sizes(&pool.ttl_seconds, &pool.ttl_weights, ("ttlSecsRange", "ttlSecsRangeProbability"), at, findings);
    let lengths = ("chainedItemLengthRange", "chainedItemLengthRangeProbability");
    sizes(&pool.chain_lengths, &pool.chain_length_weights, lengths, at, findings);
    chains(pool, &join(at, lengths.0), findings);
    let chained = ("chainedItemValSizeRange", "chainedItemValSizeRangeProbability");
    sizes(&pool.chain_value_sizes, &pool.chain_value_size_weights, chained, at, findings);
    if !pool.popularity_buckets.is_empty() || !pool.popularity_weights.is_empty() {
        popularity(&pool.popularity_buckets, &pool.popularity_weights, at, findings);
    }
    if needed {
        ratios(pool, at, findings);
    }
}

/// The last edge of ranges is exclusive, so it may be one above the limit.
fn chains(pool: &Distribution, at: &str, findings: &mut Findings) {
    let beyond = if pool.chain_lengths.len() > pool.chain_length_weights.len() { 1.0 } else { 0.0 };
    if pool.chain_lengths.iter().any(|length| *length > MAX_CHAIN_ITEMS + beyond) {
        findings.problem(at, "a chain has at most 1,048,576 items");
    }
}

fn ratios(pool: &Distribution, at: &str, findings: &mut Findings) {
    let all = pool.ratios();
    if all.iter().any(|ratio| *ratio < 0.0) || all.iter().sum::<f64>() <= 0.0 {
        findings
            .problem(at, "the ratios of operations (getRatio, setRatio, …) must be 0 or more, and not all 0");
    }
    if pool.key_sizes.is_empty() {
        findings.problem(&join(at, "keySizeRange"), "is missing");
    }
    let sets = pool.set_ratio + pool.add_chained_ratio + pool.lone_set_ratio + pool.update_ratio;
    if pool.value_sizes.is_empty() && sets > 0.0 {
        findings.problem(&join(at, "valSizeRange"), "is missing, and there are sets");
    }
    if pool.add_chained_ratio > 0.0 && (pool.chain_lengths.is_empty() || pool.chain_value_sizes.is_empty()) {
        let message =
            "chainedItemLengthRange and chainedItemValSizeRange are needed where addChainedRatio is above 0";
        findings.problem(&join(at, "addChainedRatio"), message);
    }
}

impl Distribution {
    /// Shares of the eight operations.
    #[must_use]
    pub fn ratios(&self) -> [f64; 8] {
        [
            self.get_ratio,
            self.set_ratio,
            self.delete_ratio,
            self.add_chained_ratio,
            self.lone_get_ratio,
            self.lone_set_ratio,
            self.update_ratio,
            self.could_exist_ratio,
        ]
    }
}

/// Checks values, which have one weight each, or edges of ranges, which are one more than the weights.
pub fn sizes(values: &[f64], weights: &[f64], keys: (&str, &str), at: &str, findings: &mut Findings) {
    if values.len() == weights.len() {
        weighted(values, weights, keys, at, findings);
    } else {
        edges(values, weights, keys, at, findings);
    }
}

/// Checks edges of ranges: one more than weights, and ascending.
fn edges(values: &[f64], weights: &[f64], keys: (&str, &str), at: &str, findings: &mut Findings) {
    if values.is_empty() && weights.is_empty() {
        return;
    }
    if values.len() != weights.len() + 1 {
        let message = format!("{} value(s) for {} weight(s) in {}", values.len(), weights.len(), keys.1);
        findings.problem(&join(at, keys.0), message);
    } else if !values.is_sorted() {
        findings.problem(&join(at, keys.0), "the edges of ranges must not be descending");
    }
    weighted(values, weights, keys, at, findings);
}

fn weighted(values: &[f64], weights: &[f64], keys: (&str, &str), at: &str, findings: &mut Findings) {
    if values.iter().any(|value| *value < 0.0) {
        findings.problem(&join(at, keys.0), "values must be 0 or more");
    }
    if !weights.is_empty()
        && (weights.iter().any(|weight| *weight < 0.0) || weights.iter().sum::<f64>() <= 0.0)
    {
        findings.problem(&join(at, keys.1), "weights must be 0 or more, and not all 0");
    }
}

/// Checks that each popularity bucket has a weight.
pub fn popularity(buckets: &[f64], weights: &[f64], at: &str, findings: &mut Findings) {
    if buckets.len() != weights.len() || buckets.is_empty() {
        let message =
            format!("{} bucket(s) for {} weight(s) in popularityWeights", buckets.len(), weights.len());
        findings.problem(&join(at, "popularityBuckets"), message);
    }
    weighted(buckets, weights, ("popularityBuckets", "popularityWeights"), at, findings);
}
