//! Access times of items, for the flags `h` and `l` of meta commands.
//!
//! Cached items cannot be changed in place, so access times are stored in a separate table of fixed size. Two items
//! with the same slot displace each other; the displaced one then counts as not read since it was stored.

use std::sync::atomic::{AtomicU64, Ordering};

/// Slots: 512 KiB, which stays in the processor's cache.
const SLOTS: usize = 1 << 16;

/// The access times of items, by CAS number, which is unique.
pub struct AccessTable {
    /// The low half of the CAS number, and the Unix second of the last access.
    slots: Box<[AtomicU64]>,
}

impl Default for AccessTable {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl AccessTable {
    /// Records an access.
    #[inline]
    pub fn note(&self, cas: u64, now_seconds: u32) {
        let entry = entry(cas, now_seconds);
        let slot = self.slot(cas);
        // A store would take the cache line from other processors even if it changes nothing.
        if slot.load(Ordering::Relaxed) != entry {
            slot.store(entry, Ordering::Relaxed);
        }
    }

    /// The Unix second of the last access, if one is known.
    pub fn last(&self, cas: u64) -> Option<u32> {
        let entry = self.slot(cas).load(Ordering::Relaxed);
        (entry >> 32 == cas & u64::from(u32::MAX)).then_some(entry as u32)
    }

    fn slot(&self, cas: u64) -> &AtomicU64 {
        &self.slots[cas as usize % SLOTS]
    }
}

fn entry(cas: u64, seconds: u32) -> u64 {
    cas << 32 | u64::from(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_time_is_kept_until_another_item_uses_the_slot() {
        let table = AccessTable::default();
        assert_eq!(table.last(5), None);
        table.note(5, 100);
        assert_eq!(table.last(5), Some(100));
        table.note(5 + SLOTS as u64, 200);
        assert_eq!(table.last(5), None);
        assert_eq!(table.last(5 + SLOTS as u64), Some(200));
    }
}
