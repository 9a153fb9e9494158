//! The rim: the only threads of this room. They call the engine's steps and sleep when there is nothing to do. Where
//! threads are not wanted, the same loops are tasks for somebody's executor ([`tasks`]).

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use device::desk;
use device::timer::{self, Timer};
use event_listener::{Event, Listener};
use futures_util::future::select;

use crate::error::CacheError;
use crate::flash::Waiting;
use crate::flash::region::{self, RegionStore};
use crate::flash::soc::Soc;
use crate::hybrid::Engine;

/// Background work that never ends by itself: dropping it ends it, between two steps or within one.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The threads of one cache. Stopped and joined when dropped.
pub(crate) struct Background {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    asked: AtomicBool,
    rung: Event,
}

impl Background {
    /// Starts the threads: for each pair of flash engines one that writes regions and one that writes buckets, and one
    /// for upkeep.
    pub(crate) fn start(engine: &Arc<Engine>) -> Result<Self, CacheError> {
        let mut background = Self { stop: Arc::new(Stop::default()), threads: Vec::new() };
        let pairs = engine.flash.as_ref().map_or(0, |flash| flash.pairs.len());
        for pair in 0..pairs {
            background.spawn("flash-regions", engine, move |engine, stop| {
                desk::block_on(write_regions(engine, pair, stop));
            })?;
            background.spawn("flash-buckets", engine, move |engine, stop| {
                desk::block_on(write_buckets(engine, pair, stop));
            })?;
        }
        background.spawn("cache-upkeep", engine, upkeep)?;
        Ok(background)
    }

    fn spawn(
        &mut self,
        name: &str,
        engine: &Arc<Engine>,
        body: impl FnOnce(&Engine, &Stop) + Send + 'static,
    ) -> Result<(), CacheError> {
        let (engine, stop) = (Arc::clone(engine), Arc::clone(&self.stop));
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || body(&engine, &stop))
            .map_err(CacheError::Threads)?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.asked.store(true, Ordering::SeqCst);
        self.stop.rung.notify(usize::MAX);
        let own = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // A callback may hold the last reference to its cache. Its thread ends when it comes back from there.
            if thread.thread().id() == own {
                continue;
            }
            // A thread that panicked has said so itself; the cache is going away.
            let _ = thread.join();
        }
    }
}

impl Stop {
    fn asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// Waits until `work` is there or the cache closes.
    async fn or(&self, work: impl Future<Output = ()>) {
        let rung = self.rung.listen();
        if !self.asked() {
            select(rung, pin!(work)).await;
        }
    }
}

async fn write_regions(engine: &Engine, pair: usize, stop: &Stop) {
    let Some(regions) = regions_of(engine, pair) else { return };
    while !stop.asked() {
        if regions.step(Waiting::Task).await == region::Progress::Idle {
            stop.or(regions.wait_work()).await;
        }
    }
}

async fn write_buckets(engine: &Engine, pair: usize, stop: &Stop) {
    let Some(soc) = soc_of(engine, pair) else { return };
    while !stop.asked() {
        if !soc.wants_step() || soc.step(Waiting::Task, engine.clock.unix_seconds()).await.idle() {
            stop.or(soc.wait_work(Waiting::Task)).await;
        }
    }
}

fn regions_of(engine: &Engine, pair: usize) -> Option<&RegionStore> {
    engine.flash.as_ref()?.pairs[pair].regions.as_ref()
}

fn soc_of(engine: &Engine, pair: usize) -> Option<&Soc> {
    engine.flash.as_ref()?.pairs[pair].soc.as_ref()
}

/// The background work of a cache as endless tasks: of each pair of flash engines one that writes regions and one that
/// writes buckets, and one for upkeep, which sleeps by `timer`.
pub(crate) fn tasks(engine: &Arc<Engine>, timer: &Arc<dyn Timer>) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let pairs = engine.flash.as_ref().map_or(0, |flash| flash.pairs.len());
    for pair in 0..pairs {
        let of_regions = Arc::clone(engine);
        tasks.push(Box::pin(async move { write_regions(&of_regions, pair, &Stop::default()).await }));
        let of_buckets = Arc::clone(engine);
        tasks.push(Box::pin(async move { write_buckets(&of_buckets, pair, &Stop::default()).await }));
    }
    let (engine, timer) = (Arc::clone(engine), Arc::clone(timer));
    tasks.push(Box::pin(async move {
        loop {
            let pause_ns = engine.upkeep_step();
            timer::sleep(&*timer, pause_ns).await;
        }
    }));
    tasks
}

fn upkeep(engine: &Engine, stop: &Stop) {
    loop {
        let rung = stop.rung.listen();
        if stop.asked() {
            return;
        }
        let pause_ns = engine.upkeep_step();
        rung.wait_timeout(Duration::from_nanos(pause_ns));
    }
}
