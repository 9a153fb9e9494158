//! Who is told in the middle of what the cache does: of what makes room, or of whatever happens.
//!
//! A callback is somebody else's code where nobody else may tarry: chunk, slab or region are half emptied, and the thread
//! may be the one that everybody waits for. So while it runs, its thread brings nothing into the same cache, which would
//! have to evict in turn, and a panic waits until the eviction has ended.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::config::{Destroyed, ItemDestructor, Removal, RemoveCallback};

/// The callback of one cache.
pub(crate) struct Listener {
    callback: RemoveCallback,
}

/// A panic of the callback, kept until it does no harm. Dropped, it has been printed and no more.
#[derive(Default)]
pub(crate) struct Outcry(Cell<Option<Box<dyn Any + Send>>>);

thread_local! {
    /// Whose callbacks run on this thread, outermost first.
    static RUNNING: RefCell<Vec<*const ()>> = const { RefCell::new(Vec::new()) };
}

/// Runs somebody else's code in the name of `who`; its panic has been printed.
pub(crate) fn run_as<T>(who: &T, code: impl FnOnce()) -> Result<(), Box<dyn Any + Send>> {
    RUNNING.with_borrow_mut(|running| running.push(std::ptr::from_ref(who).cast()));
    let ended = catch_unwind(AssertUnwindSafe(code));
    RUNNING.with_borrow_mut(Vec::pop);
    ended
}

/// Whether this thread runs code in the name of `who`.
pub(crate) fn runs_as<T>(who: &T) -> bool {
    RUNNING.with_borrow(|running| running.contains(&std::ptr::from_ref(who).cast()))
}

impl Listener {
    pub(crate) fn new(callback: RemoveCallback) -> Self {
        Self { callback }
    }

    /// Tells of an item that left.
    pub(crate) fn tell(&self, key: &[u8], value: &[u8], why: Removal, outcry: &Outcry) {
        outcry.note(run_as(self, || (self.callback)(key, value, why)));
    }

    /// Whether this thread is in the callback.
    pub(crate) fn is_being_told(&self) -> bool {
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

    /// Calls it. A panic of it has been printed and ends here.
    pub(crate) fn call(&self, destroyed: &Destroyed<'_>) {
        drop(run_as(self, || (self.callback)(destroyed)));
    }

    /// Whether this thread is in it.
    pub(crate) fn is_running(&self) -> bool {
        runs_as(self)
    }
}

impl Outcry {
    /// Runs somebody else's code; keeps its panic, if it has one.
    pub(crate) fn keep(&self, code: impl FnOnce()) {
        self.note(catch_unwind(AssertUnwindSafe(code)));
    }

    fn note(&self, ended: Result<(), Box<dyn Any + Send>>) {
        if let Err(panic) = ended {
            self.0.set(Some(panic));
        }
    }

    /// Lets the panic go on, if there was one.
    pub(crate) fn let_out(&self) {
        if let Some(panic) = self.0.take() {
            resume_unwind(panic);
        }
    }
}
