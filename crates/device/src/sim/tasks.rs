//! Tasks on one thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

type Body = Pin<Box<dyn Future<Output = ()>>>;

/// Unfinished tasks, and the runnable ones.
#[derive(Default)]
pub(super) struct Tasks {
    bodies: RefCell<BTreeMap<u64, Body>>,
    spawned: Cell<u64>,
    runnable: Arc<Mutex<Vec<Arc<TaskWaker>>>>,
}

/// The result of a task, for the caller that spawned it. Dropping it does not stop the task.
pub struct Task<T> {
    slot: Rc<RefCell<Slot<T>>>,
}

struct Slot<T> {
    result: Option<T>,
    waiting: Option<Waker>,
}

impl<T> Task<T> {
    /// The result, once, if the task has completed.
    #[must_use]
    pub fn result(&self) -> Option<T> {
        self.slot.borrow_mut().result.take()
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.slot.borrow_mut();
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waiting = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Tasks {
    pub(super) fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        let slot = Rc::new(RefCell::new(Slot { result: None, waiting: None }));
        let ended = Rc::clone(&slot);
        let body = Box::pin(async move {
            let result = future.await;
            let mut slot = ended.borrow_mut();
            slot.result = Some(result);
            if let Some(waiting) = slot.waiting.take() {
                waiting.wake();
            }
        });
        let number = self.spawned.replace(self.spawned.get() + 1);
        let is_runnable = AtomicBool::new(false);
        let waker = Arc::new(TaskWaker { number, is_runnable, runnable: Arc::downgrade(&self.runnable) });
        self.bodies.borrow_mut().insert(number, body);
        waker.wake();
        Task { slot }
    }

    /// Number of unfinished tasks.
    pub(super) fn len(&self) -> usize {
        self.bodies.borrow().len()
    }

    /// Polls one runnable task, selected by `choose` from their number. Returns false if there is none.
    pub(super) fn run_one(&self, choose: impl FnOnce(usize) -> usize) -> bool {
        let task = {
            let mut runnable = self.runnable.lock();
            if runnable.is_empty() {
                return false;
            }
            let chosen = choose(runnable.len());
            let task = runnable.swap_remove(chosen);
            task.is_runnable.store(false, Ordering::SeqCst);
            task
        };
        // Removed from the map while it runs, so that it can spawn others. A completed task can still be woken.
        let number = task.number;
        let Some(mut body) = self.bodies.borrow_mut().remove(&number) else { return true };
        if body.as_mut().poll(&mut Context::from_waker(&Waker::from(task))).is_pending() {
            self.bodies.borrow_mut().insert(number, body);
        }
        true
    }
}

/// Makes a task runnable, once, from any thread.
struct TaskWaker {
    number: u64,
    /// Whether it is in the list of runnable tasks; protected by the list's lock.
    is_runnable: AtomicBool,
    runnable: Weak<Mutex<Vec<Arc<Self>>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        // The simulation was dropped: woken tasks never run again.
        let Some(runnable) = self.runnable.upgrade() else { return };
        let mut runnable = runnable.lock();
        if !self.is_runnable.swap(true, Ordering::SeqCst) {
            runnable.push(self);
        }
    }
}
