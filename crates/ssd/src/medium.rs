//! What the mapping asks of the medium: the seam between counting and timing.

use crate::geometry::{PhysicalPage, UnitId};

/// On whose behalf the medium works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The host's write, or the rest of a page that it wrote in part.
    Host,
    /// Collection or wear levelling.
    Collection,
}

/// Told each operation on the medium, in order. [`Untimed`] ignores them; [`timing`](crate::timing) works out
/// when they end.
pub trait Medium {
    /// `count` pages from `first` on are programmed. All of one unit.
    fn program(&mut self, first: PhysicalPage, count: u32, cause: Cause);

    /// `page` is read.
    fn read(&mut self, page: PhysicalPage, cause: Cause);

    /// `unit` is erased.
    fn erase(&mut self, unit: UnitId);
}

/// A medium that takes no time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untimed;

impl Medium for Untimed {
    #[inline]
    fn program(&mut self, _: PhysicalPage, _: u32, _: Cause) {}

    #[inline]
    fn read(&mut self, _: PhysicalPage, _: Cause) {}

    #[inline]
    fn erase(&mut self, _: UnitId) {}
}
