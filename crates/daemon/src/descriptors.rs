//! Raises the limit of open files to the configured number of clients.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors per connection: the socket, and an eventfd of its thread.
const PER_CONNECTION: u64 = 2;

/// Most descriptors of the server itself: devices, io_urings, frontends, control connections.
const FOR_ITSELF: u64 = 128;

/// Raises the limit of open files for a server with up to `sockets` sockets, including those in a handshake. `connections` is the
/// user's setting, for the error. The usual limit, 1024, can be too low; without a free descriptor, a client is neither served nor
/// refused.
pub fn allow(connections: usize, sockets: usize) -> Result<(), String> {
    let needed = sockets as u64 * PER_CONNECTION + FOR_ITSELF;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(most) = maximum.filter(|&most| most < needed) {
        return Err(format!(
            "--connections {connections}: needs {needed} file descriptors, but the limit is {most} (ulimit -Hn)"
        ));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })
        .map_err(|error| format!("--connections {connections}: {needed} file descriptors: {error}"))
}
