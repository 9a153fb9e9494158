//! Why a store that was closed cannot be gone on with.

use super::{Layout, Superblock};

impl Superblock {
    /// What differs of a layout and a fingerprint that are not this store's, as far as it shows. A part of flash that is not the
    /// first one has been closed by the same cache as that, or does not fit.
    #[must_use]
    pub fn difference(&self, now: &Layout, fingerprint: u64, is_first: bool) -> Option<&'static str> {
        let then = &self.layout;
        let regions_came_or_went = (then.region_bytes == 0) != (now.region_bytes == 0);
        // Where there are buckets alone, they have all that the snapshot leaves.
        let other_share = then.soc_bytes != now.soc_bytes && now.region_bytes != 0;
        let difference = if then.device_bytes != now.device_bytes {
            "flash was divided otherwise then: the device, or this cache's part of it, had another size"
        } else if then.block_bytes != now.block_bytes {
            "flash was divided otherwise then: the device had blocks of another size"
        } else if then.bucket_bytes != now.bucket_bytes {
            "flash was divided otherwise then: buckets had another size (bucket_bytes)"
        } else if regions_came_or_went || other_share {
            "flash was divided otherwise then: small items had another share (soc_share)"
        } else if then.region_bytes != now.region_bytes {
            "flash was divided otherwise then: regions had another size (region_bytes)"
        } else if self.fingerprint != fingerprint && is_first {
            "the engine for small items, filters of buckets, units of regions or the number of pairs differed then (small_items, \
             filter_bytes_per_bucket, unit_bytes, pairs)"
        } else if self.fingerprint != fingerprint {
            "the engine for small items, filters of buckets, units of regions or the number of pairs differed then (small_items, \
             filter_bytes_per_bucket, unit_bytes, pairs), \
             or this part of flash was not closed by the same cache as the first one"
        } else if then != now {
            "the snapshot had room for other items then: small_item_max_bytes, the order of regions, region_alignment_bytes or \
             metadata_bytes was another"
        } else {
            return None;
        };
        Some(difference)
    }
}
