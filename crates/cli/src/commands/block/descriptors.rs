//! Room for every client that a server is to have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a connection takes: its socket, and the bell of its thread.
const PER_CONNECTION: u64 = 2;

/// What the server itself takes at most: devices and their rings, its fronts, and who asks by the control socket.
const FOR_ITSELF: u64 = 128;

/// Has the system let this process open as much as `connections` clients take. Who comes when nothing can be opened any more is
/// neither served nor turned away, and what is usual, 1024, is less than may be asked for.
pub fn allow(connections: usize) -> Result<(), String> {
    let needed = connections as u64 * PER_CONNECTION + FOR_ITSELF;
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
