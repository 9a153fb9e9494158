//! Event descriptors that wake a thread waiting in the kernel.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};

/// An event descriptor that can be polled together with the thread's other descriptors.
///
/// # Errors
/// If there is no descriptor left.
pub fn new() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Signals the descriptor. A repeated signal has no further effect.
pub fn signal(event_fd: &OwnedFd) {
    let _ = rustix::io::write(event_fd, &1u64.to_ne_bytes());
}

/// Clears the signal.
pub fn clear(event_fd: &OwnedFd) {
    let _ = rustix::io::read(event_fd, &mut [0u8; 8]);
}
