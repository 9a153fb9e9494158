//! Empties the tier through its spill in eviction order, coldest first, before a cache closes permanently.

use super::evict::{Attempt, Spill, Victim};
use super::pools::Taken;
use super::{Class, Dram};

/// Items that one class evicts before the coldest class is determined again.
const BATCH: usize = 64;

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionStep {
    /// Some items were evicted; there may be more.
    Some,
    /// The spill cannot accept more now.
    Busy,
    /// No item is left that could be evicted.
    All,
}

impl Dram {
    /// Evicts the next items through `spill`: those of the class with the coldest next victim, among classes with an evictable item.
    pub fn empty_step<S: Spill>(&self, spill: &S) -> EvictionStep {
        let mut emptied = self.coldest_first().into_iter().map(|class| self.empty_some(class, spill));
        emptied.find(|&emptied| emptied != EvictionStep::All).unwrap_or(EvictionStep::All)
    }

    /// Evicts the next items of one class through `spill`.
    fn empty_some<S: Spill>(&self, class: &Class, spill: &S) -> EvictionStep {
        let (mut left, items) = (0, class.lock().counters.items);
        // Even if many items are in use, a policy selects all others before it has selected each item twice.
        for _ in 0..2 * items {
            match self.evict_next(class, spill) {
                Some(Attempt::Gone) => left += 1,
                Some(Attempt::Busy) if left == 0 => return EvictionStep::Busy,
                Some(Attempt::Busy) => break,
                // The item is in use, and the policy has moved it behind the others.
                Some(Attempt::InUse) => {}
                None => break,
            }
            if left == BATCH {
                break;
            }
        }
        if left > 0 { EvictionStep::Some } else { EvictionStep::All }
    }

    /// The classes that have items, coldest first.
    fn coldest_first(&self) -> Vec<&Class> {
        let touched_seconds = |class: &Class| {
            let inner = class.lock();
            // A policy that does not know its oldest item comes last.
            let oldest = || inner.oldest(class).map_or(u32::MAX, |item| item.header().touched_seconds());
            (!inner.is_without_items()).then(oldest)
        };
        let classes = self.pools.classes.iter().filter_map(|class| Some((touched_seconds(class)?, class)));
        let mut classes: Vec<_> = classes.collect();
        classes.sort_by_key(|(touched_seconds, _)| *touched_seconds);
        classes.into_iter().map(|(_, class)| class).collect()
    }

    /// Evicts the item that the class's policy selects; `None` if the class has none.
    pub(super) fn evict_next<S: Spill>(&self, class: &Class, spill: &S) -> Option<Attempt> {
        let now_seconds = self.now_seconds();
        let chosen = class.lock().take_victim(&self.pools, class, now_seconds)?;
        let (item, hash) = match chosen {
            Taken::Victim { item, hash } => (item, hash),
            Taken::Chain { parent, child } => {
                return Some(self.evict_chain_of(parent, child, now_seconds, spill));
            }
            Taken::Free(_) | Taken::Nothing => return Some(Attempt::InUse),
        };
        let attempt = self.evict(&Victim::new(self, item, hash, now_seconds), spill);
        class.lock().counters.evictions += u64::from(attempt == Attempt::Gone);
        self.end_attempt(item, attempt == Attempt::Gone, now_seconds);
        Some(attempt)
    }
}
