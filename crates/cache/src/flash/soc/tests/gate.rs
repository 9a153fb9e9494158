//! A memory device whose transfers can be held back or made to fail.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use device::{Completion, Counters, Device, ErrorKind, Geometry, IoError, MemoryDevice, Outcome, Request};
use parking_lot::Mutex;

pub struct Gate {
    inner: MemoryDevice,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hold_reads: bool,
    hold_writes: bool,
    fail_reads: bool,
    fail_writes: bool,
    held: Vec<(Held, Completion)>,
}

/// A read sees the medium when it is asked for and answers later: the harder case for whoever comes back to it. A write
/// reaches the medium when it is let go.
enum Held {
    Answer(Outcome),
    Write(Request),
}

impl Gate {
    pub fn new(inner: MemoryDevice) -> Self {
        Self { inner, state: Mutex::default() }
    }

    pub fn inner(&self) -> &dyn Device {
        &self.inner
    }

    pub fn hold_reads(&self, hold: bool) {
        self.state.lock().hold_reads = hold;
        self.let_go();
    }

    pub fn hold_writes(&self, hold: bool) {
        self.state.lock().hold_writes = hold;
        self.let_go();
    }

    pub fn fail_reads(&self, fail: bool) {
        self.state.lock().fail_reads = fail;
    }

    pub fn fail_writes(&self, fail: bool) {
        self.state.lock().fail_writes = fail;
    }

    fn let_go(&self) {
        let held = std::mem::take(&mut self.state.lock().held);
        for (held, completion) in held {
            match held {
                Held::Answer(outcome) => completion.complete(outcome),
                Held::Write(request) => self.submit(request, completion),
            }
        }
    }
}

impl Device for Gate {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        let mut state = self.state.lock();
        match request {
            Request::Read { .. } if state.hold_reads => {
                state.held.push((Held::Answer(self.inner.execute(request)), completion));
            }
            Request::Write { .. } if state.hold_writes => state.held.push((Held::Write(request), completion)),
            request => {
                drop(state);
                completion.complete(self.execute(request));
            }
        }
    }

    /// Past the holds: the test's own thread must not wait for itself.
    fn execute(&self, request: Request) -> Outcome {
        let fail = {
            let state = self.state.lock();
            if matches!(request, Request::Read { .. }) { state.fail_reads } else { state.fail_writes }
        };
        if fail {
            return Err(IoError::new(ErrorKind::Medium, "the test said so"));
        }
        self.inner.execute(request)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

pub fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
