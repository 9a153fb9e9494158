//! The steps of a get, an insert and a remove. Each result is emitted as an event ([`crate::event`]).
//!
//! **get**: hash the key once → DRAM → the key's lock, under which one caller becomes the fetcher → flash → copy to DRAM, unless the key
//! changed in the meantime. **insert**: DRAM evicts if necessary, and each victim is offered to flash; then, under the key's lock, the new
//! item replaces the old one, and flash drops its copy. **remove**: the same without a new item.
//!
//! Two races could return an old value. [`crate::in_flight`] prevents a promotion that completes after a newer write. For a flash write in
//! progress while its key is removed, the engines look up pending items before the device.
//!
//! Each call has an async and a blocking form of the same code: the blocking one performs the transfers on its own thread
//! ([`Waiting::Thread`]).

use std::cell::Cell;
use std::sync::{Arc, Weak};

use device::{Clock, event_loop};

use crate::bounded::RemoveOnDrop;
use crate::close::Closing;
use crate::config::{Removal, RemoveCallback};
use crate::counters::Counters;
use crate::dram::{AllocateError, Cursor, Discard, Dram, Handle, PoolId};
use crate::error::{Inserted, Refusal};
use crate::event::{EventKind, Events};
use crate::flash::tier::{Crossing, FlashTier};
use crate::flash::{FlashItem, Waiting, chain, region, tag};
use crate::in_flight::InFlight;
use crate::item::{Item, Layer};
use crate::listener::{CaughtPanic, Destructor, Listener};
use crate::new_item::{InsertOptions, NewItem};
use crate::prefix_removals::PrefixRemovals;
use crate::spawner::Spawner;
use crate::stats::{GetStats, Stats};
use crate::stop::Stop;
use crate::upkeep::Upkeep;
use crate::{Cache, KeyHash, coop};

impl Cache {
    /// Returns the item under `key`. A DRAM hit neither waits nor allocates. The item is pinned until it is dropped, which reduces the
    /// memory for others: copy a value that is kept for long.
    pub async fn get(&self, key: &[u8]) -> Option<Item<'_>> {
        self.engine.get(key, Waiting::Task).await
    }

    /// As [`get`](Self::get), on this thread.
    #[must_use]
    pub fn get_blocking(&self, key: &[u8]) -> Option<Item<'_>> {
        let (hash, engine) = (self.engine.hash_of(key), &self.engine);
        let Some(handle) = engine.dram.get(key, hash) else { return engine.get_beyond_dram(key, hash) };
        if engine.events.is_some() {
            return engine.emit_hit(key, hash, handle);
        }
        Some(Item::in_dram(handle, Layer::Dram))
    }

    /// Allocates an item of `value_len` bytes. It stays invisible until `insert_new`; dropping it discards it. The value holds arbitrary
    /// bytes, not zeros. Waits while flash writes are behind.
    ///
    /// # Errors
    /// A [`Refusal`] if the item cannot be allocated; the cache is unchanged.
    pub async fn allocate(
        &self,
        key: &[u8],
        value_len: usize,
        options: impl Into<InsertOptions>,
    ) -> Result<NewItem<'_>, Refusal> {
        self.engine.allocate(key, value_len, options.into()).await
    }

    /// As [`allocate`](Self::allocate), on this thread.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn allocate_blocking(
        &self,
        key: &[u8],
        value_len: usize,
        options: impl Into<InsertOptions>,
    ) -> Result<NewItem<'_>, Refusal> {
        self.engine.allocate_blocking(key, value_len, options.into())
    }

    /// Makes a new item visible in place of the key's old one.
    ///
    /// # Panics
    /// If the item was allocated by another cache.
    pub fn insert_new(&self, item: NewItem<'_>) {
        self.engine.insert(item);
    }

    /// Makes a new item visible unless DRAM holds one under its key; returns whether it did. A copy on flash only does not count, and is
    /// replaced.
    ///
    /// # Panics
    /// If the item was allocated by another cache.
    #[must_use]
    pub fn insert_new_if_absent(&self, item: NewItem<'_>) -> bool {
        self.engine.insert_if_absent(item)
    }

    /// Stores `value` under `key`. Both are bytes of any length: the key up to [65,535](crate::dram::MAX_KEY_BYTES), and both together up
    /// to the [largest item](crate::Builder::max_item_bytes). Waits while flash writes are behind. If the future is dropped while it
    /// waits, the old value is removed, as by a refused insert.
    pub async fn insert(&self, key: &[u8], value: &[u8], options: impl Into<InsertOptions>) -> Inserted {
        let cancelled = RemoveOnDrop::new(&self.engine, key);
        let room = self.allocate(key, value.len(), options).await;
        cancelled.disarm();
        self.fill(room, key, value)
    }

    /// As [`insert`](Self::insert), on this thread.
    pub fn insert_blocking(&self, key: &[u8], value: &[u8], options: impl Into<InsertOptions>) -> Inserted {
        self.insert_with(key, value, options.into())
    }

    /// A function without type parameters, so that not every caller has its own copy of all steps of an insert.
    fn insert_with(&self, key: &[u8], value: &[u8], options: InsertOptions) -> Inserted {
        self.fill(self.engine.allocate_blocking(key, value.len(), options), key, value)
    }

    /// Inlined, as are the functions that receive the item: if the item is moved through memory in chunks of other sizes than it is read,
    /// the read stalls until all earlier writes complete, including that of the value to memory outside the CPU caches.
    #[inline]
    pub(crate) fn fill(&self, room: Result<NewItem<'_>, Refusal>, key: &[u8], value: &[u8]) -> Inserted {
        match room {
            Ok(mut item) => {
                item.copy_from_slice(value);
                self.engine.insert(item);
                Inserted::Stored
            }
            Err(refusal) => {
                // The caller means to replace the old value, so it must not remain.
                self.engine.remove(key);
                Inserted::Rejected(refusal)
            }
        }
    }

    /// Removes `key`; returns whether it may have existed (certain for DRAM; for flash as reported by a filter).
    ///
    /// It never waits. For a small key on flash it keeps a record in memory, beyond the memory budget if necessary, until the key's bucket
    /// is written: after each few million removes in a row, await [`settle`](Self::settle).
    pub fn remove(&self, key: &[u8]) -> bool {
        self.engine.remove(key)
    }

    /// The hash of `key` in this cache, as passed to [`EventSink::wants`](crate::event::EventSink::wants) and the admission policy.
    #[must_use]
    pub fn key_hash(&self, key: &[u8]) -> KeyHash {
        self.engine.hash_of(key)
    }

    /// Whether a get would probably find `key`; `false` is certain. Does not read flash.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let hash = self.engine.hash_of(key);
        self.engine.dram.peek(key, hash).is_some() || self.engine.may_be_on_flash(key, hash)
    }

    /// Calls `visit` with the keys of all items in DRAM, in no order. No lock is held while it runs, so it may get, insert and remove.
    /// A key that is inserted, removed or moved concurrently is visited once or never; any other is visited once. Expired items are
    /// skipped. Keys of items on flash only are not visited.
    pub fn for_each_key_in_dram(&self, mut visit: impl FnMut(&[u8])) {
        let mut next = Some(Cursor::default());
        while let Some(from) = next {
            next = self.scan_dram(from, |key, _value| visit(key));
        }
    }

    /// As [`for_each_key_in_dram`](Self::for_each_key_in_dram), with values, and some items at a time: visits items after `from`, and
    /// returns where to continue, or `None` at the end. The items of one call are pinned during it, so a long scan should pause between
    /// calls. It does not count as a use of the items.
    pub fn scan_dram(&self, from: Cursor, mut visit: impl FnMut(&[u8], &[u8])) -> Option<Cursor> {
        self.engine.dram.scan(from, 1, &mut |item| visit(item.key(), item.value()))
    }
}

/// The tiers, and the state that connects them. Starts no threads.
pub(crate) struct Engine {
    /// This engine, for tasks that outlive the call that starts them.
    pub(crate) me: Weak<Self>,
    /// Whether the cache closes.
    pub(crate) stop: Arc<Stop>,
    /// Runs fetches that no caller drives.
    pub(crate) spawner: Spawner,
    pub(crate) dram: Dram,
    pub(crate) flash: Option<FlashTier>,
    /// Whether nothing receives the items that DRAM evicts: no flash, callback or event sink.
    pub(crate) discards_victims: bool,
    /// Running reads of flash.
    pub(crate) in_flight: InFlight,
    /// Running fetches of callers.
    pub(crate) loads: InFlight,
    pub(crate) counters: Counters,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) upkeep: Upkeep,
    pub(crate) pools: usize,
    /// Prefixes whose keys are being removed.
    pub(crate) removals: PrefixRemovals,
    pub(crate) on_remove: Option<RemoveCallback>,
    pub(crate) on_evict: Option<Listener>,
    /// Called once for each item that leaves the cache.
    pub(crate) destructor: Option<Destructor>,
    pub(crate) events: Option<Arc<Events>>,
    pub(crate) closing: Closing,
    /// Whether async operations yield periodically. Not in a simulation, where the count per thread would change the run.
    pub(crate) yields: bool,
}

impl Engine {
    #[inline]
    pub(crate) fn hash_of(&self, key: &[u8]) -> KeyHash {
        self.dram.hash_of(key)
    }

    pub(crate) async fn get(&self, key: &[u8], waiting: Waiting) -> Option<Item<'_>> {
        let hash = self.hash_of(key);
        let found = self.find(key, hash, waiting).await;
        if found.is_none() {
            self.missed(key, hash);
        }
        found
    }

    /// Counts and emits a hit. A miss is left to [`missed`](Self::missed), because the caller may look up the key again.
    #[inline]
    pub(crate) async fn find(&self, key: &[u8], hash: KeyHash, waiting: Waiting) -> Option<Item<'_>> {
        if self.yields && waiting == Waiting::Task {
            coop::spend().await;
        }
        let found = match self.dram.get(key, hash) {
            // Counted by DRAM.
            Some(handle) => Some(Item::in_dram(handle, Layer::Dram)),
            None if self.flash.is_none() => None,
            None => self.find_on_flash(key, hash, waiting).await,
        };
        if let Some(events) = self.events.as_ref().filter(|_| found.is_some()) {
            events.got(key, hash, found.as_ref());
        }
        found
    }

    /// The part of a blocking get after a DRAM hit, if there is an event sink. A separate function, so that the common case writes its
    /// result once.
    #[inline(never)]
    fn emit_hit<'a>(&self, key: &[u8], hash: KeyHash, handle: Handle<'a>) -> Option<Item<'a>> {
        let found = Some(Item::in_dram(handle, Layer::Dram));
        if let Some(events) = &self.events {
            events.got(key, hash, found.as_ref());
        }
        found
    }

    /// The part of a blocking get after a DRAM miss. A separate function, so that a DRAM hit needs no stack frame for it.
    #[inline(never)]
    fn get_beyond_dram(&self, key: &[u8], hash: KeyHash) -> Option<Item<'_>> {
        let on_flash = || event_loop::wait_for(self.find_on_flash(key, hash, Waiting::Thread));
        let found = if self.flash.is_some() { on_flash() } else { None };
        if found.is_none() {
            self.counters.miss();
        }
        if let Some(events) = &self.events {
            events.got(key, hash, found.as_ref());
        }
        found
    }

    /// Counts a miss.
    pub(crate) fn missed(&self, key: &[u8], hash: KeyHash) {
        self.counters.miss();
        if let Some(events) = &self.events {
            events.got(key, hash, None);
        }
    }

    /// After a DRAM miss: whether a get may still find the key, on flash or on its way to or from there.
    fn may_be_on_flash(&self, key: &[u8], hash: KeyHash) -> bool {
        let Some(flash) = &self.flash else { return false };
        let lock = self.dram.lock(hash);
        lock.find(key).is_some() || self.in_flight.find(hash).is_some() || flash.may_contain(hash, key)
    }
}

/// The item's own value, without its chained items, from the single piece that flash stores.
pub(crate) fn own_value<'a>(item: &FlashItem<'a>) -> &'a [u8] {
    let whole = item.value[0];
    let parent = if tag::is_chained(item.tag) { chain::pieces(whole) } else { None };
    let own = parent.and_then(|pieces| pieces.into_iter().next()).unwrap_or(0..whole.len());
    &whole[own]
}

impl Engine {
    pub(crate) async fn allocate(
        &self,
        key: &[u8],
        value_len: usize,
        options: InsertOptions,
    ) -> Result<NewItem<'_>, Refusal> {
        if self.yields {
            coop::spend().await;
        }
        loop {
            if let Some(item) = self.allocate_now(key, value_len, options)? {
                return Ok(item);
            }
            if let Some(flash) = &self.flash {
                flash.wait_ready().await;
            }
        }
    }

    /// As [`allocate`](Self::allocate), on this thread. Inlined into an insert, as is the allocation in DRAM: the item stays in registers.
    #[inline]
    fn allocate_blocking(
        &self,
        key: &[u8],
        value_len: usize,
        options: InsertOptions,
    ) -> Result<NewItem<'_>, Refusal> {
        // Memory is nearly always available, and then no future or waker is created.
        match self.allocate_now(key, value_len, options)? {
            Some(item) => Ok(item),
            None => self.allocate_waiting(key, value_len, options),
        }
    }

    #[cold]
    fn allocate_waiting(
        &self,
        key: &[u8],
        value_len: usize,
        options: InsertOptions,
    ) -> Result<NewItem<'_>, Refusal> {
        event_loop::wait_for(self.allocate(key, value_len, options))
    }

    /// Allocates an item; `None` while flash writes are behind. A refusal ends the insert and is counted.
    #[inline]
    pub(crate) fn allocate_now(
        &self,
        key: &[u8],
        value_len: usize,
        options: InsertOptions,
    ) -> Result<Option<NewItem<'_>>, Refusal> {
        self.try_allocate(key, value_len, options).map_err(|refusal| self.refused(key, refusal))
    }

    /// Counts a refused insert and emits its event.
    #[cold]
    pub(crate) fn refused(&self, key: &[u8], refusal: Refusal) -> Refusal {
        self.counters.rejected(refusal);
        self.emit(EventKind::Refused(refusal), key, self.hash_of(key));
        refusal
    }

    #[inline]
    fn try_allocate(
        &self,
        key: &[u8],
        value_len: usize,
        options: InsertOptions,
    ) -> Result<Option<NewItem<'_>>, Refusal> {
        self.assert_not_in_callback("insert an item into");
        if self.closing.has_begun() {
            return Err(Refusal::Closed);
        }
        if usize::from(options.pool) >= self.pools {
            return Err(Refusal::NoSuchPool(options.pool));
        }
        let hash = self.hash_of(key);
        let expiry_seconds = self.expiry_seconds(options.ttl_seconds);
        let pool = PoolId(options.pool);
        let room = if self.discards_victims {
            self.dram.allocate(pool, key, hash, value_len, expiry_seconds, &Discard)
        } else {
            let crossing = self.crossing();
            let room = self.dram.allocate(pool, key, hash, value_len, expiry_seconds, &crossing);
            crossing.caught_panic.resume();
            room
        };
        match room {
            Ok(draft) => Ok(Some(NewItem { draft: draft.tagged(self.tag_of(options.ttl_seconds)) })),
            Err(AllocateError::Busy) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    #[inline]
    fn insert(&self, item: NewItem<'_>) {
        self.insert_unless(item, || false);
    }

    /// Makes a new item visible, unless `too_late` returns true under the key's lock.
    #[inline(always)]
    pub(crate) fn insert_unless(&self, item: NewItem<'_>, too_late: impl FnOnce() -> bool) {
        let (hash, info) = (item.hash(), self.info_of(&item));
        let mut lock = self.dram.lock(hash);
        if too_late() {
            drop(lock);
            self.counters.overtaken();
            return self.emit_new_item(EventKind::Overtaken, info);
        }
        let destructor_reason = self.destructor_reason(&lock, item.draft.key(), Removal::Replaced);
        self.displace(hash, item.draft.key(), destructor_reason);
        let replaced = lock.link(item.draft);
        drop(lock);
        self.acknowledge();
        self.counters.stored();
        let kind = if replaced.is_some() { EventKind::Replaced } else { EventKind::Inserted };
        self.emit_new_item(kind, info);
        self.left(replaced, Removal::Replaced);
    }

    fn insert_if_absent(&self, item: NewItem<'_>) -> bool {
        let (hash, info) = (item.hash(), self.info_of(&item));
        let mut lock = self.dram.lock(hash);
        if lock.find(item.draft.key()).is_some() {
            drop(lock);
            self.counters.present();
            self.emit_new_item(EventKind::Present, info);
            return false;
        }
        let destructor_reason = self.destructor_reason(&lock, item.draft.key(), Removal::Replaced);
        self.displace(hash, item.draft.key(), destructor_reason);
        let expired = lock.link(item.draft);
        drop(lock);
        self.acknowledge();
        self.counters.stored();
        self.emit_new_item(EventKind::Inserted, info);
        self.destroy(expired.as_ref(), Removal::Expired);
        true
    }

    pub(crate) fn remove(&self, key: &[u8]) -> bool {
        let hash = self.hash_of(key);
        let mut lock = self.dram.lock(hash);
        let destructor_reason = self.destructor_reason(&lock, key, Removal::Removed);
        let on_flash = self.displace(hash, key, destructor_reason);
        let unlinked = lock.unlink(key);
        drop(lock);
        self.acknowledge();
        let was_in_dram = unlinked.is_some();
        if let Some(events) = &self.events {
            events.removed(key, hash, unlinked.as_ref(), on_flash);
        }
        self.left(unlinked, Removal::Removed);
        was_in_dram || on_flash
    }

    /// Calls the callbacks, and drops the item outside of any lock.
    #[inline]
    fn left(&self, item: Option<Handle<'_>>, why: Removal) {
        if item.is_some() || self.destructor.is_some() {
            self.end_left(item, why);
        }
    }

    #[inline(never)]
    fn end_left(&self, item: Option<Handle<'_>>, why: Removal) {
        self.destroy(item.as_ref(), why);
        if let (Some(item), Some(callback)) = (item, &self.on_remove) {
            callback(item.key(), &item, why);
        }
    }

    /// Whether this thread is in the `on_evict` callback, the destructor, or the event sink.
    #[inline]
    pub(crate) fn is_in_callback(&self) -> bool {
        !self.discards_victims && self.runs_callback()
    }

    fn runs_callback(&self) -> bool {
        self.on_evict.as_ref().is_some_and(Listener::is_running)
            || self.destructor.as_ref().is_some_and(Destructor::is_running)
            || self.events.as_ref().is_some_and(|events| events.is_running())
    }

    /// # Panics
    /// If this thread is in the `on_evict` callback, the destructor, or the event sink, where the operation could wait for itself.
    #[inline]
    pub(crate) fn assert_not_in_callback(&self, operation: &str) {
        if self.is_in_callback() {
            self.refuse_in_callback(operation);
        }
    }

    #[cold]
    fn refuse_in_callback(&self, operation: &str) -> ! {
        let in_sink = self.events.as_ref().is_some_and(|events| events.is_running());
        let in_destructor = self.destructor.as_ref().is_some_and(Destructor::is_running);
        let callback = match (in_sink, in_destructor) {
            (true, _) => "a sink of events",
            (_, true) => "item_destructor",
            _ => "on_evict",
        };
        panic!("{callback} must not {operation} the cache that calls it; do it from another thread");
    }

    /// The spill for items that DRAM evicts.
    pub(crate) fn crossing(&self) -> Crossing<'_> {
        let caught_panic = CaughtPanic::default();
        let (on_evict, events) = (self.on_evict.as_ref(), self.events.as_deref());
        let (destructor, is_destroyed) = (self.destructor.as_ref(), Cell::new(false));
        Crossing { flash: self.flash.as_ref(), on_evict, destructor, is_destroyed, events, caught_panic }
    }

    /// Makes the copy on flash unreachable and cancels fetches of the key. Called under the key's lock. `destructor_reason` is the
    /// reason to call the destructor for the copy on flash, `None` for no call.
    #[inline]
    pub(crate) fn displace(&self, hash: KeyHash, key: &[u8], destructor_reason: Option<Removal>) -> bool {
        self.loads.overtake(hash);
        match &self.flash {
            Some(flash) => self.displace_on(flash, hash, key, destructor_reason),
            None => false,
        }
    }

    fn displace_on(
        &self,
        flash: &FlashTier,
        hash: KeyHash,
        key: &[u8],
        destructor_reason: Option<Removal>,
    ) -> bool {
        self.closing.note_removal();
        self.in_flight.overtake(hash);
        // The filter may no longer contain an item that was evicted from its bucket, but whose destructor was not called yet.
        (self.destructor.is_some() || flash.may_contain(hash, key))
            && flash.forget(hash, key, destructor_reason)
    }

    /// Waits until the removals of copies on flash so far are recorded for recovery after a kill, if they are to be. No key is locked.
    #[inline]
    pub(crate) fn acknowledge(&self) {
        if let Some(flash) = &self.flash {
            flash.acknowledge();
        }
    }

    /// Executes one step of each kind of background work that is due; returns whether there was any for flash.
    pub(crate) async fn step(&self, waiting: Waiting) -> bool {
        self.upkeep_step();
        let Some(flash) = &self.flash else { return false };
        let mut worked = false;
        for pair in &flash.pairs {
            if let Some(regions) = &pair.regions {
                worked |= regions.step(waiting).await != region::Progress::Idle;
            }
            if let Some(soc) = &pair.soc
                && soc.wants_step()
            {
                // Pending items may be handled by another step, and then this one has nothing to do.
                worked |= !soc.step(waiting, self.clock.unix_seconds()).await.idle();
            }
        }
        worked
    }
}

impl Engine {
    /// Hits of the first DRAM lookup are counted by DRAM, those of the second, under the key's lock, by the engine. A get counts once.
    fn gets(&self) -> GetStats {
        let mut gets = self.counters.snapshot();
        gets.hits_dram += self.dram.hits();
        gets
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            gets: self.gets(),
            inserts: self.counters.inserts(),
            chained: self.counters.chains(),
            pools: self.dram.stats(),
            dram_memory: self.dram.memory(),
            flash: self.flash.as_ref().map(FlashTier::stats),
            upkeep: self.upkeep.stats(),
        }
    }
}
