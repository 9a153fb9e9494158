//! One thread of the stress loop.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use async_lock::RwLock;
use cache::Lookahead;
use device::Clock;
use parking_lot::Mutex;
use workload::pace::{Pause, TokenBucket};
use workload::payload::{self, Payload};
use workload::{Request, RequestKind, Source};

use super::counts::Counting;
use super::destructors::Destructors;
use super::latency::{Latencies, Timed};
use super::learned::LearnedAdmission;
use super::misses::MissTrace;
use super::pace::Waiter;
use super::punctuality::Punctuality;
use super::stop::Stop;
use super::target::{Found, Layer, SetHow, SetOutcome, Target};
use super::tenants::{Bytes, Ledger};
use crate::config::plan::RunSettings;
use crate::consistency::{Begun, Checker, Inconsistency, Version};

mod chains;
mod open_loop;
mod shared;
mod timing;
mod whole;

pub use open_loop::{Due, Schedule, TracePace};
pub use timing::SAMPLE_EVERY;
use timing::Sampling;
use whole::Whole;

/// A version's 56 bits: mark of the run, thread (there are at most 2^15), count of the thread's sets.
pub(super) const THREAD_SHIFT: u32 = 29;
pub(super) const MARK_SHIFT: u32 = 44;
/// Bits of a run's mark.
pub const MARK_BITS: u32 = 56 - MARK_SHIFT;

/// Simulated computing is spent in pieces of at least this: each is an event of the world.
const LEAST_SPENT_NS: u64 = 10_000;

/// Operations that a worker who shares a thread does in a row, should none of them have to wait.
const TURN_OPS: u32 = 32;

/// The state that all threads of a run share.
pub struct Shared<T> {
    /// The target.
    pub target: T,
    /// How.
    pub settings: RunSettings,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// How its threads or tasks wait.
    pub waiter: Waiter,
    /// Value bytes.
    pub payload: Payload,
    /// Set when the run is to end early.
    pub stop: Stop,
    /// For a rate of all threads together.
    pub bucket: Option<TokenBucket>,
    /// For a run that checks.
    pub checking: Option<Checking>,
    /// The trace that misses are written to, if there is one.
    pub misses: Option<MissTrace>,
    /// The calls of the target's item destructor, where it has one.
    pub destructors: Option<Arc<Destructors>>,
    /// Decides what is set, if a model does.
    pub learned: Option<LearnedAdmission>,
    /// Whether every operation is timed.
    pub time_all: bool,
    /// Before this time the requests of an open loop are not due, so that nothing need happen.
    pub held_until_ns: AtomicU64,
}

/// Additional state of a run that checks consistency.
pub struct Checking {
    /// Judges what is found.
    pub checker: Checker,
    /// Mark of this run in every version, so that what an earlier run left is told apart.
    pub run_mark: u64,
    /// Chains grow in several steps, which only their own lock makes one. `None` where nothing is chained.
    pub chain_locks: Option<Box<[RwLock<()>]>>,
    /// The first inconsistencies, in words.
    pub found: Mutex<Vec<Inconsistency>>,
}

/// Inconsistencies kept for the report; all are counted.
const KEPT_INCONSISTENCIES: usize = 20;
/// Power of two.
pub const CHAIN_LOCKS: usize = 4096;

/// Counters and histograms of a thread, for the watcher.
#[derive(Debug, Default)]
pub struct Board {
    /// Its counters.
    pub counting: Counting,
    /// Its histograms. Other threads lock them only to add them up.
    pub latencies: Mutex<Latencies>,
    /// What an open loop measures besides.
    pub punctuality: Mutex<Punctuality>,
    /// What it counted by tenant.
    pub tenants: Mutex<Ledger>,
    /// The largest item that DRAM refused, header and key included.
    largest_refused_bytes: AtomicU64,
}

impl Board {
    /// The largest item that DRAM refused, header and key included; 0 where it refused none.
    #[must_use]
    pub fn largest_refused_bytes(&self) -> u64 {
        self.largest_refused_bytes.load(Ordering::Relaxed)
    }
}

/// One thread's loop and its state.
pub struct Worker<'a, T> {
    shared: &'a Shared<T>,
    board: &'a Board,
    /// The thread's part of a version.
    number: u16,
    sets_done: u64,
    /// Time for computing that was not spent yet.
    owed_ns: u64,
    /// It has its thread alone, in real time.
    has_its_thread: bool,
    /// Operations since its thread's other workers had their turn.
    turn_ops: u32,
    sampling: Sampling,
    ahead: Lookahead,
    pause: Pause,
    /// Once a tenant was met: the bytes of its request.
    account: Option<Bytes>,
    /// Open loop: when the request that was begun was due, until the first operation of it was timed.
    due_ns: Option<u64>,
    /// The request for several items that is under way.
    whole: Whole,
}

impl<'a, T: Target> Worker<'a, T> {
    /// Worker `number` of a run.
    pub fn new(shared: &'a Shared<T>, board: &'a Board, number: u16) -> Self {
        let (batch, pause_ns) = shared.settings.delay.unwrap_or_default();
        Self {
            shared,
            board,
            number,
            sets_done: 0,
            has_its_thread: matches!(shared.waiter, Waiter::Thread(_)),
            owed_ns: 0,
            turn_ops: 0,
            sampling: Sampling::new(number.into(), shared.time_all),
            ahead: Lookahead::default(),
            pause: Pause::new(batch, pause_ns),
            account: None,
            due_ns: None,
            whole: Whole::default(),
        }
    }

    /// The closed loop: does what `source` asks, one after another, until it ends, the thread's operations are done, or the run is stopped.
    pub async fn run(&mut self, source: &mut dyn Source) {
        let limit = self.shared.settings.ops_per_thread;
        let mut done = 0;
        while done < limit {
            self.look_ahead(source);
            // It stays where it was written: a copy would wait for the writes.
            let next = source.next();
            let Some(request) = &next else { return };
            self.sampling.begin();
            if request.tenant.is_some() {
                self.open_account();
            }
            for _ in 0..u64::from(request.repeat).min(limit - done) {
                if self.shared.stop.is_set() {
                    return;
                }
                if let Some(bucket) = &self.shared.bucket {
                    self.hold_back(bucket).await;
                }
                self.perform(request).await;
                self.count(request);
                done += 1;
                if !self.has_its_thread {
                    self.spend().await;
                }
                if let Some(pause_ns) = self.pause.after_operation() {
                    self.pause(pause_ns).await;
                }
            }
        }
    }

    /// Tenants have accounts from the first one on.
    fn open_account(&mut self) {
        if self.account.is_none() {
            self.account = Some(Bytes::default());
            self.board.tenants.lock().open(self.board.counting.read());
        }
    }

    /// The request is done.
    #[inline]
    fn count(&mut self, request: &Request<'_>) {
        self.board.counting.ops.one();
        if self.account.is_some() {
            self.post(request);
        }
    }

    fn post(&mut self, request: &Request<'_>) {
        let bytes = self.account.as_mut().map(std::mem::take).unwrap_or_default();
        self.board.tenants.lock().post(request.tenant, self.board.counting.read(), bytes);
    }

    /// Waits for the run's turn.
    async fn hold_back(&self, bucket: &TokenBucket) {
        let now_ns = self.shared.clock.monotonic_ns();
        let due_ns = bucket.reserve(1, now_ns);
        if due_ns > now_ns {
            self.shared.waiter.until(due_ns, &self.shared.stop).await;
        }
    }

    /// In the simulated world computing takes the time that it is said to take; workers that share a thread take turns.
    async fn spend(&mut self) {
        match &self.shared.waiter {
            Waiter::Thread(_) => {}
            Waiter::Sharing(_) => {
                self.turn_ops += 1;
                if self.turn_ops == TURN_OPS {
                    self.turn_ops = 0;
                    give_way().await;
                }
            }
            Waiter::Task { cpu_ns_per_op, .. } => {
                self.owed_ns += cpu_ns_per_op;
                if self.owed_ns >= LEAST_SPENT_NS {
                    let now_ns = self.shared.clock.monotonic_ns();
                    let until_ns = now_ns + std::mem::take(&mut self.owed_ns);
                    self.shared.waiter.until(until_ns, &self.shared.stop).await;
                }
            }
        }
    }

    async fn pause(&self, pause_ns: u64) {
        let until_ns = self.shared.clock.monotonic_ns().saturating_add(pause_ns);
        self.shared.waiter.until(until_ns, &self.shared.stop).await;
    }

    /// Has the memory of a later request fetched. In the simulated world that takes no time anyway.
    #[inline]
    fn look_ahead(&mut self, source: &dyn Source) {
        if self.has_its_thread
            && self.sampling.lets_look_ahead()
            && let Some(key) = source.upcoming()
        {
            self.shared.target.look_ahead(&mut self.ahead, key);
        }
    }

    async fn perform(&mut self, request: &Request<'_>) {
        match request.kind {
            RequestKind::Get | RequestKind::LoneGet => match request.part {
                Some(part) => self.get_part(request, *part).await,
                None if self.find(request).await => {}
                None => self.fill_after_miss(request).await,
            },
            RequestKind::Set | RequestKind::LoneSet => {
                let how = self.how(request, self.shared.settings.only_set_if_miss);
                self.set(request, how).await;
            }
            RequestKind::Delete => self.delete(request).await,
            RequestKind::AddChained => self.add_chained(request).await,
            RequestKind::Update => self.update(request).await,
            RequestKind::CouldExist => self.could_exist(request),
        }
    }

    fn how(&self, request: &Request<'_>, only_if_absent: bool) -> SetHow {
        SetHow { pool: request.pool, ttl_seconds: request.ttl_seconds, only_if_absent }
    }

    /// What was missed is there from now on, where the cache is looked aside from.
    async fn fill_after_miss(&mut self, request: &Request<'_>) {
        if self.shared.settings.lookaside {
            let how = self.how(request, false);
            self.set(request, how).await;
            self.chain_after_miss(request).await;
        }
    }

    /// One counted get; whether it found something.
    async fn find(&mut self, request: &Request<'_>) -> bool {
        let _chain = match self.chain_lock(request.key_id) {
            Some(lock) => Some(lock.read().await),
            None => None,
        };
        let shared = self.shared;
        self.board.counting.gets.one();
        let checked = shared.checking.as_ref().map(|checking| checking.checker.begin_get(request.key_id));
        let started = self.start_timing();
        if shared.target.is_blocking() {
            let item = shared.target.get_blocking(request.key);
            self.found(request, item.as_ref(), started, checked)
        } else {
            let item = shared.target.get(request.key).await;
            self.found(request, item.as_ref(), started, checked)
        }
    }

    /// The get that began so ended with this.
    #[inline]
    fn found(
        &mut self,
        request: &Request<'_>,
        item: Option<&T::Item<'_>>,
        started: Option<u64>,
        checked: Option<Begun>,
    ) -> bool {
        let what = match item.map(Found::layer) {
            Some(Layer::Dram) => Timed::GetDram,
            Some(Layer::Flash) => Timed::GetFlash,
            None => Timed::GetMiss,
        };
        self.end_timing(what, started);
        let counting = &self.board.counting;
        match what {
            Timed::GetDram => counting.get_hits_dram.one(),
            Timed::GetFlash => counting.get_hits_flash.one(),
            _ => counting.get_misses.one(),
        }
        if let Some(bytes) = &mut self.account {
            bytes.get(item.map(|item| item.len() as u64), request.value_bytes);
        }
        if let (Some(checking), Some(begun)) = (&self.shared.checking, checked) {
            let verdict = self.judge(checking, request.key_id, item, begun);
            self.report(checking, verdict);
        } else if let Some(item) = item
            && self.shared.settings.touch_value
        {
            touch(item);
        }
        item.is_some()
    }

    /// One counted set; whether the value is there now.
    async fn set(&mut self, request: &Request<'_>, how: SetHow) -> bool {
        if self.shared.learned.as_ref().is_some_and(|learned| !learned.admits(request)) {
            self.board.counting.sets_skipped.one();
            return false;
        }
        let _chain = self.read_chain(request.key_id).await;
        self.set_locked(request, how).await
    }

    async fn set_locked(&mut self, request: &Request<'_>, how: SetHow) -> bool {
        let version = self.next_version();
        let shared = self.shared;
        let checking = shared.checking.as_ref();
        let begun = checking.map(|checking| checking.checker.begin_set(request.key_id, fold(&[version])));
        let started = self.start_timing();
        let outcome = shared.target.set(request.key, self.value_bytes(request.value_bytes), how, |value| {
            shared.fill(value, request.key_id, version);
        });
        let outcome = outcome.await;
        self.end_timing(Timed::Set, started);
        if let (Some(checking), Some(begun)) = (checking, begun) {
            match outcome {
                SetOutcome::Stored => checking.checker.end_set(request.key_id, begun, fold(&[version])),
                _ => checking.checker.abort_set(request.key_id, begun, fold(&[version])),
            }
        }
        if let Some(destructors) = shared.destructors.as_ref().filter(|_| outcome == SetOutcome::Stored) {
            destructors.stored(request.key, version);
        }
        if let Some(bytes) = self.account.as_mut().filter(|_| outcome == SetOutcome::Stored) {
            bytes.stored = bytes.stored.saturating_add(request.value_bytes);
        }
        let counting = &self.board.counting;
        match outcome {
            SetOutcome::Stored => counting.sets.one(),
            SetOutcome::Kept => counting.sets_skipped.one(),
            SetOutcome::Refused => {
                counting.sets.one();
                counting.set_failures.one();
                let beside = (cache::dram::HEADER_BYTES + request.key.len()) as u64;
                let item_bytes = request.value_bytes.saturating_add(beside);
                self.board.largest_refused_bytes.fetch_max(item_bytes, Ordering::Relaxed);
            }
        }
        outcome == SetOutcome::Stored
    }

    async fn delete(&mut self, request: &Request<'_>) {
        let _chain = self.read_chain(request.key_id).await;
        self.board.counting.deletes.one();
        let started = self.start_timing();
        let found = self.delete_checked(request);
        self.end_timing(Timed::Delete, started);
        if !found {
            self.board.counting.delete_misses.one();
        }
    }

    fn delete_checked(&self, request: &Request<'_>) -> bool {
        let checking = self.shared.checking.as_ref();
        let begun = checking.map(|checking| checking.checker.begin_delete(request.key_id));
        let found = self.shared.target.delete(request.key);
        if let (Some(checking), Some(begun)) = (checking, begun) {
            checking.checker.end_delete(request.key_id, begun);
        }
        found
    }

    /// A get for write and a new value in its place.
    async fn update(&mut self, request: &Request<'_>) {
        self.board.counting.updates.one();
        if self.find(request).await {
            let how = self.how(request, false);
            self.set(request, how).await;
        } else {
            self.board.counting.update_misses.one();
        }
    }

    fn could_exist(&mut self, request: &Request<'_>) {
        self.board.counting.could_exist.one();
        let started = self.start_timing();
        let may_be = self.shared.target.could_exist(request.key);
        self.end_timing(Timed::CouldExist, started);
        if !may_be {
            self.board.counting.could_exist_misses.one();
        }
    }
}

/// Checking.
impl<T: Target> Worker<'_, T> {
    /// Versions are unique in a run: its mark, the thread, and a count; never 0.
    fn next_version(&mut self) -> u64 {
        self.sets_done += 1;
        self.version_now()
    }

    fn version_now(&self) -> u64 {
        self.shared.run_mark() << MARK_SHIFT
            | u64::from(self.number) << THREAD_SHIFT
            | (self.sets_done & ((1 << THREAD_SHIFT) - 1))
    }

    /// A checked value must have room for the payload's header.
    fn value_bytes(&self, asked: u64) -> usize {
        let floor = if self.shared.needs_header() { payload::HEADER_BYTES as u64 } else { 0 };
        usize::try_from(asked.max(floor)).unwrap_or(usize::MAX)
    }

    fn judge(
        &self,
        checking: &Checking,
        key_id: u64,
        item: Option<&T::Item<'_>>,
        begun: Begun,
    ) -> Result<(), Inconsistency> {
        let Some(item) = item else { return checking.checker.end_get(key_id, begun, None, false) };
        let mut versions = Vec::new();
        let mut intact = true;
        let mut look = |piece: &[u8]| match self.shared.payload.verify(piece, key_id) {
            Ok(version) => versions.push(version.low_bits),
            Err(_) => intact = false,
        };
        look(item);
        item.each_link(&mut look);
        if !intact {
            // What it was is not known: the get ends as one that saw nothing.
            let _ = checking.checker.end_get(key_id, begun, None, false);
            return Err(checking.checker.damaged(key_id));
        }
        let inherited = versions.first().is_some_and(|version| version >> MARK_SHIFT != checking.run_mark);
        checking.checker.end_get(key_id, begun, Some(fold(&versions)), inherited)
    }

    fn report(&self, checking: &Checking, verdict: Result<(), Inconsistency>) {
        let Err(inconsistency) = verdict else { return };
        self.board.counting.inconsistencies.one();
        let mut found = checking.found.lock();
        if found.len() < KEPT_INCONSISTENCIES {
            found.push(inconsistency);
        }
        self.shared.stop.count_inconsistency(self.shared.settings.max_inconsistencies);
    }
}

/// Lets others of the thread run.
async fn give_way() {
    let mut gave = false;
    let gives = |context: &mut Context<'_>| {
        if std::mem::replace(&mut gave, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    };
    std::future::poll_fn(gives).await;
}

/// The version of an item: of its own value and those of its links, in any order.
fn fold(versions: &[u64]) -> Version {
    match versions {
        [single] => Version(*single),
        several => {
            let mix = |version: &u64| {
                (version ^ (version >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31)
            };
            // Bit 63 keeps a chain apart from any single version.
            Version(several.iter().map(mix).fold(0, u64::wrapping_add) | 1 << 63)
        }
    }
}

/// Reads every byte.
fn touch(item: &impl Found) {
    let mut sum = 0_u64;
    let mut add = |piece: &[u8]| sum = piece.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
    add(item);
    item.each_link(&mut add);
    std::hint::black_box(sum);
}
