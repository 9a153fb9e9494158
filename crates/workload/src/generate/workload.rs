//! The `workload` generator: printable keys, and accesses from a list drawn in advance.
//!
//! CacheBench draws all keys, removes duplicates, draws a list of accesses per pool, as long as the run, and lets every thread take random
//! entries. So a key missing from the list is never requested, a key listed twice is requested twice as often, and there are more hits than
//! the popularity implies. Both effects are reproduced without the memory: [`super::keys`] computes the number of keys that remain of each
//! length, and entry `n` of the list is the first draw of a random stream started at `n`.
//!
//! Not reproduced: CacheBench uses the first pool's key lengths for all pools.

use std::sync::Arc;

use super::GeneratorConfig;
use super::error::ConfigError;
use super::keys::Letters;
use super::random::scramble;
use super::source::{Accesses, Generated, Pools, PreparedList, key_lengths, keys_by_pool};
use crate::{Source, Workload, WorkloadError};

/// The `workload` generator.
pub struct PreparedAccesses {
    pools: Arc<Pools<Letters>>,
    /// Entries of each pool's list.
    entries: Box<[u64]>,
}

impl PreparedAccesses {
    /// The generator for `config` in a run of `operations` requests over all workers. That is the length of the access list; each pool has
    /// its share.
    ///
    /// # Errors
    /// An invalid configuration.
    pub fn new(config: &GeneratorConfig, operations: u64) -> Result<Self, ConfigError> {
        let mut lengths = Vec::with_capacity(config.pools.len());
        for (number, (pool, keys)) in config.pools.iter().zip(keys_by_pool(config)?).enumerate() {
            lengths.push((keys, key_lengths(&pool.distribution, number)?));
        }
        let formats = Letters::pools(&lengths).map_err(|problem| problem.of("key_bytes"))?;
        let pools = Arc::new(Pools::new(config, formats)?);
        Ok(Self { pools, entries: entries_by_pool(config, operations) })
    }
}

impl Workload for PreparedAccesses {
    fn sources(&self, workers: usize, seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError> {
        let list = |(pool, entries): (usize, &u64)| PreparedList {
            first: scramble(scramble(seed) ^ pool as u64),
            entries: *entries,
        };
        // The lists are the same for all workers.
        let lists: Arc<[PreparedList]> = self.entries.iter().enumerate().map(list).collect();
        let source = |worker| {
            let accesses = Accesses::Prepared(Arc::clone(&lists));
            Generated::new(Arc::clone(&self.pools), accesses, seed, worker)
        };
        Ok((0..workers).map(|worker| Box::new(source(worker)) as Box<dyn Source>).collect())
    }

    fn key_count(&self) -> Option<u64> {
        Some(self.pools.key_count())
    }
}

/// CacheBench numbers a list's entries with 32 bits and repeats it in longer runs.
const MAX_ENTRIES: u64 = u32::MAX as u64;

fn entries_by_pool(config: &GeneratorConfig, operations: u64) -> Box<[u64]> {
    let total: f64 = config.pools.iter().map(|pool| pool.op_share).sum();
    let entries = |pool: &super::PoolConfig| (operations as f64 * pool.op_share / total) as u64;
    config.pools.iter().map(|pool| entries(pool).clamp(1, MAX_ENTRIES)).collect()
}
