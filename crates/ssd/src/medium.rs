//! Operations that the mapping performs on the medium: the interface between counting and timing.

use crate::geometry::{PhysicalPage, UnitId};

/// The cause of an operation on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A write of the host, including the rest of a page that it wrote in part.
    Host,
    /// Collection or wear levelling.
    Collection,
}

/// Receives each operation on the medium, in order. [`Untimed`] ignores them; [`timing`](crate::timing) computes when they complete.
pub trait Medium {
    /// Programs `count` pages from `first` on, all in one unit.
    fn program(&mut self, first: PhysicalPage, count: u32, cause: Cause);

    /// Reads `page`.
    fn read(&mut self, page: PhysicalPage, cause: Cause);

    /// Erases `unit`.
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
