//! One instance of a config, as typed.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::keys::{CacheConfig, Distribution, TestConfig};
use super::schema::Section;

/// One instance, with the values as typed.
#[derive(Debug, Clone)]
pub struct InstanceConfig {
    /// JSON path of the instance: empty, or `[0]`.
    pub at: String,
    /// `cache_config`.
    pub cache: CacheConfig,
    /// `test_config`.
    pub test: TestConfig,
    /// The distribution keys of `test_config` itself.
    pub distribution: Distribution,
    /// The distributions in use: one for all pools or one for each, with their distribution files read.
    pub pools: Vec<Distribution>,
    /// Whether `timestampFactor` is given.
    pub names_time_units: bool,
    /// Directory of relative trace and distribution paths.
    pub directory: PathBuf,
}

impl InstanceConfig {
    /// Units of trace time in a second; `None` if the trace format has its own. The default of `timestampFactor` applies only
    /// to CacheBench's key-value traces.
    #[must_use]
    pub fn time_units_per_second(&self) -> Option<u64> {
        let of_key_values = match self.test.generator.as_str() {
            "piecewise-replay" | "block-replay" => false,
            "replay" => self.test.replay.format.eq_ignore_ascii_case("kvcache"),
            _ => true,
        };
        (self.names_time_units || of_key_values).then_some(self.test.timestamp_factor)
    }

    /// Path of the trace to which misses are written.
    #[must_use]
    pub fn miss_trace(&self) -> Option<PathBuf> {
        let name = &self.test.miss_trace;
        (!name.is_empty()).then(|| self.directory.join(name))
    }

    pub(super) fn as_run(&self) -> Value {
        let mut cache = Map::new();
        self.cache.write(&mut cache);
        let mut test = Map::new();
        self.test.write(&mut test);
        if self.time_units_per_second().is_none() {
            test.remove("timestampFactor");
        }
        if self.test.pool_distributions.is_empty() {
            self.distribution.write(&mut test);
        }
        serde_json::json!({ "cache_config": cache, "test_config": test })
    }
}
