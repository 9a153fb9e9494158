//! Room for every client that a server is to have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a connection takes: its socket, and the bell of its thread.
const PER_CONNECTION: u64 = 2;

/// What the server itself takes at most: devices and their rings, its fronts, and who asks by the control socket.
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
