//! Waiting for space on flash: every wait ends.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flashwright_cache::config::regions::{Caching, OrderConfig, RipqConfig};
use parking_lot::Mutex;
use policy::{Admission, Candidate};

use crate::stage::{LENGTHS, Stage, TARGET, version};

/// The minimum number of buffers of an item queue. While each insertion point has an open region, one buffer is left,
/// which is reserved for reinserted items. Only an item that does not fit closes an open region. A task that waits for
/// a bucket and also for a region would therefore wait for its own later inserts.
#[test]
fn insert_waiting_for_a_bucket_does_not_wait_for_an_open_region() {
    let [small, large] = LENGTHS;
    let stage = Stage::new(|config| {
        let regions = &mut config.flash.as_mut().unwrap().regions;
        let caching = Caching::Slru { segments: 2 };
        regions.order = OrderConfig::Ripq(RipqConfig { sections: 2, ..RipqConfig::new(caching) });
        regions.buffers = 3;
    });
    stage.put(TARGET, &version(1, large));
    stage.evict_to_flash(large);
    assert!(stage.get(TARGET).is_some(), "the hit raises the item in its queue");
    let reinserted = || stage.cache.stats().flash.unwrap().regions.unwrap().reinsertions;
    while reinserted() == 0 {
        stage.evict_to_flash(large);
    }
    let held_back = || stage.cache.stats().flash.unwrap().puts.held_back;
    let before = held_back();
    // Only an insert that waits runs a step, and one step must be enough for it to continue.
    (0..3000).for_each(|_| stage.put_extra(small));
    assert!(held_back() > before, "no insert had to wait");
}

/// Admits everything, and counts keys that were offered more than once.
#[derive(Default)]
struct RepeatedOffers {
    keys: Mutex<HashSet<u64>>,
    repeated: AtomicU64,
}

impl Admission for RepeatedOffers {
    fn admit(&self, candidate: &Candidate, _now_ns: u64) -> bool {
        let is_new = self.keys.lock().insert(candidate.hash);
        self.repeated.fetch_add(u64::from(!is_new), Ordering::Relaxed);
        true
    }

    fn name(&self) -> &'static str {
        "repeated offers"
    }
}

/// Catches a regression: each offer of a waiting item draws a new random decision, so the longer flash writes are
/// behind, the fewer items are admitted.
#[test]
fn admitted_item_that_waits_for_flash_is_not_offered_to_admission_again() {
    for len in LENGTHS {
        let offers = Arc::new(RepeatedOffers::default());
        let stage = Stage::new(|config| config.flash.as_mut().unwrap().admission = Arc::clone(&offers) as _);
        // Only an insert that waits runs a step.
        (0..3000).for_each(|_| stage.put_extra(len));
        let puts = stage.cache.stats().flash.unwrap().puts;
        assert!(puts.held_back > 20 && puts.overtaken == 0, "{puts:?}");
        assert_eq!(offers.repeated.load(Ordering::Relaxed), 0, "{puts:?}");
    }
}
