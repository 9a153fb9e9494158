//! The stop signal of a cache, and the steps and threads that it waits for.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use event_listener::{Event, EventListener, Listener};
use futures_util::future::select;

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

impl Stop {
    /// Refuses further steps, and wakes threads and tasks that sleep.
    pub(crate) fn request(&self) {
        self.requested.store(true, Ordering::SeqCst);
        self.stopping.notify(usize::MAX);
    }

    /// A listener for the request to stop.
    pub(crate) fn listen(&self) -> EventListener {
        self.stopping.listen()
    }

    /// Threads that have not ended.
    pub(crate) fn threads(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Waits until at most `count` threads run; returns whether that is so within `limit` after the last thread ended.
    pub(crate) fn wait_for_threads(&self, count: usize, limit: Duration) -> bool {
        loop {
            let ended = self.ended.listen();
            if self.threads() <= count {
                return true;
            }
            // Each thread notifies once, at its end.
            if ended.wait_timeout(limit).is_none() {
                return self.threads() <= count;
            }
        }
    }

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
    pub(crate) async fn all_ended(&self) {
        let is_done = || self.working.load(Ordering::SeqCst) == 0 && self.threads() == 0;
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
