//! Waiting for room on flash, told as a story: what is waited for comes.

use flashwright_cache::flash::region::{Caching, OrderConfig, RipqConfig};

use crate::stage::{HERO, LENGTHS, Stage, version};

/// The least number of buffers that a queue of items may have. While each of its points has a region open, one buffer is left,
/// and that is for items that are written again. A region is closed by an item that does not fit into it any more; but those
/// who waited for a bucket waited for a region too, and so for themselves.
#[test]
fn an_insert_that_waits_for_a_bucket_waited_for_a_region_that_nobody_closes() {
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
