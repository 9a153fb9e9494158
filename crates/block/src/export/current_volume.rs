//! The volume of an export, which can be exchanged for another one of the same disk while clients continue.
//!
//! An exchange closes the volume, changes something that needs a closed volume, such as its flash, and opens it again. Requests that find
//! the volume closed wait for its successor and are repeated there. Repeating is correct: a closed volume has executed a request
//! completely, or answers it with an error.

use std::sync::Arc;

use event_listener::Event;
use parking_lot::Mutex;

use crate::volume::Volume;

/// Holds a volume. Clones share it.
#[derive(Clone)]
pub struct CurrentVolume(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Notified when an exchange ends.
    exchanged: Event,
}

struct State {
    volume: Volume,
    is_exchanging: bool,
}

/// An exchange in progress. If it is dropped, the volume stays, closed or not, and waiting requests get its error.
pub struct Exchange(CurrentVolume);

impl CurrentVolume {
    /// Holds `volume`.
    #[must_use]
    pub fn new(volume: Volume) -> Self {
        let state = Mutex::new(State { volume, is_exchanging: false });
        Self(Arc::new(Inner { state, exchanged: Event::new() }))
    }

    /// The present volume.
    #[must_use]
    pub fn volume(&self) -> Volume {
        self.0.state.lock().volume.clone()
    }

    /// Begins an exchange. `None` if one is in progress.
    #[must_use]
    pub fn begin_exchange(&self) -> Option<Exchange> {
        let mut state = self.0.state.lock();
        if state.is_exchanging {
            return None;
        }
        state.is_exchanging = true;
        Some(Exchange(self.clone()))
    }

    /// The successor of `volume`, which is closed. `None` if there is none and no exchange is in progress.
    pub async fn successor(&self, volume: &Volume) -> Option<Volume> {
        loop {
            let listener = self.0.exchanged.listen();
            {
                let state = self.0.state.lock();
                if !state.volume.is_same(volume) {
                    return Some(state.volume.clone());
                }
                if !state.is_exchanging {
                    return None;
                }
            }
            listener.await;
        }
    }

    /// Runs the [upkeep](Volume::run_upkeep) of the volume and of its successors. Returns when a volume is closed without a successor.
    pub async fn run_upkeep(&self) {
        let mut volume = self.volume();
        loop {
            volume.run_upkeep().await;
            match self.successor(&volume).await {
                Some(successor) => volume = successor,
                None => return,
            }
        }
    }
}

impl Exchange {
    /// Ends the exchange with the volume that was opened.
    pub fn end(self, volume: Volume) {
        self.0.0.state.lock().volume = volume;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.0.state.lock().is_exchanging = false;
        self.0.0.exchanged.notify(usize::MAX);
    }
}
