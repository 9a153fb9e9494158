//! The background step: buckets that have entries waiting are read, changed and written, neighbours together.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{IoBuffer, IoError, IoSlice, Request};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::bucket::{self, Bucket, BucketId, BucketMut, Entry, Fingerprint, NewEntry, Unusable};
use super::pending::{Group, Waiter};
use super::{Soc, SocStats};
use crate::KeyHash;
use crate::flash::{FlashItem, Waiting};

/// What a step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Buckets settled, those of failed writes included.
    pub buckets: usize,
    /// Items and tombstones that no longer wait.
    pub entries: usize,
}

impl Progress {
    /// Whether there was nothing to do.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.buckets == 0
    }
}

impl Soc {
    /// Writes back what waits, the fullest buckets first, until the configured number of writes has been made or
    /// nothing is left. May be called by several tasks at once. Run it to its end: a step dropped while a write is in
    /// flight costs the buckets of that write their place for good.
    pub async fn step(&self, waiting: Waiting, now_seconds: u32) -> Progress {
        let mut in_flight = FuturesUnordered::new();
        let mut started = 0;
        let mut progress = Progress::default();
        loop {
            while in_flight.len() < self.config.writes_in_flight && started < self.config.writes_per_step {
                let Some(claim) = self.take_group() else { break };
                in_flight.push(self.write_back(claim, waiting, now_seconds));
                started += 1;
            }
            let Some(ended) = in_flight.next().await else { return progress };
            progress.buckets += ended.buckets;
            progress.entries += ended.entries;
        }
    }

    /// Writes everything back that waits now, waiting for the steps of others too. It ends only when inserts pause.
    pub async fn drain(&self, waiting: Waiting, now_seconds: u32) {
        loop {
            if !self.step(waiting, now_seconds).await.idle() {
                continue;
            }
            // What still waits is in the hands of other steps; each of them announces the room it makes.
            let listener = self.room.listen();
            if self.pending_entries() == 0 {
                return;
            }
            if self.anything_to_take() {
                continue;
            }
            match waiting {
                Waiting::Thread => event_listener::Listener::wait(listener),
                Waiting::Task => listener.await,
            }
        }
    }

    fn pending_entries(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries()).sum()
    }

    fn anything_to_take(&self) -> bool {
        self.shards.iter().any(|shard| shard.lock().has_takeable())
    }

    /// The shards take turns, so that steps side by side do not meet and no shard waits for ever.
    fn take_group(&self) -> Option<Claim<'_>> {
        for _ in 0..self.shards.len() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            if let Some(group) = self.shards[turn % self.shards.len()].lock().take_group(self.group_buckets) {
                return Some(Claim { soc: self, group, in_flight: false, settled: false });
            }
        }
        None
    }

    async fn write_back(&self, mut claim: Claim<'_>, waiting: Waiting, now_seconds: u32) -> Progress {
        let (mut buffer, mut changes) = self.read_group(&claim.group, waiting).await;
        let bucket_bytes = self.config.bucket_bytes as usize;
        for ((bytes, change), (id, waiters)) in
            buffer.chunks_exact_mut(bucket_bytes).zip(&mut changes).zip(claim.group.members())
        {
            self.apply(bytes, id, waiters, now_seconds, change);
        }
        let buffer = Arc::new(buffer);
        let outcome = if changes.iter().all(|change| change.items_after == 0 || !change.is_changed) {
            // An empty bucket is one that counts as never written. One that stays as it is, because its filter was wrong about
            // what was to be removed, is on the device already.
            Ok(0)
        } else {
            claim.in_flight = true;
            self.write_group(claim.group.first, Arc::clone(&buffer), waiting).await
        };
        claim.settle(&buffer, changes, &outcome)
    }

    /// The group's buckets as they are on the device, with what was found wrong. Buckets that hold nothing of this
    /// generation are not read, unless they lie between others.
    async fn read_group(&self, group: &Group, waiting: Waiting) -> (IoBuffer, Vec<Change>) {
        let mut changes: Vec<Change> =
            group.members().map(|(id, _)| Change::of(self.written.get(id))).collect();
        let whole = self.config.bucket_bytes as usize * group.frozen.len();
        if changes.iter().all(|change| !change.has_content) {
            return (IoBuffer::zeroed(whole), changes);
        }
        let request = Request::Read { offset: self.offset(group.first), buffer: IoBuffer::zeroed(whole) };
        match waiting.start(&*self.device, request).await {
            Ok(Some(buffer)) => (buffer, changes),
            _ if changes.len() == 1 => {
                changes[0].unreadable();
                (IoBuffer::zeroed(whole), changes)
            }
            // One bad block must not cost its neighbours their items.
            _ => (self.read_singly(group, &mut changes, waiting).await, changes),
        }
    }

    async fn read_singly(&self, group: &Group, changes: &mut [Change], waiting: Waiting) -> IoBuffer {
        let bucket_bytes = self.config.bucket_bytes as usize;
        let mut whole = IoBuffer::zeroed(bucket_bytes * changes.len());
        let places = whole.chunks_exact_mut(bucket_bytes).zip(changes).zip(group.members());
        for ((place, change), (id, _)) in places.filter(|((_, change), _)| change.has_content) {
            match self.read_bucket(id, waiting).await {
                Some(one) => place.copy_from_slice(&one),
                None => change.unreadable(),
            }
        }
        whole
    }

    async fn write_group(
        &self,
        first: BucketId,
        buffer: Arc<IoBuffer>,
        waiting: Waiting,
    ) -> Result<usize, IoError> {
        let bytes = buffer.len();
        let (data, placement) = (IoSlice::whole(buffer), self.placement);
        let request = Request::Write { offset: self.offset(first), data, placement };
        waiting.start(&*self.device, request).await.map(|_| bytes)
    }

    /// Tells of items that have left, except for those removed or inserted anew since their bucket was read.
    fn tell(&self, id: BucketId, left: &[Left]) {
        let Some(on_eviction) = &self.on_eviction else { return };
        for Left { fingerprint, expiry_seconds, tag, key, value } in left {
            if self.shard(id).lock().waits(id, *fingerprint).is_none() {
                let (hash, value): (_, &[&[u8]]) = (KeyHash::of(key), &[value]);
                on_eviction(&FlashItem { key, hash, value, expiry_seconds: *expiry_seconds, tag: *tag });
            }
        }
    }

    /// Settles all that waits for a bucket: `bytes` hold the old content before and the new one, sealed, after.
    fn apply(
        &self,
        bytes: &mut [u8],
        id: BucketId,
        waiters: &[Waiter],
        now_seconds: u32,
        change: &mut Change,
    ) {
        if change.has_content
            && let Err(why) = Bucket::open(bytes, self.identity(id))
        {
            change.has_content = false;
            change.unusable = Some(why);
        }
        let mut bucket = if change.has_content {
            BucketMut::verified(bytes)
        } else {
            BucketMut::empty(bytes, self.config.generation)
        };
        change.items_before = bucket.view().entries().count();
        change.expired = bucket.remove_expired(now_seconds);
        change.is_changed = change.expired > 0;
        for (number, waiter) in waiters.iter().enumerate() {
            let later = &waiters[number + 1..];
            change.settle(&mut bucket, waiter, now_seconds, |entry| {
                // What a newer version or a tombstone is about to replace does not leave for want of room.
                let displaced = later.iter().any(|later| later.fingerprint == entry.fingerprint);
                (self.on_eviction.is_some() && !displaced).then(|| Left::of(entry))
            });
        }
        change.items_after = bucket.view().entries().count();
        bucket.seal(id);
    }
}

/// What happened to one bucket of a group.
#[derive(Default)]
struct Change {
    has_content: bool,
    read_failed: bool,
    unusable: Option<Unusable>,
    /// Whether its items are others than before.
    is_changed: bool,
    items_before: usize,
    items_after: usize,
    evicted: u32,
    expired: u32,
    /// Of those evicted, whom somebody wants to be told of.
    left: Vec<Left>,
}

/// An item that made room for others.
struct Left {
    fingerprint: Fingerprint,
    expiry_seconds: u32,
    tag: u16,
    key: Box<[u8]>,
    value: Box<[u8]>,
}

impl Left {
    fn of(entry: &Entry<'_>) -> Self {
        let Entry { fingerprint, expiry_seconds, tag, key, value, .. } = *entry;
        Self { fingerprint, expiry_seconds, tag, key: key.into(), value: value.into() }
    }
}

impl Change {
    fn of(has_content: bool) -> Self {
        Self { has_content, ..Self::default() }
    }

    /// All was cleared since: nothing of the bucket is left, whatever it holds.
    fn clear(&mut self) {
        let Self { has_content, read_failed, unusable, .. } = *self;
        *self = Self { has_content, read_failed, unusable, ..Self::default() };
    }

    fn unreadable(&mut self) {
        self.has_content = false;
        self.read_failed = true;
    }

    fn settle(
        &mut self,
        bucket: &mut BucketMut<'_>,
        waiter: &Waiter,
        now_seconds: u32,
        worth_telling: impl Fn(&Entry<'_>) -> Option<Left>,
    ) {
        let Some(bytes) = &waiter.bytes else {
            self.is_changed |= bucket.remove(waiter.fingerprint, None) > 0;
            return;
        };
        let (key, value) = bytes.split_at(usize::from(waiter.key_len));
        self.is_changed |= bucket.remove(waiter.fingerprint, Some(key)) > 0;
        if bucket::expired(waiter.expiry_seconds, now_seconds) {
            self.expired += 1;
            return;
        }
        let Waiter { fingerprint, expiry_seconds, tag, .. } = *waiter;
        let new = NewEntry { fingerprint, expiry_seconds, tag, key, value };
        self.is_changed = true;
        self.evicted += bucket.insert(&new, |entry| self.left.extend(worth_telling(entry)));
    }

    fn count(&self, stats: &mut SocStats) {
        stats.read_errors += u64::from(self.read_failed);
        if let Some(why) = self.unusable {
            stats.count_unusable(why);
        }
        stats.evictions += u64::from(self.evicted);
        stats.evictions_expired += u64::from(self.expired);
    }
}

/// A group taken from the pending table, until it is given back: by [`settle`](Self::settle), or by being dropped
/// because the step was, which may not have begun with it.
struct Claim<'soc> {
    soc: &'soc Soc,
    group: Group,
    in_flight: bool,
    settled: bool,
}

impl Claim<'_> {
    /// The write has ended. Filters first, then the table: a key must be found in one of them all the time.
    fn settle(
        mut self,
        buffer: &IoBuffer,
        mut changes: Vec<Change>,
        outcome: &Result<usize, IoError>,
    ) -> Progress {
        self.settled = true;
        let soc = self.soc;
        let bucket_bytes = soc.config.bucket_bytes as usize;
        let mut progress = Progress::default();
        for ((bytes, change), (id, waiters)) in
            buffer.chunks_exact(bucket_bytes).zip(&mut changes).zip(self.group.members())
        {
            let bucket = Bucket::sealed_here(bytes);
            // Under one lock until the end: whoever clears the cache came before, or finds the bucket as it is then.
            let mut shard = soc.shard(id).lock();
            if shard.is_cleared(id) {
                change.clear();
            }
            let kept = outcome.is_ok() && change.items_after > 0;
            if kept {
                soc.filters.rebuild(id, &bucket.fingerprints());
                soc.written.set(id, true);
            } else {
                soc.disown(id);
            }
            change.count(&mut shard.stats);
            count_outcome(&mut shard.stats, change, waiters, outcome, bucket_bytes);
            let freed = shard.release(id);
            // Under the lock: whoever sees that nothing waits any more finds its memory given back.
            soc.pending_bytes.fetch_sub(freed, Ordering::AcqRel);
            progress.buckets += 1;
            progress.entries += waiters.len();
        }
        self.count_write(outcome);
        soc.room.notify(usize::MAX);
        if outcome.is_ok() {
            changes.iter().zip(self.group.members()).for_each(|(change, (id, _))| soc.tell(id, &change.left));
        }
        progress
    }

    fn count_write(&self, outcome: &Result<usize, IoError>) {
        let mut shard = self.soc.shard(self.group.first).lock();
        match outcome {
            Ok(0) => {}
            Ok(_) => shard.stats.device_writes += 1,
            Err(_) => shard.stats.write_errors += 1,
        }
    }
}

fn count_outcome(
    stats: &mut SocStats,
    change: &Change,
    waiters: &[Waiter],
    outcome: &Result<usize, IoError>,
    bucket_bytes: usize,
) {
    let before = i64::try_from(change.items_before).expect("a bucket's items are few");
    let after = i64::try_from(change.items_after).expect("a bucket's items are few");
    match outcome {
        Ok(written) => {
            stats.items += after - before;
            stats.written_entries += waiters.len() as u64;
            stats.bucket_writes += u64::from(*written > 0);
            stats.physical_written_bytes += if *written > 0 { bucket_bytes as u64 } else { 0 };
        }
        Err(_) => {
            stats.items -= before;
            stats.lost_items += change.items_after as u64;
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let mut freed = 0;
        for (id, _) in self.group.members() {
            let mut shard = self.soc.shard(id).lock();
            if self.in_flight {
                self.soc.disown(id);
                freed += shard.retire(id);
            } else {
                freed += shard.put_back(id);
            }
        }
        self.soc.give_back(freed);
    }
}

impl Group {
    fn members(&self) -> impl Iterator<Item = (BucketId, &[Waiter])> {
        (self.first.0..).map(BucketId).zip(self.frozen.iter().map(|waiters| waiters.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::MemoryDevice;
    use pollster::block_on;

    use super::*;
    use crate::flash::soc::SocConfig;

    /// A filter of a few bits is often wrong; each time a bucket was written as it was.
    #[test]
    fn a_removal_that_finds_nothing_was_paid_for_with_a_bucket() {
        let config = SocConfig { filter_bytes_per_bucket: 0, ..SocConfig::new(0, 4096, 1) };
        let soc = Soc::new(Arc::new(MemoryDevice::new(64 << 10)), config).expect("it fits");
        let put = |key: &'static [u8]| {
            let value: &[&[u8]] = &[b"value"];
            let item = FlashItem { key, hash: KeyHash::of(key), value, expiry_seconds: 0, tag: 0 };
            soc.commit(soc.stage(&item).expect("there is room"));
        };
        let written = |soc: &Soc| (soc.stats().bucket_writes, soc.stats().device_writes);
        put(b"key");
        block_on(soc.drain(Waiting::Task, 0));
        assert_eq!(written(&soc), (1, 1));
        assert!(soc.forget(KeyHash::of(b"another"), b"another"), "without a filter it may be there");
        block_on(soc.drain(Waiting::Task, 0));
        assert_eq!((written(&soc), soc.stats().items, soc.pending_bytes()), ((1, 1), 1, 0));
        assert!(soc.may_contain(KeyHash::of(b"key")));
        assert!(soc.forget(KeyHash::of(b"key"), b"key"));
        put(b"third");
        block_on(soc.drain(Waiting::Task, 0));
        assert_eq!((written(&soc), soc.stats().items), ((2, 2), 1));
    }

    /// A step that is dropped may have taken buckets and not begun to write them; they were taken for good.
    #[test]
    fn a_bucket_that_was_taken_and_never_begun_waits_on() {
        let soc =
            Soc::new(Arc::new(MemoryDevice::new(64 << 10)), SocConfig::new(0, 4096, 1)).expect("it fits");
        let (key, value): (_, &[&[u8]]) = (b"key", &[b"value"]);
        let item = FlashItem { key, hash: KeyHash::of(key), value, expiry_seconds: 0, tag: 0 };
        soc.commit(soc.stage(&item).expect("there is room"));
        let taken = soc.take_group().expect("it waits");
        drop(soc.write_back(taken, Waiting::Task, 0));
        assert_eq!(block_on(soc.step(Waiting::Task, 0)), Progress { buckets: 1, entries: 1 });
        assert_eq!(soc.pending_bytes(), 0);
    }
}
