//! The control socket by which commands reach a server.
//!
//! A client sends one line: `status`, `set KEY=VALUE …`, `flush`, `upgrade`, `grow` or `replace-flash [force] to PATH`. The answer is lines of JSON; the last contains `done`, or
//! `error` with the reason. During long requests the server sends a line twice a second, so a silent server is known to be stopped. The
//! socket is accessible only to its owner, because there is no other access control.

mod client;
mod request;
mod service;
mod socket;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use client::{ask, part_of_cache};
pub use request::{MAX_REQUEST_BYTES, Request};
pub(crate) use service::{Below, Cache, Controlled, Service, lock};
pub(crate) use socket::{ControlSocket, listen};

/// Interval of progress lines.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// The control socket of a server on the socket `path`.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".control");
    name.into()
}

/// The control socket of a server on a TCP port.
pub fn of_port(port: u16) -> PathBuf {
    of_this_machine(&port.to_string())
}

/// The control socket of a server with only a ublk device.
pub fn of_ublk(number: u32) -> PathBuf {
    of_this_machine(&format!("ublk{number}"))
}

fn of_this_machine(which: &str) -> PathBuf {
    let directory = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    directory.join(format!("flashwright-{which}.control"))
}
