//! The flash tier: selects the engine for a key and an item, calls the admission policy, and moves items from DRAM so that an item is
//! always in at least one of the tiers.
//!
//! The key space may be split over several *pairs* of engines (CacheBench's arenas). Within a pair, small items go to the engine for small
//! items and the others to the regions.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::counters::CounterTable;
use device::{Clock, Device};
use policy::{Admission, Candidate};

use super::held_back::HeldBack;
use super::pair::Pair;
use super::puts::{PutEnd, PutStats, Puts};
use super::region::{self, Lookup, RegionStore};
use super::small::{SmallEngine, StagedSmall};
use super::soc;
use super::tag::{CHAINED, POOL_BITS};
use super::{FlashItem, FlashValue, Waiting, chain};
use crate::KeyHash;
use crate::config::{Destroyed, Partitions, Removal};
use crate::dram::{Spill, Stage, Victim};
use crate::error::CacheError;
use crate::event::{Event, EventKind, Events};
use crate::item::Layer;
use crate::listener::{CaughtPanic, Destructor, Listener};
use crate::stats::{FlashStats, PairStats};

/// Tag of an item in DRAM whose TTL is too short for flash.
const SHORT_LIVED: u16 = 1;

/// The flash tier.
pub(crate) struct FlashTier {
    pub(crate) pairs: Box<[Pair]>,
    partitions: Partitions,
    device: Arc<dyn Device>,
    admission: Arc<dyn Admission>,
    clock: Arc<dyn Clock>,
    small_item_max_bytes: usize,
    min_ttl_seconds: u32,
    held_back: HeldBack,
    puts: Puts,
}

/// An item that has been copied to an engine and waits to become visible there.
pub(crate) struct Staged<'a> {
    bytes: u64,
    engine: InEngine<'a>,
}

enum InEngine<'a> {
    Small(&'a SmallEngine, StagedSmall<'a>),
    Region(&'a RegionStore, region::Staged),
}

/// The engine for an item.
enum Engine<'a> {
    Small(&'a SmallEngine),
    Region(&'a RegionStore),
}

/// The components of a tier.
pub(crate) struct Parts {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) partitions: Partitions,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) small_item_max_bytes: usize,
    pub(crate) min_ttl_seconds: u32,
}

impl FlashTier {
    pub(crate) fn new(parts: Parts) -> Self {
        assert!(!parts.pairs.is_empty(), "a flash tier has engines");
        Self {
            pairs: parts.pairs.into(),
            partitions: parts.partitions,
            device: parts.device,
            admission: parts.admission,
            clock: parts.clock,
            small_item_max_bytes: parts.small_item_max_bytes,
            min_ttl_seconds: parts.min_ttl_seconds,
            held_back: HeldBack::new(),
            puts: Puts::default(),
        }
    }

    /// The tag in DRAM of an item with this TTL; `None` never expires.
    pub(crate) fn tag_of(&self, ttl_seconds: Option<u32>) -> u16 {
        if ttl_seconds.is_some_and(|ttl| ttl < self.min_ttl_seconds) { SHORT_LIVED } else { 0 }
    }

    fn pair_of(&self, hash: KeyHash, key: &[u8]) -> &Pair {
        &self.pairs[self.partitions.pair_of(hash, key)]
    }

    /// Whether the key may be on flash; `false` is certain.
    pub(crate) fn may_contain(&self, hash: KeyHash, key: &[u8]) -> bool {
        let pair = self.pair_of(hash, key);
        pair.regions.as_ref().is_some_and(|regions| regions.may_contain(hash))
            || pair.soc.as_ref().is_some_and(|soc| soc.may_contain(hash))
    }

    /// The engine for items of this size; `None` if no engine accepts it.
    fn engine_of(&self, hash: KeyHash, key: &[u8], value_bytes: usize) -> Option<Engine<'_>> {
        let pair = self.pair_of(hash, key);
        let bytes = key.len() + value_bytes;
        let is_small = bytes <= self.small_item_max_bytes || pair.regions.is_none();
        let soc = pair.soc.as_ref().filter(|soc| is_small && soc.fits(key.len(), value_bytes));
        let regions = || pair.regions.as_ref().filter(|regions| bytes <= regions.max_item_bytes());
        soc.map(Engine::Small).or_else(|| regions().map(Engine::Region))
    }

    /// Whether flash still has the copy from which a clean DRAM item was read. Only the engine for its size is searched: a large item can
    /// match a filter for small items by coincidence.
    fn has_copy_of(&self, victim: &Victim<'_>) -> bool {
        let value_bytes = chain::value_bytes(victim.value());
        match self.engine_of(victim.hash(), victim.key(), value_bytes) {
            Some(Engine::Small(soc)) => soc.may_contain(victim.hash()),
            Some(Engine::Region(regions)) => regions.may_contain(victim.hash()),
            None => false,
        }
    }

    /// Makes the key's copies unreachable. Called under the key's lock. With a `reason`, the destructor is called for the
    /// copy on flash.
    pub(crate) fn forget(&self, hash: KeyHash, key: &[u8], reason: Option<Removal>) -> bool {
        let pair = self.pair_of(hash, key);
        let in_regions = pair.regions.as_ref().is_some_and(|it| it.forget_with_destructor(hash, reason));
        let in_soc = pair.soc.as_ref().is_some_and(|soc| soc.forget_with_destructor(hash, key, reason));
        in_regions || in_soc
    }

    /// Waits until the journals contain all [removals](Self::forget) so far. Called before these are acknowledged, with
    /// no key locked.
    pub(crate) fn acknowledge(&self) {
        self.pairs.iter().for_each(Pair::acknowledge);
    }

    /// Calls the destructors of removed items that can be read without a write: those in memory, in regions and in logs.
    pub(crate) async fn destroy_forgotten(&self, waiting: Waiting) {
        for pair in &self.pairs {
            if let Some(small_items) = &pair.soc {
                small_items.destroy_removed(waiting).await;
            }
            if let Some(regions) = &pair.regions {
                regions.destroy_all(waiting).await;
            }
        }
    }

    /// Calls the destructors of items that were removed before they were written to flash. The caller holds no key's lock.
    pub(crate) fn destroy_dropped(&self) {
        self.pairs.iter().filter_map(|pair| pair.soc.as_ref()).for_each(SmallEngine::destroy_dropped);
    }

    /// Removes everything that was committed before the call, in short steps, one per item of the iterator. The caller must exhaust the
    /// iterator.
    pub(crate) fn clear_in_steps(&self) -> impl Iterator<Item = ()> {
        self.pairs.iter().flat_map(|pair| {
            let regions = pair.regions.iter().flat_map(RegionStore::clear_in_steps);
            regions.chain(pair.soc.iter().map(SmallEngine::clear))
        })
    }

    /// Reads the key's value.
    pub(crate) async fn read(&self, hash: KeyHash, key: &[u8], waiting: Waiting) -> Option<FlashValue> {
        let pair = self.pair_of(hash, key);
        if let Some(regions) = &pair.regions
            && let Lookup::Found(value) = regions.read(hash, key, waiting).await
        {
            return Some(value);
        }
        match &pair.soc {
            Some(soc) => soc.read(hash, key, waiting, self.clock.unix_seconds()).await,
            None => None,
        }
    }

    /// Wakes background work whose pause is over. Returns the nanoseconds until the next pause ends.
    pub(crate) fn wake_if_due(&self, now_ns: u64) -> u64 {
        let regions = self.pairs.iter().filter_map(|pair| pair.regions.as_ref()?.wake_if_due(now_ns));
        let buckets = self.pairs.iter().filter_map(|pair| pair.soc.as_ref()?.wake_if_due(now_ns));
        regions.chain(buckets.map(|due_ns| due_ns - now_ns)).min().unwrap_or(u64::MAX)
    }

    /// Waits until each engine had space for another item, or cannot have any soon. Another task may take the space first; the caller is
    /// then refused and waits again.
    pub(crate) async fn wait_ready(&self) {
        for pair in &self.pairs {
            if let Some(regions) = &pair.regions {
                regions.wait_ready().await;
            }
            if let Some(soc) = &pair.soc {
                soc.wait_ready(Waiting::Task).await;
            }
        }
    }

    /// Waits until the items that are pending now are written or dropped.
    pub(crate) async fn settle(&self) {
        for pair in &self.pairs {
            if let Some(regions) = &pair.regions {
                regions.settle().await;
            }
            if let Some(soc) = &pair.soc {
                soc.settle().await;
            }
        }
    }

    /// Writes all pending items.
    pub(crate) async fn drain(&self, waiting: Waiting, now_seconds: u32) {
        for pair in &self.pairs {
            pair.drain(waiting, now_seconds).await;
        }
    }

    /// Items lost so far: to damage and failed writes, and those that left DRAM while writes failed.
    pub(crate) fn lost_items(&self) -> u64 {
        self.stats().lost_items() + self.put_stats().rejected_failing
    }

    /// Returns an error if items were lost since `lost_before` was read.
    pub(crate) fn lost_since(&self, lost_before: u64) -> Result<(), CacheError> {
        match self.lost_items() - lost_before {
            0 => Ok(()),
            items => Err(CacheError::Lost { items }),
        }
    }

    /// Reports the written bytes to the admission policy.
    pub(crate) fn observe(&self, now_ns: u64) {
        self.admission.observe(self.device.counters().written_bytes, now_ns);
    }

    /// The counters so far.
    pub(crate) fn stats(&self) -> FlashStats {
        let mut stats = FlashStats {
            puts: self.put_stats(),
            device: self.device.counters(),
            recovered: self.pairs.iter().all(|pair| pair.store.recovered),
            loss: self.pairs.iter().find_map(|pair| pair.store.loss),
            max_item_bytes: self.pairs.iter().map(Pair::max_item_bytes).min().unwrap_or(0) as u64,
            ..Default::default()
        };
        for pair in &self.pairs {
            if let Some(soc) = &pair.soc {
                stats.soc.get_or_insert_default().add(&soc.stats());
                stats.soc_room.add(soc.room_bytes());
                stats.health.add_buckets(soc.is_failing(), soc.last_error());
            }
            if let Some(regions) = &pair.regions {
                stats.regions.get_or_insert_default().add(&regions.stats());
                stats.regions_room.add(regions.room_bytes());
                stats.health.add(regions);
            }
        }
        stats.set_written_logical_bytes();
        stats
    }

    /// The counters of each pair so far.
    pub(crate) fn pair_stats(&self) -> Vec<PairStats> {
        self.pairs.iter().map(Pair::stats).collect()
    }

    /// The results of offers so far.
    #[must_use]
    pub fn put_stats(&self) -> PutStats {
        self.puts.stats()
    }

    /// The reason why the victim is refused, if it is.
    fn refused(&self, victim: &Victim<'_>, bytes: u64) -> Option<PutEnd> {
        let now = self.clock.unix_seconds();
        let expiry = victim.expiry_seconds();
        if expiry != 0 && expiry <= now {
            return Some(PutEnd::Expired);
        }
        if victim.tag() == SHORT_LIVED {
            return Some(PutEnd::ShortLived);
        }
        if victim.is_clean() && self.has_copy_of(victim) {
            return Some(PutEnd::Clean);
        }
        if self.held_back.take(victim.hash()) {
            return None;
        }
        let candidate = Candidate {
            hash: victim.hash().0,
            size_bytes: bytes,
            ttl_seconds: (expiry != 0).then(|| expiry - now),
            idle_seconds: victim.idle_seconds(),
        };
        let now_ns = self.clock.monotonic_ns();
        // The policy may be user code, and runs in the middle of an eviction. If it panics, the item is not admitted.
        let admitted = catch_unwind(AssertUnwindSafe(|| self.admission.admit(&candidate, now_ns)));
        (!admitted.unwrap_or(false)).then_some(PutEnd::NotAdmitted)
    }

    fn stage_in_engine(&self, item: &FlashItem<'_>, bytes: usize) -> Result<Staged<'_>, PutEnd> {
        let engine = self.engine_of(item.hash, item.key, item.value_len()).ok_or(PutEnd::TooLarge)?;
        let engine = match engine {
            Engine::Small(soc) => {
                let staged = soc.stage(item).map_err(|refusal| match refusal {
                    soc::NotStaged::Failing => PutEnd::Failing,
                    soc::NotStaged::Full | soc::NotStaged::TooLarge => PutEnd::HeldBack,
                })?;
                InEngine::Small(soc, staged)
            }
            Engine::Region(regions) => {
                let staged = regions.stage(item).map_err(|refusal| match refusal {
                    region::Refusal::Full => PutEnd::HeldBack,
                    region::Refusal::TooLarge => PutEnd::TooLarge,
                    region::Refusal::WornOut => PutEnd::WornOut,
                    region::Refusal::Failing => PutEnd::Failing,
                })?;
                InEngine::Region(regions, staged)
            }
        };
        Ok(Staged { bytes: bytes as u64, engine })
    }

    /// Stages a victim; otherwise returns the result of its offer.
    fn stage<'a>(&'a self, victim: &Victim<'_>) -> Result<Staged<'a>, PutEnd> {
        let pieces = victim.value();
        let header = if pieces.len() > 1 { chain::header(pieces) } else { Vec::new() };
        let mut tag = u16::from(victim.pool().0) & POOL_BITS;
        let whole: Vec<&[u8]>;
        let value = if pieces.len() > 1 {
            tag |= CHAINED;
            whole = std::iter::once(header.as_slice()).chain(pieces.iter().copied()).collect();
            &whole
        } else {
            pieces
        };
        let (key, hash, expiry_seconds) = (victim.key(), victim.hash(), victim.expiry_seconds());
        let item = FlashItem { key, hash, value, expiry_seconds, tag };
        let bytes = key.len() + item.value_len();
        let staged = match self.refused(victim, bytes as u64) {
            Some(why) => Err(why),
            None => self.stage_in_engine(&item, bytes),
        };
        if let Err(PutEnd::HeldBack) = staged {
            self.held_back.remember(hash);
        }
        staged.inspect_err(|&end| self.puts.count(end))
    }

    fn commit(&self, staged: Staged<'_>) {
        self.puts.count(PutEnd::Stored);
        self.puts.logical_bytes.fetch_add(staged.bytes, Ordering::Relaxed);
        match staged.engine {
            InEngine::Small(soc, staged) => soc.commit(staged),
            InEngine::Region(regions, staged) => regions.commit(staged),
        }
    }

    fn abandon(&self, staged: Staged<'_>, victim: &Victim<'_>) {
        self.puts.count(PutEnd::Overtaken);
        if victim.is_linked() {
            count(&self.puts.stayed);
        }
        match staged.engine {
            InEngine::Small(_, staged) => drop(staged),
            InEngine::Region(regions, staged) => regions.abandon(staged),
        }
    }
}

/// The spill of DRAM: the flash tier, or nothing without one.
pub(crate) struct Crossing<'a> {
    pub(crate) flash: Option<&'a FlashTier>,
    /// Receives items that flash does not take.
    pub(crate) on_evict: Option<&'a Listener>,
    /// The item destructor.
    pub(crate) destructor: Option<&'a Destructor>,
    /// Whether the destructor must be called for the victim that has just left DRAM.
    pub(crate) is_destroyed: Cell<bool>,
    /// Receives events, if there is a sink.
    pub(crate) events: Option<&'a Events>,
    /// Panic of the listener.
    pub(crate) caught_panic: CaughtPanic,
}

impl<'a> Spill for Crossing<'a> {
    type Staged = (&'a FlashTier, Staged<'a>);

    fn stage(&self, victim: &Victim<'_>) -> Stage<Self::Staged> {
        let Some(flash) = self.flash else { return Stage::Drop };
        flash.stage(victim).map_or_else(
            |end| {
                self.emit(EventKind::Offered(end), victim);
                if end == PutEnd::HeldBack { Stage::Busy } else { Stage::Drop }
            },
            |staged| Stage::Ready((flash, staged)),
        )
    }

    fn commit(&self, (flash, staged): Self::Staged, _victim: &Victim<'_>) {
        flash.commit(staged);
    }

    fn abandon(&self, (flash, staged): Self::Staged, victim: &Victim<'_>) {
        flash.abandon(staged, victim);
        self.emit(EventKind::Offered(PutEnd::Overtaken), victim);
    }

    fn dropped(&self, victim: &Victim<'_>) {
        if self.destructor.is_some() {
            let lives_on = !victim.is_expired() && victim.tag() != SHORT_LIVED && self.is_on_flash(victim);
            self.is_destroyed.set(!lives_on);
            if let Some(flash) = self.flash.filter(|_| !lives_on) {
                // Otherwise a copy on flash would be found again, and its destructor called a second time.
                flash.forget(victim.hash(), victim.key(), None);
            }
        }
    }

    fn after_eviction(&self, victim: &Victim<'_>, committed: bool) {
        if self.events.is_some() {
            self.emit_dram_eviction(victim, committed);
        }
        if let Some(destructor) = self.destructor.filter(|_| self.is_destroyed.take()) {
            let reason = if victim.is_expired() { Removal::Expired } else { Removal::EvictedFromDram };
            let (key, value) = (victim.key(), victim.value()[0]);
            destructor.call(&Destroyed { key, value, reason, layer: Layer::Dram });
        }
        let Some(on_evict) = self.on_evict.filter(|_| !committed) else { return };
        if !victim.is_expired() && !self.is_on_flash(victim) {
            on_evict.notify(victim.key(), victim.value()[0], Removal::EvictedFromDram, &self.caught_panic);
        }
    }
}

impl Crossing<'_> {
    fn is_on_flash(&self, victim: &Victim<'_>) -> bool {
        victim.is_clean() && self.flash.is_some_and(|flash| flash.has_copy_of(victim))
    }

    #[cold]
    #[inline(never)]
    fn emit_dram_eviction(&self, victim: &Victim<'_>, committed: bool) {
        if committed {
            self.emit(EventKind::Offered(PutEnd::Stored), victim);
        }
        self.emit(EventKind::EvictedFromDram { expired: victim.is_expired() }, victim);
    }

    fn emit(&self, kind: EventKind, victim: &Victim<'_>) {
        if let Some(events) = self.events {
            let event = Event::new(kind, victim.key(), victim.hash());
            events.emit(&event.of(victim.value()[0].len(), victim.expiry_seconds()));
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
