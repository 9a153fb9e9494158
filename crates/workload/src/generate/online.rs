//! The `online` generator: keys are computed on request, any number of them.
//!
//! As in CacheBench, every worker draws keys from the popularity independently, and a key is eight bytes of its index and a padding of `a`.
//! Intended differences: sizes come from the distribution itself instead of 32,768 draws of it, values have a TTL if configured, and runs
//! are reproducible by the seed.

use std::sync::Arc;

use super::GeneratorConfig;
use super::error::ConfigError;
use super::keys::Raw;
use super::source::{Accesses, Generated, Pools, key_lengths, keys_by_pool};
use crate::{Source, Workload, WorkloadError};

/// The `online` generator.
pub struct Online {
    pools: Arc<Pools<Raw>>,
}

impl Online {
    /// The generator for `config`.
    ///
    /// # Errors
    /// An invalid configuration.
    pub fn new(config: &GeneratorConfig) -> Result<Self, ConfigError> {
        let mut first_key = 0;
        let mut formats = Vec::with_capacity(config.pools.len());
        for (number, (pool, keys)) in config.pools.iter().zip(keys_by_pool(config)?).enumerate() {
            let lengths = key_lengths(&pool.distribution, number)?;
            let format = Raw::new(first_key, keys, lengths)
                .map_err(|problem| problem.of(format!("pool {number}: key_bytes")))?;
            formats.push(format);
            first_key += keys;
        }
        Ok(Self { pools: Arc::new(Pools::new(config, formats)?) })
    }
}

impl Workload for Online {
    fn sources(&self, workers: usize, seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError> {
        let source = |worker| Generated::new(Arc::clone(&self.pools), Accesses::Fresh, seed, worker);
        Ok((0..workers).map(|worker| Box::new(source(worker)) as Box<dyn Source>).collect())
    }

    fn key_count(&self) -> Option<u64> {
        Some(self.pools.key_count())
    }
}
