//! The client of a control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;

use super::service::without_cache;

/// A server silent for this long is stopped, or its devices do not respond.
const SILENCE: Duration = Duration::from_secs(10);

/// Sends a request to the server at `path`; all answer lines but the last go to `progress`.
pub fn ask(path: &Path, request: &str, mut progress: impl FnMut(&Value)) -> Result<Value, String> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("no server listens at {}", path.display())
        }
        io::ErrorKind::WouldBlock => format!(
            "the server at {} has not answered for {} s: it is stopped, or waits for its devices",
            path.display(),
            SILENCE.as_secs()
        ),
        _ => format!("{}: {error}", path.display()),
    };
    let mut stream = connect(path).map_err(failed)?;
    writeln!(stream, "{request}").map_err(failed)?;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(failed)?;
        let value: Value =
            serde_json::from_str(&line).map_err(|error| format!("{}: {error}", path.display()))?;
        if let Some(error) = value.get("error") {
            return Err(error.as_str().map_or_else(|| error.to_string(), str::to_owned));
        }
        if value.get("done").is_some() {
            return Ok(value);
        }
        if value.get("working").is_none() {
            progress(&value);
        }
    }
    Err(format!("the server at {} closed the connection", path.display()))
}

/// Connects with a timeout of [`SILENCE`] per step. This includes connecting, which blocks if a stopped server's backlog is full.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(SILENCE))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(SILENCE))?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// The part `name` of a server's status, which exists only for a cache.
pub fn part_of_cache<'a>(status: &'a Value, name: &str) -> Result<&'a Value, String> {
    let place = || status["serving"].as_str().unwrap_or("the server's place");
    status.get(name).ok_or_else(|| without_cache(place()))
}
