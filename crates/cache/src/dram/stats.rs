//! What the DRAM tier did and holds.

/// Counters of one class, kept under its lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ClassCounters {
    pub slabs: u32,
    pub items: u64,
    pub requested_bytes: u64,
    pub allocation_attempts: u64,
    pub allocation_failures: u64,
    pub evictions: u64,
    pub eviction_failures: u64,
}
