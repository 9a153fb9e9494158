//! Requests for a cache: generated or read from recorded traces.
//!
//! A [`Workload`] creates one [`Source`] per worker thread. A source is a sequence of [`Request`]s, endless for generators. [`generate`]
//! draws requests from distributions; [`trace`] reads recorded traces; [`fio`] generates those of fio job files. [`payload`] fills and verifies value bytes. [`pace`] limits request
//! rates.
//!
//! This crate depends on no cache, device or JSON code and reads no clock. The configuration, the seed and the worker's number determine
//! every request.
//!
//! ```
//! use flashwright_workload::Workload;
//! use flashwright_workload::generate::{
//!     Distribution, GeneratorConfig, Mix, Online, PoolConfig, Popularity, Table,
//! };
//!
//! let pool = PoolConfig {
//!     op_share: 1.0,
//!     key_share: 1.0,
//!     distribution: Distribution {
//!         key_bytes: Table::uniform(8, 64),
//!         value_bytes: Table { range: vec![100.0, 1000.0, 50_000.0], weights: vec![0.9, 0.1] },
//!         chain_items: None,
//!         chain_value_bytes: None,
//!         ttl_seconds: None,
//!         popularity: Popularity::Zipf { exponent: 0.9 },
//!         mix: Mix { get: 0.9, set: 0.1, ..Mix::default() },
//!     },
//! };
//! let workload = Online::new(&GeneratorConfig { keys: 1_000_000, pools: vec![pool] })?;
//! let mut sources = workload.sources(4, 42)?;
//! let request = sources[0].next().expect("generators never end");
//! assert!((8..64).contains(&request.key.len()) && request.value_bytes < 50_000);
//! # Ok::<(), flashwright_workload::WorkloadError>(())
//! ```

pub mod block;
pub mod fio;
pub mod generate;
pub mod pace;
pub mod payload;
pub mod trace;

pub use generate::error::ConfigError;
pub use trace::tenants::Tenant;

/// A cache request. Borrows from its source until the next call of [`Source::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The operation.
    pub kind: RequestKind,
    /// The key's bytes.
    pub key: &'a [u8],
    /// Identity of the key: equal keys have equal ids. Ids are unique in generators; in traces they are 64-bit hashes. Independent of the
    /// value's version.
    pub key_id: u64,
    /// Length of the value. In traces 0 if the recorded get missed.
    pub value_bytes: u64,
    /// Lengths of the key's chained items; empty if the workload has none.
    pub chain_bytes: &'a [u32],
    /// TTL of the value in seconds, from when it is set; `None` never expires.
    pub ttl_seconds: Option<u32>,
    /// The cache pool.
    pub pool: u16,
    /// Time of the request on the trace's clock; `None` if the source has no times.
    pub time_ns: Option<u64>,
    /// Number of times to repeat the request in a row; at least 1.
    pub repeat: u32,
    /// The client that made the request, if the trace records it.
    pub tenant: Option<Tenant>,
    /// The item's role in a request for several items; `None` for a request for one item.
    pub part: Option<&'a Part>,
}

/// One item of a request for several items: a range of a file, an object in pieces. The items of a request are consecutive in one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Whether this is the first item of the request.
    pub is_first: bool,
    /// Whether this is the last item of the request.
    pub is_last: bool,
    /// Requested bytes of the item; the item can be longer.
    pub requested_bytes: u64,
    /// Requested bytes that no cache may keep; set on the last item only.
    pub uncached_bytes: u64,
    /// Whether a miss fetches all later items too, so that they are not looked up.
    pub fetches_rest_on_miss: bool,
    /// The fetch if this item and all later ones are missing; `None` for chunks of a block.
    pub fetch: Option<Fetch>,
}

/// The bytes that an origin or a lower cache sends for an object or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// Bytes of the response header, sent with every part.
    pub header_bytes: u64,
    /// Bytes of the object's body.
    pub body_bytes: u64,
    /// Start of the part in the body. Whole items are fetched, so it can lie before the requested range.
    pub from_bytes: u64,
    /// End of the part. Equal to the start if no body is sent.
    pub to_bytes: u64,
}

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestKind {
    /// Look the key up.
    Get,
    /// Store a value.
    Set,
    /// Remove the key.
    Delete,
    /// Look the key up, store it if absent, and append the chained items.
    AddChained,
    /// Look up a key that no other request uses.
    LoneGet,
    /// Store a key that no other request uses.
    LoneSet,
    /// Look the key up and overwrite its value in place.
    Update,
    /// Check whether the key may be present, without reading it.
    CouldExist,
}

impl RequestKind {
    /// All kinds, in the order in which CacheBench numbers them.
    pub const ALL: [Self; 8] = [
        Self::Set,
        Self::Get,
        Self::Delete,
        Self::AddChained,
        Self::LoneGet,
        Self::LoneSet,
        Self::Update,
        Self::CouldExist,
    ];

    /// Whether the request's key lies outside the key population.
    #[must_use]
    pub fn is_lone(self) -> bool {
        matches!(self, Self::LoneGet | Self::LoneSet)
    }
}

/// The requests of one worker thread.
pub trait Source: Send {
    /// The next request; `None` at the end of the trace. Generators never end.
    fn next(&mut self) -> Option<Request<'_>>;

    /// The key of the request [`AHEAD`] requests after the next one, for prefetching; `None` if the source does not know it yet.
    fn upcoming(&self) -> Option<&[u8]> {
        None
    }
}

/// Distance, in requests, between the next request and the [upcoming](Source::upcoming) one.
pub const AHEAD: usize = 4;

/// A workload that creates the request sources of a run.
pub trait Workload: Send + Sync {
    /// One source for each of `workers` threads. Generators return the same requests for the same `seed`.
    ///
    /// # Errors
    /// A trace that cannot be opened.
    fn sources(&self, workers: usize, seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError>;

    /// Number of keys, without lone ones; `None` if only reading the whole trace could determine it.
    fn key_count(&self) -> Option<u64>;
}

/// Why a workload cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A trace file cannot be opened.
    #[error("cannot open the trace {path}: {source}")]
    Open {
        /// The file.
        path: std::path::PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The thread that parses a trace cannot be started.
    #[error("cannot start the trace parser: {0}")]
    Thread(#[source] std::io::Error),
}
