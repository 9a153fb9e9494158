//! Things to be done later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::{Clock, SystemClock};

/// What a timer runs. It must not block.
pub type Action = Box<dyn FnOnce() + Send>;

/// A clock that can be asked to do something at a moment.
pub trait Timer: Clock {
    /// Runs `action` at `due_ns` of this clock, or soon if that is past; never within the call.
    fn at(&self, due_ns: u64, action: Action);

    /// Returns at `due_ns` of this clock. For callers who block.
    fn wait_until(&self, due_ns: u64);
}

/// A future that ends `duration_ns` from now.
pub fn sleep(timer: &dyn Timer, duration_ns: u64) -> Sleep<'_> {
    Sleep { timer, deadline_ns: timer.monotonic_ns().saturating_add(duration_ns) }
}

/// See [`sleep`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Sleep<'a> {
    timer: &'a dyn Timer,
    deadline_ns: u64,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.timer.monotonic_ns() >= self.deadline_ns {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        self.timer.at(self.deadline_ns, Box::new(move || waker.wake()));
        Poll::Pending
    }
}

/// The machine's clock, with one thread that sleeps until something is due. The thread starts with the first action.
#[derive(Default)]
pub struct SystemTimer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    agenda: Mutex<Agenda>,
    changed: Condvar,
}

#[derive(Default)]
struct Agenda {
    due: BinaryHeap<Reverse<Due>>,
    added: u64,
    closing: bool,
}

/// Ordered by moment, then by arrival.
struct Due {
    at_ns: u64,
    number: u64,
    action: Action,
}

impl Timer for SystemTimer {
    fn at(&self, due_ns: u64, action: Action) {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let started =
                std::thread::Builder::new().name("flash-timer".into()).spawn(move || shared.keep_time());
            *thread = Some(started.expect("a machine that cannot start one thread more cannot keep time"));
        }
        drop(thread);
        let mut agenda = self.shared.agenda.lock();
        agenda.added += 1;
        let number = agenda.added;
        agenda.due.push(Reverse(Due { at_ns: due_ns, number, action }));
        self.shared.changed.notify_one();
    }

    fn wait_until(&self, due_ns: u64) {
        let left_ns = due_ns.saturating_sub(self.monotonic_ns());
        #[allow(clippy::disallowed_methods, reason = "this is the clock that sleeping is to go through")]
        std::thread::sleep(Duration::from_nanos(left_ns));
    }
}

impl Clock for SystemTimer {
    fn monotonic_ns(&self) -> u64 {
        SystemClock.monotonic_ns()
    }

    fn unix_seconds(&self) -> u32 {
        SystemClock.unix_seconds()
    }
}

impl Drop for SystemTimer {
    /// What is not due yet is dropped undone.
    fn drop(&mut self) {
        self.shared.agenda.lock().closing = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.get_mut().take()
            && thread.thread().id() != std::thread::current().id()
        {
            let ended = thread.join();
            debug_assert!(ended.is_ok() || std::thread::panicking(), "a timer's action panicked");
        }
    }
}

impl Shared {
    fn keep_time(&self) {
        let mut agenda = self.agenda.lock();
        while !agenda.closing {
            let Some(Reverse(next)) = agenda.due.peek() else {
                self.changed.wait(&mut agenda);
                continue;
            };
            let left_ns = next.at_ns.saturating_sub(SystemClock.monotonic_ns());
            if left_ns > 0 {
                self.changed.wait_for(&mut agenda, Duration::from_nanos(left_ns));
            } else if let Some(Reverse(due)) = agenda.due.pop() {
                parking_lot::MutexGuard::unlocked(&mut agenda, due.action);
            }
        }
        let undone = std::mem::take(&mut agenda.due);
        drop(agenda);
        drop(undone);
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn actions_run_in_the_order_they_are_due_and_not_early() {
        let timer = SystemTimer::default();
        let (told, heard) = mpsc::channel();
        let start_ns = timer.monotonic_ns();
        for millis in [30, 10, 20] {
            let told = told.clone();
            timer.at(
                start_ns + millis * 1_000_000,
                Box::new(move || told.send((millis, SystemClock.monotonic_ns())).unwrap()),
            );
        }
        for expected in [10, 20, 30] {
            let (millis, at_ns) = heard.recv().unwrap();
            assert_eq!(millis, expected);
            assert!(at_ns >= start_ns + millis * 1_000_000, "action of {millis} ms was early");
        }
    }

    #[test]
    fn a_dropped_timer_drops_what_was_not_due() {
        let timer = SystemTimer::default();
        let (told, heard) = mpsc::channel::<()>();
        timer.at(u64::MAX, Box::new(move || drop(told)));
        drop(timer);
        assert_eq!(heard.recv(), Err(mpsc::RecvError));
    }
}
