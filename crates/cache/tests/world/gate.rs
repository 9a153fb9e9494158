//! A memory device whose requests wait until they are told to go on, and futures that are polled by hand.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use device::{Completion, Counters, Device, Geometry, MemoryDevice, Outcome, Request, RequestKind};
use parking_lot::Mutex;

/// See the module.
pub struct Gate {
    inner: MemoryDevice,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    closed_for: Vec<RequestKind>,
    held: Vec<(Held, Completion)>,
}

/// A read sees the medium when it is asked for and answers later: the harder case for whoever comes back to it. What
/// changes the medium does so when it is let go.
enum Held {
    Answer(Outcome),
    Change(Request),
}

impl Gate {
    pub fn new(inner: MemoryDevice) -> Self {
        Self { inner, state: Mutex::default() }
    }

    /// From now on requests of this kind wait.
    pub fn close(&self, kind: RequestKind) {
        self.state.lock().closed_for.push(kind);
    }

    /// Nothing waits any more. How many did.
    pub fn open(&self) -> usize {
        self.state.lock().closed_for.clear();
        self.let_pass()
    }

    /// What comes from now on does not wait; what waits goes on waiting.
    pub fn let_others_pass(&self) {
        self.state.lock().closed_for.clear();
    }

    /// Lets go what waits; what comes later waits again. How many there were.
    pub fn let_pass(&self) -> usize {
        let held = std::mem::take(&mut self.state.lock().held);
        let count = held.len();
        for (held, completion) in held {
            completion.complete(match held {
                Held::Answer(outcome) => outcome,
                Held::Change(request) => self.inner.execute(request),
            });
        }
        count
    }

    /// Requests that wait.
    pub fn held(&self) -> usize {
        self.state.lock().held.len()
    }
}

impl Device for Gate {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        let mut state = self.state.lock();
        if !state.closed_for.contains(&request.kind()) {
            drop(state);
            return completion.complete(self.inner.execute(request));
        }
        let held = match request.kind() {
            RequestKind::Read => Held::Answer(self.inner.execute(request)),
            _ => Held::Change(request),
        };
        state.held.push((held, completion));
    }

    /// Past the gate: the test's own thread must not wait for itself.
    fn execute(&self, request: Request) -> Outcome {
        self.inner.execute(request)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// Lets a future go on as far as it can.
pub fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// A future that has to wait.
pub fn waiting<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(poll(&mut future).is_none(), "it was to wait");
    future
}
