//! Sizes of objects: which variant of a photo an object is, and how many bytes that has.

use rand::RngExt;
use rand_distr::{Distribution, LogNormal};

use crate::generate::random::{At, scramble};

/// A size that photos are resized to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Variant {
    /// Share of the objects, relative to the other variants'.
    pub share: f64,
    /// Median size of the objects.
    pub median_bytes: f64,
    /// Standard deviation of the size's natural logarithm.
    pub sigma: f64,
}

impl Variant {
    /// Thumbnails, pictures in a feed and pictures in full. Chosen so that four in five objects are below 32 KiB, as
    /// Huang et al. (SOSP 2013) found for resized photos; their mean is 24 KiB.
    pub const PHOTOS: [Self; 3] = [
        Self { share: 0.2, median_bytes: 4096.0, sigma: 0.5 },
        Self { share: 0.6, median_bytes: 14_336.0, sigma: 0.7 },
        Self { share: 0.2, median_bytes: 51_200.0, sigma: 0.7 },
    ];
}

const SMALLEST_BYTES: f64 = 256.0;
const LARGEST_BYTES: f64 = (4u32 << 20) as f64;

pub(super) struct Sizes {
    /// Shares summed up, and the law of each.
    variants: Vec<(f64, LogNormal<f64>)>,
}

impl Sizes {
    pub(super) fn new(variants: &[Variant]) -> Self {
        let mut sum = 0.0;
        let summed = variants.iter().map(|variant| {
            sum += variant.share.max(0.0);
            let law = LogNormal::new(variant.median_bytes.max(1.0).ln(), variant.sigma.abs());
            (sum, law.expect("the deviation is not negative"))
        });
        Self { variants: summed.collect() }
    }

    /// The size of an object. It belongs to the object: another seed has the same sizes.
    pub(super) fn of(&self, object: u64) -> u64 {
        let mut random = At(scramble(object));
        let Some((all, _)) = self.variants.last() else { return SMALLEST_BYTES as u64 };
        let place = random.random::<f64>() * all;
        let chosen = self.variants.iter().find(|(sum, _)| place < *sum).or(self.variants.last());
        let size = chosen.map_or(1.0, |(_, law)| law.sample(&mut random));
        size.clamp(SMALLEST_BYTES, LARGEST_BYTES) as u64
    }
}
