//! Flash caches as object-granular models: what they hold and what they write, without a byte of data.
//!
//! A flash cache evicts and moves more than one object at a time, and pays for it in hits; a model of it beside the exact
//! policy shows how much. [`Flash`] is DRAM (an LRU, possibly of no size) before any [`FlashCache`]: [`Log`] (blocks written
//! one behind the other), [`HashLog`] (regions in the order of hashes), [`Kangaroo`] (a log in front of sets) or [`Sets`]
//! (set-associative). The engine's caches of large objects are simulated by the engine itself.

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

/// An object on its way to flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newcomer {
    /// Its number.
    pub object: u32,
    /// What it weighs, overheads included.
    pub weight: u32,
}

/// A cache on flash.
pub trait FlashCache: Send {
    /// Whether it holds the object.
    fn holds(&self, object: u32) -> bool;

    /// An object that it holds was asked for.
    fn hit(&mut self, object: u32);

    /// Takes objects that it does not hold, at the same time. Others leave for them.
    fn insert(&mut self, newcomers: &[Newcomer]);

    /// Forgets an object that it holds.
    fn remove(&mut self, object: u32);

    /// Forgets an object that it holds and whose time to live is over: whoever reads it sees that, and nothing is written.
    fn expire(&mut self, object: u32);

    /// Weight of all that was written to the drive so far, whole blocks or sets where those are what is written.
    fn written_weight(&self) -> u64;

    /// The heaviest object that can be stored.
    fn weight_at_most(&self) -> u64;
}
