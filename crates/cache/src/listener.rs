//! Who is told of what makes room, in the middle of an eviction.
//!
//! A callback is somebody else's code where nobody else may tarry: chunk, slab or region are half emptied, and the thread
//! may be the one that everybody waits for. So while it runs, its thread brings nothing into the same cache, which would
//! have to evict in turn, and a panic waits until the eviction has ended.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::config::{Removal, RemoveCallback};

/// The callback of one cache.
pub(crate) struct Listener {
    callback: RemoveCallback,
}

/// A panic of the callback, kept until it does no harm. Dropped, it has been printed and no more.
#[derive(Default)]
pub(crate) struct Outcry(Cell<Option<Box<dyn Any + Send>>>);

thread_local! {
    /// Whose callbacks run on this thread, outermost first.
    static RUNNING: RefCell<Vec<*const Listener>> = const { RefCell::new(Vec::new()) };
}

impl Listener {
    pub(crate) fn new(callback: RemoveCallback) -> Self {
        Self { callback }
    }

    /// Tells of an item that left.
    pub(crate) fn tell(&self, key: &[u8], value: &[u8], why: Removal, outcry: &Outcry) {
        RUNNING.with_borrow_mut(|running| running.push(self));
        outcry.keep(|| (self.callback)(key, value, why));
        RUNNING.with_borrow_mut(Vec::pop);
    }

    /// Whether this thread is in the callback.
    pub(crate) fn is_being_told(&self) -> bool {
        RUNNING.with_borrow(|running| running.contains(&std::ptr::from_ref(self)))
    }
}

impl Outcry {
    /// Runs somebody else's code; keeps its panic, if it has one.
    pub(crate) fn keep(&self, code: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(code)) {
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
