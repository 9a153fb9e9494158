//! Counters of the worker threads: each thread writes its own block, and any thread can read the sum.

use std::sync::atomic::{AtomicU64, Ordering};

use device::counters;
pub use device::counters::CounterTable;

/// Declares both types from one list: the atomic counters, and plain numbers read from them.
macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// The counters of one thread.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counting { $($(#[doc = $doc])+ pub $name: Count,)* }

        counters! {
            /// Values of [`Counting`], of one thread or summed over all.
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
            pub struct Counts { $($(#[doc = $doc])+ $name: sum u64,)* }
        }

        impl Counting {
            /// The current values.
            #[must_use]
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }
    };
}

counts! {
    /// Completed requests of the workload.
    ops,
    /// Gets.
    gets,
    /// Gets that missed.
    get_misses,
    /// Gets that hit in DRAM.
    get_hits_dram,
    /// Gets that hit on flash.
    get_hits_flash,
    /// Attempted sets, including those after a miss.
    sets,
    /// Sets that were refused.
    set_failures,
    /// Sets that were skipped because the key was present, or because a model rejected them.
    sets_skipped,
    /// Deletes.
    deletes,
    /// Deletes of absent keys.
    delete_misses,
    /// Requests to add chained items.
    add_chained,
    /// Requests that added fewer chained items than requested, for lack of memory or because the parent was absent.
    add_chained_failures,
    /// Updates.
    updates,
    /// Updates of absent keys.
    update_misses,
    /// Checks whether a key could exist.
    could_exist,
    /// Checks that found that the key cannot exist.
    could_exist_misses,
    /// Completed requests for several items.
    objects,
    /// Requests for several items that found all of them.
    object_hits,
    /// Requests for several items that found some of them.
    object_partial_hits,
    /// Bytes requested by requests for several items.
    egress_bytes,
    /// The part of `egress_bytes` that was in found items.
    egress_bytes_found,
    /// Bytes that requests for several items fetch from the origin: whole missing items, and the bytes that no item caches.
    ingress_bytes,
    /// Inconsistent reads.
    inconsistencies,
}

/// A counter with one writer: it adds without a locked instruction.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one. Only the owning thread may call it.
    #[inline]
    pub fn one(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Adds `more`, saturating. Only the owning thread may call it.
    #[inline]
    pub fn several(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_add(more), Ordering::Relaxed);
    }

    /// The current value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counts {
    /// Hits over gets; `None` before the first get.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        ratio(self.gets.saturating_sub(self.get_misses), self.gets)
    }

    /// DRAM hits over gets; `None` before the first get.
    #[must_use]
    pub fn hit_ratio_dram(&self) -> Option<f64> {
        ratio(self.get_hits_dram, self.gets)
    }

    /// Gets that missed DRAM. Saturates at 0: an interval can contain the hit of a get that was counted before it began.
    #[must_use]
    pub fn gets_beyond_dram(&self) -> u64 {
        self.gets.saturating_sub(self.get_hits_dram)
    }

    /// Flash hits over gets that missed DRAM; `None` if there were none.
    #[must_use]
    pub fn hit_ratio_flash(&self) -> Option<f64> {
        ratio(self.get_hits_flash, self.gets_beyond_dram())
    }

    /// Share of the requests for several items that found all of them; `None` before the first.
    #[must_use]
    pub fn object_hit_ratio(&self) -> Option<f64> {
        ratio(self.object_hits, self.objects)
    }

    /// Bytes found over bytes requested, of requests for several items; `None` before the first.
    #[must_use]
    pub fn byte_hit_ratio(&self) -> Option<f64> {
        ratio(self.egress_bytes_found, self.egress_bytes)
    }
}

/// `part / whole`; `None` if `whole` is 0.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A get is counted when it begins and its result when it ends. So an interval can have more misses than gets.
    #[test]
    fn interval_that_begins_within_a_get_has_a_hit_ratio() {
        let earlier = Counts { gets: 1, ..Counts::default() };
        let later = Counts { gets: 3, get_misses: 3, ..Counts::default() };
        assert_eq!(later.since(&earlier).hit_ratio(), Some(0.0));
        let later = Counts { gets: 3, get_hits_dram: 3, ..Counts::default() };
        assert_eq!(later.since(&earlier).hit_ratio_flash(), None);
    }
}
