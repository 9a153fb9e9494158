//! Splits an operation into requests of the device's maximum length.

use std::ops::Range;
use std::sync::Arc;

use device::{Completion, Device, IoBuffer, IoError, Outcome, Request};
use parking_lot::Mutex;

/// Concurrent requests per operation: enough to keep a device busy without filling its queue.
const MAX_IN_FLIGHT: usize = 4;

/// A request, and its range in the whole buffer, which is empty unless it is a read.
pub(super) type Transfer = (Request, Range<usize>);

/// Submits `transfers` to `device`, a few concurrently. After the first error no more are submitted. Reads fill `whole`, which is empty for
/// writes.
pub(super) fn run(
    device: Arc<dyn Device>,
    transfers: impl Iterator<Item = Transfer> + Send + 'static,
    whole: IoBuffer,
    completion: Completion,
) {
    let state = State {
        transfers: Box::new(transfers),
        running: 0,
        submitting: true,
        failed: None,
        whole,
        completion: Some(completion),
    };
    Arc::new(TransferSeries { device, state: Mutex::new(state) }).submit_next();
}

struct TransferSeries {
    device: Arc<dyn Device>,
    state: Mutex<State>,
}

struct State {
    transfers: Box<dyn Iterator<Item = Transfer> + Send>,
    running: usize,
    /// Whether a thread is in [`TransferSeries::submit_next`]. A request that completes within its submission does not call it again, so the
    /// thread loops instead of recursing.
    submitting: bool,
    failed: Option<IoError>,
    whole: IoBuffer,
    completion: Option<Completion>,
}

impl TransferSeries {
    /// Submits requests up to the limit. `submitting` is set.
    fn submit_next(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let may_submit = state.running < MAX_IN_FLIGHT && state.failed.is_none();
            let Some((request, range)) = may_submit.then(|| state.transfers.next()).flatten() else {
                state.submitting = false;
                return complete_if_done(state);
            };
            state.running += 1;
            drop(state);
            let series = Arc::clone(self);
            self.device.submit(request, Completion::new(move |outcome| series.complete(&range, outcome)));
        }
    }

    fn complete(self: &Arc<Self>, range: &Range<usize>, outcome: Outcome) {
        let mut state = self.state.lock();
        state.running -= 1;
        match outcome {
            Ok(part) => state.whole[range.clone()].copy_from_slice(&part),
            Err(error) => state.failed = state.failed.take().or(Some(error)),
        }
        if !state.submitting {
            state.submitting = true;
            drop(state);
            self.submit_next();
        }
    }
}

fn complete_if_done(mut state: parking_lot::MutexGuard<'_, State>) {
    if state.running > 0 {
        return;
    }
    let outcome = match state.failed.take() {
        Some(error) => Err(error),
        None => Ok(std::mem::replace(&mut state.whole, IoBuffer::empty())),
    };
    let completion = state.completion.take();
    drop(state);
    if let Some(completion) = completion {
        completion.complete(outcome);
    }
}
