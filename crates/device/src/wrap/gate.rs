//! A device that holds its requests until a test releases them, to produce one specific order of events.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Completion, Device, Outcome, Request, RequestKind};

/// Passes requests through, except for the kinds for which it is closed.
///
/// A held read reads the medium at submission and completes later, which is the harder case for its caller; with
/// [`reading_on_release`](Self::reading_on_release) it reads the medium when it is released. Held writes and trims take effect when they
/// are released. [`execute`](Device::execute) bypasses the gate, because a test's own thread must not wait for itself.
pub struct GateDevice {
    inner: Arc<dyn Device>,
    reads_on_release: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    closed_for: Vec<RequestKind>,
    held: Vec<(Held, Completion)>,
}

enum Held {
    Answer(Outcome),
    Request(Request),
}

impl GateDevice {
    /// Wraps `inner` with an open gate.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, reads_on_release: false, state: Mutex::default() }
    }

    /// A gate whose held reads read the medium when they are released.
    pub fn reading_on_release(inner: Arc<dyn Device>) -> Self {
        Self { reads_on_release: true, ..Self::new(inner) }
    }

    /// Holds later requests of this kind.
    pub fn close(&self, kind: RequestKind) {
        self.state.lock().closed_for.push(kind);
    }

    /// Opens the gate for all kinds and releases held requests. Returns their number.
    pub fn open(&self) -> usize {
        self.stop_holding();
        self.release_held()
    }

    /// Passes later requests; those already held stay held.
    pub fn stop_holding(&self) {
        self.state.lock().closed_for.clear();
    }

    /// Releases the held requests; later requests are held again. Returns their number.
    pub fn release_held(&self) -> usize {
        let held = std::mem::take(&mut self.state.lock().held);
        let count = held.len();
        for (held, completion) in held {
            match held {
                Held::Answer(outcome) => completion.complete(outcome),
                Held::Request(request) => self.inner.submit(request, completion),
            }
        }
        count
    }

    /// Number of held requests.
    pub fn held(&self) -> usize {
        self.state.lock().held.len()
    }
}

impl Device for GateDevice {
    crate::forward_device!(inner: geometry, execute, hole_in, trims_to_zeros, counters, allocate_handle);

    fn submit(&self, request: Request, completion: Completion) {
        let mut state = self.state.lock();
        if !state.closed_for.contains(&request.kind()) {
            drop(state);
            return self.inner.submit(request, completion);
        }
        let held = match request.kind() {
            RequestKind::Read if !self.reads_on_release => Held::Answer(self.inner.execute(request)),
            _ => Held::Request(request),
        };
        state.held.push((held, completion));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoBuffer, MemoryDevice};

    fn gate() -> GateDevice {
        GateDevice::new(Arc::new(MemoryDevice::new(1 << 20)))
    }

    fn write(byte: u8) -> Request {
        let mut data = IoBuffer::zeroed(512);
        data.fill(byte);
        Request::write(0, data)
    }

    fn read() -> Request {
        Request::read(0, 512)
    }

    fn first_byte(outcome: Outcome) -> u8 {
        outcome.expect("memory does not fail")[0]
    }

    #[test]
    fn held_read_returns_data_of_its_submission() {
        let gate = gate();
        gate.execute(write(1)).unwrap();
        gate.close(RequestKind::Read);
        let waiting = <dyn Device>::start(&gate, read());
        <dyn Device>::start(&gate, write(2)).wait().unwrap();
        assert_eq!((gate.held(), gate.open()), (1, 1));
        assert_eq!(first_byte(waiting.wait()), 1);
        assert_eq!(first_byte(gate.execute(read())), 2);
    }

    #[test]
    fn held_write_takes_effect_on_release_and_later_ones_are_held() {
        let gate = gate();
        gate.close(RequestKind::Write);
        let first = <dyn Device>::start(&gate, write(1));
        assert_eq!(first_byte(gate.execute(read())), 0);
        assert_eq!(gate.release_held(), 1);
        first.wait().unwrap();
        assert_eq!(first_byte(gate.execute(read())), 1);
        let second = <dyn Device>::start(&gate, write(2));
        gate.stop_holding();
        <dyn Device>::start(&gate, write(3)).wait().unwrap();
        assert_eq!((first_byte(gate.execute(read())), gate.open()), (3, 1));
        second.wait().unwrap();
        assert_eq!(first_byte(gate.execute(read())), 2);
    }
}
