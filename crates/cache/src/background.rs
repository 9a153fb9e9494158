//! The rim: the only threads of this room. They call the engine's steps and sleep when there is nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use event_listener::{Event, Listener};

use crate::error::CacheError;
use crate::flash::Waiting;
use crate::hybrid::Engine;

/// The threads of one cache. Stopped and joined when dropped.
pub(crate) struct Background {
    stop: Arc<Stop>,
    engine: Arc<Engine>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    asked: AtomicBool,
    rung: Event,
}

impl Background {
    /// Starts the threads: one that writes regions, one that writes buckets, one for upkeep.
    pub(crate) fn start(engine: &Arc<Engine>) -> Result<Self, CacheError> {
        let mut background =
            Self { stop: Arc::new(Stop::default()), engine: Arc::clone(engine), threads: Vec::new() };
        if engine.flash.is_some() {
            background.spawn("flash-regions", |engine, stop| write(engine, stop, Part::Regions))?;
            background.spawn("flash-buckets", |engine, stop| write(engine, stop, Part::Buckets))?;
        }
        background.spawn("cache-upkeep", upkeep)?;
        Ok(background)
    }

    fn spawn(&mut self, name: &str, body: fn(&Engine, &Stop)) -> Result<(), CacheError> {
        let (engine, stop) = (Arc::clone(&self.engine), Arc::clone(&self.stop));
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
        if let Some(flash) = &self.engine.flash {
            flash.work.notify(usize::MAX);
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so itself; the cache is going away.
            let _ = thread.join();
        }
    }
}

/// Which engines a writing thread serves.
#[derive(Clone, Copy)]
enum Part {
    Regions,
    Buckets,
}

fn write(engine: &Engine, stop: &Stop, part: Part) {
    let Some(flash) = &engine.flash else { return };
    loop {
        // Listen first: what becomes ready during the step rings.
        let rung = flash.work.listen();
        if stop.asked.load(Ordering::SeqCst) {
            return;
        }
        let worked = pollster::block_on(async {
            match part {
                Part::Regions => flash.step_regions(Waiting::Task).await,
                Part::Buckets => flash.step_buckets(Waiting::Task).await,
            }
        });
        if !worked {
            rung.wait();
        }
    }
}

fn upkeep(engine: &Engine, stop: &Stop) {
    loop {
        let rung = stop.rung.listen();
        if stop.asked.load(Ordering::SeqCst) {
            return;
        }
        let pause_ns = engine.upkeep_step();
        rung.wait_timeout(Duration::from_nanos(pause_ns));
    }
}
