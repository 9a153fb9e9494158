//! Errors that prevent a run from starting.

use std::path::PathBuf;

use cache::CacheError;
use device::IoError;
use workload::trace::TraceError;

use super::cache_keys;

/// Why a part of a run could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The flash device.
    #[error("flash: {0}")]
    Device(#[from] IoError),
    /// The cache.
    #[error("{}", cache_keys::with_config_keys(&.0.to_string()))]
    Cache(#[from] CacheError),
    /// The workload.
    #[error("{}", workload_error(.0))]
    Workload(#[from] workload::ConfigError),
    /// The trace.
    #[error("test_config.{key}: {source}{hint}", hint = generator_hint(.source))]
    Trace {
        /// The key of `test_config` that names the trace.
        key: &'static str,
        /// The error.
        source: Box<TraceError>,
    },
    /// A directory for flash or its state.
    #[error("{path}: {source}", path = path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// An invalid setting that is found only when it is used, in words with its key.
    #[error("{0}")]
    Config(String),
}

/// Names the generator that reads the trace's format, or how to name its columns.
fn generator_hint(error: &TraceError) -> String {
    match error {
        TraceError::OtherFormat { found, .. } => {
            format!("; the generator `replay` reads it, with replayGeneratorConfig.traceFormat `{found}`")
        }
        TraceError::NothingRead { expected, .. } if !matches!(*expected, "cdn" | "storage") => {
            "; put a header on top, or name the columns in replayGeneratorConfig.traceFormat (as in `csv:time,key,-,size`)"
                .to_owned()
        }
        _ => String::new(),
    }
}

/// The error of a workload with the config key that causes it.
fn workload_error(error: &workload::ConfigError) -> String {
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
