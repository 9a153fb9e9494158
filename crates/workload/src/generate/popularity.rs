//! Request frequencies of keys.
//!
//! CacheBench's popularity files contain buckets of objects and the weight of each bucket: all objects of a bucket are equally popular. It
//! flattens them into 2048 buckets of equal weight, so that a draw takes two uniform numbers: one for the bucket, one for the key in it.
//! [`BucketRule`] describes the loss of accuracy and the alternative.

use rand::Rng;
use rand_distr::{Distribution, StandardNormal, Zipf};

use super::error::Problem;
use super::interval_index::{IntervalIndex, checked_sum};
use super::random::below;

/// Number of equal-weight buckets into which CacheBench flattens a distribution.
pub const FLAT_BUCKETS: usize = 2048;

/// Request frequencies of the keys in a pool.
#[derive(Debug, Clone, PartialEq)]
pub enum Popularity {
    /// Normal around the middle key, with a quarter of the range as standard deviation; values outside are redrawn. CacheBench's default.
    Normal,
    /// All keys are equally popular.
    Uniform,
    /// The `k`-th key has weight `k^-exponent`. Slower to draw than the others.
    Zipf {
        /// Skew; 0 is uniform.
        exponent: f64,
    },
    /// Buckets of equally popular keys, as in CacheBench's popularity files.
    Buckets {
        /// Objects in each bucket. They are scaled so that all buckets together contain the keys of the pool.
        counts: Vec<f64>,
        /// Weight of each bucket as a whole.
        weights: Vec<f64>,
        /// Conversion of buckets to keys.
        rule: BucketRule,
    },
}

/// Conversion of a popularity file's buckets to keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BucketRule {
    /// Flattened into [`FLAT_BUCKETS`] buckets of at least one object each, then scaled to the keys of the pool. No key is drawn more often
    /// than once in 2048 requests: an object of the file that is hotter becomes several keys.
    #[default]
    Flattened,
    /// Flattened, drawn, then scaled (CacheBench's `useLegacyKeyGen`): only as many different keys as the file has objects, spread over the
    /// range.
    Legacy,
    /// The file's buckets unchanged, each with its weight.
    Exact,
}

/// A popularity over `0..keys`, prepared for drawing.
#[derive(Debug, Clone)]
pub(crate) enum Draw {
    Uniform { keys: u64 },
    Normal { middle: f64, deviation: f64, last: f64 },
    Zipf { ranks: Zipf<f64>, last: u64 },
    Flat { buckets: Buckets },
    Spread { buckets: Buckets, keys_per_object: f64, last: u64 },
    Exact { guide: IntervalIndex, buckets: Buckets },
}

/// Adjacent ranges of equally popular numbers. Only their edges are stored, one more than there are buckets: the table is read at random
/// for every request and competes with the engine for the first-level cache.
#[derive(Debug, Clone)]
pub(crate) struct Buckets(Box<[u64]>);

impl Draw {
    pub(crate) fn new(popularity: &Popularity, keys: u64) -> Result<Self, Problem> {
        assert!(keys > 0, "a pool with operations has keys");
        let last = keys - 1;
        match popularity {
            Popularity::Uniform => Ok(Self::Uniform { keys }),
            Popularity::Normal => {
                let last = last as f64;
                Ok(Self::Normal { middle: last / 2.0, deviation: last / 4.0, last })
            }
            Popularity::Zipf { exponent } => {
                let ranks = Zipf::new(keys as f64, *exponent).map_err(|_| Problem::Zipf(*exponent))?;
                Ok(Self::Zipf { ranks, last })
            }
            Popularity::Buckets { counts, weights, rule } => Self::from_buckets(counts, weights, *rule, keys),
        }
    }

    fn from_buckets(counts: &[f64], weights: &[f64], rule: BucketRule, keys: u64) -> Result<Self, Problem> {
        if counts.len() != weights.len() {
            return Err(Problem::Buckets { buckets: counts.len(), weights: weights.len() });
        }
        checked_sum(counts)?;
        checked_sum(weights)?;
        Ok(match rule {
            BucketRule::Flattened => Self::Flat { buckets: Buckets::over(&flatten(counts, weights), keys) },
            BucketRule::Exact => Self::Exact {
                guide: IntervalIndex::by_weight(weights)?,
                buckets: Buckets::over(counts, keys),
            },
            BucketRule::Legacy => {
                let flat = flatten(counts, weights);
                let objects = flat.iter().sum::<f64>().ceil() as u64;
                let keys_per_object = keys as f64 / objects as f64;
                Self::Spread { buckets: Buckets::over(&flat, objects), keys_per_object, last: keys - 1 }
            }
        })
    }

    /// Draws a key.
    #[inline]
    pub(crate) fn draw(&self, random: &mut impl Rng) -> u64 {
        match self {
            Self::Flat { buckets } => buckets.draw(random.next_u64()),
            Self::Uniform { keys } => below(random.next_u64(), *keys),
            Self::Normal { middle, deviation, last } => draw_normal(*middle, *deviation, *last, random),
            Self::Spread { buckets, keys_per_object, last } => {
                let object = buckets.draw(random.next_u64());
                ((object as f64 * keys_per_object) as u64).min(*last)
            }
            Self::Exact { guide, buckets } => {
                let bucket = guide.find(random.next_u64());
                buckets.draw_in(bucket, random.next_u64())
            }
            Self::Zipf { ranks, last } => (ranks.sample(random) as u64 - 1).min(*last),
        }
    }
}

fn draw_normal(middle: f64, deviation: f64, last: f64, random: &mut impl Rng) -> u64 {
    loop {
        let standard: f64 = StandardNormal.sample(random);
        // Adds a half and truncates: rounding is a library call on baseline x86-64.
        let key = middle + deviation * standard + 0.5;
        if key >= 0.0 && key < last + 1.0 {
            return key as u64;
        }
    }
}

/// Object counts of [`FLAT_BUCKETS`] buckets of equal weight, each at least 1.
fn flatten(counts: &[f64], weights: &[f64]) -> Vec<f64> {
    let share = weights.iter().sum::<f64>() / FLAT_BUCKETS as f64;
    let mut flat = Vec::with_capacity(FLAT_BUCKETS);
    let (mut missing, mut objects) = (share, 0.0);
    for (&count, &weight) in counts.iter().zip(weights) {
        let (mut count, mut weight) = (count, weight);
        while weight >= missing && flat.len() < FLAT_BUCKETS {
            let part = if weight > 0.0 { missing / weight } else { 0.0 };
            flat.push(f64::max(1.0, objects + part * count));
            count -= part * count;
            weight -= missing;
            (missing, objects) = (share, 0.0);
        }
        missing -= weight;
        objects += count;
    }
    // Rounding may leave the last bucket slightly short of its share.
    if flat.len() < FLAT_BUCKETS {
        flat.push(objects.max(1.0));
    }
    flat
}

impl Buckets {
    /// Buckets over `0..keys`, as wide as their counts. If there are fewer keys than objects, neighbours share a key.
    fn over(counts: &[f64], keys: u64) -> Self {
        let scale = keys as f64 / counts.iter().sum::<f64>();
        let mut before = 0.0;
        let start = |count: &f64| {
            let start = ((before * scale) as u64).min(keys - 1);
            before += count;
            start
        };
        let starts: Vec<u64> = counts.iter().map(start).collect();
        Self(starts.into_iter().chain([keys]).collect())
    }

    /// A number from any bucket, with equal chances. One random number serves both choices: of its product with the number of buckets, the
    /// high half is the bucket and the low half the position in it.
    #[inline]
    fn draw(&self, random: u64) -> u64 {
        let product = u128::from(random) * (self.0.len() - 1) as u128;
        self.draw_in((product >> 64) as usize, product as u64)
    }

    /// A number from the bucket.
    #[inline]
    fn draw_in(&self, bucket: usize, random: u64) -> u64 {
        let (start, end) = (self.0[bucket], self.0[bucket + 1]);
        start + below(random, (end - start).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::random::stream;
    use std::collections::HashMap;

    fn counted(draw: &Draw, draws: u64) -> HashMap<u64, u64> {
        let mut random = stream(7, 0);
        let mut counts = HashMap::new();
        for _ in 0..draws {
            *counts.entry(draw.draw(&mut random)).or_insert(0) += 1;
        }
        counts
    }

    fn buckets(counts: &[f64], weights: &[f64], rule: BucketRule, keys: u64) -> Draw {
        let popularity = Popularity::Buckets { counts: counts.to_vec(), weights: weights.to_vec(), rule };
        Draw::new(&popularity, keys).unwrap()
    }

    fn share(counts: &HashMap<u64, u64>, keys: std::ops::Range<u64>) -> f64 {
        let inside: u64 = counts.iter().filter(|(key, _)| keys.contains(key)).map(|(_, count)| count).sum();
        inside as f64 / counts.values().sum::<u64>() as f64
    }

    #[test]
    fn uniform_passes_a_chi_square_test() {
        let counts = counted(&Draw::new(&Popularity::Uniform, 100).unwrap(), 100_000);
        let chi_square: f64 = (0..100).map(|key| (counts[&key] as f64 - 1000.0).powi(2) / 1000.0).sum();
        // 99 degrees of freedom: the 0.999 quantile is 148.
        assert!((50.0..148.0).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn normal_draws_match_the_distribution_and_the_range() {
        let counts = counted(&Draw::new(&Popularity::Normal, 10_000).unwrap(), 200_000);
        assert!(counts.keys().all(|key| *key < 10_000));
        // 68.27 % of a normal distribution lie within one standard deviation, and 95.45 % in the range.
        let middle = share(&counts, 2500..7500);
        assert!((middle - 0.6827 / 0.9545).abs() < 0.005, "{middle}");
    }

    #[test]
    fn single_key_is_always_drawn() {
        for popularity in [Popularity::Normal, Popularity::Uniform, Popularity::Zipf { exponent: 0.9 }] {
            assert_eq!(counted(&Draw::new(&popularity, 1).unwrap(), 50), HashMap::from([(0, 50)]));
        }
    }

    #[test]
    fn buckets_have_their_weight_under_every_rule() {
        // 4000 objects in three buckets; 40,000 keys, so ten keys per object.
        for rule in [BucketRule::Flattened, BucketRule::Legacy, BucketRule::Exact] {
            let draw = buckets(&[100.0, 900.0, 3000.0], &[5.0, 4.0, 1.0], rule, 40_000);
            let counts = counted(&draw, 100_000);
            // Flattening spreads the 100 most popular objects over 1024 buckets of one object each, hence the wide ranges.
            let hot = if rule == BucketRule::Exact { 1000 } else { 8000 };
            assert!((share(&counts, 0..hot) - 0.5).abs() < 0.08, "{rule:?} {}", share(&counts, 0..hot));
            assert!(counts.keys().all(|key| *key < 40_000));
        }
    }

    #[test]
    fn object_above_the_weight_of_a_flat_bucket_becomes_several_keys() {
        let flat = buckets(&[1.0, 1_000_000.0], &[1.0, 9.0], BucketRule::Flattened, 1_000_000);
        let counts = counted(&flat, 400_000);
        let top = *counts.values().max().unwrap() as f64 / 400_000.0;
        assert!(top < 1.5 / FLAT_BUCKETS as f64 + 0.0005, "{top}");
        let exact = buckets(&[1.0, 1_000_000.0], &[1.0, 9.0], BucketRule::Exact, 1_000_000);
        let top = counted(&exact, 400_000)[&0] as f64 / 400_000.0;
        assert!((top - 0.1).abs() < 0.005, "{top}");
    }

    #[test]
    fn legacy_rule_draws_one_key_per_object() {
        let draw = buckets(&[5000.0], &[1.0], BucketRule::Legacy, 1_000_000_000);
        let counts = counted(&draw, 200_000);
        assert!(counts.len() <= 5001, "{}", counts.len());
        assert!(counts.keys().any(|key| *key > 900_000_000), "spread over the whole range");
    }

    #[test]
    fn flattening_keeps_all_objects_if_none_is_popular() {
        let flat = flatten(&[4096.0, 8192.0], &[1.0, 1.0]);
        assert_eq!(flat.len(), FLAT_BUCKETS);
        assert!(flat[..1024].iter().all(|count| (*count - 4.0).abs() < 1e-9));
        assert!(flat[1024..].iter().all(|count| (*count - 8.0).abs() < 1e-9));
    }

    #[test]
    fn fewer_keys_than_objects_draws_keys_in_range() {
        for rule in [BucketRule::Flattened, BucketRule::Legacy, BucketRule::Exact] {
            let counts = counted(&buckets(&[10_000.0, 10_000.0], &[3.0, 1.0], rule, 10), 10_000);
            assert!(counts.keys().all(|key| *key < 10));
            assert!((share(&counts, 0..5) - 0.75).abs() < 0.02);
        }
    }

    #[test]
    fn draws_cover_trillions_of_keys() {
        let draw = buckets(&[1.0, 1e7], &[1.0, 9.0], BucketRule::Flattened, 14_463_466_000_000);
        let counts = counted(&draw, 10_000);
        assert!(counts.keys().any(|key| *key > 14_000_000_000_000));
        assert!(counts.len() > 9_900, "nearly every draw is another key");
    }

    #[test]
    fn zipf_draws_follow_the_law() {
        let counts = counted(&Draw::new(&Popularity::Zipf { exponent: 1.0 }, 1000).unwrap(), 200_000);
        let ratio = counts[&0] as f64 / counts[&9] as f64;
        assert!((ratio - 10.0).abs() < 1.0, "{ratio}");
        assert!(counts.keys().all(|key| *key < 1000));
    }

    #[test]
    fn invalid_popularity_is_rejected() {
        let odd = Popularity::Buckets { counts: vec![1.0, 2.0], weights: vec![1.0], rule: BucketRule::Exact };
        assert_eq!(Draw::new(&odd, 5).unwrap_err(), Problem::Buckets { buckets: 2, weights: 1 });
        assert_eq!(Draw::new(&Popularity::Zipf { exponent: -1.0 }, 5).unwrap_err(), Problem::Zipf(-1.0));
    }
}
