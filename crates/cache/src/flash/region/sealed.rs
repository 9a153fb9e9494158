//! A sealed region and the progress of its write.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use device::{IoError, Outcome, Pending, event_loop};
use futures_util::future::join_all;

use super::buffer::RegionBuffer;
use crate::flash::Waiting;
use crate::flash::outage::Failures;

/// A sealed region and the progress of its write. A later step continues an interrupted flush.
pub(crate) struct Flush {
    pub(super) buffer: Arc<RegionBuffer>,
    /// The write in progress; `None` before the first step.
    pub(super) writing: Option<Writing>,
    /// Failed writes of this filling.
    pub(super) failures: Option<Failures>,
    /// Time at which the pause after a failed write ends.
    pub(super) due_ns: u64,
}

/// An attempt to write a region.
pub(super) struct Writing {
    /// Parts that are not submitted yet.
    pub(super) left: VecDeque<Range<usize>>,
    pub(super) in_flight: Vec<Piece>,
    /// Failed parts, for the next attempt.
    pub(super) failed: VecDeque<Range<usize>>,
    pub(super) last_error: Option<IoError>,
    /// Attempts after this one.
    pub(super) attempts_left: u32,
}

/// A part of a region with a submitted write.
pub(super) struct Piece {
    pub(super) range: Range<usize>,
    pub(super) written: Pending,
    /// `None` until the write completes.
    pub(super) outcome: Option<Outcome>,
}

impl Flush {
    /// A flush that has written nothing yet.
    pub(crate) fn new(buffer: Arc<RegionBuffer>) -> Self {
        Self { buffer, writing: None, failures: None, due_ns: 0 }
    }
}

impl Writing {
    /// Waits for the transfers in flight. An outcome is stored as soon as it is known, so dropping this future loses none.
    pub(super) async fn wait(&mut self, waiting: Waiting) {
        let missing = self.in_flight.iter_mut().filter(|piece| piece.outcome.is_none());
        match waiting {
            Waiting::Thread => missing.for_each(|piece| event_loop::wait_for(piece.end())),
            Waiting::Task => drop(join_all(missing.map(Piece::end)).await),
        }
    }
}

impl Piece {
    async fn end(&mut self) {
        self.outcome = Some((&mut self.written).await);
    }
}
