//! The counters of a server, with memcached's names.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident,)+) => {
        /// A counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "the names of the counters in memcached")]
        pub enum Counter { $($(#[doc = $help])+ $name,)+ }

        impl Counter {
            /// All counters.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The name in `stats`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// A description.
            #[must_use]
            pub fn help(self) -> &'static str {
                match self { $(Self::$name => concat!($($help),+).trim_ascii(),)+ }
            }
        }
    };
}

counters! {
    /// Keys requested.
    cmd_get,
    /// Values stored, or attempted to be.
    cmd_set,
    /// Calls of flush_all.
    cmd_flush,
    /// Keys touched.
    cmd_touch,
    /// Meta commands.
    cmd_meta,
    /// Keys requested and found.
    get_hits,
    /// Keys requested and not found.
    get_misses,
    /// Keys deleted.
    delete_hits,
    /// Keys to delete that were not found.
    delete_misses,
    /// Numbers incremented.
    incr_hits,
    /// Numbers to increment that were not found.
    incr_misses,
    /// Numbers decremented.
    decr_hits,
    /// Numbers to decrement that were not found.
    decr_misses,
    /// Values stored because their CAS number was the present one.
    cas_hits,
    /// Keys compared by CAS number that were not found.
    cas_misses,
    /// Values not stored because their CAS number was an older one.
    cas_badval,
    /// Keys touched and found.
    touch_hits,
    /// Keys touched and not found.
    touch_misses,
    /// Values that exceed the maximum size.
    store_too_large,
    /// Values for which the cache had no memory.
    store_no_memory,
    /// Authentications.
    auth_cmds,
    /// Authentications that failed.
    auth_errors,
    /// Connections accepted.
    total_connections,
    /// Connections refused because there were too many.
    rejected_connections,
    /// TLS handshakes that failed.
    ssl_handshake_errors,
    /// Connections closed because they were idle.
    idle_kicks,
    /// Bytes received.
    bytes_read,
    /// Bytes sent.
    bytes_written,
}

/// The counters of one connection since they were last added to those of the server.
#[derive(Debug, Default)]
pub struct Tally {
    counts: [u64; Counter::ALL.len()],
    /// A bit for each counter that is not 0.
    changed: u32,
}

const _: () = assert!(Counter::ALL.len() <= 32);

impl Tally {
    /// Adds 1.
    #[inline]
    pub fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds `count`.
    #[inline]
    pub fn add(&mut self, counter: Counter, count: u64) {
        self.counts[counter as usize] += count;
        self.changed |= 1 << counter as u32;
    }

    /// Adds 1 to one of two counters.
    #[inline]
    pub fn count_hit(&mut self, is_hit: bool, hit: Counter, miss: Counter) {
        self.count(if is_hit { hit } else { miss });
    }
}

/// The counters of a server.
#[derive(Debug, Default)]
pub struct Counters {
    counts: [AtomicU64; Counter::ALL.len()],
}

impl Counters {
    /// Adds the counts of a connection, and resets them.
    pub fn merge(&self, tally: &mut Tally) {
        while tally.changed != 0 {
            let place = tally.changed.trailing_zeros() as usize;
            tally.changed &= tally.changed - 1;
            self.counts[place].fetch_add(std::mem::take(&mut tally.counts[place]), Ordering::Relaxed);
        }
    }

    /// Adds 1.
    pub fn count(&self, counter: Counter) {
        self.counts[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The value of a counter.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.counts[counter as usize].load(Ordering::Relaxed)
    }

    /// Sets all counters to 0.
    pub fn reset(&self) {
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_adds_and_resets_the_tally() {
        let (counters, mut tally) = (Counters::default(), Tally::default());
        tally.add(Counter::bytes_read, 7);
        tally.count(Counter::cmd_get);
        counters.merge(&mut tally);
        counters.merge(&mut tally);
        assert_eq!((counters.get(Counter::bytes_read), counters.get(Counter::cmd_get)), (7, 1));
        assert_eq!((Counter::cmd_get.name(), Counter::cmd_get.help()), ("cmd_get", "Keys requested."));
    }
}
