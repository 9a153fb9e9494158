//! Visits the keys of all items: memory has only filters, so the buckets are read.

use futures_util::future::join_all;

use crate::flash::Waiting;

use super::Soc;
use super::bucket::{Bucket, BucketId, Fingerprint};
use super::pending::BucketVersion;

/// Buckets that are read concurrently.
const CONCURRENT_READS: u32 = 16;
/// Attempts to read a bucket that is rewritten during each read.
const READ_ATTEMPTS: usize = 8;

/// The keys read from a bucket, and the state of the bucket before the read.
struct BucketKeys {
    before: BucketVersion,
    keys: Vec<(Fingerprint, Vec<u8>)>,
}

impl Soc {
    /// Calls `visit` with the key of every item, with some keys more than once. Unreadable buckets are skipped.
    pub(crate) async fn visit_keys(&self, waiting: Waiting, visit: &mut impl FnMut(&[u8])) {
        for first in (0..self.buckets).step_by(CONCURRENT_READS as usize) {
            let group = || (first..self.buckets.min(first + CONCURRENT_READS)).map(BucketId);
            // Pending items are listed before the reads: one whose write completes in between would be in neither list.
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
    /// pending may be written by now. A bucket that became empty is only marked so in memory, and the device still has its old items.
    async fn current_keys(&self, bucket: BucketId, mut read: BucketKeys, waiting: Waiting) -> Vec<Vec<u8>> {
        loop {
            {
                let shard = self.shard(bucket).lock();
                if !self.written.get(bucket) {
                    return Vec::new();
                }
                if !read.before.overtaken(shard.bucket_version(bucket)) {
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
        let mut before = self.shard(id).lock().bucket_version(id);
        for _ in 0..READ_ATTEMPTS {
            before = self.shard(id).lock().bucket_version(id);
            let Some(bytes) = self.read_bucket(id, waiting).await else { break };
            let after = self.shard(id).lock().bucket_version(id);
            match Bucket::open(&bytes, self.identity(id)) {
                Ok(bucket) => {
                    let keys =
                        bucket.entries().map(|entry| (entry.fingerprint, entry.key.to_vec())).collect();
                    return BucketKeys { before, keys };
                }
                // The read overlapped a write.
                Err(_) if before.writing || after.writing || before.overtaken(after) => {}
                Err(_) => break,
            }
        }
        BucketKeys { before, keys: Vec::new() }
    }
}
