//! Requests on blocking threads: used if io_uring is not permitted, and for requests that it does not support (discards on a block device).

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::in_flight::{InFlight, Open};
use super::medium::Medium;
use super::transfer::error_kind;
use crate::IoError;

/// Threads, and so concurrent requests. Enough to keep a drive busy; io_uring serves deeper queues.
const MAX_THREADS: usize = 16;

/// Threads that start on demand, up to [`MAX_THREADS`]. Dropping the pool waits for queued requests.
pub(super) struct Pool<M> {
    shared: Arc<Shared<M>>,
}

struct Shared<M> {
    open: Arc<Open<M>>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<InFlight>,
    threads: Vec<JoinHandle<()>>,
    idle: usize,
    closing: bool,
}

impl<M: Medium> Pool<M> {
    pub(super) fn new(open: Arc<Open<M>>) -> Self {
        Self { shared: Arc::new(Shared { open, queue: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Starts a request.
    pub(super) fn submit(&self, request: InFlight) {
        let mut queue = self.shared.queue.lock();
        if queue.idle <= queue.requests.len() && queue.threads.len() < MAX_THREADS {
            match self.start_thread() {
                Ok(thread) => queue.threads.push(thread),
                Err(error) if queue.threads.is_empty() => {
                    drop(queue);
                    return self.shared.open.finish(request.refuse(error));
                }
                // The existing threads will process the request.
                Err(_) => {}
            }
        }
        queue.requests.push_back(request);
        self.shared.changed.notify_one();
    }

    fn start_thread(&self) -> Result<JoinHandle<()>, IoError> {
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new().name("flash-pool".into()).spawn(move || shared.work());
        let context = || format!("{}: cannot start an I/O thread", self.shared.open.path.display());
        started.map_err(|error| IoError::with_source(error_kind(&error), context(), error))
    }
}

impl<M> Drop for Pool<M> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.closing = true;
        let threads = std::mem::take(&mut queue.threads);
        self.shared.changed.notify_all();
        drop(queue);
        // The last owner may be a completion on one of the threads; that thread cannot be joined here.
        let this_thread = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != this_thread) {
            let joined = thread.join();
            debug_assert!(joined.is_ok(), "panics of completions are caught");
        }
    }
}

impl<M: Medium> Shared<M> {
    fn work(&self) {
        while let Some(request) = self.next() {
            self.open.finish(request.run(&self.open));
        }
    }

    fn next(&self) -> Option<InFlight> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(request) = queue.requests.pop_front() {
                return Some(request);
            }
            if queue.closing {
                return None;
            }
            queue.idle += 1;
            self.changed.wait(&mut queue);
            queue.idle -= 1;
        }
    }
}
