//! A lookup: memory, at most one device read, and memory again.

use std::ops::Range;

use device::IoBuffer;

use super::bucket::{self, Bucket};
use super::pending::{BucketVersion, Known, Shard};
use super::{Address, Soc};
use crate::KeyHash;
use crate::flash::{FlashValue, Waiting};

/// Attempts of a lookup whose bucket is rewritten during each read, before it returns a miss.
const READ_ATTEMPTS: usize = 8;

impl Soc {
    /// Looks up `key` with at most one device read, or more while its bucket is being rewritten.
    pub async fn read(
        &self,
        hash: KeyHash,
        key: &[u8],
        waiting: Waiting,
        now_seconds: u32,
    ) -> Option<FlashValue> {
        let address = self.address(hash);
        let lookup = Lookup { soc: self, address, key, now_seconds };
        let mut before = match lookup.begin() {
            Step::Done(answer) => return answer,
            Step::ReadBucket(bucket_version) => bucket_version,
        };
        for _ in 0..READ_ATTEMPTS {
            let read = self.read_bucket(address.bucket, waiting).await;
            match lookup.conclude(before, read) {
                Step::Done(answer) => return answer,
                Step::ReadBucket(bucket_version) => before = bucket_version,
            }
        }
        self.shard(address.bucket).lock().stats.lookups_given_up += 1;
        None
    }
}

/// One lookup. The pending table and the filter are checked before and after the device is read.
struct Lookup<'a> {
    soc: &'a Soc,
    address: Address,
    key: &'a [u8],
    now_seconds: u32,
}

enum Step {
    Done(Option<FlashValue>),
    ReadBucket(BucketVersion),
}

impl Lookup<'_> {
    fn begin(&self) -> Step {
        let mut shard = self.soc.shard(self.address.bucket).lock();
        shard.stats.lookups += 1;
        self.ask_memory(&mut shard)
    }

    /// Evaluates a read. The pending table is searched again: a newer entry wins, and the read is repeated if the bucket was rewritten in
    /// between, since it may be torn or out of date.
    fn conclude(&self, before: BucketVersion, read: Option<IoBuffer>) -> Step {
        let bucket = self.address.bucket;
        let mut shard = self.soc.shard(bucket).lock();
        shard.stats.bucket_reads += 1;
        let after = match self.ask_memory(&mut shard) {
            Step::ReadBucket(after) if !before.overtaken(after) => after,
            answered_or_overtaken => return answered_or_overtaken,
        };
        let Some(buffer) = read else {
            shard.stats.read_errors += 1;
            return Step::Done(None);
        };
        match Bucket::open(&buffer, self.soc.identity(bucket)) {
            Ok(found) => {
                let found = found.find(self.address.fingerprint, self.key);
                let found = found.map(|e| (e.value_range(), e.expiry_seconds, e.tag));
                Step::Done(self.answer(&mut shard, buffer, found))
            }
            Err(_) if before.writing || after.writing => Step::ReadBucket(after),
            Err(why) => {
                shard.stats.count_unusable(why);
                // With a journal, removals of its items are still recorded: it may be readable after a restart.
                if self.soc.journal.is_none() {
                    self.soc.mark_empty(bucket);
                }
                Step::Done(None)
            }
        }
    }

    /// Searches the pending table, then the filter.
    fn ask_memory(&self, shard: &mut Shard) -> Step {
        let Address { bucket, fingerprint } = self.address;
        match self.ask_table(shard) {
            Step::ReadBucket(_) if !self.soc.may_be_on_flash(bucket, fingerprint) => Step::Done(None),
            step => step,
        }
    }

    fn ask_table(&self, shard: &mut Shard) -> Step {
        let Address { bucket, fingerprint } = self.address;
        let item = match shard.find(bucket, fingerprint, self.key) {
            Known::Nothing(bucket_version) => return Step::ReadBucket(bucket_version),
            Known::Removed => return Step::Done(None),
            Known::Item(item) => item,
        };
        if bucket::expired(item.expiry_seconds, self.now_seconds) {
            shard.stats.expired_lookups += 1;
            return Step::Done(None);
        }
        shard.stats.hits += 1;
        shard.stats.hits_pending += 1;
        let bytes = item.bytes.expect("a known item has bytes");
        let value = usize::from(item.key_len)..bytes.len();
        Step::Done(Some(FlashValue::in_memory(bytes, value, item.expiry_seconds, item.tag)))
    }

    fn answer(
        &self,
        shard: &mut Shard,
        buffer: IoBuffer,
        found: Option<(Range<usize>, u32, u16)>,
    ) -> Option<FlashValue> {
        let Some((value, expiry_seconds, tag)) = found else {
            shard.stats.filter_false_positives += 1;
            return None;
        };
        if bucket::expired(expiry_seconds, self.now_seconds) {
            shard.stats.expired_lookups += 1;
            return None;
        }
        shard.stats.hits += 1;
        Some(FlashValue::read(buffer, value, expiry_seconds, tag))
    }
}
