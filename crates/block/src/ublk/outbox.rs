//! Results of completed requests. The driver accepts commands only from the queue's thread, so other threads pass results to it here.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use device::event_fd;
use parking_lot::Mutex;

/// Results that are not committed yet.
pub(super) struct Outbox {
    state: Mutex<State>,
    event_fd: Arc<OwnedFd>,
}

#[derive(Default)]
struct State {
    ended: Vec<Ended>,
    /// Whether the queue's thread waits for the eventfd.
    is_asleep: bool,
}

/// A tag and the result of its request.
pub(super) type Ended = (u16, i32);

impl Outbox {
    /// An outbox that signals `event_fd`.
    pub fn new(event_fd: Arc<OwnedFd>) -> Self {
        Self { state: Mutex::default(), event_fd }
    }

    /// Adds a result, and wakes the thread if it sleeps.
    pub fn add(&self, tag: u16, result: i32) {
        let mut state = self.state.lock();
        state.ended.push((tag, result));
        let must_wake = std::mem::take(&mut state.is_asleep);
        drop(state);
        if must_wake {
            event_fd::signal(&self.event_fd);
        }
    }

    /// Moves all results into `ended`, which is empty. If there are none, the thread counts as asleep: the next result signals the
    /// eventfd.
    pub fn take(&self, ended: &mut Vec<Ended>) {
        let mut state = self.state.lock();
        std::mem::swap(&mut state.ended, ended);
        state.is_asleep = ended.is_empty();
    }

    /// Marks the thread as awake: it will check again before it sleeps.
    pub fn set_awake(&self) {
        self.state.lock().is_asleep = false;
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn sleeping_thread_is_woken_once() {
        let event_fd = Arc::new(event_fd::new().unwrap());
        let outbox = Outbox::new(Arc::clone(&event_fd));
        let was_signalled = || match rustix::io::read(&event_fd, &mut [0; 8]) {
            Ok(_) => true,
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                false
            }
        };
        let mut ended = Vec::new();
        outbox.add(1, 10);
        assert!(!was_signalled(), "the thread was awake");
        outbox.take(&mut ended);
        assert_eq!(ended, [(1, 10)]);
        ended.clear();
        outbox.add(2, 20);
        assert!(!was_signalled(), "after taking results the thread checks again");
        outbox.take(&mut ended);
        ended.clear();
        outbox.take(&mut ended);
        outbox.add(3, 30);
        assert!(was_signalled());
        outbox.add(4, 40);
        assert!(!was_signalled(), "it is woken only once");
        outbox.take(&mut ended);
        assert_eq!(ended, [(3, 30), (4, 40)]);
        ended.clear();
        outbox.take(&mut ended);
        outbox.set_awake();
        outbox.add(5, 50);
        assert!(!was_signalled(), "it was woken by another event");
    }
}
