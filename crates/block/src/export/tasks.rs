//! Runs the futures of requests without an executor's threads: a task continues on the thread that wakes it.
//!
//! A request starts on the thread that received it and continues on the thread that completes its device request, so a hit needs no
//! thread wake-up. A task is never polled within the call that wakes it, because the caller may hold a lock. It is queued, and the thread
//! runs the queue when it returns to the outermost function of this module: the completion of a device request, the start of a
//! request, or another task. Tasks woken elsewhere, for example by a timer, run on one dedicated thread.
//!
//! With a single request in flight, the two wake-ups of a transfer (the kernel completes it on the submitting thread, which then
//! wakes the waiting one) take a fifth of its time. So a thread without other work makes transfers to a fast device
//! [inline](run_inline) with blocking calls, flushes included. A write is copied to memory if the device supports that
//! ([`WriteAbsorber`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use async_task::Runnable;
use device::{Completion, Device, Request};
use parking_lot::{Condvar, Mutex};

use super::absorbing::WriteAbsorber;

thread_local! {
    /// Tasks woken on this thread while it is in [`run_with_woken`].
    static WOKEN: RefCell<Option<VecDeque<Runnable>>> = const { RefCell::new(None) };
    /// Remaining transfers that this thread makes itself, while it is in [`run_inline`].
    static INLINE_TRANSFERS: Cell<u32> = const { Cell::new(0) };
}

/// Inline transfers per request. A hit needs one, a write a few. The limit matters if the request wakes tasks of other
/// clients.
const MAX_INLINE_TRANSFERS: u32 = 4;

/// Runs `start`, which starts a request on a thread without other work. See [`Tasks::with_inline_transfers`].
pub(crate) fn run_inline(start: impl FnOnce()) {
    INLINE_TRANSFERS.set(MAX_INLINE_TRANSFERS);
    start();
    INLINE_TRANSFERS.set(0);
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
        run_with_woken(|| {
            first.run();
        });
    }

    /// Wraps `device` so that tasks continue on the thread that completes a request.
    #[must_use]
    pub fn resuming(device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(TaskDevice { device, is_fast: false, absorber: WriteAbsorber::default() })
    }

    /// As [`resuming`](Self::resuming), for a fast device, for which blocking calls of a thread with a single request are quicker than
    /// asynchronous ones.
    #[must_use]
    pub fn with_inline_transfers(device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(TaskDevice { device, is_fast: true, absorber: WriteAbsorber::default() })
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
            run_with_woken(|| {
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
fn run_with_woken(body: impl FnOnce()) {
    let outermost = WOKEN.with_borrow_mut(|woken| {
        let outermost = woken.is_none();
        woken.get_or_insert_default();
        outermost
    });
    if !outermost {
        return body();
    }
    let _queue = WokenQueue;
    body();
    while let Some(task) = WOKEN.with_borrow_mut(|woken| woken.as_mut()?.pop_front()) {
        task.run();
    }
}

/// Ends [`run_with_woken`], also after a panic of a task: the queued tasks are dropped, and their requests fail.
struct WokenQueue;

impl Drop for WokenQueue {
    fn drop(&mut self) {
        let left = WOKEN.with_borrow_mut(Option::take);
        drop(left);
    }
}

struct TaskDevice {
    device: Arc<dyn Device>,
    is_fast: bool,
    absorber: WriteAbsorber,
}

impl TaskDevice {
    /// Whether this thread makes the transfer itself.
    fn is_inline(&self, request: &Request) -> bool {
        let left = INLINE_TRANSFERS.get();
        let is_inline = self.is_fast && left > 0 && !matches!(request, Request::Trim { .. });
        INLINE_TRANSFERS.set(left - u32::from(is_inline));
        is_inline
    }
}

impl Device for TaskDevice {
    device::forward_device!(device: geometry, execute, absorb, hole_in, trims_to_zeros, counters, allocate_handle, refresh_capacity);

    fn submit(&self, request: Request, completion: Completion) {
        self.absorber.count(&request);
        if self.is_inline(&request) {
            let absorbed = self.absorber.absorb(&*self.device, &request);
            let outcome = absorbed.unwrap_or_else(|| self.device.execute(request));
            return run_with_woken(|| completion.complete(outcome));
        }
        self.device
            .submit(request, Completion::new(move |outcome| run_with_woken(|| completion.complete(outcome))));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::channel;
    use std::thread::ThreadId;

    use device::{IoBuffer, MemoryDevice, Outcome};
    use event_listener::Event;

    use super::*;

    fn this_thread() -> ThreadId {
        std::thread::current().id()
    }

    #[test]
    fn task_continues_on_the_thread_that_completes_its_request() {
        let tasks = Tasks::new().unwrap();
        let device = Tasks::resuming(Arc::new(MemoryDevice::new(4096)));
        let (sender, receiver) = channel();
        tasks.run(async move {
            device.start(Request::Flush).await.unwrap();
            sender.send(this_thread()).unwrap();
        });
        assert_eq!(
            receiver.try_recv(),
            Ok(this_thread()),
            "memory completes a request within its submission"
        );
    }

    /// Counts blocking transfers.
    struct BlockingCalls {
        memory: MemoryDevice,
        calls: AtomicU32,
    }

    impl BlockingCalls {
        fn new(memory: MemoryDevice) -> Arc<Self> {
            Arc::new(Self { memory, calls: AtomicU32::new(0) })
        }
    }

    impl Device for BlockingCalls {
        device::forward_device!(memory: geometry, submit, absorb, counters);

        fn execute(&self, request: Request) -> Outcome {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.memory.execute(request)
        }
    }

    /// Blocking transfers for a flush and six reads.
    fn inline_transfers(
        tasks: &Tasks,
        resuming: fn(Arc<dyn Device>) -> Arc<dyn Device>,
        start: fn(&mut dyn FnMut()),
    ) -> u32 {
        let calls = BlockingCalls::new(MemoryDevice::new(4096));
        let device = resuming(Arc::clone(&calls) as _);
        start(&mut || {
            let device = Arc::clone(&device);
            tasks.run(async move {
                device.start(Request::Flush).await.unwrap();
                for _ in 0..6 {
                    device.read(0, 512).await.unwrap();
                }
            });
        });
        assert_eq!(device.counters().reads, 6);
        calls.calls.load(Ordering::Relaxed)
    }

    #[test]
    fn inline_transfers_need_a_fast_device_and_are_limited() {
        let tasks = Tasks::new().unwrap();
        let own = |resuming, start| inline_transfers(&tasks, resuming, start);
        assert_eq!(own(Tasks::with_inline_transfers, |start| run_inline(start)), MAX_INLINE_TRANSFERS);
        assert_eq!(own(Tasks::with_inline_transfers, |start| start()), 0, "not run inline");
        assert_eq!(own(Tasks::resuming, |start| run_inline(start)), 0, "the device is not fast");
    }

    /// Otherwise each synchronous write would wake two more threads.
    #[test]
    fn flush_of_a_lone_request_is_made_inline_and_others_are_not() {
        let tasks = Tasks::new().unwrap();
        let calls = BlockingCalls::new(MemoryDevice::new(4096));
        let device = Tasks::with_inline_transfers(Arc::clone(&calls) as _);
        let flush = || {
            let device = Arc::clone(&device);
            tasks.run(async move { device.start(Request::Flush).await.map(drop).unwrap() });
        };
        flush();
        assert_eq!(calls.calls.load(Ordering::Relaxed), 0);
        run_inline(flush);
        assert_eq!(calls.calls.load(Ordering::Relaxed), 1);
        assert_eq!(device.counters().flushes, 2);
    }

    /// Otherwise a client with one write in flight would wait for the drive each time.
    #[test]
    fn inline_writes_are_absorbed_and_others_are_not() {
        let tasks = Tasks::new().unwrap();
        let write = |device: &Arc<dyn Device>| {
            let (device, data) = (Arc::clone(device), IoBuffer::copy_of(&[7; 512]));
            tasks.run(async move {
                device.write(512, data).await.unwrap();
            });
        };
        for (stays, transfers) in [(true, 8), (false, 0)] {
            let calls = BlockingCalls::new(MemoryDevice::new(4096).absorbing(true));
            let device = Tasks::with_inline_transfers(Arc::clone(&calls) as _);
            (0..30).for_each(|_| if stays { run_inline(|| write(&device)) } else { write(&device) });
            assert_eq!((device.counters().writes, calls.calls.load(Ordering::Relaxed)), (30, transfers));
            let read = device.read(512, 512).wait();
            assert_eq!(read.unwrap()[..], [7; 512]);
        }
    }

    #[test]
    fn woken_task_may_need_a_lock_that_the_waking_thread_holds() {
        let tasks = Tasks::new().unwrap();
        let (event, lock) = (Arc::new(Event::new()), Arc::new(Mutex::new(0)));
        let (sender, receiver) = channel();
        for _ in 0..100 {
            let (listener, lock, sender) = (event.listen(), Arc::clone(&lock), sender.clone());
            let again = Arc::clone(&event);
            tasks.run(async move {
                listener.await;
                *lock.lock() += 1;
                again.notify(usize::MAX);
                sender.send(this_thread()).unwrap();
            });
        }
        let held = lock.lock();
        event.notify(usize::MAX);
        drop(held);
        let threads: Vec<ThreadId> = receiver.iter().take(100).collect();
        assert!(!threads.contains(&this_thread()), "tasks woken elsewhere run on their own thread");
        assert_eq!(*lock.lock(), 100);
    }
}
