//! Pairs of engines, and the keys that each stores.

use crate::KeyHash;
use crate::error::CacheError;

/// One pair of engines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairConfig {
    /// Share of the device, 0 to 1.
    pub device_share: f64,
    /// Share of that for small objects, 0 to 1: 0 means regions only, 1 means buckets only.
    pub soc_share: f64,
}

/// Keys with this prefix are stored in one [pair](super::FlashConfig::pairs), which stores no others.
///
/// Other keys cannot evict them from flash, and they cannot evict other keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPrefix {
    /// The prefix. If several match a key, the longest decides.
    pub prefix: Vec<u8>,
    /// The number of the pair.
    pub pair: usize,
}

/// Divides flash into a part per prefix, and the pairs that existed before, which keep their proportions.
pub(super) fn divide(
    partitions: &[(Vec<u8>, f64)],
    pairs: &mut Vec<PairConfig>,
    prefixes: &mut Vec<KeyPrefix>,
) -> Result<(), CacheError> {
    let shares = partitions.iter().map(|(_, share)| *share);
    let reserved: f64 = shares.clone().sum();
    if shares.clone().any(|share| share.is_nan() || share <= 0.0) || reserved > 0.999 {
        return Err(CacheError::Config(format!(
            "flash_partition: the shares {:?} must each be above 0, and leave a part of flash to other keys",
            shares.collect::<Vec<_>>()
        )));
    }
    let soc_share = pairs.first().map_or(0.0, |pair| pair.soc_share);
    pairs.iter_mut().for_each(|pair| pair.device_share *= 1.0 - reserved);
    for (prefix, share) in partitions {
        prefixes.push(KeyPrefix { prefix: prefix.clone(), pair: pairs.len() });
        pairs.push(PairConfig { device_share: *share, soc_share });
    }
    Ok(())
}

/// Adds the prefix of a pair to an error of its configuration.
pub(crate) fn in_partition(error: CacheError, prefixes: &[KeyPrefix], pair: usize) -> CacheError {
    match (error, prefixes.iter().find(|it| it.pair == pair)) {
        (CacheError::Config(message), Some(KeyPrefix { prefix, .. })) => {
            let shown = prefix.escape_ascii();
            CacheError::Config(format!("the part of flash for keys with the prefix \"{shown}\": {message}"))
        }
        (error, _) => error,
    }
}

/// The pair of each key.
#[derive(Debug)]
pub(crate) struct Partitions {
    /// By descending length of the prefix, so that the first match is the longest.
    prefixes: Box<[KeyPrefix]>,
    /// The pairs of all other keys.
    shared: Box<[usize]>,
}

impl Partitions {
    /// # Errors
    /// A prefix is empty, is listed twice or names no pair, or no pair is left for keys without a prefix.
    pub(crate) fn new(pairs: usize, prefixes: &[KeyPrefix]) -> Result<Self, CacheError> {
        let wrong = |message: String| Err(CacheError::Config(format!("key_prefixes: {message}")));
        let mut sorted = prefixes.to_vec();
        sorted.sort_by(|a, b| (b.prefix.len(), &a.prefix).cmp(&(a.prefix.len(), &b.prefix)));
        for (at, KeyPrefix { prefix, pair }) in sorted.iter().enumerate() {
            let shown = prefix.escape_ascii();
            if prefix.is_empty() {
                return wrong(format!("the prefix of pair {pair} is empty"));
            }
            if *pair >= pairs {
                return wrong(format!("\"{shown}\" names pair {pair}, and there are {pairs}"));
            }
            if at > 0 && sorted[at - 1].prefix == *prefix {
                return wrong(format!("\"{shown}\" is listed twice"));
            }
        }
        let shared: Box<[usize]> =
            (0..pairs).filter(|pair| sorted.iter().all(|it| it.pair != *pair)).collect();
        if shared.is_empty() {
            return wrong("each pair has a prefix, so that keys without one have none".into());
        }
        Ok(Self { prefixes: sorted.into(), shared })
    }

    #[inline]
    pub(crate) fn pair_of(&self, hash: KeyHash, key: &[u8]) -> usize {
        if let Some(found) = self.prefixes.iter().find(|it| key.starts_with(&it.prefix)) {
            return found.pair;
        }
        match &*self.shared {
            [only] => *only,
            several => several[(hash.remix() % several.len() as u64) as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn partitions(pairs: usize, prefixes: &[(&str, usize)]) -> Result<Partitions, String> {
        let prefixes: Vec<KeyPrefix> =
            prefixes.iter().map(|&(prefix, pair)| KeyPrefix { prefix: prefix.into(), pair }).collect();
        Partitions::new(pairs, &prefixes).map_err(|error| error.to_string())
    }

    #[test]
    fn longest_prefix_decides_and_other_keys_share_the_rest() {
        let partitions = partitions(4, &[("a:", 1), ("a:b:", 3)]).unwrap();
        let pair_of = |key: &str| partitions.pair_of(KeyHash::of(key.as_bytes()), key.as_bytes());
        assert_eq!((pair_of("a:1"), pair_of("a:b:1"), pair_of("a:b")), (1, 3, 1));
        let others: std::collections::BTreeSet<usize> = (0..100).map(|n| pair_of(&format!("k{n}"))).collect();
        assert_eq!(others, [0, 2].into());
    }

    #[test]
    fn prefixes_that_leave_keys_without_a_pair_are_refused() {
        for (prefixes, message) in [
            (&[("a", 0), ("b", 1)][..], "keys without one have none"),
            (&[("", 1)], "the prefix of pair 1 is empty"),
            (&[("a", 2)], "\"a\" names pair 2, and there are 2"),
            (&[("a", 1), ("a", 1)], "\"a\" is listed twice"),
        ] {
            let error = partitions(2, prefixes).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
