//! Visiting the keys of all items: memory has only filters, so the buckets are read.

use futures_util::future::join_all;

use crate::flash::Waiting;

use super::Soc;
use super::bucket::{Bucket, BucketId};

/// Buckets that are read side by side.
const AT_ONCE: u32 = 16;
/// Reads of a bucket that rewrites keep overtaking.
const READ_ATTEMPTS: usize = 8;

impl Soc {
    /// Shows `visit` the key of every item, some more than once. A bucket that cannot be read is passed over.
    pub(crate) async fn visit_keys(&self, waiting: Waiting, visit: &mut impl FnMut(&[u8])) {
        for first in (0..self.buckets).step_by(AT_ONCE as usize) {
            let group = || (first..self.buckets.min(first + AT_ONCE)).map(BucketId);
            // Before the reads: an item whose write ends meanwhile would be seen in neither place.
            for bucket in group() {
                let keys = self.shard(bucket).lock().waiting_keys(bucket);
                keys.iter().for_each(|key| visit(key));
            }
            let written = group().filter(|bucket| self.written.get(*bucket));
            for (bucket, keys) in
                join_all(written.map(async |id| (id, self.keys_in(id, waiting).await))).await
            {
                for (fingerprint, key) in keys {
                    // An item that waits is a later version of the key; a tombstone is its removal.
                    if self.shard(bucket).lock().waits(bucket, fingerprint) != Some(false) {
                        visit(&key);
                    }
                }
            }
        }
    }

    /// The keys in a bucket on the device.
    async fn keys_in(&self, id: BucketId, waiting: Waiting) -> Vec<(super::Fingerprint, Vec<u8>)> {
        for _ in 0..READ_ATTEMPTS {
            let before = self.shard(id).lock().witness(id);
            let Some(bytes) = self.read_bucket(id, waiting).await else { break };
            let after = self.shard(id).lock().witness(id);
            match Bucket::open(&bytes, self.identity(id)) {
                Ok(bucket) => {
                    return bucket.entries().map(|entry| (entry.fingerprint, entry.key.to_vec())).collect();
                }
                // Read in the middle of a write.
                Err(_) if before.writing || after.writing || before.overtaken(after) => {}
                Err(_) => break,
            }
        }
        Vec::new()
    }
}
