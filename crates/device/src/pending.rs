//! Two ways to wait for a request: as a future, or on a thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use crate::{Completion, Outcome};

impl Completion {
    /// A completion and the [`Pending`] that waits for it.
    pub fn pair() -> (Self, Pending) {
        let shared = Arc::new(Shared { state: Mutex::new(State::Waiting(None)), arrived: Condvar::new() });
        let pending = Pending { shared: Arc::clone(&shared) };
        (Self::new(move |outcome| shared.arrive(outcome)), pending)
    }
}

/// A request in flight. Await it in any executor, or [`wait`](Self::wait) for it on a thread. Dropping it does not stop the transfer.
#[must_use = "an unawaited request may have failed"]
pub struct Pending {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
}

enum State {
    Waiting(Option<Waker>),
    Arrived(Outcome),
    Taken,
}

impl Shared {
    fn arrive(&self, outcome: Outcome) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Arrived(outcome));
        self.arrived.notify_one();
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl Pending {
    /// A request that is already complete.
    pub fn ready(outcome: Outcome) -> Self {
        let state = Mutex::new(State::Arrived(outcome));
        Self { shared: Arc::new(Shared { state, arrived: Condvar::new() }) }
    }

    pub(crate) fn is_complete(&self) -> bool {
        !matches!(*self.shared.state.lock(), State::Waiting(_))
    }

    /// Blocks the thread until the request completes.
    pub fn wait(self) -> Outcome {
        // The request's submission may be deferred.
        crate::coalesce::run_deferred();
        if let Some(ring) = crate::io_paths::thread_ring::current() {
            ring.wait_for(&self);
        }
        let mut state = self.shared.state.lock();
        while matches!(*state, State::Waiting(_)) {
            self.shared.arrived.wait(&mut state);
        }
        take(&mut state)
    }
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.shared.state.lock();
        match &mut *state {
            State::Waiting(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(take(&mut state)),
        }
    }
}

fn take(state: &mut State) -> Outcome {
    match std::mem::replace(state, State::Taken) {
        State::Arrived(outcome) => outcome,
        _ => panic!("a request's outcome can be taken once"),
    }
}
