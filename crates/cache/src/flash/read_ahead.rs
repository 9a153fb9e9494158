//! Several consecutive reads in flight.
//!
//! A drive returns its full rate only to several reads at the same time. Their results are taken in the order in which they were started,
//! so that the caller sees consecutive bytes.

use std::collections::VecDeque;

use device::{Device, Outcome, Pending, Request};
use futures_util::FutureExt;

use super::Waiting;

/// Reads in flight, each with a description of its content. Dropping it does not stop them.
pub(crate) struct ReadAhead<T> {
    in_flight: VecDeque<(T, Pending)>,
}

impl<T> Default for ReadAhead<T> {
    fn default() -> Self {
        Self { in_flight: VecDeque::new() }
    }
}

impl<T> ReadAhead<T> {
    /// Reads in flight, or complete and not taken.
    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Starts a read.
    pub(crate) fn start(&mut self, device: &dyn Device, waiting: Waiting, content: T, request: Request) {
        self.in_flight.push_back((content, waiting.start_ahead(device, request)));
    }

    /// Takes the oldest read, if it is complete.
    pub(crate) fn take_complete(&mut self) -> Option<(T, Outcome)> {
        let outcome = (&mut self.in_flight.front_mut()?.1).now_or_never()?;
        self.in_flight.pop_front().map(|(content, _)| (content, outcome))
    }

    /// Takes the oldest read when it is complete; `None` if there is none. If the future is dropped, the read stays.
    pub(crate) async fn next(&mut self, waiting: Waiting) -> Option<(T, Outcome)> {
        if waiting == Waiting::Thread {
            return self.in_flight.pop_front().map(|(content, read)| (content, read.wait()));
        }
        let outcome = (&mut self.in_flight.front_mut()?.1).await;
        self.in_flight.pop_front().map(|(content, _)| (content, outcome))
    }
}

/// Makes the reads in order, at most `depth` of them in flight, and calls `visit` with each result.
pub(crate) async fn read_all<T>(
    device: &dyn Device,
    waiting: Waiting,
    depth: usize,
    reads: impl Iterator<Item = (T, Request)>,
    mut visit: impl FnMut(T, Outcome),
) {
    let mut reads = reads.fuse();
    let mut in_flight = ReadAhead::default();
    loop {
        while in_flight.len() < depth
            && let Some((content, request)) = reads.next()
        {
            in_flight.start(device, waiting, content, request);
        }
        let Some((content, outcome)) = in_flight.next(waiting).await else { return };
        visit(content, outcome);
    }
}
