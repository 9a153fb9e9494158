//! Requests on threads that block: where io_uring is not permitted, and for what it cannot do (discarding on a
//! block device).

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::medium::{InFlight, Medium};
use super::transfer::kind_of;
use crate::IoError;

/// Requests that block at once. Enough to keep a drive busy; io_uring is there for more.
const MAX_THREADS: usize = 16;

/// Threads that start as requests come, up to [`MAX_THREADS`]. Dropping the pool lets what is queued end first.
pub(super) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    medium: Arc<Medium>,
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

impl Pool {
    pub(super) fn new(medium: Arc<Medium>) -> Self {
        Self { shared: Arc::new(Shared { medium, queue: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Starts a request.
    pub(super) fn submit(&self, request: InFlight) {
        let mut queue = self.shared.queue.lock();
        if queue.idle <= queue.requests.len() && queue.threads.len() < MAX_THREADS {
            match self.start_thread() {
                Ok(thread) => queue.threads.push(thread),
                Err(error) if queue.threads.is_empty() => {
                    drop(queue);
                    return self.shared.medium.finish(request.refuse(error));
                }
                // The threads there are will come to it.
                Err(_) => {}
            }
        }
        queue.requests.push_back(request);
        self.shared.changed.notify_one();
    }

    fn start_thread(&self) -> Result<JoinHandle<()>, IoError> {
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new().name("flash-pool".into()).spawn(move || shared.work());
        let context = || format!("{}: no thread to transfer with", self.shared.medium.path.display());
        started.map_err(|error| IoError::with_source(kind_of(&error), context(), error))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.closing = true;
        let threads = std::mem::take(&mut queue.threads);
        self.shared.changed.notify_all();
        drop(queue);
        // The last owner may be a completion that one of the threads runs; that one then ends unattended.
        let this_thread = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != this_thread) {
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "panics of completions are caught");
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(request) = self.next() {
            self.medium.finish(request.run(&self.medium));
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
