//! The region store: large objects in log-structured regions.
//!
//! Items are packed into a region in memory. A full region goes to flash as one sequential write. When clean regions run short, the
//! region that the policy chooses is reclaimed. So flash receives only large sequential writes, and the store writes each item once,
//! except for reinsertions.
//!
//! ```text
//!            stage, commit                flush                        reclaim
//!  item ──► open region (memory) ──► sealed ──► flash, in the order ──► clean ──► open again
//!                 ▲                                                 │
//!                 └───────── items worth keeping (reinsertion) ◄────┘
//! ```
//!
//! [`RegionStore`] is the public type. The states of a region are in [`buffer`](self) (in memory), `flush` and `reclaim`; the format of its
//! bytes is in `entry` and `table`; the locations of items are in `index`. A [`RegionPolicy`] decides where an item is inserted, what a hit
//! changes, which region is reclaimed and which of its items are reinserted.
//!
//! This module handles neither DRAM nor small objects nor the order of a key's writes: the caller orders them by calling `commit` and
//! `forget` under the key's lock.

mod buffer;
mod clear;
mod config;
mod dry;
mod entry;
mod flush;
mod forget;
#[cfg(feature = "fuzzing")]
pub(in crate::flash) mod fuzzing;
mod index;
mod journal;
mod keys;
mod layout;
mod order;
mod order_config;
mod policy;
mod read;
mod reclaim;
mod recovery;
mod retired;
mod ripq;
mod sealed;
mod snapshot;
mod stats;
mod store;
mod supply;
mod table;
#[cfg(test)]
mod tests;
mod trim;
mod work;

pub use config::{RegionConfig, RegionConfigError, Reinsertion};
pub use dry::{DryStore, Packing};
pub use entry::{HEADER_BYTES as ENTRY_HEADER_BYTES, MAX_KEY_BYTES};
pub(super) use journal::read_journal;
pub use layout::{Layout, MAX_POINTS, RegionId, StoreId};
pub use order::{ByEviction, RegionOrder};
pub use order_config::{OrderConfig, OwnOrder};
pub use read::Lookup;
pub use ripq::{
    Caching, CachingPolicy, EarlyReclaim, Object, OwnCaching, Priority, QueueState, RipqConfig,
    UnknownCaching,
};
pub use stats::RegionStats;
pub use store::{Progress, Refusal, RegionStore, Staged};
pub(crate) use supply::WriteHealth;

/// An insertion point. Each point fills a region of its own priority with its own placement handle. Higher points are for items that are
/// expected to stay longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InsertionPoint(pub u8);

impl InsertionPoint {
    /// The lowest point, for new items unless the policy chooses another.
    pub const NEW: Self = Self(0);
}
