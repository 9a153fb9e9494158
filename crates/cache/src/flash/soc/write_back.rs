//! The background step: reads, changes and writes buckets with pending entries, adjacent ones together.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{IoBuffer, IoSlice, Pending, Request};
use futures_util::future::Either;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::bucket::{self, Bucket, BucketId, BucketMut, Entry, Fingerprint, NewEntry, Unusable};
use super::held;
use super::landing::{Outcome, Write, WriteInFlight};
use super::leaving::{LeavingState, ReportedRemovals};
use super::pending::{Group, Waiter};
use super::settle::Settling;
use super::{Soc, SocStats};
use crate::config::Removal;
use crate::flash::Waiting;

/// The result of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Buckets settled, those of failed writes included.
    pub buckets: usize,
    /// Items and tombstones that are no longer pending.
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
            || self.has_held_due()
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
        let is_new = changes.iter().any(|change| change.must_be_written(self));
        let under_way = is_new.then(|| self.start_write(group.first, Arc::clone(&buffer), waiting));
        let (outcome, failures) = (Outcome::Whole, None);
        WriteInFlight::of(self, Write { group, buffer, start: 0, changes, under_way, outcome, failures })
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

/// The changes to one bucket of a group.
#[derive(Default)]
pub struct Change {
    has_content: bool,
    read_failed: bool,
    unusable: Option<Unusable>,
    /// Whether its items have changed.
    is_changed: bool,
    pub items_before: usize,
    pub items_after: usize,
    evicted: u32,
    expired: u32,
    /// The items that are no longer in the bucket and must be reported.
    pub left: Vec<Left>,
}

/// An item that is no longer in its bucket.
pub struct Left {
    pub fingerprint: Fingerprint,
    pub expiry_seconds: u32,
    pub tag: u16,
    pub key: Box<[u8]>,
    pub value: Box<[u8]>,
    /// The reason for its destructor call; `None` if it was evicted or expired.
    pub destructor_reason: Option<Removal>,
}

impl Left {
    pub fn of(entry: &Entry<'_>, destructor_reason: Option<Removal>) -> Self {
        let Entry { fingerprint, expiry_seconds, tag, key, value, .. } = *entry;
        Self { fingerprint, expiry_seconds, tag, key: key.into(), value: value.into(), destructor_reason }
    }

    /// The pending item; `None` for a tombstone.
    pub fn of_waiter(waiter: &Waiter) -> Option<Self> {
        let (key, value) = waiter.bytes.as_ref()?.split_at(usize::from(waiter.key_len));
        let Waiter { fingerprint, expiry_seconds, tag, .. } = *waiter;
        Some(Self {
            fingerprint,
            expiry_seconds,
            tag,
            key: key.into(),
            value: value.into(),
            destructor_reason: None,
        })
    }
}

impl Change {
    fn of(has_content: bool) -> Self {
        Self { has_content, ..Self::default() }
    }

    /// Whether flash must get the new content.
    ///
    /// A bucket whose content does not change, because the filter had a false positive for the removed key, is on flash already. One that
    /// becomes empty is marked in memory as never written; with a journal it is written, because a recovery reads flash.
    pub fn must_be_written(&self, soc: &Soc) -> bool {
        if self.items_after > 0 {
            return self.is_changed;
        }
        let had_content = self.items_before > 0 || self.read_failed || self.unusable.is_some();
        soc.journal.is_some() && had_content
    }

    /// Records a concurrent clear: the bucket counts as empty.
    pub fn clear(&mut self) {
        let Self { has_content, read_failed, unusable, .. } = *self;
        let left = std::mem::take(&mut self.left);
        *self = Self { has_content, read_failed, unusable, left, ..Self::default() };
        self.keep_pending_destructors();
    }

    /// Keeps only the items whose destructors must be called.
    pub fn keep_pending_destructors(&mut self) {
        self.left.retain(|left| left.destructor_reason.is_some());
    }

    fn unreadable(&mut self) {
        self.has_content = false;
        self.read_failed = true;
    }

    fn settle(
        &mut self,
        bucket: &mut BucketMut<'_>,
        waiter: &Waiter,
        later: &[Waiter],
        now_seconds: u32,
        wanted: ReportedRemovals,
    ) {
        let Some(bytes) = &waiter.bytes else {
            if let Some(why) = waiter.destructor_reason() {
                let view = bucket.view();
                let removed = view.entries().filter(|entry| entry.fingerprint == waiter.fingerprint);
                self.left.extend(removed.map(|entry| Left::of(&entry, Some(why))));
            }
            self.is_changed |= bucket.remove(waiter.fingerprint, None) > 0;
            return;
        };
        let (key, value) = bytes.split_at(usize::from(waiter.key_len));
        self.is_changed |= bucket.remove(waiter.fingerprint, Some(key)) > 0;
        if bucket::expired(waiter.expiry_seconds, now_seconds) {
            self.expired += 1;
            if wanted.all && LeavingState::among(later, waiter.fingerprint) == LeavingState::Leaves {
                self.left.extend(Left::of_waiter(waiter));
            }
            return;
        }
        let Waiter { fingerprint, expiry_seconds, tag, .. } = *waiter;
        let new = NewEntry { fingerprint, expiry_seconds, tag, key, value };
        self.is_changed = true;
        self.evicted += bucket.insert(&new, |entry| self.left.extend(wanted.left(entry, later)));
    }

    pub fn count(&self, stats: &mut SocStats) {
        stats.read_errors += u64::from(self.read_failed);
        if let Some(why) = self.unusable {
            stats.count_unusable(why);
        }
        stats.evictions += u64::from(self.evicted);
        stats.evictions_expired += u64::from(self.expired);
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

impl Group {
    pub(super) fn members(&self) -> impl Iterator<Item = (BucketId, &[Waiter])> {
        (self.first.0..).map(BucketId).zip(self.frozen.iter().map(|waiters| waiters.as_slice()))
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
