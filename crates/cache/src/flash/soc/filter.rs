//! One small Bloom filter per bucket, in memory. Most lookups of absent keys cost no read.
//!
//! Burton H. Bloom, "Space/time trade-offs in hash coding with allowable errors" (CACM 1970), in the blocked form of
//! Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007): all bits of a key are in one 64-bit word, which
//! the key selects. A word is replaced by one store and read by one load, without a lock: a lookup during a rebuild sees the old word or
//! the new one, and both contain every key that stays.
//!
//! Deviation: the number of probes follows the number of keys, since a bucket is rebuilt as a whole and the number of its entries is then
//! known. Two bits of the word store it (1 to 4). For a bucket of 30 items and 64 bits, four fixed probes have 51 % false positives, and
//! the best number for 30 keys has 37 %; for ten items or fewer the two are the same.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bucket::{BucketId, Fingerprint};

/// Maximum size of a bucket's filter: four bits of the fingerprint select the word.
pub const MAX_BYTES_PER_BUCKET: u32 = 128;

const FILTER_BITS: u32 = 62;
const PROBES_SHIFT: u32 = FILTER_BITS;
const MAX_PROBES: u32 = 4;

/// The filters of all buckets.
pub struct Filters {
    words: Box<[AtomicU64]>,
    words_per_bucket: u32,
}

impl Filters {
    /// Filters of empty buckets. `bytes_per_bucket` is a multiple of 8 up to [`MAX_BYTES_PER_BUCKET`]; 0 disables filters, so that every
    /// bucket may contain every key.
    #[must_use]
    pub fn new(buckets: u32, bytes_per_bucket: u32) -> Self {
        assert!(bytes_per_bucket.is_multiple_of(8) && bytes_per_bucket <= MAX_BYTES_PER_BUCKET);
        let words_per_bucket = bytes_per_bucket / 8;
        let words = (0..buckets as usize * words_per_bucket as usize).map(|_| AtomicU64::new(0)).collect();
        Self { words, words_per_bucket }
    }

    /// Whether the bucket may contain a key with this fingerprint. `false` is certain.
    #[must_use]
    pub fn may_contain(&self, bucket: BucketId, fingerprint: Fingerprint) -> bool {
        if self.words_per_bucket == 0 {
            return true;
        }
        let word = self.of(bucket)[word_of(fingerprint, self.words_per_bucket)].load(Ordering::Acquire);
        let probes = probe_mask(fingerprint, (word >> PROBES_SHIFT) as u32 + 1);
        word & probes == probes
    }

    /// Replaces the bucket's filter by one for exactly these keys.
    pub fn rebuild(&self, bucket: BucketId, fingerprints: &(impl Iterator<Item = Fingerprint> + Clone)) {
        for (index, word) in self.of(bucket).iter().enumerate() {
            let here = fingerprints.clone().filter(|&key| word_of(key, self.words_per_bucket) == index);
            word.store(word_with(here), Ordering::Release);
        }
    }

    /// Sets the filter of an empty bucket.
    pub fn clear(&self, bucket: BucketId) {
        self.rebuild(bucket, &std::iter::empty());
    }

    /// Memory of the filters.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    /// The words of all filters in order, for a snapshot.
    pub fn words(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.words.iter().map(|word| word.load(Ordering::Acquire))
    }

    /// Restores one word of a snapshot of [`words`](Self::words).
    pub fn restore_word(&self, index: usize, word: u64) {
        self.words[index].store(word, Ordering::Release);
    }

    fn of(&self, bucket: BucketId) -> &[AtomicU64] {
        let words = self.words_per_bucket as usize;
        let first = bucket.0 as usize * words;
        &self.words[first..first + words]
    }
}

fn word_with(keys: impl Iterator<Item = Fingerprint> + Clone) -> u64 {
    let probes = best_probes(keys.clone().count());
    keys.fold(0, |word, key| word | probe_mask(key, probes)) | u64::from(probes - 1) << PROBES_SHIFT
}

/// `bits / keys × ln 2`, rounded: the number of probes with the fewest false positives.
fn best_probes(keys: usize) -> u32 {
    let keys = u32::try_from(keys).unwrap_or(u32::MAX).max(1);
    let times_1000 = FILTER_BITS * 693 / keys;
    (times_1000 + 500).checked_div(1000).unwrap_or(1).clamp(1, MAX_PROBES)
}

/// The top four bits choose the word, the next seven bits the first probe, and so on.
fn word_of(fingerprint: Fingerprint, words: u32) -> usize {
    (((fingerprint.0 >> 28) * words) >> 4) as usize
}

fn probe_mask(fingerprint: Fingerprint, probes: u32) -> u64 {
    (0..probes).fold(0, |mask, probe| {
        let bits = (fingerprint.0 >> (21 - 7 * probe)) & 0x7F;
        mask | 1 << ((bits * FILTER_BITS) >> 7)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    fn random_keys(rng: &mut StdRng, count: usize) -> Vec<Fingerprint> {
        (0..count).map(|_| Fingerprint(rng.random())).collect()
    }

    #[test]
    fn rebuilt_filter_matches_all_its_keys() {
        for (seed, bytes) in [0, 8, 16, 24, 64, 128].into_iter().enumerate() {
            let mut rng = StdRng::seed_from_u64(seed as u64);
            let filters = Filters::new(3, bytes);
            for count in [0, 1, 2, 5, 13, 40, 300] {
                let keys = random_keys(&mut rng, count);
                filters.rebuild(BucketId(1), &keys.iter().copied());
                for &key in &keys {
                    assert!(filters.may_contain(BucketId(1), key), "{bytes} bytes, {count} keys, {key:?}");
                }
            }
        }
    }

    #[test]
    fn clearing_the_filter_of_one_bucket_keeps_those_of_its_neighbours() {
        let mut rng = StdRng::seed_from_u64(7);
        let filters = Filters::new(3, 16);
        let keys = random_keys(&mut rng, 20);
        (0..3).for_each(|bucket| filters.rebuild(BucketId(bucket), &keys.iter().copied()));
        filters.clear(BucketId(1));
        assert!(keys.iter().all(|&key| !filters.may_contain(BucketId(1), key)));
        assert!(keys.iter().all(|&key| filters.may_contain(BucketId(0), key)));
        assert!(keys.iter().all(|&key| filters.may_contain(BucketId(2), key)));
    }

    /// The rates of the module's comment, and that more memory buys a better filter.
    #[test]
    #[cfg_attr(miri, ignore = "about rates, which take many tries")]
    fn absent_keys_are_mostly_rejected_by_the_filter() {
        for (bytes, keys, at_most) in
            [(8, 4, 0.01), (8, 13, 0.13), (8, 30, 0.43), (16, 13, 0.03), (32, 13, 0.01)]
        {
            let mut rng = StdRng::seed_from_u64(11);
            let filters = Filters::new(1, bytes);
            let mut passed = 0;
            for _ in 0..200 {
                filters.rebuild(BucketId(0), &random_keys(&mut rng, keys).into_iter());
                let absent_keys = random_keys(&mut rng, 100);
                passed += absent_keys.iter().filter(|&&key| filters.may_contain(BucketId(0), key)).count();
            }
            let rate = passed as f64 / 20_000.0;
            assert!(rate <= at_most, "{bytes} bytes, {keys} keys: {rate}");
        }
    }

    #[test]
    fn number_of_probes_falls_as_the_bucket_fills() {
        let probes = [0, 1, 10, 14, 20, 30, 1_000_000].map(best_probes);
        assert_eq!(probes, [4, 4, 4, 3, 2, 1, 1]);
    }
}
