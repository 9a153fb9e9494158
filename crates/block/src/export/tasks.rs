//! Runs the futures of requests without an executor's threads: a task continues on the thread that wakes it.
//!
//! A request starts on the thread that received it and continues on the thread that completes its device request, so a hit needs no
//! thread wake-up. A task is never polled within the call that wakes it, because the caller may hold a lock. It is queued, and the thread
//! runs the queue when it returns to the outermost function of this module: the completion of a device request, the start of a
//! request, or another task. Tasks woken elsewhere, for example by a timer, run on one dedicated thread.
//!
//! With a single request in flight, the two wake-ups of a transfer (the kernel completes it on the submitting thread, which then
//! wakes the waiting one) take a fifth of its time. So a thread without other work makes transfers to a fast device
//! [inline](staying) with blocking calls. A write is copied to memory if the device supports that and no flush
//! is expected ([`Absorbing`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use async_task::Runnable;
use device::{Completion, Counters, Device, Geometry, IoError, IoSlice, Outcome, PlacementHandle, Request};
use parking_lot::{Condvar, Mutex};

use super::absorbing::Absorbing;

thread_local! {
    /// Tasks woken on this thread while it is in [`here`].
    static WOKEN: RefCell<Option<VecDeque<Runnable>>> = const { RefCell::new(None) };
    /// Remaining transfers that this thread makes itself, while it is in [`staying`].
    static OWN_TRANSFERS: Cell<u32> = const { Cell::new(0) };
}

/// Inline transfers per request. A hit needs one, a write a few. The limit matters if the request wakes tasks of other
/// clients.
const MOST_OWN_TRANSFERS: u32 = 4;

/// Runs `start`, which starts a request on a thread without other work. See [`Tasks::staying_with`].
pub(crate) fn staying(start: impl FnOnce()) {
    OWN_TRANSFERS.set(MOST_OWN_TRANSFERS);
    start();
    OWN_TRANSFERS.set(0);
}

/// Runs tasks. Dropping it ends the thread; tasks that are woken elsewhere afterwards do not continue.
pub struct Tasks {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Runnable>,
    closing: bool,
}

impl Tasks {
    /// Starts the thread for tasks that are woken elsewhere.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("block-tasks".into());
        let thread = thread.spawn(move || for_thread.work())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Runs `future` on this thread until it first waits; it continues where it is woken.
    pub fn run(&self, future: impl Future<Output = ()> + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let (first, task) = async_task::spawn(future, move |task| shared.schedule(task));
        task.detach();
        here(|| {
            first.run();
        });
    }

    /// Wraps `device` so that tasks continue on the thread that completes a request.
    #[must_use]
    pub fn going_on(device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(GoingOn { device, is_quick: false, absorbing: Absorbing::default() })
    }

    /// The same for a fast device, for which blocking calls of a thread with a single request are quicker than asynchronous ones.
    #[must_use]
    pub fn staying_with(device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(GoingOn { device, is_quick: true, absorbing: Absorbing::default() })
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.shared.queue.lock().closing = true;
        self.shared.changed.notify_one();
        let Some(thread) = self.thread.take() else { return };
        // The last owner may be a task; the thread then ends unattended.
        if thread.thread().id() != std::thread::current().id() {
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "a task panicked");
        }
    }
}

impl Shared {
    fn schedule(&self, task: Runnable) {
        let elsewhere = WOKEN.with_borrow_mut(|woken| match woken {
            Some(woken) => {
                woken.push_back(task);
                None
            }
            None => Some(task),
        });
        if let Some(task) = elsewhere {
            self.queue.lock().ready.push_back(task);
            self.changed.notify_one();
        }
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            here(|| {
                task.run();
            });
        }
    }

    fn next(&self) -> Option<Runnable> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(task) = queue.ready.pop_front() {
                return Some(task);
            }
            if queue.closing {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }
}

/// Runs `body` and then the tasks that it and they wake on this thread.
fn here(body: impl FnOnce()) {
    let outermost = WOKEN.with_borrow_mut(|woken| {
        let outermost = woken.is_none();
        woken.get_or_insert_default();
        outermost
    });
    if !outermost {
        return body();
    }
    let _leave = Leave;
    body();
    while let Some(task) = WOKEN.with_borrow_mut(|woken| woken.as_mut()?.pop_front()) {
        task.run();
    }
}

/// Ends [`here`], also after a panic of a task: the queued tasks are dropped, and their requests fail.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        let left = WOKEN.with_borrow_mut(Option::take);
        drop(left);
    }
}

struct GoingOn {
    device: Arc<dyn Device>,
    is_quick: bool,
    absorbing: Absorbing,
}

impl GoingOn {
    /// Whether this thread makes the transfer itself. Not a flush, which takes long and is shared with other requests.
    fn is_own(&self, request: &Request) -> bool {
        let left = OWN_TRANSFERS.get();
        let is_own =
            self.is_quick && left > 0 && matches!(request, Request::Read { .. } | Request::Write { .. });
        OWN_TRANSFERS.set(left - u32::from(is_own));
        is_own
    }
}

impl Device for GoingOn {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        self.absorbing.count(&request);
        if self.is_own(&request) {
            let absorbed = self.absorbing.absorb(&*self.device, &request);
            let outcome = absorbed.unwrap_or_else(|| self.device.execute(request));
            return here(|| completion.complete(outcome));
        }
        self.device.submit(request, Completion::new(move |outcome| here(|| completion.complete(outcome))));
    }

    fn execute(&self, request: Request) -> Outcome {
        self.device.execute(request)
    }

    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        self.device.absorb(offset, data)
    }

    fn hole_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        self.device.hole_in(range)
    }

    fn trims_to_zeros(&self) -> bool {
        self.device.trims_to_zeros()
    }

    fn counters(&self) -> Counters {
        self.device.counters()
    }

    fn allocate_handle(&self, consumer: &str) -> PlacementHandle {
        self.device.allocate_handle(consumer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::channel;
    use std::thread::ThreadId;

    use device::{IoBuffer, MemoryDevice};
    use event_listener::Event;

    use super::*;

    fn this_thread() -> ThreadId {
        std::thread::current().id()
    }

    #[test]
    fn a_task_goes_on_where_its_transfer_ended() {
        let tasks = Tasks::new().unwrap();
        let device = Tasks::going_on(Arc::new(MemoryDevice::new(4096)));
        let (said, heard) = channel();
        tasks.run(async move {
            device.start(Request::Flush).await.unwrap();
            said.send(this_thread()).unwrap();
        });
        assert_eq!(heard.try_recv(), Ok(this_thread()), "memory ends a transfer within its start");
    }

    /// Counts blocking transfers.
    struct Waited {
        memory: MemoryDevice,
        waited: AtomicU32,
    }

    impl Waited {
        fn new(memory: MemoryDevice) -> Arc<Self> {
            Arc::new(Self { memory, waited: AtomicU32::new(0) })
        }
    }

    impl Device for Waited {
        fn geometry(&self) -> Geometry {
            self.memory.geometry()
        }

        fn submit(&self, request: Request, completion: Completion) {
            self.memory.submit(request, completion);
        }

        fn execute(&self, request: Request) -> Outcome {
            self.waited.fetch_add(1, Ordering::Relaxed);
            self.memory.execute(request)
        }

        fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
            self.memory.absorb(offset, data)
        }

        fn counters(&self) -> Counters {
            self.memory.counters()
        }
    }

    /// Blocking transfers for a flush and six reads.
    fn own_transfers(
        tasks: &Tasks,
        going_on: fn(Arc<dyn Device>) -> Arc<dyn Device>,
        start: fn(&mut dyn FnMut()),
    ) -> u32 {
        let waited = Waited::new(MemoryDevice::new(4096));
        let device = going_on(Arc::clone(&waited) as _);
        start(&mut || {
            let device = Arc::clone(&device);
            tasks.run(async move {
                device.start(Request::Flush).await.unwrap();
                for _ in 0..6 {
                    let buffer = IoBuffer::zeroed(512);
                    device.start(Request::Read { offset: 0, buffer }).await.unwrap();
                }
            });
        });
        assert_eq!(device.counters().reads, 6);
        waited.waited.load(Ordering::Relaxed)
    }

    #[test]
    fn who_stays_makes_the_transfers_of_a_quick_device_himself_and_no_more_than_a_few() {
        let tasks = Tasks::new().unwrap();
        let own = |going_on, start| own_transfers(&tasks, going_on, start);
        assert_eq!(own(Tasks::staying_with, |start| staying(start)), MOST_OWN_TRANSFERS);
        assert_eq!(own(Tasks::staying_with, |start| start()), 0, "nobody stays");
        assert_eq!(own(Tasks::going_on, |start| staying(start)), 0, "it is not quick");
    }

    /// Otherwise a client with one write in flight would wait for the drive each time.
    #[test]
    fn lone_writes_that_nobody_flushes_are_copied_and_those_of_a_crowd_are_not() {
        let tasks = Tasks::new().unwrap();
        let write = |device: &Arc<dyn Device>| {
            let (device, data) = (Arc::clone(device), IoBuffer::copy_of(&[7; 512]).into());
            let placement = PlacementHandle::DEFAULT;
            tasks.run(async move {
                device.start(Request::Write { offset: 512, data, placement }).await.unwrap();
            });
        };
        for (stays, transfers) in [(true, 8), (false, 0)] {
            let waited = Waited::new(MemoryDevice::new(4096).absorbing(true));
            let device = Tasks::staying_with(Arc::clone(&waited) as _);
            (0..30).for_each(|_| if stays { staying(|| write(&device)) } else { write(&device) });
            assert_eq!((device.counters().writes, waited.waited.load(Ordering::Relaxed)), (30, transfers));
            let read = device.start(Request::Read { offset: 512, buffer: IoBuffer::zeroed(512) }).wait();
            assert_eq!(read.unwrap().unwrap()[..], [7; 512]);
        }
    }

    #[test]
    fn whoever_wakes_may_hold_what_the_woken_needs() {
        let tasks = Tasks::new().unwrap();
        let (event, lock) = (Arc::new(Event::new()), Arc::new(Mutex::new(0)));
        let (said, heard) = channel();
        for _ in 0..100 {
            let (listener, lock, said) = (event.listen(), Arc::clone(&lock), said.clone());
            let again = Arc::clone(&event);
            tasks.run(async move {
                listener.await;
                *lock.lock() += 1;
                again.notify(usize::MAX);
                said.send(this_thread()).unwrap();
            });
        }
        let held = lock.lock();
        event.notify(usize::MAX);
        drop(held);
        let threads: Vec<ThreadId> = heard.iter().take(100).collect();
        assert!(
            !threads.contains(&this_thread()),
            "what is woken elsewhere goes on on the tasks' own thread"
        );
        assert_eq!(*lock.lock(), 100);
    }
}
