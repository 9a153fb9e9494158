//! Who may touch which blocks: locks on ranges, in order of arrival.
//!
//! A lock waits for every earlier one that overlaps it, held or waiting. Nobody waits for who came later, so nobody waits
//! in a circle, and a wide request is not starved by narrow ones.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use event_listener::Event;
use parking_lot::Mutex;

/// Locks on ranges of blocks.
#[derive(Default)]
pub(super) struct Ranges {
    /// By ticket.
    claims: Mutex<BTreeMap<u64, Range<u64>>>,
    tickets: Mutex<u64>,
    released: Event,
}

/// A range that is held until this is dropped. Whoever starts I/O under it gives the I/O's completion a share, so
/// that a caller that goes away does not unlock what is still being written.
pub(super) struct Held {
    ranges: Arc<Ranges>,
    ticket: u64,
}

impl Ranges {
    /// Waits until `range` is free of all who came before.
    pub(super) async fn lock(self: &Arc<Self>, range: Range<u64>) -> Held {
        let held = self.claim(range);
        loop {
            let listener = self.released.listen();
            if !self.is_blocked(held.ticket) {
                return held;
            }
            listener.await;
        }
    }

    /// What is claimed at the moment, held or waited for.
    pub(super) fn claimed(&self) -> Vec<Range<u64>> {
        self.claims.lock().values().cloned().collect()
    }

    fn claim(self: &Arc<Self>, range: Range<u64>) -> Held {
        let mut claims = self.claims.lock();
        let mut tickets = self.tickets.lock();
        *tickets += 1;
        claims.insert(*tickets, range);
        Held { ranges: Arc::clone(self), ticket: *tickets }
    }

    fn is_blocked(&self, ticket: u64) -> bool {
        let claims = self.claims.lock();
        let mine = &claims[&ticket];
        claims.range(..ticket).any(|(_, other)| other.start < mine.end && mine.start < other.end)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ranges.claims.lock().remove(&self.ticket);
        self.ranges.released.notify(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_overlaps_waits_and_who_does_not_goes_on() {
        let ranges = Arc::new(Ranges::default());
        let mut first = pin!(ranges.lock(0..10));
        let held = poll(first.as_mut()).expect("nobody was before");
        let mut beside = pin!(ranges.lock(10..12));
        let _beside = poll(beside.as_mut()).expect("it does not overlap");
        let mut second = pin!(ranges.lock(9..11));
        assert!(poll(second.as_mut()).is_none());
        drop(held);
        assert!(poll(second.as_mut()).is_none(), "the second neighbour is still there");
    }

    #[test]
    fn nobody_overtakes_who_waits() {
        let ranges = Arc::new(Ranges::default());
        let mut first = pin!(ranges.lock(0..10));
        let held = poll(first.as_mut()).unwrap();
        let mut wide = pin!(ranges.lock(5..20));
        assert!(poll(wide.as_mut()).is_none());
        let mut late = pin!(ranges.lock(15..16));
        assert!(poll(late.as_mut()).is_none(), "it overlaps one that waits");
        drop(held);
        let wide = poll(wide.as_mut()).unwrap();
        assert!(poll(late.as_mut()).is_none());
        drop(wide);
        assert!(poll(late.as_mut()).is_some());
    }

    #[test]
    fn a_waiter_that_gives_up_is_out_of_the_way() {
        let ranges = Arc::new(Ranges::default());
        let mut first = pin!(ranges.lock(0..10));
        let held = poll(first.as_mut()).unwrap();
        {
            let mut wide = pin!(ranges.lock(5..20));
            assert!(poll(wide.as_mut()).is_none());
        }
        let mut late = pin!(ranges.lock(15..16));
        assert!(poll(late.as_mut()).is_some());
        drop(held);
    }
}
