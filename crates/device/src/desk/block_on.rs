//! Runs a future on an event loop, so that a program without a runtime handles completions on its own thread.

use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use rustix::time::Timespec;

use super::{Desk, Watched};
use crate::bell;
use crate::carry::seat;
use crate::together;

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
    if seat::own().is_some() {
        return wait_for(future);
    }
    // Without a free descriptor the thread can only park.
    let Ok(bell) = bell::new().map(Arc::new) else { return wait_for(future) };
    let alarm = Arc::new(Alarm::new(Sleeper::Bell(Arc::clone(&bell))));
    let desk = Desk::sit_down([Watched::input(bell.as_fd())]);
    alarm.run(future, |timeout| {
        let waited = desk.wait([true], timeout);
        alarm.is_asleep.store(false, Ordering::SeqCst);
        if waited.expect("a ring of our own, or poll on a descriptor of our own") == [true] {
            bell::silence(&bell);
        }
        desk.tell();
    })
}

/// Runs `future` to completion on this thread. Its requests complete on the thread's event loop if it has one, which notices wakes from
/// other threads within a millisecond, otherwise on the devices' threads. It has no set-up cost, and suits futures that rarely wait.
pub fn wait_for<F: Future>(future: F) -> F::Output {
    let alarm = Arc::new(Alarm::new(Sleeper::Thread(thread::current())));
    alarm.run(future, |timeout| match (seat::own(), timeout) {
        (Some(seat), _) => seat.wait_a_little(),
        (None, None) => thread::park(),
        (None, Some(_)) => {}
    })
}

/// The waker of a future that runs here.
struct Alarm {
    /// Whether the future must be polled.
    is_due: AtomicBool,
    is_asleep: AtomicBool,
    sleeper: Sleeper,
}

/// The way in which the thread sleeps.
enum Sleeper {
    Bell(Arc<OwnedFd>),
    Thread(Thread),
}

impl Alarm {
    fn new(sleeper: Sleeper) -> Self {
        Self { is_due: AtomicBool::new(true), is_asleep: AtomicBool::new(false), sleeper }
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
            together::settle();
            self.is_asleep.store(true, Ordering::SeqCst);
            // A later wake sees the thread asleep; an earlier one has set `is_due`.
            let is_due = self.is_due.load(Ordering::SeqCst);
            sleep(is_due.then_some(&NO_TIME));
            self.is_asleep.store(false, Ordering::SeqCst);
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            match &self.sleeper {
                Sleeper::Bell(bell) => bell::ring(bell),
                Sleeper::Thread(thread) => thread.unpark(),
            }
        }
    }
}
