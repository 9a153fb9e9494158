//! Removal of an item, and the removed items whose destructors are still to be called.
//!
//! A destructor needs the item's value, and `forget` must not wait for the device. So `forget` records the address, and background work
//! reads the item and calls the destructor. The bytes are not overwritten before that: a reclaim first reads the recorded items of its
//! region.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use event_listener::Event;
use parking_lot::Mutex;

use crate::KeyHash;
use crate::config::Removal;
use crate::flash::{DestructorCallback, FlashItem, Waiting};

use super::entry::{Entry, Seal};
use super::index::Found;
use super::layout::{Address, SizeHint};
use super::stats::Counters;
use super::store::{Content, RegionStore};

/// The recorded items, by address.
#[derive(Default)]
pub(super) struct PendingDestructors {
    noted: Mutex<BTreeMap<Address, PendingDestructor>>,
    /// Destructors that are running.
    running: AtomicUsize,
    /// Notified when an item's destructor has run.
    served: Event,
}

#[derive(Clone, Copy)]
struct PendingDestructor {
    hash: KeyHash,
    size: SizeHint,
    why: Removal,
}

impl PendingDestructors {
    /// Records the item that `take_out` removes from the index, if it does. Under one lock: a reclaim that no longer finds the item in
    /// the index finds it here.
    pub(super) fn add(
        &self,
        hash: KeyHash,
        why: Removal,
        take_out: impl FnOnce() -> Option<Found>,
    ) -> Option<Found> {
        let mut noted = self.noted.lock();
        let found = take_out()?;
        noted.insert(found.address, PendingDestructor { hash, size: found.size, why });
        Some(found)
    }

    pub(super) fn is_any(&self) -> bool {
        !self.noted.lock().is_empty()
    }

    fn first_in(&self, addresses: &Range<Address>) -> Option<(Address, PendingDestructor)> {
        self.noted.lock().range(addresses.clone()).next().map(|(address, pending)| (*address, *pending))
    }

    /// Takes the item off the list; `None` if another thread did. The result counts as a running destructor until it is dropped.
    fn take(&self, address: Address) -> Option<Running<'_>> {
        let mut noted = self.noted.lock();
        noted.remove(&address)?;
        self.running.fetch_add(1, Ordering::AcqRel);
        Some(Running(self))
    }
}

struct Running<'a>(&'a PendingDestructors);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
        self.0.served.notify(usize::MAX);
    }
}

impl RegionStore {
    /// Calls `on_destructor` with each item that is [forgotten for a reason](Self::forget_with_destructor).
    #[must_use]
    pub fn with_destructor(mut self, on_destructor: DestructorCallback) -> Self {
        self.on_destructor = Some(on_destructor);
        self
    }

    /// Removes an item. Returns whether there was one. Called under the key's lock.
    pub fn forget(&self, hash: KeyHash) -> bool {
        self.forget_with_destructor(hash, None)
    }

    /// As [`forget`](Self::forget). With a `reason`, the item's destructor must be called: a later [`step`](Self::step)
    /// reads the item and calls the callback of [`with_destructor`](Self::with_destructor).
    pub fn forget_with_destructor(&self, hash: KeyHash, reason: Option<Removal>) -> bool {
        // Most removed keys are not in this store; this check avoids the policy's lock for them.
        if self.index.get(hash).is_none() {
            return false;
        }
        let take_out = || self.take_out(|index| index.remove(hash));
        let found = match reason.filter(|_| self.on_destructor.is_some()) {
            Some(why) => self.pending_destructors.add(hash, why, take_out),
            None => take_out(),
        };
        if reason.is_some() && found.is_some() {
            self.supply.work.notify(usize::MAX);
        }
        if let Some(found) = found {
            Counters::one(&self.counters.forgotten);
            self.record_removal(found.address);
        }
        found.is_some()
    }

    /// Reads one recorded item and calls its destructor; `false` if there is none.
    pub(super) async fn destroy_one(&self, waiting: Waiting) -> bool {
        let Some((address, pending)) = self.pending_destructors.first_in(&EVERYWHERE) else { return false };
        self.destroy(address, pending, waiting).await;
        true
    }

    /// Calls the destructors of all recorded items in a range of addresses.
    pub(super) async fn destroy_pending_in(&self, addresses: &Range<Address>, waiting: Waiting) {
        while let Some((address, pending)) = self.pending_destructors.first_in(addresses) {
            self.destroy(address, pending, waiting).await;
        }
    }

    /// Calls all pending destructors and waits for those that other threads run.
    pub(crate) async fn destroy_all(&self, waiting: Waiting) {
        loop {
            self.destroy_pending_in(&EVERYWHERE, waiting).await;
            let served = self.pending_destructors.served.listen();
            if self.pending_destructors.running.load(Ordering::Acquire) == 0 {
                return;
            }
            served.await;
        }
    }

    async fn destroy(&self, address: Address, pending: PendingDestructor, waiting: Waiting) {
        let entry = self.read_pending(address, pending, waiting).await;
        let Some(_running) = self.pending_destructors.take(address) else { return };
        let decoded = entry.as_ref().and_then(|(bytes, seal)| {
            let entry = Entry::decode(bytes, *seal).ok()?;
            entry.verify_value(bytes).ok()?;
            Some((bytes, entry))
        });
        let (Some((bytes, entry)), Some(on_destructor)) = (decoded, &self.on_destructor) else {
            return Counters::one(&self.counters.items_lost);
        };
        let item = FlashItem {
            key: &bytes[entry.key],
            hash: entry.hash,
            value: &[&bytes[entry.value]],
            expiry_seconds: entry.expiry_seconds,
            tag: entry.tag,
        };
        on_destructor(&item, pending.why);
    }

    /// The bytes from the item's entry on, and the [`Seal`] of their region's filling; `None` if they cannot be read.
    async fn read_pending(
        &self,
        address: Address,
        pending: PendingDestructor,
        waiting: Waiting,
    ) -> Option<(Vec<u8>, Seal)> {
        let (region, unit) = self.layout.place(address);
        let in_memory = match &*self.region(region).content.lock() {
            Content::Buffered(buffer) => Some(std::sync::Arc::clone(buffer)),
            _ => None,
        };
        if let Some(buffer) = in_memory
            && let Some(bytes) = buffer.entry(unit, pending.hash, <[u8]>::to_vec)
        {
            return Some((bytes, buffer.seal));
        }
        let Content::Flash { filling, .. } = self.region(region).content.lock().clone() else { return None };
        let unit_bytes = self.layout.unit_bytes as usize;
        let start = unit as usize * unit_bytes;
        let end = (start + pending.size.units() as usize * unit_bytes).min(self.layout.region_bytes as usize);
        let blocks = self.layout.covering_blocks(&(start..end));
        let read = self.read_blocks(region, blocks.clone(), waiting).await.ok()?;
        Some((read[start - blocks.start..].to_vec(), Seal::of(filling.store, filling.sequence)))
    }
}

const EVERYWHERE: Range<Address> = Address(0)..Address(u64::MAX);
