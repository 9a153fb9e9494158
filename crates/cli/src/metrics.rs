//! The HTTP endpoint of `--metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use server::metrics::{Endpoint, Source};

/// The address of `--metrics`, if it may be served: the page has no authentication, and shows paths, key prefixes and device errors.
///
/// # Errors
/// Other machines can reach the address, and `flag` does not permit that.
pub fn permitted(
    address: Option<SocketAddr>,
    allows_remote: bool,
    flag: &str,
) -> Result<Option<SocketAddr>, String> {
    match address {
        Some(address) if !address.ip().is_loopback() && !allows_remote => Err(format!(
            "--metrics {address}: other machines can reach it without authentication: use 127.0.0.1, or permit it with {flag}"
        )),
        address => Ok(address),
    }
}

/// Serves the figures of a source until the endpoint is dropped.
///
/// # Errors
/// The address cannot be listened on.
pub fn start(address: SocketAddr, source: Arc<dyn Source>) -> Result<Endpoint, String> {
    Endpoint::start(address, source).map_err(|error| format!("--metrics {address}: {error}"))
}
