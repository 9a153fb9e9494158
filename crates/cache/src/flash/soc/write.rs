//! A write of adjacent buckets.

use std::sync::Arc;

use device::{IoBuffer, Pending};

use super::bucket::BucketId;
use super::change::Change;
use super::pending::{Group, Waiter};
use crate::flash::outage::Failures;

/// The result of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Buckets settled, those of failed writes included.
    pub buckets: usize,
    /// Items and tombstones that are no longer pending.
    pub entries: usize,
}

impl Progress {
    /// Whether there was nothing to do.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.buckets == 0
    }
}

/// A write in flight: its buckets, their new content, and their changes.
pub struct Write {
    pub group: Group,
    pub buffer: Arc<IoBuffer>,
    /// Offset of the first bucket in the buffer.
    pub start: usize,
    pub changes: Vec<Change>,
    /// The transfer in flight, if there is one.
    pub in_flight: Option<Pending>,
    pub outcome: Outcome,
    /// The failed attempts, if there were any.
    pub failures: Option<Failures>,
}

/// The progress of a write.
pub enum Outcome {
    /// All buckets are on the device, or will be when the transfer in flight completes.
    Whole,
    /// The whole write failed, and its buckets are written one by one, so that one bad block does not lose the others.
    Singly(Vec<Single>),
}

/// The state of a bucket that is written by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Single {
    /// Not written yet.
    Waits,
    /// On the device, or without items.
    Written,
    /// Its write failed.
    Failed,
    /// Its write failed and will be retried as a separate write.
    Held,
}

impl Group {
    pub(super) fn members(&self) -> impl Iterator<Item = (BucketId, &[Waiter])> {
        (self.first.0..).map(BucketId).zip(self.frozen.iter().map(|waiters| waiters.as_slice()))
    }
}
