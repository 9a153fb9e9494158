//! Commands to the driver, through io_uring: it knows no other way.
#![allow(unsafe_code, reason = "io_uring trusts what its entries point to")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::uapi::{ControlCommand, queue, queue_command};

/// Commands to `/dev/ublk-control`, one at a time.
pub(super) struct ControlRing {
    /// With the longer entries that these commands need.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    control: File,
}

impl ControlRing {
    pub fn new(control: File) -> io::Result<Self> {
        Ok(Self { ring: IoUring::builder().build(1)?, control })
    }

    /// Runs a command to its end, with `data` as its buffer.
    pub fn run(&mut self, operation: u32, command: ControlCommand, data: &mut [u8]) -> io::Result<()> {
        let len = u16::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // What has no buffer points nowhere.
        let address = if data.is_empty() { 0 } else { data.as_mut_ptr().expose_provenance() as u64 };
        let control = types::Fd(self.control.as_raw_fd());
        let entry = opcode::UringCmd80::new(control, operation).cmd(command.encode(address, len)).build();
        // SAFETY: the entry points to `data`, which is borrowed for writing until the command has ended: this returns not
        // before its completion was taken.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(pushed.is_ok(), "a ring has room for one entry");
        loop {
            wait(&self.ring, 1);
            if let Some(ended) = self.ring.completion().next() {
                return result(ended.result());
            }
        }
    }
}

/// Commands to one queue of a device, and its bell. Only the thread that made it may use it: the driver insists.
pub(super) struct QueueRing {
    ring: IoUring<squeue::Entry, cqueue::Entry>,
    device: Arc<File>,
    bell: Arc<OwnedFd>,
    queue: u16,
}

/// What has happened on a queue's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The bell was rung, and is not listened to any more.
    Rung,
    /// The tag's fetch has ended.
    Fetched(u16, i32),
}

impl Event {
    /// The error with which a fetch was refused.
    pub fn refusal(&self) -> Option<io::Error> {
        match *self {
            Self::Fetched(_, result) => self::result(result).err(),
            Self::Rung => None,
        }
    }
}

/// Mark of the bell's entry. No tag is so large.
const BELL: u64 = u64::MAX;

impl QueueRing {
    /// A ring for the queue of a device with so many tags.
    pub fn new(device: Arc<File>, bell: Arc<OwnedFd>, queue: u16, depth: u16) -> io::Result<Self> {
        // An entry for each tag and the bell: none is pushed twice before the kernel has taken it.
        let entries = u32::from(depth) + 1;
        // The thread comes by the kernel often enough to be interrupted for nothing.
        let ring = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(entries)?;
        Ok(Self { ring, device, bell, queue })
    }

    /// Asks for the tag's first request.
    pub fn fetch(&mut self, tag: u16) {
        self.push_command(queue::FETCH, tag, 0);
    }

    /// Tells how the tag's request ended, and asks for its next.
    pub fn commit_and_fetch(&mut self, tag: u16, result: i32) {
        self.push_command(queue::COMMIT_AND_FETCH, tag, result);
    }

    /// Listens to the bell, until it was rung.
    pub fn listen(&mut self) {
        let flags = u32::from(PollFlags::IN.bits());
        let entry = opcode::PollAdd::new(types::Fd(self.bell.as_raw_fd()), flags).build();
        self.push(&entry.user_data(BELL));
    }

    /// Hands over what was pushed, and waits until `events` have happened.
    pub fn enter(&mut self, events: usize) {
        wait(&self.ring, events);
    }

    /// What has happened since.
    pub fn take(&mut self, events: &mut Vec<Event>) {
        events.extend(self.ring.completion().map(|entry| match entry.user_data() {
            BELL => Event::Rung,
            tag => Event::Fetched(tag as u16, entry.result()),
        }));
    }

    /// Whether something has happened that was not taken yet.
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
        // SAFETY: entries of this ring point to no memory, and the files they name are open as long as it is.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.enter(0);
        }
    }
}

/// Enters the kernel until `events` have happened.
fn wait<S: squeue::EntryMarker, C: cqueue::EntryMarker>(ring: &IoUring<S, C>, events: usize) {
    while let Err(error) = ring.submit_and_wait(events) {
        match Errno::from_io_error(&error) {
            Some(Errno::INTR) => {}
            // Completions must be taken before more is submitted.
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
    use device::bell;

    /// A file that is no device: commands to it end with an error, and the ring goes on.
    #[test]
    fn a_command_that_is_refused_ends_with_its_error_and_the_bell_is_heard() {
        let (device, bell) = (Arc::new(tempfile::tempfile().unwrap()), Arc::new(bell::new().unwrap()));
        // Where io_uring is not permitted there is no ublk either.
        let Ok(mut ring) = QueueRing::new(device, Arc::clone(&bell), 0, 4) else { return };
        ring.listen();
        ring.fetch(3);
        ring.enter(1);
        let mut events = Vec::new();
        ring.take(&mut events);
        assert_eq!(events, [Event::Fetched(3, -Errno::OPNOTSUPP.raw_os_error())]);
        assert!(!ring.has_events());
        bell::ring(&bell);
        ring.enter(1);
        assert!(ring.has_events());
        events.clear();
        ring.take(&mut events);
        assert_eq!(events, [Event::Rung]);
    }

    #[test]
    fn a_control_command_to_what_is_no_driver_is_refused() {
        let Ok(mut ring) = ControlRing::new(tempfile::tempfile().unwrap()) else { return };
        let refused = ring.run(1, ControlCommand { device: 0, argument: 0 }, &mut [0; 8]);
        assert_eq!(Errno::from_io_error(&refused.unwrap_err()), Some(Errno::OPNOTSUPP));
    }
}
