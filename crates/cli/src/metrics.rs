//! The HTTP endpoint of `--metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use server::metrics::{Endpoint, Source};

/// Serves the figures of a source until the endpoint is dropped.
///
/// # Errors
/// The address cannot be listened on.
pub fn start(address: SocketAddr, source: Arc<dyn Source>) -> Result<Endpoint, String> {
    Endpoint::start(address, source).map_err(|error| format!("--metrics {address}: {error}"))
}
