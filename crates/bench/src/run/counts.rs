//! What the worker threads counted: each writes its own block, anybody may read the sum.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the counters twice, from one list: the atomics that count, the plain numbers that are shown.
macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// What a thread asked and how it ended.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counting { $($(#[doc = $doc])+ pub $name: Count,)* }

        /// The same as plain numbers, of one thread or of all.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counts { $($(#[doc = $doc])+ pub $name: u64,)* }

        impl Counting {
            /// The numbers now.
            #[must_use]
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }

        impl Counts {
            /// Adds all of `other`.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Takes away what `earlier`, a former state, had.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name - earlier.$name,)* }
            }
        }
    };
}

counts! {
    /// Requests of the workload that were done.
    ops,
    /// Gets.
    gets,
    /// Gets that found nothing.
    get_misses,
    /// Gets that found their key in DRAM.
    get_hits_dram,
    /// Gets that found their key on flash.
    get_hits_flash,
    /// Sets tried, those after a missed get included.
    sets,
    /// Sets that found no room.
    set_failures,
    /// Sets left out because the key was there, or because a model did not admit them.
    sets_skipped,
    /// Deletes.
    deletes,
    /// Deletes that found nothing.
    delete_misses,
    /// Requests to hang a chain on an item.
    add_chained,
    /// Of these, chains that were cut short for want of room or parent.
    add_chained_failures,
    /// Updates.
    updates,
    /// Updates of keys that were not there.
    update_misses,
    /// Questions whether a key could exist.
    could_exist,
    /// Of these, answered no.
    could_exist_misses,
    /// Requests for several items that were done to their end.
    objects,
    /// Of these, those all of which was found.
    object_hits,
    /// Of these, those of which a part was found.
    object_partial_hits,
    /// Bytes that these asked for.
    egress_bytes,
    /// Of these bytes, those in items that were found.
    egress_bytes_found,
    /// Bytes that were fetched for these from behind the cache: items that were missing, whole, and what no item holds.
    ingress_bytes,
    /// Values that should not have been found.
    inconsistencies,
}

/// A counter with one writer: it adds without a locked instruction.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one. Only the thread that owns the block may.
    #[inline]
    pub fn one(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Adds several, up to the largest number. Only the thread that owns the block may.
    #[inline]
    pub fn several(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_add(more), Ordering::Relaxed);
    }

    /// The number now.
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

    /// Gets that DRAM did not answer. A get that was under way when counting began may have ended as one more than there are.
    #[must_use]
    pub fn gets_beyond_dram(&self) -> u64 {
        self.gets.saturating_sub(self.get_hits_dram)
    }

    /// Flash hits over the gets that DRAM did not answer; `None` before the first of these.
    #[must_use]
    pub fn hit_ratio_flash(&self) -> Option<f64> {
        ratio(self.get_hits_flash, self.gets_beyond_dram())
    }

    /// Requests for several items that found all of it over all of these; `None` before the first.
    #[must_use]
    pub fn object_hit_ratio(&self) -> Option<f64> {
        ratio(self.object_hits, self.objects)
    }

    /// Bytes found over bytes asked for, by requests for several items; `None` before the first.
    #[must_use]
    pub fn byte_hit_ratio(&self) -> Option<f64> {
        ratio(self.egress_bytes_found, self.egress_bytes)
    }
}

/// `part / whole`; `None` where there is no whole.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A get counts as one when it begins and as a miss when it ends: of an interval that began in between there were more
    /// misses than gets, and their difference was no number.
    #[test]
    fn an_interval_that_begins_within_a_get_has_a_hit_ratio() {
        let earlier = Counts { gets: 1, ..Counts::default() };
        let later = Counts { gets: 3, get_misses: 3, ..Counts::default() };
        assert_eq!(later.since(&earlier).hit_ratio(), Some(0.0));
        let later = Counts { gets: 3, get_hits_dram: 3, ..Counts::default() };
        assert_eq!(later.since(&earlier).hit_ratio_flash(), None);
    }
}
