//! Coalescing of system calls that serve many requests.
//!
//! Submitting a request and sending a reply both end in a system call that could serve many of them: entering a ring, sending a queue. A
//! thread that has several requests at hand handles them inside [`together`]: an [`Errand`] then runs once for a few of them, and after
//! the last. Outside of [`together`] it runs immediately.

use std::cell::RefCell;
use std::sync::Arc;

/// An action that serves all its earlier requests when it runs once.
pub trait Errand: Send + Sync {
    /// Runs the action. May be called when nothing is left to do.
    fn run(&self);
}

/// A deferred action, and the number of requests for it.
type PutOff = (Arc<dyn Errand>, u32);

/// After this number of requests, an action runs immediately, so that its beneficiary proceeds in parallel. Running it only at the end of
/// each burst saved more system calls, but device, server and client then waited for each other in turn: an eighth fewer requests/s.
const MOST: u32 = 4;

thread_local! {
    /// Actions deferred by this thread while it is inside [`together`].
    static PUT_OFF: RefCell<Option<Vec<PutOff>>> = const { RefCell::new(None) };
}

/// Runs `body`, then each action that it requested and that has not run yet. In a nested call, the outermost call runs them.
///
/// `body` must not block until another thread has seen the effect of its actions; it may [wait](crate::Pending::wait) for a request.
pub fn together<T>(body: impl FnOnce() -> T) -> T {
    let is_outermost = PUT_OFF.with_borrow_mut(|put_off| {
        let is_outermost = put_off.is_none();
        put_off.get_or_insert_default();
        is_outermost
    });
    let _leave = is_outermost.then(|| Leave);
    body()
}

/// Runs the action now, or at the end of [`together`].
pub fn once<E: Errand + 'static>(errand: &Arc<E>) {
    let is_due = PUT_OFF.with_borrow_mut(|put_off| {
        let Some(errands) = put_off else { return true };
        let is_same = |(other, _): &PutOff| Arc::as_ptr(other).cast::<()>() == Arc::as_ptr(errand).cast();
        let Some(place) = errands.iter().position(is_same) else {
            errands.push((Arc::clone(errand) as Arc<dyn Errand>, 1));
            return false;
        };
        errands[place].1 += 1;
        let is_due = errands[place].1 == MOST;
        if is_due {
            errands.swap_remove(place);
        }
        is_due
    });
    if is_due {
        errand.run();
    }
}

/// Runs the deferred actions, because this thread is about to wait for their effect.
pub(crate) fn settle() {
    let errands = PUT_OFF.with_borrow_mut(|put_off| put_off.as_mut().map(std::mem::take));
    errands.into_iter().flatten().for_each(|(errand, _)| errand.run());
}

/// Ends [`together`], also on a panic: requests started before must still reach their device.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        let errands = PUT_OFF.with_borrow_mut(Option::take);
        errands.into_iter().flatten().for_each(|(errand, _)| errand.run());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Errand for Counted {
        fn run(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Counted {
        fn runs(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn action_runs_once_for_several_requests() {
        let (one, other) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
        once(&one);
        assert_eq!(one.runs(), 1, "alone, immediately");
        together(|| {
            once(&one);
            together(|| once(&other));
            once(&one);
            assert_eq!((one.runs(), other.runs()), (1, 0));
        });
        assert_eq!((one.runs(), other.runs()), (2, 1));
    }

    #[test]
    fn action_runs_after_a_few_requests() {
        let errand = Arc::new(Counted::default());
        together(|| {
            for asked in 1..=2 * MOST {
                once(&errand);
                assert_eq!(errand.runs(), asked / MOST);
            }
        });
        assert_eq!(errand.runs(), 2, "no action is left");
    }

    #[test]
    fn waiting_inside_a_burst_runs_pending_actions_first() {
        let errand = Arc::new(Counted::default());
        together(|| {
            once(&errand);
            settle();
            assert_eq!(errand.runs(), 1);
            once(&errand);
            assert_eq!(errand.runs(), 1, "deferred again");
        });
        assert_eq!(errand.runs(), 2);
    }

    #[test]
    fn panic_does_not_lose_an_action() {
        let errand = Arc::new(Counted::default());
        let panicked = std::panic::catch_unwind(|| {
            together(|| {
                once(&errand);
                panic!("in between");
            })
        });
        assert!(panicked.is_err());
        assert_eq!(errand.runs(), 1);
    }
}
