//! Coalescing of system calls that serve many requests.
//!
//! Submitting a request and sending a reply both end in a system call that could serve many of them: entering a ring, sending a queue. A
//! thread that has several requests at hand handles them inside [`scope`]: an [`Action`] then runs once for a few of them, and after
//! the last. Outside of [`scope`] it runs immediately.

use std::cell::RefCell;
use std::sync::Arc;

/// An action that serves all its earlier requests when it runs once.
pub trait Action: Send + Sync {
    /// Runs the action. May be called when there is no work left.
    fn run(&self);
}

/// A deferred action, and the number of requests for it.
type Deferred = (Arc<dyn Action>, u32);

/// After this number of requests, an action runs immediately, so that its beneficiary proceeds in parallel. Running it only at the end of
/// each burst saved more system calls, but device, server and client then waited for each other in turn: an eighth fewer requests/s.
const MAX_DEFERRED_REQUESTS: u32 = 4;

thread_local! {
    /// Actions deferred by this thread while it is inside [`scope`].
    static DEFERRED: RefCell<Option<Vec<Deferred>>> = const { RefCell::new(None) };
}

/// Runs `body`, then each action that it requested and that has not run yet. In a nested call, the outermost call runs them.
///
/// `body` must not block until another thread has seen the effect of its actions; it may [wait](crate::Pending::wait) for a request.
pub fn scope<T>(body: impl FnOnce() -> T) -> T {
    let is_outermost = DEFERRED.with_borrow_mut(|deferred| {
        let is_outermost = deferred.is_none();
        deferred.get_or_insert_default();
        is_outermost
    });
    let _run_on_drop = is_outermost.then(|| RunOnDrop);
    body()
}

/// Runs the action now, or at the end of [`scope`].
pub fn request<A: Action + 'static>(action: &Arc<A>) {
    let is_due = DEFERRED.with_borrow_mut(|deferred| {
        let Some(actions) = deferred else { return true };
        let is_same = |(other, _): &Deferred| Arc::as_ptr(other).cast::<()>() == Arc::as_ptr(action).cast();
        let Some(place) = actions.iter().position(is_same) else {
            actions.push((Arc::clone(action) as Arc<dyn Action>, 1));
            return false;
        };
        actions[place].1 += 1;
        let is_due = actions[place].1 == MAX_DEFERRED_REQUESTS;
        if is_due {
            actions.swap_remove(place);
        }
        is_due
    });
    if is_due {
        action.run();
    }
}

/// Runs the deferred actions, because this thread is about to wait for their effect.
pub(crate) fn run_deferred() {
    let actions = DEFERRED.with_borrow_mut(|deferred| deferred.as_mut().map(std::mem::take));
    actions.into_iter().flatten().for_each(|(action, _)| action.run());
}

/// Ends [`scope`], also on a panic: requests started before must still reach their device.
struct RunOnDrop;

impl Drop for RunOnDrop {
    fn drop(&mut self) {
        let actions = DEFERRED.with_borrow_mut(Option::take);
        actions.into_iter().flatten().for_each(|(action, _)| action.run());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Action for Counted {
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
        request(&one);
        assert_eq!(one.runs(), 1, "alone, immediately");
        scope(|| {
            request(&one);
            scope(|| request(&other));
            request(&one);
            assert_eq!((one.runs(), other.runs()), (1, 0));
        });
        assert_eq!((one.runs(), other.runs()), (2, 1));
    }

    #[test]
    fn action_runs_after_a_few_requests() {
        let action = Arc::new(Counted::default());
        scope(|| {
            for submitted in 1..=2 * MAX_DEFERRED_REQUESTS {
                request(&action);
                assert_eq!(action.runs(), submitted / MAX_DEFERRED_REQUESTS);
            }
        });
        assert_eq!(action.runs(), 2, "no action is left");
    }

    #[test]
    fn waiting_inside_a_burst_runs_pending_actions_first() {
        let action = Arc::new(Counted::default());
        scope(|| {
            request(&action);
            run_deferred();
            assert_eq!(action.runs(), 1);
            request(&action);
            assert_eq!(action.runs(), 1, "deferred again");
        });
        assert_eq!(action.runs(), 2);
    }

    #[test]
    fn panic_does_not_lose_an_action() {
        let action = Arc::new(Counted::default());
        let panicked = std::panic::catch_unwind(|| {
            scope(|| {
                request(&action);
                panic!("in between");
            })
        });
        assert!(panicked.is_err());
        assert_eq!(action.runs(), 1);
    }
}
