//! Models of flash caches at the granularity of objects: their contents and their writes, without data.
//!
//! A flash cache evicts and moves several objects together, which costs hits; comparing its model with the exact policy
//! shows how many. [`Flash`] is DRAM (an LRU, possibly of size 0) in front of any [`FlashCache`]: [`Log`] (blocks
//! written sequentially), [`HashLog`] (regions in the order of hashes), [`Kangaroo`] (a log in front of sets) or
//! [`Sets`] (set-associative). The engine's caches of large objects are simulated by the engine itself.

mod blocks;
mod front;
mod hash_log;
mod hybrid;
mod kangaroo;
mod log;
mod sets;
#[cfg(test)]
mod tests;

pub use front::{Flash, FlashRules};
pub use hash_log::{HashLog, HashLogRules};
pub use hybrid::{Hybrid, HybridCounts, HybridRules};
pub use kangaroo::{Kangaroo, KangarooRules};
pub use log::Log;
pub use sets::Sets;

/// An object to be inserted into flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightedObject {
    /// Its number.
    pub object: u32,
    /// Its weight, overheads included.
    pub weight: u32,
}

/// A cache on flash.
pub trait FlashCache: Send {
    /// Whether the cache holds the object.
    fn holds(&self, object: u32) -> bool;

    /// Records a hit of a cached object.
    fn hit(&mut self, object: u32);

    /// Inserts objects that it does not hold in one operation. Others are evicted for them.
    fn insert(&mut self, objects: &[WeightedObject]);

    /// Removes a cached object.
    fn remove(&mut self, object: u32);

    /// Removes a cached object that has expired. Nothing is written, because a reader sees that the item has expired.
    fn expire(&mut self, object: u32);

    /// Total weight written to the drive, in whole blocks or sets if the cache writes those.
    fn written_weight(&self) -> u64;

    /// The heaviest object that can be stored.
    fn weight_at_most(&self) -> u64;
}
