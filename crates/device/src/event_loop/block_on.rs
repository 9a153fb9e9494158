//! Runs a future on an event loop, so that a program without a runtime handles completions on its own thread.

use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use rustix::time::Timespec;

use super::{EventLoop, Watched};
use crate::coalesce;
use crate::event_fd;
use crate::io_paths::thread_ring;

/// A zero timeout: polls without sleeping.
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Runs `future` to completion on this thread with an [event loop](super): the requests that it starts, on any file or block device,
/// complete here without waking another thread. With many in flight that is much cheaper than an executor with its own sleep. Wakers called
/// by other threads wake this thread.
///
/// The future must not block the thread for long: callers that wait elsewhere for one of its requests would wait too. Returns after
/// requests that the future started and dropped have completed as well. On a thread that already has an event loop, as within another call
/// of this function, it is [`wait_for`].
pub fn block_on<F: Future>(future: F) -> F::Output {
    if thread_ring::current().is_some() {
        return wait_for(future);
    }
    // Without a free descriptor the thread can only park.
    let Ok(event_fd) = event_fd::new().map(Arc::new) else { return wait_for(future) };
    let waker = Arc::new(FutureWaker::new(SleepMethod::EventFd(Arc::clone(&event_fd))));
    let event_loop = EventLoop::new([Watched::input(event_fd.as_fd())]);
    waker.run(future, |timeout| {
        let waited = event_loop.wait([true], timeout);
        waker.is_asleep.store(false, Ordering::SeqCst);
        if waited.expect("a ring of our own, or poll on a descriptor of our own") == [true] {
            event_fd::clear(&event_fd);
        }
        event_loop.run_completions();
    })
}

/// Runs `future` to completion on this thread. Its requests complete on the thread's event loop if it has one, which notices wakes from
/// other threads within a millisecond, otherwise on the devices' threads. It has no set-up cost, and suits futures that rarely wait.
pub fn wait_for<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(FutureWaker::new(SleepMethod::Park(thread::current())));
    waker.run(future, |timeout| match (thread_ring::current(), timeout) {
        (Some(ring), _) => ring.poll_completions(),
        (None, None) => thread::park(),
        (None, Some(_)) => {}
    })
}

/// The waker of a future that runs here.
struct FutureWaker {
    /// Whether the future must be polled.
    is_due: AtomicBool,
    is_asleep: AtomicBool,
    sleep_method: SleepMethod,
}

/// The way in which the thread sleeps.
enum SleepMethod {
    EventFd(Arc<OwnedFd>),
    Park(Thread),
}

impl FutureWaker {
    fn new(sleep_method: SleepMethod) -> Self {
        Self { is_due: AtomicBool::new(true), is_asleep: AtomicBool::new(false), sleep_method }
    }

    /// Polls `future` whenever it is due, and calls `sleep` between. If the future is due again, the sleep has a zero timeout, so that a
    /// future that is always due does not delay completions.
    fn run<F: Future>(self: &Arc<Self>, future: F, sleep: impl Fn(Option<&Timespec>)) -> F::Output {
        let mut future = pin!(future);
        let waker = Waker::from(Arc::clone(self));
        let mut context = Context::from_waker(&waker);
        loop {
            if self.is_due.swap(false, Ordering::SeqCst)
                && let Poll::Ready(output) = future.as_mut().poll(&mut context)
            {
                return output;
            }
            coalesce::run_deferred();
            self.is_asleep.store(true, Ordering::SeqCst);
            // A later wake sees the thread asleep; an earlier one has set `is_due`.
            let is_due = self.is_due.load(Ordering::SeqCst);
            sleep(is_due.then_some(&NO_TIME));
            self.is_asleep.store(false, Ordering::SeqCst);
        }
    }
}

impl Wake for FutureWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            match &self.sleep_method {
                SleepMethod::EventFd(event_fd) => event_fd::signal(event_fd),
                SleepMethod::Park(thread) => thread.unpark(),
            }
        }
    }
}
