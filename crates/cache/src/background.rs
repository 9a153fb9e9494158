//! Background threads of a cache. They call the engine's steps and sleep when there is no work. Without threads, the same loops are tasks
//! for an executor ([`tasks`](Background::tasks)).

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use device::event_loop;
use device::timer::{self, Timer};
use event_listener::{Event, Listener};
use futures_util::future::select;
use parking_lot::Mutex;

use crate::error::CacheError;
use crate::flash::SmallEngine;
use crate::flash::Waiting;
use crate::flash::region::{self, RegionStore};
use crate::hybrid::Engine;
use crate::spawner::Task;

/// The threads of one cache, and the stop signal of its tasks. All end when this is dropped.
pub(crate) struct Background {
    stop: Arc<Stop>,
    /// The engine, whose fetches are stopped too.
    engine: Weak<Engine>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Whether the cache is closing, and the steps and threads for which it waits.
#[derive(Default)]
pub(crate) struct Stop {
    requested: AtomicBool,
    /// Notified when the cache closes.
    stopping: Event,
    /// Steps in progress.
    working: AtomicUsize,
    /// Threads that have not ended.
    running: AtomicUsize,
    /// Notified when one of the two counts becomes 0.
    ended: Event,
}

/// Time that dropping a cache waits for its threads. A step ends when the device completes its requests; a device that does not respond
/// must not block the drop permanently.
const DROP_LIMIT: Duration = Duration::from_secs(30);

/// Counts a thread until it ends.
pub(crate) struct Running(Arc<Stop>);

impl Running {
    pub(crate) fn new(stop: &Arc<Stop>) -> Self {
        stop.running.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(stop))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.notify(usize::MAX);
    }
}

/// A step in progress.
pub(crate) struct StepGuard<'a>(&'a Stop);

impl Background {
    /// Starts the threads: two for each pair of flash engines, which write regions and buckets, and one for upkeep.
    pub(crate) fn start(engine: &Arc<Engine>) -> Result<Self, CacheError> {
        let background = Self::without_threads(engine);
        let pairs = engine.flash.as_ref().map_or(0, |flash| flash.pairs.len());
        for pair in 0..pairs {
            background.spawn("flash-regions", engine, move |engine, stop| {
                event_loop::block_on(write_regions(engine, pair, stop));
            })?;
            background.spawn("flash-buckets", engine, move |engine, stop| {
                event_loop::block_on(write_buckets(engine, pair, stop));
            })?;
        }
        background.spawn("cache-upkeep", engine, upkeep)?;
        Ok(background)
    }

    /// Creates a cache without threads: the caller steps it, or runs its tasks.
    pub(crate) fn without_threads(engine: &Arc<Engine>) -> Self {
        Self { stop: Arc::clone(&engine.stop), engine: Arc::downgrade(engine), threads: Mutex::default() }
    }

    fn spawn(
        &self,
        name: &str,
        engine: &Arc<Engine>,
        body: impl FnOnce(&Engine, &Stop) + Send + 'static,
    ) -> Result<(), CacheError> {
        let (engine, stop) = (Arc::clone(engine), Arc::clone(&self.stop));
        let running = Running::new(&stop);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _running = running;
                body(&engine, &stop);
                drop(engine);
            })
            .map_err(CacheError::Threads)?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

impl Background {
    /// Whether there are threads. If not, the caller has to step the cache.
    pub(crate) fn has_threads(&self) -> bool {
        !self.threads.lock().is_empty()
    }

    /// Stops background work, and returns when no step is in progress and all threads have ended. Does not block the thread. It never
    /// returns if a task of the caller is neither polled nor dropped within a step.
    pub(crate) async fn end(&self) {
        self.request_stop();
        self.stop.all_ended().await;
        self.join();
    }

    /// Detaches the threads, so that a drop does not wait for them: they may be blocked by a device that does not respond.
    pub(crate) fn detach(&self) {
        self.request_stop();
        self.threads.lock().clear();
        if let Some(engine) = self.engine.upgrade() {
            engine.spawner.detach();
        }
    }

    /// Waits until all threads except this one have ended; returns whether they did within `limit`. Detached threads are not waited for.
    fn ended_within(&self, limit: Duration) -> bool {
        let own = std::thread::current().id();
        let is_fetching = self.engine.upgrade().is_some_and(|engine| engine.spawner.runs_on(own));
        let threads = self.threads.lock();
        let own =
            threads.iter().filter(|thread| thread.thread().id() == own).count() + usize::from(is_fetching);
        if threads.is_empty() {
            return self.stop.running.load(Ordering::SeqCst) <= own;
        }
        drop(threads);
        loop {
            let ended = self.stop.ended.listen();
            if self.stop.running.load(Ordering::SeqCst) <= own {
                return true;
            }
            // Each thread notifies once, at its end.
            if ended.wait_timeout(limit).is_none() {
                return self.stop.running.load(Ordering::SeqCst) <= own;
            }
        }
    }

    fn request_stop(&self) {
        self.stop.requested.store(true, Ordering::SeqCst);
        self.stop.stopping.notify(usize::MAX);
        if let Some(engine) = self.engine.upgrade() {
            engine.spawner.stop();
        }
    }

    fn join(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.spawner.join();
        }
        let own = std::thread::current().id();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A callback may hold the last reference to its cache. Its thread ends when it returns.
            if thread.thread().id() == own {
                continue;
            }
            // A panic was already printed by the thread, and the cache is being dropped.
            let _ = thread.join();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.request_stop();
        if self.ended_within(DROP_LIMIT) {
            self.join();
        } else {
            self.detach();
        }
    }
}

impl Stop {
    /// Starts a step; `None` if the cache is closing.
    pub(crate) fn begin(&self) -> Option<StepGuard<'_>> {
        self.working.fetch_add(1, Ordering::SeqCst);
        let working = StepGuard(self);
        (!self.requested.load(Ordering::SeqCst)).then_some(working)
    }

    /// Waits until `work` completes or the cache closes.
    pub(crate) async fn or(&self, work: impl Future<Output = ()>) {
        let stopping = self.stopping.listen();
        if !self.requested.load(Ordering::SeqCst) {
            select(stopping, pin!(work)).await;
        }
    }

    /// Waits until no step is in progress and no thread runs. Steps can no longer start.
    async fn all_ended(&self) {
        let is_done = || self.working.load(Ordering::SeqCst) == 0 && self.running.load(Ordering::SeqCst) == 0;
        loop {
            let ended = self.ended.listen();
            if is_done() {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for StepGuard<'_> {
    fn drop(&mut self) {
        if self.0.working.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.ended.notify(usize::MAX);
        }
    }
}

async fn write_regions(engine: &Engine, pair: usize, stop: &Stop) {
    let Some(regions) = regions_of(engine, pair) else { return };
    while let Some(working) = stop.begin() {
        let progress = regions.step(Waiting::Task).await;
        drop(working);
        if progress == region::Progress::Idle {
            stop.or(regions.wait_work()).await;
        }
    }
}

async fn write_buckets(engine: &Engine, pair: usize, stop: &Stop) {
    let Some(soc) = soc_of(engine, pair) else { return };
    while let Some(working) = stop.begin() {
        let idle = !soc.wants_step() || soc.step(Waiting::Task, engine.clock.unix_seconds()).await.idle();
        drop(working);
        if idle {
            stop.or(soc.wait_work(Waiting::Task)).await;
        }
    }
}

fn regions_of(engine: &Engine, pair: usize) -> Option<&RegionStore> {
    engine.flash.as_ref()?.pairs[pair].regions.as_ref()
}

fn soc_of(engine: &Engine, pair: usize) -> Option<&SmallEngine> {
    engine.flash.as_ref()?.pairs[pair].soc.as_ref()
}

impl Background {
    /// The background work as tasks: two for each pair of flash engines, which write regions and buckets, and one for upkeep, which sleeps
    /// by `timer`.
    pub(crate) fn tasks(&self, engine: &Arc<Engine>, timer: &Arc<dyn Timer>) -> Vec<Task> {
        let mut tasks: Vec<Task> = Vec::new();
        let pairs = engine.flash.as_ref().map_or(0, |flash| flash.pairs.len());
        for pair in 0..pairs {
            let (of_regions, stop) = (Arc::clone(engine), Arc::clone(&self.stop));
            tasks.push(Box::pin(async move { write_regions(&of_regions, pair, &stop).await }));
            let (of_buckets, stop) = (Arc::clone(engine), Arc::clone(&self.stop));
            tasks.push(Box::pin(async move { write_buckets(&of_buckets, pair, &stop).await }));
        }
        let (engine, timer, stop) = (Arc::clone(engine), Arc::clone(timer), Arc::clone(&self.stop));
        tasks.push(Box::pin(async move {
            while let Some(working) = stop.begin() {
                let pause_ns = engine.upkeep_step();
                drop(working);
                stop.or(timer::sleep(&*timer, pause_ns)).await;
            }
        }));
        tasks
    }
}

fn upkeep(engine: &Engine, stop: &Stop) {
    loop {
        let stopping = stop.stopping.listen();
        let Some(working) = stop.begin() else { return };
        let pause_ns = engine.upkeep_step();
        drop(working);
        stopping.wait_timeout(Duration::from_nanos(pause_ns));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use device::wrap::GateDevice;
    use device::{MemoryDevice, RequestKind};

    use crate::{Cache, InsertOptions};

    const LIMIT: Duration = Duration::from_millis(50);

    /// A device that does not respond must not block the drop of a cache.
    #[test]
    fn drop_waits_for_threads_within_its_limit_and_detaches_them_after_it() {
        let gate = Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(32 << 20))));
        let cache =
            Cache::builder().dram_bytes(4 << 20).flash(Arc::clone(&gate) as _).open().expect("it fits");
        gate.close(RequestKind::Write);
        for number in 0_u32.. {
            if gate.held() > 0 {
                break;
            }
            cache.try_insert(&number.to_le_bytes(), &[7; 4000], InsertOptions::default());
        }
        cache.background.request_stop();
        assert!(!cache.background.ended_within(LIMIT), "a write hangs");
        gate.open();
        assert!(cache.background.ended_within(Duration::from_secs(60)));
        assert!(cache.background.has_threads(), "not joined yet");
        drop(cache);
    }
}
