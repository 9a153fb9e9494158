//! Calls of user callbacks in the middle of a cache operation: of evictions, of destroyed items, and of events.
//!
//! Such a callback runs while a chunk, slab or region is partly evicted, on a thread that others may wait for. Therefore an insert into
//! the same cache from within it, which might have to evict in turn, panics; and a panic of the callback is held until the eviction has
//! ended.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::config::{Destroyed, ItemDestructor, Removal, RemoveCallback};

/// The callback of one cache.
pub(crate) struct Listener {
    callback: RemoveCallback,
}

/// A panic of a callback that is held until it can be resumed safely. If it is dropped instead, it was only printed.
#[derive(Default)]
pub(crate) struct CaughtPanic(Cell<Option<Box<dyn Any + Send>>>);

thread_local! {
    /// Owners of the callbacks that run on this thread, outermost first.
    static RUNNING: RefCell<Vec<*const ()>> = const { RefCell::new(Vec::new()) };
}

/// Runs `callback` on behalf of `owner`. A panic is returned; the panic hook has printed it already.
pub(crate) fn run_as<T>(owner: &T, callback: impl FnOnce()) -> Result<(), Box<dyn Any + Send>> {
    RUNNING.with_borrow_mut(|running| running.push(std::ptr::from_ref(owner).cast()));
    let result = catch_unwind(AssertUnwindSafe(callback));
    RUNNING.with_borrow_mut(Vec::pop);
    result
}

/// Whether this thread runs a callback on behalf of `owner`.
pub(crate) fn runs_as<T>(owner: &T) -> bool {
    RUNNING.with_borrow(|running| running.contains(&std::ptr::from_ref(owner).cast()))
}

impl Listener {
    pub(crate) fn new(callback: RemoveCallback) -> Self {
        Self { callback }
    }

    /// Calls the callback for an item that left the cache.
    pub(crate) fn notify(&self, key: &[u8], value: &[u8], why: Removal, caught: &CaughtPanic) {
        caught.keep_result(run_as(self, || (self.callback)(key, value, why)));
    }

    /// Whether this thread is in the callback.
    pub(crate) fn is_running(&self) -> bool {
        runs_as(self)
    }
}

/// The item destructor of one cache.
pub(crate) struct Destructor {
    callback: ItemDestructor,
}

impl Destructor {
    pub(crate) fn new(callback: ItemDestructor) -> Self {
        Self { callback }
    }

    /// Calls the destructor. A panic is printed and dropped.
    pub(crate) fn call(&self, destroyed: &Destroyed<'_>) {
        drop(run_as(self, || (self.callback)(destroyed)));
    }

    /// Whether this thread is in the destructor.
    pub(crate) fn is_running(&self) -> bool {
        runs_as(self)
    }
}

impl CaughtPanic {
    /// Runs `callback` and keeps its panic, if there is one.
    pub(crate) fn catch(&self, callback: impl FnOnce()) {
        self.keep_result(catch_unwind(AssertUnwindSafe(callback)));
    }

    fn keep_result(&self, result: Result<(), Box<dyn Any + Send>>) {
        if let Err(panic) = result {
            self.0.set(Some(panic));
        }
    }

    /// Resumes the panic, if there was one.
    pub(crate) fn resume(&self) {
        if let Some(panic) = self.0.take() {
            resume_unwind(panic);
        }
    }
}
