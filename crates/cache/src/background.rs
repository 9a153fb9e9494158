//! Background threads of a cache. They call the engine's steps and sleep when there is no work. Without threads, the same loops are tasks
//! for an executor ([`tasks`](Background::tasks)).

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use device::event_loop;
use device::timer::{self, Timer};
use event_listener::Listener;
use parking_lot::Mutex;

use crate::error::CacheError;
use crate::flash::SmallEngine;
use crate::flash::Waiting;
use crate::flash::region::{self, RegionStore};
use crate::hybrid::Engine;
use crate::spawner::Task;
use crate::stop::{Running, Stop};

/// The threads of one cache, and the stop signal of its tasks. All end when this is dropped.
pub(crate) struct Background {
    stop: Arc<Stop>,
    /// The engine, whose fetches are stopped too.
    engine: Weak<Engine>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Time that dropping a cache waits for its threads. A step ends when the device completes its requests; a device that does not respond
/// must not block the drop permanently.
const DROP_LIMIT: Duration = Duration::from_secs(30);

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
            return self.stop.threads() <= own;
        }
        drop(threads);
        self.stop.wait_for_threads(own, limit)
    }

    fn request_stop(&self) {
        self.stop.request();
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
        let stopping = stop.listen();
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
