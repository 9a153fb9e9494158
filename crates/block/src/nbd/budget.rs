//! How much memory all the connections of a server may fill together.
//!
//! Each connection may always have one small request under way, whatever the others do: who fills the rest slows the others
//! down to that and never to nothing.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use device::bell;
use parking_lot::Mutex;

/// What a connection with nothing under way may always ask for.
const ALWAYS_BYTES: usize = 128 << 10;

/// Bytes of requests under way, of all connections.
#[derive(Debug)]
pub(super) struct Budget {
    total_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used_bytes: usize,
    /// Bells of connections that wait for bytes to be given back.
    waiting: Vec<Arc<OwnedFd>>,
}

impl Budget {
    pub fn new(total_bytes: usize) -> Self {
        Self { total_bytes, state: Mutex::default() }
    }

    /// Takes `bytes` if they are to be had. Otherwise `bell` rings once when it is worth asking again.
    pub fn reserve(&self, bytes: usize, has_nothing: bool, bell: &Arc<OwnedFd>) -> bool {
        if bytes == 0 {
            return true;
        }
        let mut state = self.state.lock();
        let always = has_nothing && bytes <= ALWAYS_BYTES;
        if always || state.used_bytes + bytes <= self.total_bytes {
            state.used_bytes += bytes;
            return true;
        }
        state.waiting.push(Arc::clone(bell));
        false
    }

    /// Gives `bytes` back.
    pub fn release(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let waiting = {
            let mut state = self.state.lock();
            state.used_bytes -= bytes;
            std::mem::take(&mut state.waiting)
        };
        for bell in waiting {
            bell::ring(&bell);
        }
    }

    /// Bytes taken at the moment.
    pub fn used_bytes(&self) -> usize {
        self.state.lock().used_bytes
    }
}
