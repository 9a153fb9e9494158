//! Waking a thread that waits for a socket.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};

/// A bell that can be polled beside a socket.
pub(super) fn new() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Rings. A bell that is ringing already goes on.
pub(super) fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Makes it silent.
pub(super) fn silence(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}
