//! Why a run cannot begin.

use std::path::PathBuf;

use cache::CacheError;
use device::IoError;
use workload::trace::TraceError;

use super::cache_keys;

/// Why something could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device.
    #[error("flash: {0}")]
    Device(#[from] IoError),
    /// The cache on it.
    #[error("{}", cache_keys::by_its_key(&.0.to_string()))]
    Cache(#[from] CacheError),
    /// The workload.
    #[error("{}", by_its_key(.0))]
    Workload(#[from] workload::ConfigError),
    /// The trace.
    #[error("test_config.{key}: {source}{reader}", reader = who_reads_it(.source))]
    Trace {
        /// The key of `test_config` that names it.
        key: &'static str,
        /// What is wrong with it.
        source: Box<TraceError>,
    },
    /// A directory for flash or its state.
    #[error("{path}: {source}", path = path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something that was checked when the config was read, and turned out otherwise.
    #[error("{0}")]
    Config(String),
}

/// A trace of another format than its generator reads has one that does.
fn who_reads_it(error: &TraceError) -> String {
    match error {
        TraceError::OtherFormat { found, .. } => {
            format!("; the generator `replay` reads it, with replayGeneratorConfig.traceFormat `{found}`")
        }
        TraceError::NothingRead { wanted, .. } if !matches!(*wanted, "cdn" | "storage") => {
            "; put a header on top, or name the columns in replayGeneratorConfig.traceFormat (as in `csv:time,key,-,size`)"
                .to_owned()
        }
        _ => String::new(),
    }
}

/// What is wrong with a workload, by the key that says so in a config.
fn by_its_key(error: &workload::ConfigError) -> String {
    let (pool, part) = match error.what.rsplit_once(": ") {
        Some((pool, part)) => (format!("{pool}: "), part),
        None => (String::new(), error.what.as_str()),
    };
    let key = match part {
        "keys" => "numKeys",
        "key_bytes" => "keySizeRange",
        "value_bytes" => "valSizeRange",
        "ttl_seconds" => "ttlSecsRange",
        "chain_items" => "chainedItemLengthRange",
        "chain_value_bytes" => "chainedItemValSizeRange",
        "popularity" => "popularityBuckets",
        "key_share" => "keyPoolDistribution",
        "op_share" => "opPoolDistribution",
        other => other,
    };
    format!("{pool}test_config.{key}: {}", error.problem)
}
