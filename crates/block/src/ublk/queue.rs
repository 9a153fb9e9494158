//! A queue of a device, on its own thread: it fetches requests, starts them, and commits their results in the order in which they
//! complete.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use device::event_fd;

use super::descriptors::Descriptors;
use super::outbox::{Ended, Outbox};
use super::request::Limits;
use super::ring::{Event, QueueRing};
use super::ticket::Ticket;
use crate::export::{Export, Reply, run_inline};

/// State shared by all queues of a device.
pub(super) struct DeviceShared {
    /// The character device.
    pub device: Arc<File>,
    pub export: Arc<dyn Export>,
    pub limits: Limits,
    /// Tags per queue.
    pub depth: u16,
}

/// A running queue.
pub(super) struct Running {
    leaving: Arc<AtomicBool>,
    event_fd: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

/// Requests up to this length complete on the queue's thread. Longer ones are split into parallel transfers.
const MAX_INLINE_BYTES: u32 = 16 << 10;

/// Requests that are not made inline after several were in flight.
const INLINE_BACKOFF: u32 = 64;

impl Running {
    /// Starts queue `number`. When this returns, it has fetched with every tag.
    pub fn start(shared: &Arc<DeviceShared>, number: u16) -> io::Result<Self> {
        let (leaving, event_fd) = (Arc::new(AtomicBool::new(false)), Arc::new(event_fd::new()?));
        let (sender, receiver) = sync_channel(1);
        let (shared, for_thread) = (Arc::clone(shared), (Arc::clone(&leaving), Arc::clone(&event_fd)));
        let thread = std::thread::Builder::new().name("ublk-queue".into()).spawn(move || {
            let (leaving, event_fd) = for_thread;
            match Queue::open(&shared, number, leaving, event_fd) {
                Err(error) => drop(sender.send(Err(error))),
                Ok((mut queue, events)) => {
                    let _ = sender.send(Ok(()));
                    queue.serve(events);
                }
            }
        })?;
        let opened = receiver.recv().unwrap_or_else(|_| Err(io::Error::other("the queue's thread ended")));
        let running = Self { leaving, event_fd, thread };
        match opened {
            Ok(()) => Ok(running),
            Err(error) => {
                running.join();
                Err(error)
            }
        }
    }

    /// Makes the queue answer its started requests and end. Others are left to the next server.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
        event_fd::signal(&self.event_fd);
    }

    /// Waits for the end of the queue, after [`leave`](Self::leave) or a stop of the device.
    pub fn join(self) {
        let ended = self.thread.join();
        debug_assert!(ended.is_ok(), "queues do not panic");
    }
}

struct Queue {
    shared: Arc<DeviceShared>,
    number: u16,
    descriptors: Descriptors,
    ring: QueueRing,
    outbox: Arc<Outbox>,
    event_fd: Arc<OwnedFd>,
    leaving: Arc<AtomicBool>,
    /// Tags with which the kernel may still deliver requests.
    live: u16,
    /// Requests that are started and not committed.
    in_flight: u32,
    /// Number of further requests that are not made inline.
    inline_backoff: u32,
}

impl Queue {
    /// Fetches with all tags and then maps the descriptors. Only in this order can the next server recover from a kill in between,
    /// and only if no queue has fetched with some of its tags.
    fn open(
        shared: &Arc<DeviceShared>,
        number: u16,
        leaving: Arc<AtomicBool>,
        event_fd: Arc<OwnedFd>,
    ) -> io::Result<(Self, Vec<Event>)> {
        let DeviceShared { device, depth, .. } = &**shared;
        let mut ring = QueueRing::new(Arc::clone(device), Arc::clone(&event_fd), number, *depth)?;
        ring.listen();
        (0..*depth).for_each(|tag| ring.fetch(tag));
        ring.enter(0);
        let mut events = Vec::new();
        ring.take(&mut events);
        if let Some(error) = events.iter().find_map(Event::refusal) {
            return Err(error);
        }
        let queue = Self {
            shared: Arc::clone(shared),
            number,
            descriptors: Descriptors::map(device, number, *depth)?,
            ring,
            outbox: Arc::new(Outbox::new(Arc::clone(&event_fd))),
            event_fd,
            leaving,
            live: *depth,
            in_flight: 0,
            inline_backoff: 0,
        };
        Ok((queue, events))
    }

    fn serve(&mut self, mut events: Vec<Event>) {
        let mut ended = Vec::new();
        loop {
            self.handle(&mut events);
            self.commit(&mut ended);
            let is_done = self.leaving.load(Ordering::Acquire) && self.in_flight == 0;
            if self.live == 0 || is_done {
                // Submits the last commits.
                return self.ring.enter(0);
            }
            self.ring.enter(1);
            self.outbox.set_awake();
            self.ring.take(&mut events);
        }
    }

    fn handle(&mut self, events: &mut Vec<Event>) {
        let fetched = events.iter().filter(|event| matches!(event, Event::Fetched(_, 0))).count();
        if fetched > 1 || self.in_flight > 0 {
            self.inline_backoff = INLINE_BACKOFF;
        }
        for event in events.drain(..) {
            match event {
                Event::Signalled => {
                    event_fd::clear(&self.event_fd);
                    self.ring.listen();
                }
                // Not started: the kernel delivers it to the next server.
                Event::Fetched(_, 0) if self.leaving.load(Ordering::Acquire) => {}
                Event::Fetched(tag, 0) => self.start(tag),
                // The device has stopped.
                Event::Fetched(..) => self.live -= 1,
            }
        }
    }

    /// Commits results until there are no more.
    fn commit(&mut self, ended: &mut Vec<Ended>) {
        loop {
            self.outbox.take(ended);
            if ended.is_empty() {
                return;
            }
            for (tag, result) in ended.drain(..) {
                self.in_flight -= 1;
                self.ring.commit_and_fetch(tag, result);
            }
        }
    }

    fn start(&mut self, tag: u16) {
        self.in_flight += 1;
        let descriptor = self.descriptors.read(tag);
        let shared = &*self.shared;
        let device = (&shared.device, &shared.limits);
        let Some((ticket, operation)) = Ticket::open(device, &self.outbox, self.number, tag, &descriptor)
        else {
            return;
        };
        let data_bytes = ticket.data_bytes();
        let submit = || shared.export.submit(operation, Reply::new(move |result| ticket.close(result)));
        if self.inline_backoff > 0 || data_bytes > MAX_INLINE_BYTES {
            self.inline_backoff = self.inline_backoff.saturating_sub(1);
            return submit();
        }
        run_inline(submit);
        // The result is committed later by this thread. Events meanwhile mean that several requests are in flight.
        if self.ring.has_events() {
            self.inline_backoff = INLINE_BACKOFF;
        }
    }
}
