//! Errors of a simulation.

use std::io;

use device::names::noun;
use policy::UnknownName;
use workload::trace::TraceError;

/// Error of a simulation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Unknown policy name.
    #[error(transparent)]
    Policy(#[from] UnknownName),
    /// The temporary file that holds the trace.
    #[error("the temporary file in {}: {source} (set TMPDIR to use another directory)", folder.display())]
    Spool {
        /// Directory of the file.
        folder: std::path::PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The sampling rate is out of range.
    #[error("a sample of {percent} %: must be above 0 and below 100 %")]
    NoSample {
        /// The rate.
        percent: f64,
    },
    /// The sample has no drawn object.
    #[error("a sample of {percent} % drew none of {of} objects: take a larger share, or all")]
    NoneDrawn {
        /// The rate.
        percent: f64,
        /// Number of objects that could have been drawn.
        of: u64,
    },
    /// Stopped before any request was counted.
    #[error("interrupted: nothing was counted yet")]
    Interrupted,
    /// The warm-up covers all requests.
    #[error("all {requests} requests are warm-up, and none is left to count: lower --warmup")]
    AllWarmup {
        /// Requests of the trace.
        requests: u64,
    },
    /// Flash caches evict blocks or sets, which a sample of objects does not fill.
    #[error("{name} moves many objects at a time and cannot be sampled: leave out --sample")]
    NotSampled {
        /// Name of the policy.
        name: String,
    },
    /// The error of an estimate depends on the policy, and that of a custom policy is not known.
    #[error("{name} is not a built-in policy and cannot be sampled: leave out --sample")]
    CustomNotSampled {
        /// Name of the policy.
        name: String,
    },
    /// A sample does not represent single tenants.
    #[error("--by-tenant cannot be combined with --sample")]
    NoTenantsInSample,
    /// A flash cache needs object sizes.
    #[error("{name} has blocks or sets of bytes, and cannot ignore the sizes of objects")]
    NeedsSizes {
        /// Name of the policy.
        name: String,
    },
    /// No object fits in any of the caches.
    #[error(
        "no object fits into {size_bytes} {}: the smallest has {smallest_bytes}; a size is in bytes, and {size_bytes}obj is a cache of so \
         many objects", noun(*size_bytes, "byte")
    )]
    NothingFits {
        /// Size of the largest cache.
        size_bytes: u64,
        /// Size of the smallest object.
        smallest_bytes: u64,
    },
    /// A warm-up by time needs a count that is not known in advance.
    #[error("--warmup: a time cannot be combined with {flag}; give a number of requests or a percentage")]
    NoTimedWarmup {
        /// The other flag.
        flag: &'static str,
    },
    /// A length of time was given for a trace without times.
    #[error("{flag}: the trace has no times; give a number of requests instead")]
    NoTimes {
        /// The flag with the time.
        flag: &'static str,
    },
    /// The trace is empty.
    #[error("the trace has no requests")]
    Empty,
    /// A share of the footprint is less than one byte.
    #[error("a cache of {percent} % of the footprint ({footprint_bytes} {}) is less than one byte", noun(*footprint_bytes, "byte"))]
    NoByte {
        /// The share.
        percent: f64,
        /// The footprint.
        footprint_bytes: u64,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}
