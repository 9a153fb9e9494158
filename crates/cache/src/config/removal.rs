//! Why an item left the cache, and the callback that receives the reason.

use std::sync::Arc;

/// Why an item left the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// A call removed the item.
    Removed,
    /// A newer item replaced the item.
    Replaced,
    /// The cache was cleared.
    Cleared,
    /// It was evicted from DRAM, and flash rejected it, or there is no flash.
    EvictedFromDram,
    /// It was evicted from flash: its region was reclaimed, or newer items displaced it from its bucket.
    EvictedFromFlash,
    /// It expired. Only [`item_destructor`](crate::Builder::item_destructor) reports this.
    Expired,
}

/// Called with an item that leaves the cache: key, value (of a chained item its own, without its chain), and reason. It runs on the thread
/// that caused the removal, which waits for it, so long work belongs on another thread. It may read the cache and remove from it. If it
/// refers to its cache, use a [`Weak`](std::sync::Weak) reference; otherwise neither is ever freed.
pub type RemoveCallback = Arc<dyn Fn(&[u8], &[u8], Removal) + Send + Sync>;
