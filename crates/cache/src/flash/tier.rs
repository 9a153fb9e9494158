//! The flash tier as one thing: which engine a key and an item belong to, who is let in, and how an item crosses over
//! from DRAM without a moment in which it is nowhere.
//!
//! The key space may be split over several *pairs* of engines (CacheBench's arenas). Within a pair, small items go to
//! the buckets and the rest to the regions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::Clock;
use event_listener::Event;
use policy::{Admission, Candidate};

use super::region::{self, RegionStore};
use super::soc::{self, Soc};
use super::{FlashItem, FlashValue, Waiting, chain};
use crate::KeyHash;
use crate::dram::{Spill, Stage, Victim};

/// Bit of [`FlashItem::tag`] that says the value is a chain. The bits below carry the pool.
const CHAINED: u16 = 1 << 15;
const POOL_BITS: u16 = 0xff;

/// The flash tier.
pub struct FlashTier {
    pub(crate) pairs: Box<[Pair]>,
    admission: Arc<dyn Admission>,
    clock: Arc<dyn Clock>,
    small_item_max_bytes: usize,
    min_ttl_seconds: u32,
    /// Rung when an engine has something to write; the background listens.
    pub(crate) work: Event,
    puts: Puts,
}

/// The two engines that share a part of the key space. At least one of them is there.
pub(crate) struct Pair {
    pub(crate) soc: Option<Soc>,
    pub(crate) regions: Option<RegionStore>,
}

/// What became of the items that DRAM evicted.
#[derive(Debug, Default)]
struct Puts {
    offered: AtomicU64,
    stored: AtomicU64,
    clean: AtomicU64,
    rejected_expired: AtomicU64,
    rejected_short_lived: AtomicU64,
    rejected_admission: AtomicU64,
    rejected_too_large: AtomicU64,
    overtaken: AtomicU64,
    held_back: AtomicU64,
    logical_bytes: AtomicU64,
}

/// What became of the items that DRAM evicted: every offer ends as exactly one of the others.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PutStats {
    /// Victims that DRAM offered.
    pub offered: u64,
    /// Taken by an engine.
    pub stored: u64,
    /// Not written because flash holds the same bytes already.
    pub clean: u64,
    /// Expired meanwhile.
    pub rejected_expired: u64,
    /// Time to live below the configured minimum.
    pub rejected_short_lived: u64,
    /// Refused by the admission policy.
    pub rejected_admission: u64,
    /// Larger than the engine's largest item.
    pub rejected_too_large: u64,
    /// Replaced, removed or picked up by a reader while on the way: the copy was abandoned, the item stayed in DRAM
    /// or had gone.
    pub overtaken: u64,
    /// The buffers were full: the item stayed in DRAM and the insert waited. Nothing is lost.
    pub held_back: u64,
    /// Key and value bytes of the items stored.
    pub logical_bytes: u64,
}

/// An item that has been copied to an engine and waits to become visible there.
pub struct Staged {
    pair: usize,
    bytes: u64,
    engine: InEngine,
}

enum InEngine {
    Soc(soc::Staged),
    Region(region::Staged),
}

/// How the tier is put together.
pub(crate) struct Parts {
    pub(crate) pairs: Vec<Pair>,
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
            admission: parts.admission,
            clock: parts.clock,
            small_item_max_bytes: parts.small_item_max_bytes,
            min_ttl_seconds: parts.min_ttl_seconds,
            work: Event::new(),
            puts: Puts::default(),
        }
    }

    fn pair_of(&self, hash: KeyHash) -> usize {
        if self.pairs.len() == 1 { 0 } else { (hash.remix() % self.pairs.len() as u64) as usize }
    }

    /// Whether the key may be here. No is certain.
    pub(crate) fn may_contain(&self, hash: KeyHash) -> bool {
        let pair = &self.pairs[self.pair_of(hash)];
        pair.regions.as_ref().is_some_and(|regions| regions.may_contain(hash))
            || pair.soc.as_ref().is_some_and(|soc| soc.may_contain(hash))
    }

    /// Makes the key's copies unreachable. Called under the key's lock.
    pub(crate) fn forget(&self, hash: KeyHash, key: &[u8]) -> bool {
        let pair = &self.pairs[self.pair_of(hash)];
        let in_regions = pair.regions.as_ref().is_some_and(|regions| regions.forget(hash));
        let in_soc = pair.soc.as_ref().is_some_and(|soc| soc.forget(hash, key));
        in_regions || in_soc
    }

    /// Reads the key's value.
    pub(crate) async fn read(&self, hash: KeyHash, key: &[u8], waiting: Waiting) -> Option<FlashValue> {
        let pair = &self.pairs[self.pair_of(hash)];
        if let Some(regions) = &pair.regions
            && regions.may_contain(hash)
            && let Some(value) = regions.read(hash, key, waiting).await
        {
            return Some(value);
        }
        match &pair.soc {
            Some(soc) => soc.read(hash, key, waiting).await,
            None => None,
        }
    }

    /// Whether every engine has room for another item.
    fn ready(&self) -> bool {
        self.pairs.iter().all(|pair| {
            pair.regions.as_ref().is_none_or(RegionStore::ready) && pair.soc.as_ref().is_none_or(Soc::ready)
        })
    }

    /// Waits until every engine has room for another item.
    pub(crate) async fn wait_ready(&self) {
        while !self.ready() {
            self.work.notify_additional(usize::MAX);
            for pair in &self.pairs {
                if let Some(regions) = &pair.regions {
                    regions.wait_ready().await;
                }
                if let Some(soc) = &pair.soc {
                    soc.wait_ready().await;
                }
            }
        }
    }

    /// What became of the items offered so far.
    #[must_use]
    pub fn put_stats(&self) -> PutStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let puts = &self.puts;
        PutStats {
            offered: read(&puts.offered),
            stored: read(&puts.stored),
            clean: read(&puts.clean),
            rejected_expired: read(&puts.rejected_expired),
            rejected_short_lived: read(&puts.rejected_short_lived),
            rejected_admission: read(&puts.rejected_admission),
            rejected_too_large: read(&puts.rejected_too_large),
            overtaken: read(&puts.overtaken),
            held_back: read(&puts.held_back),
            logical_bytes: read(&puts.logical_bytes),
        }
    }

    /// Whether the victim is refused, and by which counter.
    fn refused(&self, victim: &Victim<'_>, bytes: u64) -> Option<&AtomicU64> {
        let now = self.clock.unix_seconds();
        let expiry = victim.expiry_seconds();
        if expiry != 0 && expiry <= now {
            return Some(&self.puts.rejected_expired);
        }
        if expiry != 0 && expiry - now < self.min_ttl_seconds {
            return Some(&self.puts.rejected_short_lived);
        }
        if victim.is_clean() && self.may_contain(victim.hash()) {
            return Some(&self.puts.clean);
        }
        let candidate = Candidate {
            hash: victim.hash().0,
            size_bytes: bytes,
            ttl_seconds: (expiry != 0).then(|| expiry - now),
            idle_seconds: victim.idle_seconds(now),
        };
        let admitted = self.admission.admit(&candidate, self.clock.monotonic_ns());
        (!admitted).then_some(&self.puts.rejected_admission)
    }

    fn stage_in_engine(&self, item: &FlashItem<'_>, bytes: usize) -> Stage<Staged> {
        let index = self.pair_of(item.hash);
        let pair = &self.pairs[index];
        let small = bytes <= self.small_item_max_bytes;
        let engine = match (&pair.soc, &pair.regions) {
            (Some(soc), regions) if (small || regions.is_none()) && soc.fits(item) => {
                soc.stage(item).ok().map(InEngine::Soc)
            }
            (_, Some(regions)) if regions.fits(item) => regions.stage(item).ok().map(InEngine::Region),
            _ => {
                count(&self.puts.rejected_too_large);
                return Stage::Drop;
            }
        };
        match engine {
            Some(engine) => Stage::Ready(Staged { pair: index, bytes: bytes as u64, engine }),
            None => {
                count(&self.puts.held_back);
                Stage::Busy
            }
        }
    }
}

impl Spill for FlashTier {
    type Staged = Staged;

    fn stage(&self, victim: &Victim<'_>) -> Stage<Staged> {
        let pieces = victim.pieces();
        let header = if pieces.len() > 1 { chain::header(&pieces) } else { Vec::new() };
        let mut value: Vec<&[u8]> = Vec::with_capacity(pieces.len() + 1);
        let mut tag = u16::from(victim.pool().0) & POOL_BITS;
        if pieces.len() > 1 {
            value.push(&header);
            tag |= CHAINED;
        }
        value.extend_from_slice(&pieces);
        let (key, hash, expiry_seconds) = (victim.key(), victim.hash(), victim.expiry_seconds());
        let item = FlashItem { key, hash, value: &value, expiry_seconds, tag };
        let bytes = key.len() + item.value_len();
        if let Some(why) = self.refused(victim, bytes as u64) {
            count(&self.puts.offered);
            count(why);
            return Stage::Drop;
        }
        let staged = self.stage_in_engine(&item, bytes);
        count(&self.puts.offered);
        staged
    }

    fn commit(&self, staged: Staged, _victim: &Victim<'_>) {
        count(&self.puts.stored);
        self.puts.logical_bytes.fetch_add(staged.bytes, Ordering::Relaxed);
        let pair = &self.pairs[staged.pair];
        match (staged.engine, &pair.soc, &pair.regions) {
            (InEngine::Soc(staged), Some(soc), _) => soc.commit(staged),
            (InEngine::Region(staged), _, Some(regions)) => regions.commit(staged),
            _ => unreachable!("staged by an engine that the pair has"),
        }
        if self.has_work() {
            self.work.notify(1);
        }
    }

    fn abandon(&self, staged: Staged) {
        count(&self.puts.overtaken);
        let pair = &self.pairs[staged.pair];
        match (staged.engine, &pair.soc, &pair.regions) {
            (InEngine::Soc(staged), Some(soc), _) => soc.abandon(staged),
            (InEngine::Region(staged), _, Some(regions)) => regions.abandon(staged),
            _ => unreachable!("staged by an engine that the pair has"),
        }
    }
}

impl FlashTier {
    fn has_work(&self) -> bool {
        self.pairs.iter().any(|pair| {
            pair.regions.as_ref().is_some_and(RegionStore::has_work)
                || pair.soc.as_ref().is_some_and(Soc::has_work)
        })
    }
}

/// The pool an item came from, by its tag.
pub(crate) fn pool_of(tag: u16) -> u8 {
    (tag & POOL_BITS) as u8
}

/// Whether the tag's value is a chain.
pub(crate) fn is_chained(tag: u16) -> bool {
    tag & CHAINED != 0
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
