//! Why a closed store cannot be recovered under the present configuration.

use super::{Layout, Superblock};

impl Superblock {
    /// Describes how this layout and fingerprint differ from the present ones, as far as it can be determined. Parts of the device other
    /// than the first must have been closed by the same cache as the first.
    #[must_use]
    pub fn difference(&self, now: &Layout, fingerprint: u64, is_first: bool) -> Option<&'static str> {
        let then = &self.layout;
        let regions_came_or_went = (then.region_bytes == 0) != (now.region_bytes == 0);
        // Without regions, the buckets take all space that the snapshot leaves.
        let other_share = then.soc_bytes != now.soc_bytes && now.region_bytes != 0;
        let difference = if then.device_bytes != now.device_bytes {
            "the earlier cache divided flash differently: the device, or this cache's part of it, had another size"
        } else if then.block_bytes != now.block_bytes {
            "the earlier cache divided flash differently: the device had blocks of another size"
        } else if then.bucket_bytes != now.bucket_bytes {
            "the earlier cache divided flash differently: buckets had another size (bucket_bytes)"
        } else if regions_came_or_went || other_share {
            "the earlier cache divided flash differently: small items had another share (soc_share)"
        } else if then.region_bytes != now.region_bytes {
            "the earlier cache divided flash differently: regions had another size (region_bytes)"
        } else if self.fingerprint != fingerprint && is_first {
            "the earlier cache had another engine for small items, other filters of buckets, other units of regions \
             or another number of pairs (small_items, filter_bytes_per_bucket, unit_bytes, pairs)"
        } else if self.fingerprint != fingerprint {
            "the earlier cache had another engine for small items, other filters of buckets, other units of regions \
             or another number of pairs (small_items, filter_bytes_per_bucket, unit_bytes, pairs), \
             or this part of flash was not closed by the same cache as the first one"
        } else if then != now {
            "small_item_max_bytes, the order of regions, region_alignment_bytes or metadata_bytes has changed since the \
             earlier cache"
        } else {
            return None;
        };
        Some(difference)
    }
}
