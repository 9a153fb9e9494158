//! Counts of requests by key prefix, for `stats detail` and for tenants whose keys share a prefix.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

/// Prefixes that are counted. Clients choose keys, so their number needs a limit; a further prefix is not counted.
const MAX_PREFIXES: usize = 1000;

/// The delimiter of memcached.
const DEFAULT_DELIMITER: u8 = b':';

/// A request that is counted.
#[derive(Debug, Clone, Copy)]
pub enum Access {
    /// A key was read.
    Get {
        /// Whether it was found.
        is_hit: bool,
    },
    /// A request to store a value, whether it succeeded or not.
    Set,
    /// A request to delete a key, whether it succeeded or not.
    Delete,
}

/// Requests for the keys with one prefix.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrefixCounts {
    /// Requests to read a key.
    pub gets: u64,
    /// Requests that found their key.
    pub hits: u64,
    /// Requests to store a value, whether they succeeded or not.
    pub sets: u64,
    /// Requests to delete a key, whether they succeeded or not.
    pub deletes: u64,
}

/// Atomic counters of a prefix, to which several threads add.
#[derive(Debug, Default)]
pub struct Counts {
    gets: AtomicU64,
    hits: AtomicU64,
    sets: AtomicU64,
    deletes: AtomicU64,
}

impl Counts {
    /// Counts a request.
    pub fn add(&self, access: Access) {
        let increment = |count: &AtomicU64, by: bool| _ = count.fetch_add(u64::from(by), Ordering::Relaxed);
        match access {
            Access::Get { is_hit } => {
                increment(&self.gets, true);
                increment(&self.hits, is_hit);
            }
            Access::Set => increment(&self.sets, true),
            Access::Delete => increment(&self.deletes, true),
        }
    }

    /// The current values.
    pub fn read(&self) -> PrefixCounts {
        let [gets, hits, sets, deletes] = self.all().map(|count| count.load(Ordering::Relaxed));
        PrefixCounts { gets, hits, sets, deletes }
    }

    /// Sets all to 0.
    pub fn reset(&self) {
        self.all().iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    fn all(&self) -> [&AtomicU64; 4] {
        [&self.gets, &self.hits, &self.sets, &self.deletes]
    }
}

/// The counts of all prefixes.
#[derive(Debug)]
pub struct Prefixes {
    delimiter: u8,
    is_enabled: AtomicBool,
    counts: RwLock<BTreeMap<Box<[u8]>, Counts>>,
}

impl Prefixes {
    /// Creates the counts. Counting is enabled if a delimiter is given.
    pub fn new(delimiter: Option<u8>) -> Self {
        Self {
            delimiter: delimiter.unwrap_or(DEFAULT_DELIMITER),
            is_enabled: AtomicBool::new(delimiter.is_some()),
            counts: RwLock::default(),
        }
    }

    /// Starts or stops counting. The counts stay.
    pub fn enable(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
    }

    /// Whether requests are counted.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Counts a request, if its key has the delimiter.
    #[inline]
    pub fn record(&self, key: &[u8], access: Access) {
        if self.is_enabled() {
            self.record_enabled(key, access);
        }
    }

    fn record_enabled(&self, key: &[u8], access: Access) {
        let Some(end) = memchr::memchr(self.delimiter, key) else { return };
        let prefix = &key[..end];
        if let Some(counts) = self.counts.read().get(prefix) {
            return counts.add(access);
        }
        let mut all = self.counts.write();
        if all.len() < MAX_PREFIXES || all.contains_key(prefix) {
            all.entry(prefix.into()).or_default().add(access);
        }
    }

    /// The counts by prefix, in its order.
    pub fn counts(&self) -> Vec<(Box<[u8]>, PrefixCounts)> {
        self.counts.read().iter().map(|(prefix, counts)| (prefix.clone(), counts.read())).collect()
    }

    /// Removes all counts.
    pub fn reset(&self) {
        self.counts.write().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_prefix_up_to_a_limit() {
        let prefixes = Prefixes::new(Some(b'/'));
        for (key, access) in [
            (&b"b/1"[..], Access::Get { is_hit: true }),
            (b"b/2/3", Access::Get { is_hit: false }),
            (b"a/1", Access::Set),
            (b"none", Access::Set),
        ] {
            prefixes.record(key, access);
        }
        let expected = [
            (b"a"[..].into(), PrefixCounts { sets: 1, ..PrefixCounts::default() }),
            (b"b"[..].into(), PrefixCounts { gets: 2, hits: 1, ..PrefixCounts::default() }),
        ];
        assert_eq!(prefixes.counts(), expected);
        for number in 0..2 * MAX_PREFIXES {
            prefixes.record(format!("{number}/x").as_bytes(), Access::Delete);
        }
        assert_eq!(prefixes.counts().len(), MAX_PREFIXES);
        prefixes.reset();
        assert!(prefixes.counts().is_empty());
    }
}
