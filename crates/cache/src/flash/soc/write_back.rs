//! The background step: reads, changes and writes buckets with pending entries, adjacent ones together.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{IoBuffer, IoSlice, Pending, Request};
use futures_util::future::Either;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::Soc;
use super::bucket::{Bucket, BucketId, BucketMut};
use super::change::{Change, ReportedRemovals};
use super::completion::WriteInFlight;
use super::held;
use super::pending::{Group, Waiter};
use super::settle::Settling;
use super::write::{Outcome, Progress, Write};
use crate::flash::Waiting;

impl Soc {
    /// Writes pending buckets, those with the most entries first, until the configured number of writes has been made or none is left.
    /// Several tasks may call it concurrently. A dropped step leaves its writes in flight to the next step.
    pub async fn step(&self, waiting: Waiting, now_seconds: u32) -> Progress {
        self.shorten_journal();
        let resumed = self.take_over().chain(self.take_held(waiting));
        let mut in_flight: FuturesUnordered<_> = resumed.map(|it| Either::Left(it.end(waiting))).collect();
        let mut started = 0;
        let mut progress = Progress::default();
        loop {
            // While the device fails, one write at a time tests it, in addition to a held write, which may concern a bad block.
            let most = match self.is_failing() {
                true => 1.min(held::MOST_WHILE_FAILING.saturating_sub(self.held.count() + in_flight.len())),
                false => self.config.writes_per_step,
            };
            while in_flight.len() < self.config.writes_in_flight && started < most {
                let Some(claim) = self.take_group() else { break };
                in_flight.push(Either::Right(self.write_back(claim, waiting, now_seconds)));
                started += 1;
            }
            let Some(ended) = in_flight.next().await else {
                self.flush_written(waiting).await;
                return progress;
            };
            progress.buckets += ended.buckets;
            progress.entries += ended.entries;
        }
    }

    /// Writes all pending entries and waits for the steps of other tasks. Returns only when inserts pause.
    pub async fn drain(&self, waiting: Waiting, now_seconds: u32) {
        let _settling = Settling::begin(&self.settling);
        loop {
            if !self.step(waiting, now_seconds).await.idle() {
                continue;
            }
            // Other steps write the remaining entries; each of them notifies `room` when it completes.
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

    pub(super) fn anything_to_take(&self) -> bool {
        self.has_left_over()
            || self.has_due_retry()
            || self.shards.iter().any(|shard| shard.lock().has_takeable())
    }

    /// Shards are served in turn, so that concurrent steps do not collide and no shard starves.
    fn take_group(&self) -> Option<Claim<'_>> {
        // While the device fails, groups are small, because failed writes occupy memory.
        let most = if self.is_failing() { 1 } else { self.group_buckets };
        for _ in 0..self.shards.len() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let mut shard = self.shards[turn % self.shards.len()].lock();
            if let Some(mut group) = shard.take_group(most) {
                group.write_number = self.next_write_number();
                return Some(Claim { soc: self, group: Some(group) });
            }
        }
        None
    }

    async fn write_back(&self, claim: Claim<'_>, waiting: Waiting, now_seconds: u32) -> Progress {
        let (mut buffer, mut changes) = self.read_group(claim.group(), waiting).await;
        let bucket_bytes = self.config.bucket_bytes as usize;
        for ((bytes, change), (id, waiters)) in
            buffer.chunks_exact_mut(bucket_bytes).zip(&mut changes).zip(claim.group().members())
        {
            self.apply(bytes, id, (waiters, claim.group().write_number), now_seconds, change);
        }
        let (group, buffer) = (claim.begin(), Arc::new(buffer));
        let is_new = changes.iter().any(|change| change.must_be_written(self.journal.is_some()));
        let in_flight = is_new.then(|| self.start_write(group.first, Arc::clone(&buffer), waiting));
        let (outcome, failures) = (Outcome::Whole, None);
        WriteInFlight::of(self, Write { group, buffer, start: 0, changes, in_flight, outcome, failures })
            .end(waiting)
            .await
    }

    /// Reads the group's buckets, with the errors found. Buckets without content of this generation are read only between others.
    async fn read_group(&self, group: &Group, waiting: Waiting) -> (IoBuffer, Vec<Change>) {
        let mut changes: Vec<Change> =
            group.members().map(|(id, _)| Change::of(self.written.get(id))).collect();
        let whole = self.config.bucket_bytes as usize * group.frozen.len();
        if changes.iter().all(|change| !change.has_content) {
            return (IoBuffer::zeroed(whole), changes);
        }
        let request = Request::read(self.offset(group.first), whole);
        match waiting.start(&*self.device, request).await {
            Ok(buffer) => (buffer, changes),
            _ if changes.len() == 1 => {
                changes[0].unreadable();
                (IoBuffer::zeroed(whole), changes)
            }
            // A bad block must not lose the items of adjacent buckets.
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

    fn start_write(&self, first: BucketId, buffer: Arc<IoBuffer>, waiting: Waiting) -> Pending {
        let (data, placement) = (IoSlice::whole(buffer), self.placement);
        waiting.start(&*self.device, Request::Write { offset: self.offset(first), data, placement })
    }

    /// Applies all pending entries to a bucket: `bytes` hold the old content before the call and the new, sealed one after it.
    fn apply(
        &self,
        bytes: &mut [u8],
        id: BucketId,
        (waiters, write_number): (&[Waiter], u64),
        now_seconds: u32,
        change: &mut Change,
    ) {
        if change.has_content
            && let Err(why) = Bucket::open(bytes, self.identity(id))
        {
            change.has_content = false;
            change.unusable = Some(why);
        }
        let generation = self.config.generation;
        let mut bucket = match (change.has_content, self.journal.is_some()) {
            (true, _) => BucketMut::verified(bytes),
            (false, false) => BucketMut::empty(bytes, generation),
            (false, true) => BucketMut::empty_numbered(bytes, generation),
        };
        if self.journal.is_some() {
            bucket.set_write_number(write_number);
        }
        change.items_before = bucket.view().entries().count();
        let wanted =
            ReportedRemovals { evictions: self.on_eviction.is_some(), all: self.on_destructor.is_some() };
        change.left = wanted.expired(&bucket.view(), now_seconds, waiters);
        change.expired = bucket.remove_expired(now_seconds);
        change.is_changed = change.expired > 0;
        for (number, waiter) in waiters.iter().enumerate() {
            change.settle(&mut bucket, waiter, &waiters[number + 1..], now_seconds, wanted);
        }
        change.items_after = bucket.view().entries().count();
        bucket.seal(id);
    }
}

impl Soc {
    /// Whether a caller waits until no entry is pending. Failed writes are then not retried.
    pub(super) fn is_settling(&self) -> bool {
        self.settling.load(Ordering::Acquire) > 0
    }

    /// Whether a held write can be retried now.
    pub(super) fn has_due_retry(&self) -> bool {
        self.held.next_due_ns().is_some_and(|due_ns| self.is_retry_due(due_ns))
    }

    /// While the device fails, its pause determines the time of the next retry.
    fn is_retry_due(&self, due_ns: u64) -> bool {
        self.is_settling()
            || if self.is_failing() { !self.pauses.is_pause() } else { self.pauses.is_over(due_ns) }
    }

    /// Retries the held writes that are due: one while the device fails, otherwise all.
    pub(super) fn take_held(&self, waiting: Waiting) -> impl Iterator<Item = WriteInFlight<'_>> {
        let most = if self.is_failing() && !self.is_settling() { 1 } else { usize::MAX };
        let writes = self.held.take(most, |due_ns| self.is_retry_due(due_ns));
        writes.into_iter().map(move |mut write| {
            write.retry(self, waiting);
            WriteInFlight::of(self, write)
        })
    }
}

/// A group taken from the pending table. Returned when dropped, unless its write has begun.
pub(super) struct Claim<'soc> {
    soc: &'soc Soc,
    group: Option<Group>,
}

impl Claim<'_> {
    fn group(&self) -> &Group {
        self.group.as_ref().expect("present until its write begins")
    }

    /// Starts the write and releases the group from the claim.
    fn begin(mut self) -> Group {
        self.group.take().expect("its write begins once")
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Some(group) = self.group.take() else { return };
        let put_back = |(id, _)| self.soc.shard(id).lock().put_back(id);
        let freed = group.members().map(put_back).sum();
        self.soc.give_back(freed);
        self.soc.announce_work();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::MemoryDevice;
    use pollster::block_on;

    use super::*;
    use crate::KeyHash;
    use crate::flash::FlashItem;
    use crate::flash::soc::SocConfig;

    /// A small filter is often wrong. The removal of an absent key must not write its bucket.
    #[test]
    fn removal_of_an_absent_key_writes_no_bucket() {
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

    /// Catches a regression: a step that is dropped between taking its buckets and submitting the write never returns them.
    #[test]
    fn bucket_taken_without_a_write_stays_pending() {
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
