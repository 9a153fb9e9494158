//! Combines partial requests into one.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Completion, IoBuffer, Outcome};

/// Completes a request when all its parts have completed: with the first error, if any.
pub(crate) struct Join {
    state: Mutex<State>,
}

struct State {
    parts_left: usize,
    outcome: Outcome,
    completion: Option<Completion>,
}

impl Join {
    /// A request of `parts` parts, at least one. `buffer` collects the parts of a read, and is empty otherwise.
    pub(crate) fn new(parts: usize, buffer: IoBuffer, completion: Completion) -> Arc<Self> {
        let state = State { parts_left: parts, outcome: Ok(buffer), completion: Some(completion) };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// The completion of a part. A read part is copied to `range` of the buffer; `range` is empty for others.
    pub(crate) fn part(self: &Arc<Self>, range: Range<usize>) -> Completion {
        let join = Arc::clone(self);
        Completion::new(move |outcome| join.arrive(range, outcome))
    }

    fn arrive(&self, range: Range<usize>, outcome: Outcome) {
        let mut state = self.state.lock();
        match (&mut state.outcome, outcome) {
            (Ok(buffer), Ok(part)) => buffer[range].copy_from_slice(&part),
            (Ok(_), Err(error)) => state.outcome = Err(error),
            _ => {}
        }
        state.parts_left -= 1;
        if state.parts_left > 0 {
            return;
        }
        let outcome = std::mem::replace(&mut state.outcome, Ok(IoBuffer::empty()));
        let completion = state.completion.take();
        drop(state);
        if let Some(completion) = completion {
            completion.complete(outcome);
        }
    }
}
