//! Scheduling of actions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::thread::set_current_timer_slack;

use crate::{Clock, SystemClock};

/// An action of a timer. It must not block.
pub type Action = Box<dyn FnOnce() + Send>;

/// A clock that can schedule actions.
pub trait Timer: Clock {
    /// Runs `action` at `due_ns` of this clock, or soon if that time has passed; never within the call.
    fn at(&self, due_ns: u64, action: Action);

    /// Blocks the calling thread until `due_ns` of this clock.
    fn wait_until(&self, due_ns: u64);
}

/// A future that completes `duration_ns` from now.
pub fn sleep(timer: &dyn Timer, duration_ns: u64) -> Sleep<'_> {
    Sleep { timer, deadline_ns: timer.monotonic_ns().saturating_add(duration_ns), waker: None }
}

/// See [`sleep`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Sleep<'a> {
    timer: &'a dyn Timer,
    deadline_ns: u64,
    /// The waker called by the timer's action. Registered once: a sleeper that shares a task with others is polled whenever one of them is,
    /// and an action per poll would wake the task endlessly.
    waker: Option<Arc<Mutex<Waker>>>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.timer.monotonic_ns() >= self.deadline_ns {
            return Poll::Ready(());
        }
        let Some(waker) = &self.waker else {
            let waker = Arc::new(Mutex::new(context.waker().clone()));
            let receiver = Arc::clone(&waker);
            self.timer.at(self.deadline_ns, Box::new(move || receiver.lock().wake_by_ref()));
            self.waker = Some(waker);
            return Poll::Pending;
        };
        waker.lock().clone_from(context.waker());
        // The action may have woken an earlier waker, but then the time has come.
        if self.timer.monotonic_ns() >= self.deadline_ns { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// The machine's clock, with one thread that sleeps until an action is due. The thread starts with the first action.
#[derive(Default)]
pub struct SystemTimer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    schedule: Mutex<Schedule>,
    changed: Condvar,
}

#[derive(Default)]
struct Schedule {
    due: BinaryHeap<Reverse<Due>>,
    added: u64,
    closing: bool,
}

/// Ordered by time, then by arrival.
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
                std::thread::Builder::new().name("flash-timer".into()).spawn(move || shared.run_actions());
            *thread = Some(started.expect("the timer thread can be started"));
        }
        drop(thread);
        let mut schedule = self.shared.schedule.lock();
        schedule.added += 1;
        let number = schedule.added;
        schedule.due.push(Reverse(Due { at_ns: due_ns, number, action }));
        self.shared.changed.notify_one();
    }

    fn wait_until(&self, due_ns: u64) {
        let left_ns = due_ns.saturating_sub(self.monotonic_ns());
        #[allow(clippy::disallowed_methods, reason = "this clock implements sleeping")]
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

    fn unix_microseconds(&self) -> u64 {
        SystemClock.unix_microseconds()
    }
}

impl Drop for SystemTimer {
    /// Actions that are not due are dropped.
    fn drop(&mut self) {
        self.shared.schedule.lock().closing = true;
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
    fn run_actions(&self) {
        // By default the kernel wakes a thread up to 50 us late, as long as a read takes. If the slack cannot be set, wakes are late.
        let _as_it_is = set_current_timer_slack(NonZeroU64::new(1));
        let mut schedule = self.schedule.lock();
        while !schedule.closing {
            let Some(Reverse(next)) = schedule.due.peek() else {
                self.changed.wait(&mut schedule);
                continue;
            };
            let left_ns = next.at_ns.saturating_sub(SystemClock.monotonic_ns());
            if left_ns > 0 {
                self.changed.wait_for(&mut schedule, Duration::from_nanos(left_ns));
            } else if let Some(Reverse(due)) = schedule.due.pop() {
                parking_lot::MutexGuard::unlocked(&mut schedule, due.action);
            }
        }
        let undone = std::mem::take(&mut schedule.due);
        drop(schedule);
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
    use crate::VirtualClock;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::task::Wake;

    #[test]
    fn actions_run_in_order_and_never_early() {
        let timer = SystemTimer::default();
        let (sender, receiver) = mpsc::channel();
        let start_ns = timer.monotonic_ns();
        for millis in [30, 10, 20] {
            let sender = sender.clone();
            timer.at(
                start_ns + millis * 1_000_000,
                Box::new(move || sender.send((millis, SystemClock.monotonic_ns())).unwrap()),
            );
        }
        for expected in [10, 20, 30] {
            let (millis, at_ns) = receiver.recv().unwrap();
            assert_eq!(millis, expected);
            assert!(at_ns >= start_ns + millis * 1_000_000, "action of {millis} ms was early");
        }
    }

    /// A stopped clock that counts timer requests.
    #[derive(Default)]
    struct Requests {
        clock: VirtualClock,
        actions: Mutex<Vec<Action>>,
    }

    impl Clock for Requests {
        fn monotonic_ns(&self) -> u64 {
            self.clock.monotonic_ns()
        }

        fn unix_seconds(&self) -> u32 {
            self.clock.unix_seconds()
        }
    }

    impl Timer for Requests {
        fn at(&self, _: u64, action: Action) {
            self.actions.lock().push(action);
        }

        fn wait_until(&self, _: u64) {}
    }

    /// Catches a regression: sleepers in one task register a timer at each poll, and each timer causes another poll.
    #[test]
    fn sleep_registers_once_and_wakes_the_last_poller() {
        #[derive(Default)]
        struct Woken(AtomicBool);

        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }

        let timer = Requests::default();
        let mut sleeper = sleep(&timer, 1000);
        let tasks = [Arc::new(Woken::default()), Arc::new(Woken::default())];
        for task in &tasks {
            for _ in 0..3 {
                let waker = Waker::from(Arc::clone(task));
                assert!(Pin::new(&mut sleeper).poll(&mut Context::from_waker(&waker)).is_pending());
            }
        }
        timer.clock.advance_by(1000);
        let actions = std::mem::take(&mut *timer.actions.lock());
        assert_eq!(actions.len(), 1);
        actions.into_iter().for_each(|action| action());
        assert_eq!(tasks.map(|task| task.0.load(Ordering::SeqCst)), [false, true]);
        assert!(Pin::new(&mut sleeper).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    #[test]
    fn dropped_timer_drops_pending_actions() {
        let timer = SystemTimer::default();
        let (sender, receiver) = mpsc::channel::<()>();
        timer.at(u64::MAX, Box::new(move || drop(sender)));
        drop(timer);
        assert_eq!(receiver.recv(), Err(mpsc::RecvError));
    }
}
