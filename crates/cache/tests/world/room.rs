//! Waiting for space on flash: every wait ends.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flashwright_cache::flash::region::{Caching, OrderConfig, RipqConfig};
use parking_lot::Mutex;
use policy::{Admission, Candidate};

use crate::stage::{HERO, LENGTHS, Stage, version};

/// The minimum number of buffers of an item queue. While each insertion point has an open region, one buffer is left, and that is
/// reserved for reinserted items. A region is closed by an item that does not fit into it; but the tasks that waited for a bucket also
/// waited for a region, and so for themselves.
#[test]
fn insert_waiting_for_a_bucket_does_not_wait_for_an_open_region() {
    let [small, large] = LENGTHS;
    let stage = Stage::new(|config| {
        let regions = &mut config.flash.as_mut().unwrap().regions;
        let caching = Caching::Slru { segments: 2 };
        regions.order = OrderConfig::Ripq(RipqConfig { sections: 2, ..RipqConfig::new(caching) });
        regions.buffers = 3;
    });
    stage.put(HERO, &version(1, large));
    stage.push_out(large);
    assert!(stage.get(HERO).is_some(), "and is worth more from now on");
    let reinserted = || stage.cache.stats().flash.unwrap().regions.unwrap().reinsertions;
    while reinserted() == 0 {
        stage.push_out(large);
    }
    let held_back = || stage.cache.stats().flash.unwrap().puts.held_back;
    let before = held_back();
    // Nobody steps but for an insert that waits, and then a step is all that it takes.
    (0..3000).for_each(|_| stage.put_extra(small));
    assert!(held_back() > before, "no insert had to wait");
}

/// Admits everything, and records keys that were offered more than once.
#[derive(Default)]
struct Asked {
    about: Mutex<HashSet<u64>>,
    again: AtomicU64,
}

impl Admission for Asked {
    fn admit(&self, candidate: &Candidate, _now_ns: u64) -> bool {
        let is_new = self.about.lock().insert(candidate.hash);
        self.again.fetch_add(u64::from(!is_new), Ordering::Relaxed);
        true
    }

    fn name(&self) -> &'static str {
        "asked"
    }
}

/// A coin was tossed for it at each offer: the more flash was behind, the less was admitted.
#[test]
fn an_item_that_was_admitted_and_held_back_was_judged_again() {
    for len in LENGTHS {
        let asked = Arc::new(Asked::default());
        let stage = Stage::new(|config| config.flash.as_mut().unwrap().admission = Arc::clone(&asked) as _);
        // Nobody steps but for an insert that waits.
        (0..3000).for_each(|_| stage.put_extra(len));
        let puts = stage.cache.stats().flash.unwrap().puts;
        assert!(puts.held_back > 20 && puts.overtaken == 0, "{puts:?}");
        assert_eq!(asked.again.load(Ordering::Relaxed), 0, "{puts:?}");
    }
}
