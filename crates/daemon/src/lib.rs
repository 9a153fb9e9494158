//! The server of the block cache: it opens flash and disk, serves the cached disk by its front ends (NBD, ublk, FUSE), and answers
//! requests on a control socket.
//!
//! [`Daemon`] starts and stops a server. [`control`] is the protocol of the control socket, [`settings`] has the settings that `set` changes,
//! [`status`] reports the state, [`devices`] opens flash and disk by name. Each module declares its own flags; the command line parses
//! them and prints the results. Warnings go to standard error.

pub mod contents;
pub mod control;
mod daemon;
mod descriptors;
pub mod devices;
mod front_end;
mod health;
pub mod named;
pub mod online_changes;
pub mod operations;
mod recording;
pub mod sectors;
pub mod settings;
pub mod status;
mod sync;

pub use daemon::{Daemon, Options, StatusReader, Stopped, identity_of};
pub use front_end::{SERVER, Target};

use std::fmt::Display;
use std::io::Write as _;

/// Writes a line to standard error. A closed pipe is not an error.
fn log_line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
