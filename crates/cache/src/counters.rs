//! Counters of the results of gets and inserts.

use std::sync::atomic::Ordering;

use crate::error::Refusal;
use crate::stats::{ChainCounters, ChainStats, GetStats, InsertCounters, InsertStats};
use crate::thread_counters::ThreadCounters;

/// Counters of gets and inserts.
pub(crate) struct Counters {
    usual: ThreadCounters,
    /// Inserts with other results.
    inserts: InsertCounters,
    /// Additions of chained items with other results.
    chains: ChainCounters,
}

/// Frequent results of gets and inserts, which each thread counts separately.
#[derive(Debug, Clone, Copy)]
enum Usual {
    HitDram,
    HitFlash,
    Miss,
    Coalesced,
    Promotion,
    Stored,
    Chained,
}

const USUAL: usize = Usual::Chained as usize + 1;

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            usual: ThreadCounters::new(USUAL),
            inserts: InsertCounters::default(),
            chains: ChainCounters::default(),
        }
    }

    pub(crate) fn stored(&self) {
        self.usual.count(Usual::Stored as usize);
    }

    pub(crate) fn overtaken(&self) {
        self.inserts.overtaken.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn present(&self) {
        self.inserts.present.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rejected(&self, why: Refusal) {
        let counter = match why {
            Refusal::TooLarge { .. } => &self.inserts.rejected_too_large,
            Refusal::KeyLength(_) => &self.inserts.rejected_key_length,
            Refusal::AllPinned => &self.inserts.rejected_all_pinned,
            Refusal::NoSuchPool(_) => &self.inserts.rejected_no_such_pool,
            Refusal::FlashBehind => &self.inserts.rejected_flash_behind,
            Refusal::Closed => &self.inserts.rejected_closed,
            Refusal::NoParent => unreachable!("an insert needs no parent"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn inserts(&self) -> InsertStats {
        InsertStats { stored: self.sum(Usual::Stored), ..self.inserts.read() }
    }

    pub(crate) fn chained(&self, ended: Result<(), Refusal>) {
        let counter = match ended {
            Ok(()) => return self.usual.count(Usual::Chained as usize),
            Err(Refusal::TooLarge { .. }) => &self.chains.rejected_too_large,
            Err(Refusal::AllPinned) => &self.chains.rejected_all_pinned,
            // The other reasons cannot occur for a chained item, because no parent has such a key or pool.
            Err(
                Refusal::NoParent
                | Refusal::KeyLength(_)
                | Refusal::NoSuchPool(_)
                | Refusal::FlashBehind
                | Refusal::Closed,
            ) => &self.chains.rejected_no_parent,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn chains(&self) -> ChainStats {
        ChainStats { stored: self.sum(Usual::Chained), ..self.chains.read() }
    }

    pub(crate) fn hit_dram(&self) {
        self.usual.count(Usual::HitDram as usize);
    }

    pub(crate) fn hit_flash(&self) {
        self.usual.count(Usual::HitFlash as usize);
    }

    pub(crate) fn miss(&self) {
        self.usual.count(Usual::Miss as usize);
    }

    pub(crate) fn coalesced(&self) {
        self.usual.count(Usual::Coalesced as usize);
    }

    pub(crate) fn promoted(&self) {
        self.usual.count(Usual::Promotion as usize);
    }

    pub(crate) fn snapshot(&self) -> GetStats {
        GetStats {
            hits_dram: self.sum(Usual::HitDram),
            hits_flash: self.sum(Usual::HitFlash),
            misses: self.sum(Usual::Miss),
            coalesced: self.sum(Usual::Coalesced),
            promotions: self.sum(Usual::Promotion),
        }
    }

    fn sum(&self, end: Usual) -> u64 {
        self.usual.sum(end as usize)
    }
}
