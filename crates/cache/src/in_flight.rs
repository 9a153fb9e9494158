//! One flash read or fetch per key for many callers, without stale promotions.
//!
//! A flash read takes a thousand times as long as a DRAM access, so the key may be replaced or removed while it
//! runs. An insert or remove *overtakes* the fetch of its key, and an overtaken fetch does not enter DRAM. Both sides
//! decide under the key's lock. A clear overtakes every fetch that is running or starts before the clear ends.
//!
//! An async fetch belongs to no caller: its future is stored in the [`Fetch`], and every caller that is polled drives it. A caller
//! that is dropped, or no longer polled, therefore delays no other. A blocking caller fetches on its own thread, and the others
//! wait for it.
//!
//! A fetch can pass its result to the callers that joined it. If it was overtaken, only the leader gets the result: the waiters may
//! have started after the key changed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use crate::KeyHash;
use crate::spawner::{Spawner, Task};

const SHARD_BITS: u32 = 6;

/// The running fetches. All methods are called under the lock of the key they name.
pub struct InFlight {
    shards: Arc<[Shard]>,
    /// Number of running [`overtake_all`](Self::overtake_all) calls.
    clearing: AtomicUsize,
}

/// Padded to two cache lines: writers read `count` on every insert.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    count: AtomicUsize,
    fetches: Mutex<Vec<Arc<Fetch>>>,
}

/// One running fetch.
pub struct Fetch {
    hash: KeyHash,
    overtaken: AtomicBool,
    /// Callers stop waiting: the leader has ended, or its result is available and only the insertion is pending.
    answered: AtomicBool,
    result: OnceLock<FetchResult>,
    /// The future that fetches; `None` if a blocking caller fetches, and after it ended.
    work: Mutex<Option<Task>>,
    /// The work was woken since its last poll began.
    woken: AtomicBool,
    callers: Mutex<Callers>,
}

/// Callers that wait for a fetch.
#[derive(Default)]
struct Callers {
    waiting: usize,
    next_id: u64,
    wakers: Vec<(u64, Waker)>,
}

/// The result of a fetch. It names the key, because another key may have the same hash.
struct FetchResult {
    key: Box<[u8]>,
    outcome: FetchOutcome,
}

/// A value, or an error of any type.
type FetchOutcome = Result<Arc<Vec<u8>>, Arc<dyn Any + Send + Sync>>;

/// The role of a caller that wants a key fetched.
pub enum Role {
    /// No fetch is running: fetch the key, then drop the leader.
    Lead(Leader),
    /// A fetch is running: wait for it, then look again.
    Wait(Arc<Fetch>),
}

/// While this lives, every fetch is overtaken from its start.
pub struct Clearing<'a>(&'a InFlight);

/// The exclusive right to fetch a key. Dropping it ends the fetch.
pub struct Leader {
    shards: Arc<[Shard]>,
    fetch: Arc<Fetch>,
}

/// A caller that waits for a fetch, and drives it while it is polled. The last caller that leaves hands an unfinished fetch to the
/// spawner; without one, the fetch is dropped.
pub struct Caller<'a> {
    fetch: Arc<Fetch>,
    id: u64,
    spawner: Option<&'a Spawner>,
}

impl InFlight {
    /// Creates the structure without fetches.
    #[must_use]
    pub fn new() -> Self {
        let shards = std::iter::repeat_with(Shard::default).take(1 << SHARD_BITS).collect();
        Self { shards, clearing: AtomicUsize::new(0) }
    }

    /// The running fetch of the key, unless it was overtaken.
    pub fn find(&self, hash: KeyHash) -> Option<Arc<Fetch>> {
        let shard = self.shard(hash);
        if shard.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let fetches = shard.fetches.lock();
        let counts = |fetch: &&Arc<Fetch>| fetch.hash == hash && !fetch.overtaken.load(Ordering::Acquire);
        fetches.iter().find(counts).cloned()
    }

    /// Joins the running fetch of the key, or starts one.
    pub fn join(&self, hash: KeyHash, key: &[u8]) -> Role {
        let shard = self.shard(hash);
        let mut fetches = shard.fetches.lock();
        if let Some(fetch) = fetches.iter().find(|fetch| fetch.hash == hash && fetch.can_serve(key)) {
            return Role::Wait(Arc::clone(fetch));
        }
        let overtaken = self.clearing.load(Ordering::Acquire) > 0;
        let fetch = Arc::new(Fetch::new(hash, overtaken));
        fetches.push(Arc::clone(&fetch));
        shard.count.fetch_add(1, Ordering::Release);
        Role::Lead(Leader { shards: Arc::clone(&self.shards), fetch })
    }

    /// Invalidates the running fetch of the key, because its value was replaced or removed.
    #[inline]
    pub fn overtake(&self, hash: KeyHash) {
        let shard = self.shard(hash);
        // The key's lock orders this load after the `join` of any fetch of this key.
        if shard.count.load(Ordering::Acquire) != 0 {
            Self::overtake_in(shard, hash);
        }
    }

    #[cold]
    fn overtake_in(shard: &Shard, hash: KeyHash) {
        for fetch in shard.fetches.lock().iter().filter(|fetch| fetch.hash == hash) {
            fetch.overtaken.store(true, Ordering::Release);
        }
    }

    /// Invalidates every fetch that is running or starts before the returned guard is dropped. Called without any key's lock.
    pub fn overtake_all(&self) -> Clearing<'_> {
        self.clearing.fetch_add(1, Ordering::AcqRel);
        for shard in &*self.shards {
            // A later `join` takes this lock and sees the count.
            for fetch in shard.fetches.lock().iter() {
                fetch.overtaken.store(true, Ordering::Release);
            }
        }
        Clearing(self)
    }

    #[inline]
    fn shard(&self, hash: KeyHash) -> &Shard {
        &self.shards[hash.shard(SHARD_BITS)]
    }
}

impl Drop for Clearing<'_> {
    fn drop(&mut self) {
        self.0.clearing.fetch_sub(1, Ordering::Release);
    }
}

impl Default for InFlight {
    fn default() -> Self {
        Self::new()
    }
}

impl Leader {
    /// The fetch that this leader carries out.
    #[must_use]
    pub fn fetch(&self) -> Arc<Fetch> {
        Arc::clone(&self.fetch)
    }

    /// Whether the key was replaced or removed since the leader began.
    #[must_use]
    pub fn overtaken(&self) -> bool {
        self.fetch.overtaken.load(Ordering::Acquire)
    }

    /// Whether the fetched value may become visible, that is, the fetch was not overtaken. From then on no caller joins the fetch, and
    /// the insert that follows, under the same lock of the key, does not invalidate it.
    #[must_use]
    pub fn conclude(&self) -> bool {
        let mut fetches = self.shard().fetches.lock();
        if self.overtaken() {
            return false;
        }
        fetches.retain(|fetch| !Arc::ptr_eq(fetch, &self.fetch));
        true
    }

    /// Stores the result for the callers that wait. They get it when the leader ends, or earlier by [`answer`](Self::answer).
    pub fn set_result<E: Send + Sync + 'static>(&self, key: &[u8], outcome: Result<Arc<Vec<u8>>, Arc<E>>) {
        let outcome = outcome.map_err(|error| error as Arc<dyn Any + Send + Sync>);
        let first = self.fetch.result.set(FetchResult { key: key.into(), outcome }).is_ok();
        debug_assert!(first, "a leader is one fetch");
    }

    /// Makes the result available to callers that wait, and to those that join until the leader ends.
    pub fn answer(&self) {
        self.fetch.answered.store(true, Ordering::Release);
        self.fetch.wake_callers();
    }

    fn shard(&self) -> &Shard {
        &self.shards[self.fetch.hash.shard(SHARD_BITS)]
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.shard().fetches.lock().retain(|fetch| !Arc::ptr_eq(fetch, &self.fetch));
        self.shard().count.fetch_sub(1, Ordering::Release);
        self.answer();
    }
}

impl Fetch {
    fn new(hash: KeyHash, overtaken: bool) -> Self {
        Self {
            hash,
            overtaken: AtomicBool::new(overtaken),
            answered: AtomicBool::new(false),
            result: OnceLock::new(),
            work: Mutex::new(None),
            woken: AtomicBool::new(false),
            callers: Mutex::default(),
        }
    }

    /// Makes `work`, which owns the leader, the future that callers drive.
    pub fn set_work(&self, work: Task) {
        *self.work.lock() = Some(work);
    }

    /// Waits, as a task, until the fetch is answered; drives it in the meantime.
    pub fn wait<'a>(self: &Arc<Self>, spawner: Option<&'a Spawner>) -> Caller<'a> {
        let mut callers = self.callers.lock();
        callers.waiting += 1;
        callers.next_id += 1;
        Caller { fetch: Arc::clone(self), id: callers.next_id, spawner }
    }

    /// Whether a new caller can join: not if the fetch has answered with a value that is out of date or of another key.
    fn can_serve(&self, key: &[u8]) -> bool {
        let is_usable = || {
            let is_old = self.overtaken.load(Ordering::Acquire);
            !is_old && self.result.get().is_some_and(|result| *result.key == *key)
        };
        !self.is_answered() || is_usable()
    }

    fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    /// The result of an answered fetch of `key` for callers that joined it. `None` if it was dropped or overtaken, or if
    /// its error is not of type `E`.
    #[must_use]
    pub fn result<E: Send + Sync + 'static>(&self, key: &[u8]) -> Option<Result<Arc<Vec<u8>>, Arc<E>>> {
        let result = self.leader_result(key)?;
        // A caller that joined after the key changed did so under the key's lock, or after the clear: this sees it.
        if self.overtaken.load(Ordering::Acquire) { None } else { Some(result) }
    }

    /// The result of an answered fetch of `key` for the caller that started it, even if the fetch was overtaken.
    #[must_use]
    pub fn leader_result<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
    ) -> Option<Result<Arc<Vec<u8>>, Arc<E>>> {
        let result = self.result.get().filter(|result| *result.key == *key)?;
        match &result.outcome {
            Ok(value) => Some(Ok(Arc::clone(value))),
            Err(error) => Arc::clone(error).downcast().ok().map(Err),
        }
    }

    /// Wakes every caller, so that one of them continues the work.
    fn wake_callers(&self) {
        let wakers = std::mem::take(&mut self.callers.lock().wakers);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Polls the work, unless another caller does so now.
    fn drive(self: &Arc<Self>) {
        let Some(mut work) = self.work.try_lock() else { return };
        let Some(task) = work.as_mut() else { return };
        self.woken.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(self));
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut Context::from_waker(&waker))));
        if !matches!(polled, Ok(Poll::Pending)) {
            let ended = work.take();
            drop(work);
            // Ends the leader, so that no other caller waits for a task that panicked.
            drop(ended);
            return polled.map(drop).unwrap_or_else(|panic| resume_unwind(panic));
        }
        drop(work);
        // Callers that arrived in the meantime found the work locked, and the caller that polls here may never be polled again.
        if self.woken.load(Ordering::Acquire) {
            self.wake_callers();
        }
    }
}

impl Wake for Fetch {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.wake_callers();
    }
}

impl Future for Caller<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.fetch.is_answered() {
            return Poll::Ready(());
        }
        {
            let wakers = &mut self.fetch.callers.lock().wakers;
            match wakers.iter_mut().find(|(id, _)| *id == self.id) {
                Some((_, waker)) => waker.clone_from(context.waker()),
                None => wakers.push((self.id, context.waker().clone())),
            }
        }
        self.fetch.drive();
        // Checked again after registering the waker, as the answer may have come in between.
        if self.fetch.is_answered() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        let is_last = {
            let mut callers = self.fetch.callers.lock();
            callers.wakers.retain(|(id, _)| *id != self.id);
            callers.waiting -= 1;
            callers.waiting == 0
        };
        if self.fetch.is_answered() {
            return;
        }
        if !is_last {
            // This caller may have been woken to continue the work.
            return self.fetch.wake_callers();
        }
        match self.spawner {
            Some(spawner) if self.fetch.work.lock().is_some() => {
                let caller = self.fetch.wait(None);
                // Without an executor it is dropped, and the next call of this function drops the work.
                spawner.spawn(Box::pin(caller));
            }
            _ => {
                let abandoned = self.fetch.work.lock().take();
                drop(abandoned);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyHash = KeyHash(7);

    fn lead(in_flight: &InFlight) -> Leader {
        match in_flight.join(KEY, b"key") {
            Role::Lead(leader) => leader,
            Role::Wait(_) => panic!("no fetch of the key is running"),
        }
    }

    fn follow(in_flight: &InFlight) -> Arc<Fetch> {
        match in_flight.join(KEY, b"key") {
            Role::Lead(_) => panic!("a fetch of the key is running"),
            Role::Wait(fetch) => fetch,
        }
    }

    /// A waker that counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll(caller: &mut Caller<'_>, waker: &Waker) -> bool {
        Pin::new(caller).poll(&mut Context::from_waker(waker)).is_ready()
    }

    /// Work that ends when `ends` is set, and keeps the last waker it was polled with.
    fn work(leader: Leader, ends: Arc<AtomicBool>, last: Arc<Mutex<Option<Waker>>>) -> Task {
        Box::pin(async move {
            std::future::poll_fn(|context| {
                *last.lock() = Some(context.waker().clone());
                if ends.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            drop(leader);
        })
    }

    #[test]
    fn second_caller_waits_and_is_woken_when_the_fetch_ends() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight);
        let fetch = follow(&in_flight);
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| pollster::block_on(fetch.wait(None)));
            drop(leader);
            follower.join().unwrap();
        });
        drop(lead(&in_flight));
    }

    #[test]
    fn any_caller_drives_the_work_and_all_are_woken() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight);
        let (fetch, ends, last) = (leader.fetch(), Arc::new(AtomicBool::new(false)), Arc::default());
        fetch.set_work(work(leader, Arc::clone(&ends), Arc::clone(&last)));
        let (mut first, mut second) = (fetch.wait(None), follow(&in_flight).wait(None));
        let counts = [Arc::new(Count::default()), Arc::new(Count::default())];
        let wakers = counts.each_ref().map(|count| Waker::from(Arc::clone(count)));
        assert!(!poll(&mut first, &wakers[0]) && !poll(&mut second, &wakers[1]));
        last.lock().take().unwrap().wake();
        assert_eq!(counts.each_ref().map(|count| count.0.load(Ordering::SeqCst)), [1, 1]);
        ends.store(true, Ordering::SeqCst);
        assert!(poll(&mut second, &wakers[1]), "the first caller is not polled");
        assert!(poll(&mut first, &wakers[0]));
    }

    /// The work was woken for a caller that is then dropped.
    #[test]
    fn dropped_caller_passes_its_wake_on() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight);
        let (fetch, last) = (leader.fetch(), Arc::default());
        fetch.set_work(work(leader, Arc::default(), Arc::clone(&last)));
        let (mut first, mut second) = (fetch.wait(None), fetch.wait(None));
        let count = Arc::new(Count::default());
        assert!(!poll(&mut second, &Waker::from(Arc::clone(&count))) && !poll(&mut first, Waker::noop()));
        drop(first);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        drop(second);
        drop(lead(&in_flight));
    }

    /// While another caller polls the work, a caller can only register its waker.
    #[test]
    fn caller_polled_during_the_work_is_woken_if_the_work_was() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight);
        let fetch = leader.fetch();
        let (count, second) = (Arc::new(Count::default()), Mutex::new(fetch.wait(None)));
        let waker = Waker::from(Arc::clone(&count));
        fetch.set_work(Box::pin(std::future::poll_fn(move |context| {
            let _running = &leader;
            context.waker().wake_by_ref();
            assert!(!poll(&mut second.lock(), &waker));
            Poll::Pending
        })));
        let mut first = fetch.wait(None);
        assert!(!poll(&mut first, Waker::noop()));
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        let ended = fetch.work.lock().take();
        drop(ended);
    }

    #[test]
    fn dropping_the_last_caller_drops_the_fetch_and_permits_a_new_one() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight);
        let (fetch, ends, last) = (leader.fetch(), Arc::<AtomicBool>::default(), Arc::default());
        fetch.set_work(work(leader, Arc::clone(&ends), last));
        let (mut first, second) = (fetch.wait(None), fetch.wait(None));
        assert!(!poll(&mut first, Waker::noop()));
        drop(second);
        assert_eq!(Arc::strong_count(&ends), 2, "the first caller still waits");
        drop(first);
        assert_eq!(Arc::strong_count(&ends), 1);
        drop(lead(&in_flight));
    }

    #[test]
    fn fetch_is_overtaken_by_its_own_key_only() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight);
        in_flight.overtake(KeyHash(KEY.0 + 1));
        assert!(!leader.overtaken());
        in_flight.overtake(KEY);
        assert!(leader.overtaken());
    }

    #[test]
    fn overtaken_fetch_is_not_in_flight() {
        let in_flight = InFlight::new();
        assert!(in_flight.find(KEY).is_none());
        let leader = lead(&in_flight);
        assert!(in_flight.find(KEY).is_some() && in_flight.find(KeyHash(8)).is_none());
        in_flight.overtake(KEY);
        assert!(in_flight.find(KEY).is_none());
        drop(leader);
    }

    #[test]
    fn overtake_all_covers_fetches_that_start_before_it_ends() {
        let in_flight = InFlight::new();
        let before = lead(&in_flight);
        let clearing = in_flight.overtake_all();
        let Role::Lead(meanwhile) = in_flight.join(KeyHash(8), b"another") else {
            panic!("no fetch of it is running")
        };
        assert!(before.overtaken() && meanwhile.overtaken());
        drop((before, clearing));
        assert!(meanwhile.overtaken() && !lead(&in_flight).overtaken());
    }

    #[test]
    fn fetch_result_reaches_only_callers_of_its_key_and_error_type_that_joined_before_an_overtake() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight);
        let fetch = follow(&in_flight);
        assert!(fetch.result::<String>(b"key").is_none());
        leader.set_result(b"key", Err(Arc::new("down".to_owned())));
        assert_eq!(**fetch.result::<String>(b"key").unwrap().as_ref().unwrap_err(), "down");
        assert!(fetch.result::<String>(b"another of the same hash").is_none());
        assert!(fetch.result::<u8>(b"key").is_none());
        in_flight.overtake(KEY);
        assert!(fetch.result::<String>(b"key").is_none());
        assert!(fetch.leader_result::<String>(b"key").is_some());
        drop(leader);
    }

    #[test]
    fn answered_fetch_can_be_joined_until_it_ends() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight);
        leader.set_result::<()>(b"key", Ok(Arc::new(vec![1])));
        leader.answer();
        let fetch = follow(&in_flight);
        pollster::block_on(fetch.wait(None));
        assert_eq!(**fetch.result::<()>(b"key").unwrap().unwrap(), [1]);
        assert!(matches!(in_flight.join(KEY, b"another of the same hash"), Role::Lead(_)));
        // A fetch without a usable result must not be joined: its callers would retry in a loop.
        in_flight.overtake(KEY);
        drop(lead(&in_flight));
        drop(leader);
        drop(lead(&in_flight));
    }

    /// The insert of the fetched value must not invalidate its own fetch; otherwise its waiting callers would get nothing.
    #[test]
    fn concluded_fetch_is_neither_joined_nor_overtaken() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight);
        assert!(leader.conclude());
        in_flight.overtake(KEY);
        assert!(!leader.overtaken() && in_flight.find(KEY).is_none());
        let next = lead(&in_flight);
        drop(leader);
        in_flight.overtake(KEY);
        assert!(next.overtaken() && !next.conclude());
    }

    #[test]
    fn fetch_after_an_overtaken_one_is_not_overtaken() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight);
        in_flight.overtake(KEY);
        drop(leader);
        assert!(!lead(&in_flight).overtaken());
    }
}
