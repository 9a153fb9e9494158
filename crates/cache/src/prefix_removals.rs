//! Removals of all keys with a prefix that are in progress.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

/// Prefixes whose keys are being removed.
#[derive(Default)]
pub(crate) struct PrefixRemovals {
    count: AtomicUsize,
    prefixes: RwLock<Vec<Box<[u8]>>>,
}

/// The removal of a prefix, which ends when this is dropped.
pub(crate) struct PrefixRemoval<'a> {
    removals: &'a PrefixRemovals,
    prefix: &'a [u8],
}

impl PrefixRemovals {
    pub(crate) fn begin<'a>(&'a self, prefix: &'a [u8]) -> PrefixRemoval<'a> {
        self.prefixes.write().push(prefix.into());
        self.count.fetch_add(1, Ordering::SeqCst);
        PrefixRemoval { removals: self, prefix }
    }

    /// Whether the key is being removed.
    pub(crate) fn contain(&self, key: &[u8]) -> bool {
        self.count.load(Ordering::SeqCst) > 0
            && self.prefixes.read().iter().any(|prefix| key.starts_with(prefix))
    }
}

impl Drop for PrefixRemoval<'_> {
    fn drop(&mut self) {
        let mut prefixes = self.removals.prefixes.write();
        if let Some(at) = prefixes.iter().position(|prefix| **prefix == *self.prefix) {
            prefixes.swap_remove(at);
        }
        self.removals.count.fetch_sub(1, Ordering::SeqCst);
    }
}
