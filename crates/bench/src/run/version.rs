//! The versions of values that a run writes, by which reads and destructors are checked.

/// The 56 bits of a version: mark of the run, thread (at most 2^15), count of the thread's sets.
pub(super) const THREAD_SHIFT: u32 = 29;
pub(super) const MARK_SHIFT: u32 = 44;
/// Bits of the run's mark.
pub const MARK_BITS: u32 = 56 - MARK_SHIFT;
