//! The configuration of the region stores, which hold large items on flash, and the traits of custom policies.

pub use crate::flash::JournalOptions;
pub use crate::flash::region::{
    ByEviction, Caching, CachingPolicy, EarlyReclaim, MAX_POINTS, Object, OrderConfig, OwnCaching, OwnOrder,
    Priority, QueueState, RegionConfig, RegionConfigError, RegionId, RegionOrder, Reinsertion, RipqConfig,
    UnknownCaching,
};
