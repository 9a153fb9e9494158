//! Visiting the keys of all items: memory has only filters, so the buckets are read.

use futures_util::future::join_all;

use crate::flash::Waiting;

use super::Soc;
use super::bucket::{Bucket, BucketId, Fingerprint};
use super::pending::Witness;

/// Buckets that are read side by side.
const AT_ONCE: u32 = 16;
/// Reads of a bucket that rewrites keep overtaking.
const READ_ATTEMPTS: usize = 8;

/// The keys read from a bucket, and the state of the bucket before the read.
struct BucketKeys {
    before: Witness,
    keys: Vec<(Fingerprint, Vec<u8>)>,
}

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
            for (bucket, read) in
                join_all(written.map(async |id| (id, self.keys_in(id, waiting).await))).await
            {
                for key in self.current_keys(bucket, read, waiting).await {
                    visit(&key);
                }
            }
        }
    }

    /// The keys of `read` that no pending entry removes. If the bucket was rewritten since the read, it is read again: a removal that was
    /// pending may be written by now.
    async fn current_keys(&self, bucket: BucketId, mut read: BucketKeys, waiting: Waiting) -> Vec<Vec<u8>> {
        for attempt in 1.. {
            {
                let shard = self.shard(bucket).lock();
                if attempt == READ_ATTEMPTS || !read.before.overtaken(shard.witness(bucket)) {
                    // A pending item is a later version of the key; a tombstone is its removal.
                    read.keys.retain(|(fingerprint, _)| shard.waits(bucket, *fingerprint) != Some(false));
                    break;
                }
            }
            read = self.keys_in(bucket, waiting).await;
        }
        read.keys.into_iter().map(|(_, key)| key).collect()
    }

    /// The keys in a bucket on the device.
    async fn keys_in(&self, id: BucketId, waiting: Waiting) -> BucketKeys {
        let mut before = self.shard(id).lock().witness(id);
        for _ in 0..READ_ATTEMPTS {
            before = self.shard(id).lock().witness(id);
            let Some(bytes) = self.read_bucket(id, waiting).await else { break };
            let after = self.shard(id).lock().witness(id);
            match Bucket::open(&bytes, self.identity(id)) {
                Ok(bucket) => {
                    let keys =
                        bucket.entries().map(|entry| (entry.fingerprint, entry.key.to_vec())).collect();
                    return BucketKeys { before, keys };
                }
                // Read in the middle of a write.
                Err(_) if before.writing || after.writing || before.overtaken(after) => {}
                Err(_) => break,
            }
        }
        BucketKeys { before, keys: Vec::new() }
    }
}
