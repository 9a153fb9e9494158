//! Tasks on one thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

type Body = Pin<Box<dyn Future<Output = ()>>>;

/// Tasks that have not ended, and which of them can go on.
#[derive(Default)]
pub(super) struct Tasks {
    bodies: RefCell<BTreeMap<u64, Body>>,
    spawned: Cell<u64>,
    runnable: Arc<Runnable>,
}

/// Numbers of tasks that were woken, each once. Wakers reach it from anywhere.
#[derive(Default)]
struct Runnable(Mutex<Vec<u64>>);

/// What a task came to, for whoever spawned it. Dropping it does not stop the task.
pub struct Task<T> {
    slot: Rc<RefCell<Slot<T>>>,
}

struct Slot<T> {
    result: Option<T>,
    waiting: Option<Waker>,
}

impl<T> Task<T> {
    /// The result, once, if the task has ended.
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
        self.bodies.borrow_mut().insert(number, body);
        self.runnable.add(number);
        Task { slot }
    }

    /// Tasks that have not ended.
    pub(super) fn len(&self) -> usize {
        self.bodies.borrow().len()
    }

    /// Lets one runnable task go on, the one that `choose` picks among so many. False if there was none.
    pub(super) fn run_one(&self, choose: impl FnOnce(usize) -> usize) -> bool {
        let number = {
            let mut runnable = self.runnable.0.lock();
            if runnable.is_empty() {
                return false;
            }
            let chosen = choose(runnable.len());
            runnable.swap_remove(chosen)
        };
        // Out of the map while it runs, so that it may spawn others. A task that has ended may still be woken.
        let Some(mut body) = self.bodies.borrow_mut().remove(&number) else { return true };
        let waker = Waker::from(Arc::new(TaskWaker { number, runnable: Arc::clone(&self.runnable) }));
        if body.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.bodies.borrow_mut().insert(number, body);
        }
        true
    }
}

impl Runnable {
    fn add(&self, number: u64) {
        let mut runnable = self.0.lock();
        if !runnable.contains(&number) {
            runnable.push(number);
        }
    }
}

struct TaskWaker {
    number: u64,
    runnable: Arc<Runnable>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.runnable.add(self.number);
    }
}
