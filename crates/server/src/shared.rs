//! State that all connections of a server share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::counters::Counters;
use crate::latency::Latency;
use crate::options::Options;
use crate::prefixes::{Access, Prefixes};
use crate::store::Store;

/// Unit of the budget for input.
pub const BUDGET_UNIT_BYTES: usize = 1 << 10;

/// State shared by all connections of a server.
pub struct Shared {
    pub(crate) store: Store,
    pub(crate) options: Options,
    pub(crate) counters: Counters,
    pub(crate) prefixes: Prefixes,
    pub(crate) latency: Latency,
    /// Memory for large requests, in units of [`BUDGET_UNIT_BYTES`].
    pub(crate) budget: Arc<Semaphore>,
    /// A permit for each connection that may be open.
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) max_value_bytes: usize,
    pub(crate) started_seconds: u32,
}

impl Shared {
    /// Counts a request by the prefix of its key.
    #[inline]
    pub(crate) fn record(&self, key: &[u8], access: Access) {
        self.prefixes.record(key, access);
        self.store.tenants().record(key, access);
    }

    /// Connections open now.
    pub(crate) fn open_connections(&self) -> usize {
        self.options.max_connections - self.connections.available_permits()
    }
}
