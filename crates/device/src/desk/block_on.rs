//! Running a future at a desk, so that a program without a runtime has its requests end on its own thread.

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

/// Looks without sleeping.
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Runs `future` to its end on this thread, at a [desk](super): the requests that it starts, on any file or block device, end
/// here, and none of them wakes another thread. With many in flight that is a good deal cheaper than any executor that sleeps
/// by itself. What other threads do for it wakes this one.
///
/// The future must not block the thread for long: whoever waits for one of its requests elsewhere waits too. It returns when what
/// the future started and gave up has ended as well. On a thread that sits already, as within another call of this, it is
/// [`wait_for`].
pub fn block_on<F: Future>(future: F) -> F::Output {
    if seat::own().is_some() {
        return wait_for(future);
    }
    // Without descriptors there is nothing to sleep by but the thread.
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

/// Runs `future` to its end on this thread, wherever its requests end: at the thread's desk if it sits at one, where it
/// learns of what others do within a millisecond, and else on the devices' threads. It costs nothing to begin, and is for what
/// seldom waits at all.
pub fn wait_for<F: Future>(future: F) -> F::Output {
    let alarm = Arc::new(Alarm::new(Sleeper::Thread(thread::current())));
    alarm.run(future, |timeout| match (seat::own(), timeout) {
        (Some(seat), _) => seat.wait_a_little(),
        (None, None) => thread::park(),
        (None, Some(_)) => {}
    })
}

/// What wakes a future that runs here.
struct Alarm {
    /// The future is to be polled.
    is_due: AtomicBool,
    is_asleep: AtomicBool,
    sleeper: Sleeper,
}

/// What the thread sleeps by.
enum Sleeper {
    Bell(Arc<OwnedFd>),
    Thread(Thread),
}

impl Alarm {
    fn new(sleeper: Sleeper) -> Self {
        Self { is_due: AtomicBool::new(true), is_asleep: AtomicBool::new(false), sleeper }
    }

    /// Polls `future` whenever it is due, and has this thread `sleep` between. Where it is due again already, `sleep` has no time,
    /// and only looks for what has ended: a future that always is due does not keep requests from their ends.
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
            // Who wakes it from now on sees it asleep; who did before has made it due.
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
