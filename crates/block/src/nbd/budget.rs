//! Memory limit for the requests of all connections of a server.
//!
//! Each connection may always have one small request in flight, so others can slow it down but not starve it. For a
//! larger request of a connection without any in flight, released memory is reserved, for one such connection at a
//! time.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use device::event_fd;
use parking_lot::Mutex;

/// Maximum length of the request that an idle connection may always start.
const ALWAYS_BYTES: usize = 128 << 10;

/// Memory of the requests in flight of all connections.
#[derive(Debug)]
pub(super) struct Budget {
    total_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Includes the reservation.
    used_bytes: usize,
    saving: Option<Saving>,
    /// Eventfds of connections that wait for memory.
    waiting: Vec<Arc<OwnedFd>>,
}

/// Memory reserved for one connection, which its eventfd identifies.
#[derive(Debug)]
struct Saving {
    event_fd: Arc<OwnedFd>,
    wanted_bytes: usize,
    saved_bytes: usize,
}

impl Saving {
    fn is_for(&self, event_fd: &Arc<OwnedFd>) -> bool {
        Arc::ptr_eq(&self.event_fd, event_fd)
    }
}

impl State {
    /// Ends the reservation of a connection. Returns whether it had one.
    fn spend(&mut self, event_fd: &Arc<OwnedFd>) -> bool {
        let Some(saved) = self.saving.take_if(|saving| saving.is_for(event_fd)) else { return false };
        self.used_bytes -= saved.saved_bytes;
        true
    }
}

impl Budget {
    pub fn new(total_bytes: usize) -> Self {
        Self { total_bytes, state: Mutex::default() }
    }

    /// Allocates `bytes` if available. Otherwise `event_fd` is signalled once when a retry may succeed.
    pub fn reserve(&self, bytes: usize, has_nothing: bool, event_fd: &Arc<OwnedFd>) -> bool {
        if bytes == 0 {
            return true;
        }
        let mut state = self.state.lock();
        state.spend(event_fd);
        let always = has_nothing && bytes <= ALWAYS_BYTES;
        if always || state.used_bytes + bytes <= self.total_bytes {
            state.used_bytes += bytes;
            return true;
        }
        if has_nothing && bytes <= self.total_bytes && state.saving.is_none() {
            let saved_bytes = self.total_bytes.saturating_sub(state.used_bytes);
            state.used_bytes += saved_bytes;
            state.saving = Some(Saving { event_fd: Arc::clone(event_fd), wanted_bytes: bytes, saved_bytes });
        }
        state.waiting.push(Arc::clone(event_fd));
        false
    }

    /// Releases `bytes`.
    pub fn release(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let waiting = {
            let mut state = self.state.lock();
            state.used_bytes -= bytes;
            let free = self.total_bytes.saturating_sub(state.used_bytes);
            if let Some(saving) = &mut state.saving {
                let more = free.min(saving.wanted_bytes - saving.saved_bytes);
                saving.saved_bytes += more;
                state.used_bytes += more;
            }
            std::mem::take(&mut state.waiting)
        };
        waiting.iter().for_each(|event_fd| event_fd::signal(event_fd));
    }

    /// Ends the reservation of a connection that closes.
    pub fn forget(&self, event_fd: &Arc<OwnedFd>) {
        let waiting = {
            let mut state = self.state.lock();
            if state.spend(event_fd) { std::mem::take(&mut state.waiting) } else { Vec::new() }
        };
        waiting.iter().for_each(|event_fd| event_fd::signal(event_fd));
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.state.lock().used_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It must not wait as long as others use all memory for small requests.
    #[test]
    fn large_request_of_an_idle_connection_is_not_starved() {
        let budget = Budget::new(1 << 20);
        let [many, large] = [(); 2].map(|()| Arc::new(event_fd::new().unwrap()));
        let small = ALWAYS_BYTES;
        (0..8).for_each(|_| assert!(budget.reserve(small, false, &many)));
        let mut waited = 0;
        while !budget.reserve(4 * small, true, &large) {
            waited += 1;
            assert!(waited < 10, "released memory is not reserved");
            budget.release(small);
            budget.reserve(small, false, &many);
            assert!(budget.used_bytes() <= 1 << 20);
        }
        budget.release(4 * small);
    }
}
