//! Settling: a `settle` waits for all items evicted from DRAM before it, for no later item, and never for a dropped task.

use std::sync::Arc;

use device::RequestKind::Write;
use device::Simulation;
use device::timer::Timer;
use device::wrap::{FaultDevice, Faults};
use flashwright_cache::CacheError;
use flashwright_cache::config::regions::Caching;
use futures_util::future::join_all;
use pollster::block_on;

use crate::polled::{poll, waiting};
use crate::races::{eager, target_being_written};
use crate::setup::{blockcache, ripq};
use crate::stage::{LENGTHS, Stage, TARGET, version};

/// A cache with items that were evicted from DRAM and wait for their write.
fn with_some_waiting(len: usize, change: impl FnOnce(&mut flashwright_cache::config::CacheConfig)) -> Stage {
    let stage = Stage::new(|config| {
        config.flash.as_mut().unwrap().pending_bytes = 256 << 10;
        change(config);
    });
    stage.put(TARGET, &version(1, len));
    while stage.cache.stats().flash.unwrap().puts.stored < 30 {
        stage.put_extra(len);
    }
    assert!(stage.cache.stats().flash.unwrap().waiting_bytes() > 0);
    stage
}

fn waits(stage: &Stage) -> u64 {
    stage.cache.stats().flash.unwrap().waiting_bytes()
}

#[test]
fn settle_writes_a_partly_filled_region_or_bucket() {
    let orders: [fn(&mut flashwright_cache::FlashConfig); 3] =
        [|_| {}, |flash| ripq(flash, Caching::Slru { segments: 3 }), blockcache];
    for (len, order) in LENGTHS.into_iter().flat_map(|len| orders.map(|order| (len, order))) {
        let stage = with_some_waiting(len, |config| order(config.flash.as_mut().unwrap()));
        stage.step();
        assert!(waits(&stage) > 0, "items wait to be written");
        let cache = Arc::clone(&stage.cache);
        let mut settling = waiting(cache.settle());
        stage.step();
        assert!(matches!(poll(&mut settling), Some(Ok(()))));
        assert_eq!(waits(&stage), 0);
        assert!(!block_on(stage.cache.step()), "no settle waits any more");
        let flash = stage.cache.stats().flash.unwrap();
        let on_flash =
            flash.regions.unwrap_or_default().items + flash.soc.map_or(0, |soc| soc.items.cast_unsigned());
        assert_eq!(on_flash, flash.puts.stored);
        drop(settling);
        drop(cache);
        stage.assert_target_is(Some(&version(1, len)), len);
    }
}

#[test]
fn settle_waits_for_a_write_in_flight_and_for_newer_items_of_its_bucket() {
    for len in LENGTHS {
        let stage = eager();
        let mut step = target_being_written(&stage, len);
        let mut settling = waiting(stage.cache.settle());
        stage.gate.open();
        assert_eq!(poll(&mut step), Some(true));
        drop(step);
        let settled = poll(&mut settling).or_else(|| {
            stage.step();
            poll(&mut settling)
        });
        assert!(matches!(settled, Some(Ok(()))));
    }
}

#[test]
fn settle_does_not_wait_for_later_items() {
    for len in LENGTHS {
        let stage = with_some_waiting(len, |_| {});
        let mut settling = waiting(stage.cache.settle());
        let mut rounds = 0;
        while poll(&mut settling).is_none() {
            (0..40).for_each(|_| stage.put_extra(len));
            let _ = block_on(stage.cache.step());
            rounds += 1;
            assert!(rounds < 100, "settle does not end under constant inserts");
        }
    }
}

#[test]
fn dropped_settle_leaves_no_waiter() {
    for len in LENGTHS {
        let stage = with_some_waiting(len, |_| {});
        drop(waiting(stage.cache.settle()));
        stage.step();
        let mut settling = Box::pin(stage.cache.settle());
        let settled = poll(&mut settling).or_else(|| {
            stage.step();
            poll(&mut settling)
        });
        assert!(matches!(settled, Some(Ok(()))));
        drop(settling);
        stage.assert_target_is(Some(&version(1, len)), len);
    }
}

#[test]
fn clear_completes_a_pending_settle() {
    for len in LENGTHS {
        let stage = eager();
        let step = target_being_written(&stage, len);
        let mut settling = waiting(stage.cache.settle());
        stage.cache.clear();
        stage.gate.open();
        drop(step);
        let settled = poll(&mut settling).or_else(|| {
            stage.step();
            poll(&mut settling)
        });
        assert!(matches!(settled, Some(Ok(()))), "{settled:?}");
    }
}

#[test]
fn settle_on_a_failing_device_returns_and_reports_lost_items() {
    for len in LENGTHS {
        let faulty = std::sync::OnceLock::new();
        let stage = with_some_waiting(len, |config| {
            let flash = config.flash.as_mut().unwrap();
            let inner = Arc::clone(&flash.device);
            let device = faulty.get_or_init(|| Arc::new(FaultDevice::new(inner, 1, Faults::default())));
            flash.device = Arc::clone(device) as _;
        });
        let waited = stage.cache.stats().flash.unwrap().puts.stored;
        faulty.get().unwrap().set_faults(Faults { failed_writes: 1.0, ..Faults::default() });
        let mut settling = waiting(stage.cache.settle());
        // Failed writes of regions are repeated for 30 seconds.
        for _ in 0..40 {
            stage.step();
            stage.clock.advance_by(1_000_000_000);
        }
        let Some(Err(CacheError::Lost { items })) = poll(&mut settling) else { panic!("all writes fail") };
        assert_eq!(items, waited);
        drop(settling);
        assert!(matches!(poll(&mut Box::pin(stage.cache.settle())), Some(Ok(()))), "nothing waits any more");
    }
}

/// All waiting items are in the write of another step. A background task that polled in a loop would occupy its thread.
#[test]
fn background_task_waits_for_a_concurrent_step_and_continues_after_its_drop() {
    let stage = eager();
    let step = target_being_written(&stage, LENGTHS[0]);
    let timer: Arc<dyn Timer> = Arc::new(Simulation::new(0).world());
    let mut background = Box::pin(join_all(stage.cache.background_tasks(&timer)));
    assert!(poll(&mut background).is_none(), "a background task never ends");
    drop(step);
    stage.gate.open();
    assert!(poll(&mut background).is_none());
    assert_eq!(waits(&stage), 0, "the background task saw the end of the write");
}

#[test]
fn settle_of_a_dram_only_cache_returns_immediately() {
    let stage = Stage::new(|config| config.flash = None);
    stage.put(TARGET, &version(1, 150));
    assert!(block_on(stage.cache.settle()).is_ok());
    let gated = Stage::new(|_| {});
    gated.gate.close(Write);
    assert!(block_on(gated.cache.settle()).is_ok(), "nothing has left DRAM");
}
