//! One bit per bucket, set and read without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bucket::BucketId;

/// Buckets that share a word.
pub const BITS_PER_WORD: u32 = u64::BITS;

pub struct Bits(Box<[AtomicU64]>);

impl Bits {
    pub fn new(buckets: u32) -> Self {
        Self((0..buckets.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn get(&self, bucket: BucketId) -> bool {
        let (word, bit) = self.place(bucket);
        word.load(Ordering::Acquire) & bit != 0
    }

    pub fn set(&self, bucket: BucketId, value: bool) {
        let (word, bit) = self.place(bucket);
        if value {
            word.fetch_or(bit, Ordering::AcqRel);
        } else {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// Unsets the bits of one word: those of [`BITS_PER_WORD`] buckets side by side.
    pub fn clear_word(&self, index: usize) {
        self.0[index].store(0, Ordering::Release);
    }

    /// The buckets whose bit is set.
    pub fn iter(&self) -> impl Iterator<Item = BucketId> + '_ {
        let numbers = (0_u32..).zip(self.words()).filter(|(_, word)| *word != 0);
        numbers.flat_map(|(index, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| BucketId(index * 64 + bit))
        })
    }

    pub fn words(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.0.iter().map(|word| word.load(Ordering::Acquire))
    }

    pub fn restore_word(&self, index: usize, word: u64) {
        self.0[index].store(word, Ordering::Release);
    }

    pub fn bytes(&self) -> usize {
        self.0.len() * size_of::<u64>()
    }

    fn place(&self, bucket: BucketId) -> (&AtomicU64, u64) {
        (&self.0[bucket.0 as usize / 64], 1 << (bucket.0 % 64))
    }
}
