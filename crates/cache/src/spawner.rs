//! Runs fetches that no caller drives: because a spawner was given, or because their last caller was dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::ThreadId;

use device::event_loop;
use event_listener::Event;
use futures_util::future::select;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;

use crate::stop::{Running, Stop};

/// A future for an executor.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a task on an executor. See [`Builder::spawner`](crate::Builder::spawner).
pub type Spawn = Arc<dyn Fn(Task) + Send + Sync>;

/// The executor of a cache.
pub enum Spawner {
    /// Given to the builder. Fetches run here from the start.
    Given(Spawn),
    /// A thread of the cache, started when it is first needed. Fetches run here once their last caller is dropped.
    OwnThread(OwnThread),
    /// None: a stepped cache starts no threads.
    None,
}

/// An executor of one thread.
pub struct OwnThread {
    /// The stop signal of the cache, whose close waits for the thread.
    stop: Arc<Stop>,
    queue: Arc<Queue>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<Queued>,
    changed: Event,
}

#[derive(Default)]
struct Queued {
    tasks: Vec<Task>,
    stopped: bool,
}

impl Spawner {
    /// Runs `task`; drops it if there is no executor.
    pub fn spawn(&self, task: Task) {
        match self {
            Self::Given(spawn) => spawn(task),
            Self::OwnThread(own) => own.spawn(task),
            Self::None => {}
        }
    }

    /// The executor on which fetches run from the start, if there is one.
    pub fn at_start(&self) -> Option<Spawn> {
        match self {
            Self::Given(spawn) => Some(Arc::clone(spawn)),
            #[cfg(feature = "tokio")]
            Self::OwnThread(_) => of_current_runtime(),
            _ => None,
        }
    }

    /// Whether spawned tasks run.
    pub fn runs(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Drops the tasks of the cache's thread and lets it end.
    pub fn stop(&self) {
        if let Self::OwnThread(own) = self {
            own.stop();
        }
    }

    /// Whether `thread` is the cache's thread for fetches.
    pub fn runs_on(&self, thread: ThreadId) -> bool {
        let Self::OwnThread(own) = self else { return false };
        own.thread.lock().as_ref().is_some_and(|own| own.thread().id() == thread)
    }

    /// Waits until the cache's thread has ended.
    pub fn join(&self) {
        if let Self::OwnThread(own) = self {
            own.join();
        }
    }

    /// Detaches the cache's thread, so that [`join`](Self::join) does not wait for it.
    pub fn detach(&self) {
        if let Self::OwnThread(own) = self {
            drop(own.thread.lock().take());
        }
    }
}

/// The tokio runtime of the calling thread, if there is one.
#[cfg(feature = "tokio")]
fn of_current_runtime() -> Option<Spawn> {
    let handle = tokio::runtime::Handle::try_current().ok()?;
    Some(Arc::new(move |task| drop(handle.spawn(task))))
}

impl OwnThread {
    pub fn new(stop: Arc<Stop>) -> Self {
        Self { stop, queue: Arc::default(), thread: Mutex::default() }
    }

    fn spawn(&self, task: Task) {
        {
            let mut state = self.queue.state.lock();
            if state.stopped {
                return;
            }
            state.tasks.push(task);
        }
        self.queue.changed.notify(usize::MAX);
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (queue, running) = (Arc::clone(&self.queue), Running::new(&self.stop));
            let started = std::thread::Builder::new().name("cache-fetches".to_owned()).spawn(move || {
                let _running = running;
                event_loop::block_on(queue.run());
            });
            // Without the thread, tasks stay queued until the cache is dropped. A later caller of the key joins its fetch and drives it.
            *thread = started.ok();
        }
    }

    fn stop(&self) {
        let abandoned = {
            let mut state = self.queue.state.lock();
            state.stopped = true;
            std::mem::take(&mut state.tasks)
        };
        drop(abandoned);
        self.queue.changed.notify(usize::MAX);
    }

    fn join(&self) {
        let thread = self.thread.lock().take();
        // A task may hold the last reference to the cache. Its thread then ends by itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic has been printed by its thread.
            let _ = thread.join();
        }
    }
}

impl Queue {
    /// Runs spawned tasks until the cache stops.
    async fn run(&self) {
        let mut running = FuturesUnordered::new();
        loop {
            let changed = self.changed.listen();
            {
                let mut state = self.state.lock();
                if state.stopped {
                    return;
                }
                running.extend(state.tasks.drain(..).map(Contained));
            }
            if running.is_empty() {
                changed.await;
            } else {
                select(changed, running.next()).await;
            }
        }
    }
}

/// A task whose panic is printed and ends only this task.
struct Contained(Task);

impl Future for Contained {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let polled = std::panic::AssertUnwindSafe(|| self.0.as_mut().poll(context));
        std::panic::catch_unwind(polled).unwrap_or(Poll::Ready(()))
    }
}
