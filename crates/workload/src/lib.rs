//! What is asked of a cache.
//!
//! A [`Workload`] hands out one [`Source`] a worker thread; a source is an endless or ending run of
//! [`Request`]s. Requests come from distributions ([`generate`]) or from recorded traces ([`trace`]). Beside
//! them stand the two things that every run needs too: value bytes that any reader can verify ([`payload`]) and
//! pacing ([`pace`]).
//!
//! This room knows nothing of caches, devices or JSON, and reads no clock. Everything it produces follows from
//! its configuration, the seed and the number of the worker: the same three give the same requests again.
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
pub mod generate;
pub mod pace;
pub mod payload;
pub mod trace;

pub use generate::error::ConfigError;
pub use trace::tenants::Tenant;

/// One thing asked of the cache. Borrows from its source until the next one is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// What is asked.
    pub kind: RequestKind,
    /// The key's bytes.
    pub key: &'a [u8],
    /// Identity of the key: equal keys have equal ids, and different keys different ones (exactly so in
    /// generators; in traces the id is a 64-bit hash). Says nothing of the value's version.
    pub key_id: u64,
    /// Length of the value. Traces say 0 where the recorded get missed.
    pub value_bytes: u64,
    /// Lengths of the chained items that belong to the key; empty where the workload has none.
    pub chain_bytes: &'a [u32],
    /// TTL of the value in seconds, from when it is set; `None` never expires.
    pub ttl_seconds: Option<u32>,
    /// The cache pool that is asked.
    pub pool: u16,
    /// When the request was made, on the trace's own clock; `None` where the source has no time.
    pub time_ns: Option<u64>,
    /// How many times in a row the request is to be made; at least 1.
    pub repeat: u32,
    /// Who asked, where the trace tells.
    pub tenant: Option<Tenant>,
    /// What this is of a request for something larger; `None` where it is the whole of it.
    pub part: Option<&'a Part>,
}

/// What an item is of a request for several: a range of a file, an object in pieces. They follow each other in one source,
/// and each is asked for once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The request begins with it.
    pub is_first: bool,
    /// The request ends with it.
    pub is_last: bool,
    /// Bytes of the item that were asked for; the item may be longer.
    pub asked_bytes: u64,
    /// Bytes that the request asks for besides and no cache may keep; told with the last item.
    pub uncached_bytes: u64,
    /// Whether those behind one that is missing are fetched with it, and not looked for any more.
    pub misses_spread: bool,
    /// What is to be fetched where this one and all behind it are missing; `None` for chunks of a block.
    pub fetch: Option<Fetch>,
}

/// The bytes that an origin or a lower cache must send for an object, or for a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// Of the response's header, which comes with every part.
    pub header_bytes: u64,
    /// Of the object's body.
    pub body_bytes: u64,
    /// Where in the body the part begins: whole items are fetched, so maybe before what was asked for.
    pub from_bytes: u64,
    /// Where it ends; there is nothing of the body in an empty part.
    pub to_bytes: u64,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestKind {
    /// Look the key up.
    Get,
    /// Store a value.
    Set,
    /// Remove the key.
    Delete,
    /// Look the key up, store it if absent, and hang the chained items on it.
    AddChained,
    /// Look up a key that nothing else ever asks for.
    LoneGet,
    /// Store a key that nothing else ever asks for.
    LoneSet,
    /// Look the key up and overwrite its value in place.
    Update,
    /// Ask whether the key may be there, without reading it.
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

    /// Whether the key lies outside of the key population.
    #[must_use]
    pub fn is_lone(self) -> bool {
        matches!(self, Self::LoneGet | Self::LoneSet)
    }
}

/// The requests of one worker thread.
pub trait Source: Send {
    /// The next request; `None` at the end of the trace. Generators never end.
    fn next(&mut self) -> Option<Request<'_>>;

    /// The key of the request [`AHEAD`] requests after the next one, so that a caller can prefetch for it; `None` if the source does not know
    /// it yet.
    fn upcoming(&self) -> Option<&[u8]> {
        None
    }
}

/// How many requests after the next one an [upcoming](Source::upcoming) one is handed out.
pub const AHEAD: usize = 4;

/// Something that can be asked for the requests of a whole run.
pub trait Workload: Send + Sync {
    /// One source for each of `workers` threads. Generators answer the same requests for the same `seed`.
    ///
    /// # Errors
    /// A trace that cannot be opened.
    fn sources(&self, workers: usize, seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError>;

    /// Keys that can be asked for, lone ones aside; `None` where only reading the whole trace would tell.
    fn key_count(&self) -> Option<u64>;
}

/// Why a workload cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// Its configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A trace file cannot be opened.
    #[error("cannot open the trace {path}: {source}")]
    Open {
        /// The file.
        path: std::path::PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The thread that parses a trace cannot be started.
    #[error("cannot start the trace parser: {0}")]
    Thread(#[source] std::io::Error),
}
