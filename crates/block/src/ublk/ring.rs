//! Commands to the driver, which accepts them only through io_uring.
#![allow(unsafe_code, reason = "io_uring trusts the pointers in its entries")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::uapi::{ControlCommand, queue, queue_command};

/// Sends commands to `/dev/ublk-control`, one at a time.
pub(super) struct ControlRing {
    /// A ring with 128-byte entries, which ublk's control commands need.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    control: File,
}

impl ControlRing {
    pub fn new(control: File) -> io::Result<Self> {
        Ok(Self { ring: IoUring::builder().build(1)?, control })
    }

    /// Runs a command and waits for it, with `data` as its buffer.
    pub fn run(&mut self, operation: u32, command: ControlCommand, data: &mut [u8]) -> io::Result<()> {
        let len = u16::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // A command without a buffer has address 0.
        let address = if data.is_empty() { 0 } else { data.as_mut_ptr().expose_provenance() as u64 };
        let control = types::Fd(self.control.as_raw_fd());
        let entry = opcode::UringCmd80::new(control, operation).cmd(command.encode(address, len)).build();
        // SAFETY: the entry points to `data`, which is mutably borrowed until this function returns, after the command's
        // completion.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(pushed.is_ok(), "the ring has space for one entry");
        loop {
            wait(&self.ring, 1);
            if let Some(ended) = self.ring.completion().next() {
                return result(ended.result());
            }
        }
    }
}

/// Sends commands to one queue of a device, and watches its eventfd. The driver accepts commands only from one thread.
pub(super) struct QueueRing {
    ring: IoUring<squeue::Entry, cqueue::Entry>,
    device: Arc<File>,
    event_fd: Arc<OwnedFd>,
    queue: u16,
}

/// An event on a queue's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The eventfd was signalled and is no longer watched.
    Signalled,
    /// The fetch of a tag completed with this result.
    Fetched(u16, i32),
}

impl Event {
    /// The error of a refused fetch.
    pub fn refusal(&self) -> Option<io::Error> {
        match *self {
            Self::Fetched(_, result) => self::result(result).err(),
            Self::Signalled => None,
        }
    }
}

/// User data of the eventfd's entry; larger than any tag.
const EVENTFD: u64 = u64::MAX;

impl QueueRing {
    /// A ring for a queue with `depth` tags.
    pub fn new(device: Arc<File>, event_fd: Arc<OwnedFd>, queue: u16, depth: u16) -> io::Result<Self> {
        // One entry per tag and one for the eventfd: each is submitted again only after the kernel has consumed it.
        let entries = u32::from(depth) + 1;
        // The thread enters the kernel often, so interrupts for completions are not needed.
        let ring = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(entries)?;
        Ok(Self { ring, device, event_fd, queue })
    }

    /// Fetches the tag's first request.
    pub fn fetch(&mut self, tag: u16) {
        self.push_command(queue::FETCH, tag, 0);
    }

    /// Commits the result of the tag's request, and fetches the next.
    pub fn commit_and_fetch(&mut self, tag: u16, result: i32) {
        self.push_command(queue::COMMIT_AND_FETCH, tag, result);
    }

    /// Watches the eventfd for one signal.
    pub fn listen(&mut self) {
        let flags = u32::from(PollFlags::IN.bits());
        let entry = opcode::PollAdd::new(types::Fd(self.event_fd.as_raw_fd()), flags).build();
        self.push(&entry.user_data(EVENTFD));
    }

    /// Submits the entries and waits for `events` completions.
    pub fn enter(&mut self, events: usize) {
        wait(&self.ring, events);
    }

    /// Appends the events so far.
    pub fn take(&mut self, events: &mut Vec<Event>) {
        events.extend(self.ring.completion().map(|entry| match entry.user_data() {
            EVENTFD => Event::Signalled,
            tag => Event::Fetched(tag as u16, entry.result()),
        }));
    }

    /// Whether there are events.
    pub fn has_events(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    fn push_command(&mut self, operation: u32, tag: u16, result: i32) {
        let device = types::Fd(self.device.as_raw_fd());
        let command = queue_command(self.queue, tag, result);
        let entry = opcode::UringCmd16::new(device, operation).cmd(command).build();
        self.push(&entry.user_data(tag.into()));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: entries of this ring point to no memory, and their files stay open as long as the ring.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.enter(0);
        }
    }
}

/// Enters the kernel until `events` completions are available.
fn wait<S: squeue::EntryMarker, C: cqueue::EntryMarker>(ring: &IoUring<S, C>, events: usize) {
    while let Err(error) = ring.submit_and_wait(events) {
        match Errno::from_io_error(&error) {
            Some(Errno::INTR) => {}
            // Completions must be consumed before more is submitted.
            Some(Errno::AGAIN | Errno::BUSY) => return,
            _ => panic!("io_uring_enter on a ring of our own: {error}"),
        }
    }
}

fn result(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::event_fd;

    /// Commands to a regular file fail, and the ring stays usable.
    #[test]
    fn refused_command_fails_and_eventfd_still_wakes() {
        let (device, event_fd) =
            (Arc::new(tempfile::tempfile().unwrap()), Arc::new(event_fd::new().unwrap()));
        // Skipped where io_uring is not permitted.
        let Ok(mut ring) = QueueRing::new(device, Arc::clone(&event_fd), 0, 4) else { return };
        ring.listen();
        ring.fetch(3);
        ring.enter(1);
        let mut events = Vec::new();
        ring.take(&mut events);
        assert_eq!(events, [Event::Fetched(3, -Errno::OPNOTSUPP.raw_os_error())]);
        assert!(!ring.has_events());
        event_fd::signal(&event_fd);
        ring.enter(1);
        assert!(ring.has_events());
        events.clear();
        ring.take(&mut events);
        assert_eq!(events, [Event::Signalled]);
    }

    #[test]
    fn control_command_to_a_regular_file_fails() {
        let Ok(mut ring) = ControlRing::new(tempfile::tempfile().unwrap()) else { return };
        let refused = ring.run(1, ControlCommand { device: 0, argument: 0 }, &mut [0; 8]);
        assert_eq!(Errno::from_io_error(&refused.unwrap_err()), Some(Errno::OPNOTSUPP));
    }
}
