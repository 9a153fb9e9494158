//! An event loop per thread: starts the thread's requests, sleeps until they complete, and calls their completions.
//!
//! Usually a thread of the device calls completions. That thread must be woken, scheduled and synchronised with. A thread that serves a
//! client can wait for both the client and the device at lower cost. While it has an event loop, its
//! requests to any file or block device complete on it, each time it [waits](EventLoop::wait). Requests of other threads complete as usual.
//!
//! The thread must wait for its requests only by [`Pending::wait`](crate::Pending::wait). Without kernel support (before Linux 6.1, or not
//! permitted), the loop only watches descriptors, and requests complete on their devices' threads.

mod block_on;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::io_paths::thread_ring::{self, ThreadRing};

pub use block_on::{block_on, wait_for};

/// A watched descriptor and the events awaited.
#[derive(Debug, Clone, Copy)]
pub struct Watched<'a> {
    fd: BorrowedFd<'a>,
    events: PollFlags,
}

impl<'a> Watched<'a> {
    /// Ready when there is data to read.
    #[must_use]
    pub fn input(fd: BorrowedFd<'a>) -> Self {
        Self { fd, events: PollFlags::IN }
    }

    /// Ready when there is space to write.
    #[must_use]
    pub fn output(fd: BorrowedFd<'a>) -> Self {
        Self { fd, events: PollFlags::OUT }
    }
}

/// A thread's event loop. Dropping it waits for the requests started on it, but not for requests that their completions start then.
pub struct EventLoop<'a, const N: usize> {
    ring: Option<Rc<ThreadRing>>,
    watched: [Watched<'a>; N],
}

impl<'a, const N: usize> EventLoop<'a, N> {
    /// Creates an event loop for this thread that can watch some descriptors.
    ///
    /// # Panics
    /// If the thread already has one.
    #[must_use]
    pub fn new(watched: [Watched<'a>; N]) -> Self {
        let known = |watched: &Watched<'a>| thread_ring::Watched::new(watched.fd.as_raw_fd(), watched.events);
        Self { ring: ThreadRing::open(watched.iter().map(known).collect()), watched }
    }

    /// Sleeps until a `wanted` descriptor is ready, completions can be [run](Self::run_completions), or the timeout expires. Returns the ready
    /// descriptors; spurious returns are possible.
    ///
    /// # Errors
    /// If the kernel cannot wait.
    pub fn wait(&self, wanted: [bool; N], timeout: Option<&Timespec>) -> io::Result<[bool; N]> {
        let mut ready = [false; N];
        if let Some(ring) = &self.ring {
            ready.copy_from_slice(&ring.wait(&wanted, timeout)?);
            return Ok(ready);
        }
        let places: Vec<usize> = (0..N).filter(|place| wanted[*place]).collect();
        let polled =
            |place: &usize| PollFd::from_borrowed_fd(self.watched[*place].fd, self.watched[*place].events);
        let mut polled: Vec<PollFd<'_>> = places.iter().map(polled).collect();
        match poll(&mut polled, timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for (place, polled) in places.into_iter().zip(polled) {
            ready[place] = !polled.revents().is_empty();
        }
        Ok(ready)
    }

    /// Calls the completions of completed requests.
    pub fn run_completions(&self) {
        if let Some(ring) = &self.ring {
            ring.run_completions();
        }
    }

    /// Calls the completions of at most `most` completed requests. Returns whether more have completed, so that
    /// [waiting](Self::wait) is unnecessary.
    #[must_use]
    pub fn run_some_completions(&self, most: usize) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.run_some_completions(most))
    }
}

impl<const N: usize> Drop for EventLoop<'_, N> {
    fn drop(&mut self) {
        if let Some(ring) = &self.ring {
            ring.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread::ThreadId;

    use super::*;
    use crate::file::OpenOptions;
    use crate::{Completion, Device, FileDevice, IoBuffer, MemoryDevice, Request};

    const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    fn this_thread() -> ThreadId {
        std::thread::current().id()
    }

    fn file(directory: &tempfile::TempDir) -> Arc<dyn Device> {
        let options =
            OpenOptions { create: true, buffered: true, size_bytes: Some(4 << 20), ..OpenOptions::default() };
        Arc::new(FileDevice::open(directory.path().join("file"), &options).unwrap())
    }

    fn read(offset: u64) -> Request {
        Request::read(offset, 4096)
    }

    /// Runs the event loop until `done`.
    fn run_until<const N: usize>(
        event_loop: &EventLoop<'_, N>,
        wanted: [bool; N],
        mut done: impl FnMut([bool; N]) -> bool,
    ) {
        loop {
            let ready = event_loop.wait(wanted, None).unwrap();
            event_loop.run_completions();
            if done(ready) {
                return;
            }
        }
    }

    #[test]
    fn more_requests_than_ring_entries_complete_on_the_thread_of_the_loop() {
        let directory = tempfile::tempdir().unwrap();
        let device = file(&directory);
        let event_loop = EventLoop::new([]);
        let has_ring = event_loop.ring.is_some();
        let (sender, receiver) = channel();
        for request in 0..3000 {
            let sender = sender.clone();
            let then = move |outcome: crate::Outcome| sender.send((outcome.is_ok(), this_thread())).unwrap();
            device.submit(read(request % 1024 * 4096), Completion::new(then));
        }
        drop(sender);
        let mut completed = Vec::new();
        while completed.len() < 3000 {
            event_loop.wait([], Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 })).unwrap();
            event_loop.run_completions();
            completed.extend(receiver.try_iter());
        }
        assert!(completed.iter().all(|(is_ok, _)| *is_ok));
        let here = completed.iter().filter(|(_, thread)| *thread == this_thread()).count();
        assert!(!has_ring || here >= 900, "{here} completed here");
    }

    #[test]
    fn completions_can_run_a_few_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let device = file(&directory);
        let event_loop = EventLoop::new([]);
        if event_loop.ring.is_none() {
            return; // They end on the device's thread.
        }
        let total = std::rc::Rc::new(std::cell::Cell::new(0));
        let (sender, receiver) = channel();
        for request in 0..10 {
            let sender = sender.clone();
            device.submit(read(request * 4096), Completion::new(move |_| sender.send(()).unwrap()));
        }
        let count = || {
            total.set(total.get() + receiver.try_iter().count());
            total.get()
        };
        let ring = event_loop.ring.as_ref().unwrap();
        while ring.completed() < 10 {
            ring.wait(&[], None).unwrap();
        }
        assert!(event_loop.run_some_completions(4));
        assert_eq!(count(), 4);
        assert!(event_loop.run_some_completions(4));
        assert!(!event_loop.run_some_completions(4));
        assert_eq!(count(), 10);
    }

    #[test]
    fn watched_descriptor_is_reported_once_per_event() {
        let directory = tempfile::tempdir().unwrap();
        let device = file(&directory);
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let event_loop = EventLoop::new([Watched::input(near.as_fd()), Watched::output(near.as_fd())]);
        assert_eq!(
            event_loop.wait([true, false], Some(&NO_TIME)).unwrap(),
            [false, false],
            "only wanted descriptors"
        );
        assert_eq!(event_loop.wait([true, true], None).unwrap(), [false, true]);
        for _ in 0..3 {
            let pending = device.start(read(0));
            rustix::io::write(&far, &[7]).unwrap();
            run_until(&event_loop, [true, false], |[is_ready, _]| is_ready);
            rustix::io::read(&near, &mut [0u8; 8]).unwrap();
            pending.wait().unwrap();
        }
        drop(far);
        run_until(&event_loop, [true, false], |[is_ready, _]| is_ready);
        run_until(&event_loop, [true, false], |[is_ready, _]| is_ready);
    }

    #[test]
    fn block_on_completes_requests_on_its_thread_and_is_woken_by_others() {
        let directory = tempfile::tempdir().unwrap();
        let device = file(&directory);
        let has_ring = { EventLoop::new([]).ring.is_some() };
        let read_all = async {
            let (sender, receiver) = channel();
            for number in 0..200 {
                let sender = sender.clone();
                let then = move |_| sender.send(this_thread()).unwrap();
                device.submit(read(number % 1024 * 4096), Completion::new(then));
                assert!(!device.start(read(number % 1024 * 4096)).await.unwrap().is_empty());
            }
            let here = (0..200).filter(|_| receiver.recv().unwrap() == this_thread()).count();
            let (completion, pending) = Completion::pair();
            let elsewhere = std::thread::Builder::new().spawn(move || {
                std::thread::park_timeout(std::time::Duration::from_millis(20));
                completion.complete(Ok(IoBuffer::empty()));
            });
            assert!(pending.await.unwrap().is_empty());
            elsewhere.unwrap().join().unwrap();
            here
        };
        assert_eq!(block_on(read_all), if has_ring { 200 } else { 0 });
        assert!(thread_ring::current().is_none(), "the event loop is gone");
    }

    #[test]
    fn nested_block_on_completes_requests_of_both() {
        let directory = tempfile::tempdir().unwrap();
        let device = file(&directory);
        let inner = async { device.start(read(4096)).await };
        let both = async {
            let outer = device.start(read(0));
            (block_on(inner), outer.await)
        };
        let (inner, outer) = block_on(both);
        assert!(!inner.unwrap().is_empty() && !outer.unwrap().is_empty());
        assert!(!wait_for(async { device.start(read(0)).await }).unwrap().is_empty());
    }

    #[test]
    fn always_due_future_does_not_delay_completions() {
        let directory = tempfile::tempdir().unwrap();
        let device = file(&directory);
        let mut pending = None;
        let busy = std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            let pending = pending.get_or_insert_with(|| device.start(read(0)));
            std::pin::Pin::new(pending).poll(context)
        });
        assert!(!block_on(busy).unwrap().is_empty());
    }

    #[test]
    fn waiting_for_a_request_of_another_thread_returns() {
        let directory = tempfile::tempdir().unwrap();
        let device = file(&directory);
        let event_loop = EventLoop::new([]);
        device.start(read(0)).wait().unwrap();
        let (completion, pending) = Completion::pair();
        let elsewhere =
            std::thread::Builder::new().spawn(move || completion.complete(Ok(IoBuffer::empty()))).unwrap();
        assert!(pending.wait().unwrap().is_empty(), "another thread has completed it");
        elsewhere.join().unwrap();
        drop(event_loop);
    }

    #[test]
    fn drop_waits_for_requests_started_before_it_only() {
        let directory = tempfile::tempdir().unwrap();
        let device = file(&directory);
        let event_loop = EventLoop::new([]);
        let (sender, receiver) = channel();
        let again = Arc::clone(&device);
        device.submit(
            read(0),
            Completion::new(move |_| {
                let completed = this_thread();
                let then = move |_| sender.send((completed, this_thread())).unwrap();
                again.submit(read(4096), Completion::new(then));
            }),
        );
        let has_ring = event_loop.ring.is_some();
        drop(event_loop);
        let (first, second) = receiver.recv().unwrap();
        assert_eq!(first == this_thread(), has_ring);
        assert_ne!(second, this_thread(), "this thread has no event loop any more");
        drop(EventLoop::new([]));
    }

    #[test]
    fn device_drop_waits_for_requests_on_the_loop_of_another_thread() {
        let directory = tempfile::tempdir().unwrap();
        let device = file(&directory);
        let ((started, wait), (gone_sender, gone)) = (channel(), channel());
        let on_thread = Arc::clone(&device);
        let run = move || {
            let event_loop = EventLoop::new([]);
            on_thread.submit(read(0), Completion::new(|_| {}));
            let has_ring = event_loop.ring.is_some();
            drop(on_thread);
            started.send(()).unwrap();
            // Long enough for a drop that does not wait to finish.
            std::thread::park_timeout(std::time::Duration::from_millis(20));
            assert!(!has_ring || gone.try_recv().is_err(), "the completion has not run yet");
        };
        let thread = std::thread::Builder::new().spawn(run).unwrap();
        wait.recv().unwrap();
        drop(device);
        // Without a ring the thread may have ended and dropped the receiver.
        let _ = gone_sender.send(());
        thread.join().unwrap();
    }

    #[test]
    fn memory_device_completes_requests_within_submit() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
        let _event_loop = EventLoop::new([]);
        device.write(0, IoBuffer::zeroed(4096)).wait().unwrap();
    }
}
