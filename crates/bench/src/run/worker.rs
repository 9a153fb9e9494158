//! The loop of one worker.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use cache::Lookahead;
use workload::pace::{Pause, TokenBucket};
use workload::payload::{self};
use workload::{Request, RequestKind, Source};

use super::latency::Timed;
use super::pace::Waiter;
use super::target::{Found, Layer, SetHow, SetOutcome, Target};
use super::tenants::Bytes;
use super::version::{MARK_SHIFT, THREAD_SHIFT};
use crate::consistency::{Begun, Inconsistency, Version};

mod chains;
mod multi_item;
mod open_loop;
mod shared;
mod timing;

use multi_item::MultiItem;
pub use open_loop::{Due, Schedule, TracePace};
pub use shared::{CHAIN_LOCKS, Checking, Shared, WorkerStats};
pub use timing::SAMPLE_EVERY;
use timing::Sampling;

/// Simulated CPU time is spent in steps of at least this length, as each step is an event of the simulation.
const MIN_CPU_STEP_NS: u64 = 10_000;

/// Operations that a worker on a shared thread executes before it yields.
const OPS_PER_YIELD: u32 = 32;

/// Limit of described inconsistencies; all are counted.
const KEPT_INCONSISTENCIES: usize = 20;
/// The loop of one worker, and its state.
pub struct Worker<'a, T> {
    shared: &'a Shared<T>,
    stats: &'a WorkerStats,
    /// The thread's number, for versions.
    number: u16,
    sets_done: u64,
    /// Simulated CPU time that was not spent yet.
    unspent_cpu_ns: u64,
    /// Whether no other worker runs on its thread, in real time.
    owns_thread: bool,
    /// Operations since the last yield to other workers of its thread.
    ops_since_yield: u32,
    sampling: Sampling,
    ahead: Lookahead,
    pause: Pause,
    /// Value bytes of the current request; `None` until the first request with a tenant.
    tenant_bytes: Option<Bytes>,
    /// Open loop: due time of the current request, until its first operation is timed.
    due_ns: Option<u64>,
    /// Progress of the current request for several items.
    multi_item: MultiItem,
}

impl<'a, T: Target> Worker<'a, T> {
    /// Creates worker `number` of a run.
    pub fn new(shared: &'a Shared<T>, stats: &'a WorkerStats, number: u16) -> Self {
        let (batch, pause_ns) = shared.settings.delay.unwrap_or_default();
        Self {
            shared,
            stats,
            number,
            sets_done: 0,
            owns_thread: matches!(shared.waiter, Waiter::Thread(_)),
            unspent_cpu_ns: 0,
            ops_since_yield: 0,
            sampling: Sampling::new(number.into(), shared.time_all),
            ahead: Lookahead::default(),
            pause: Pause::new(batch, pause_ns),
            tenant_bytes: None,
            due_ns: None,
            multi_item: MultiItem::default(),
        }
    }

    /// The closed loop: executes the requests of `source` one after another until it ends, the thread's operations are done, or the
    /// run is stopped.
    pub async fn run(&mut self, source: &mut dyn Source) {
        let limit = self.shared.settings.ops_per_thread;
        let mut done = 0;
        while done < limit {
            self.look_ahead(source);
            // The request is not moved: a copy would stall on the half-written value.
            let next = source.next();
            let Some(request) = &next else { return };
            self.sampling.begin();
            if request.tenant.is_some() {
                self.start_tenant_counts();
            }
            for _ in 0..u64::from(request.repeat).min(limit - done) {
                if self.shared.stop.is_set() {
                    return;
                }
                if let Some(bucket) = &self.shared.bucket {
                    self.wait_for_rate(bucket).await;
                }
                self.perform(request).await;
                self.count(request);
                done += 1;
                if !self.owns_thread {
                    self.spend_cpu_time().await;
                }
                if let Some(pause_ns) = self.pause.after_operation() {
                    self.pause(pause_ns).await;
                }
            }
        }
    }

    /// Counters are kept by tenant from the first request with a tenant.
    fn start_tenant_counts(&mut self) {
        if self.tenant_bytes.is_none() {
            self.tenant_bytes = Some(Bytes::default());
            self.stats.tenants.lock().open(self.stats.counting.read());
        }
    }

    /// Counts a completed request.
    #[inline]
    fn count(&mut self, request: &Request<'_>) {
        self.stats.counting.ops.one();
        if self.tenant_bytes.is_some() {
            self.count_for_tenant(request);
        }
    }

    fn count_for_tenant(&mut self, request: &Request<'_>) {
        let bytes = self.tenant_bytes.as_mut().map(std::mem::take).unwrap_or_default();
        self.stats.tenants.lock().add_request(request.tenant, self.stats.counting.read(), bytes);
    }

    /// Waits until the configured rate permits the next request.
    async fn wait_for_rate(&self, bucket: &TokenBucket) {
        let now_ns = self.shared.clock.monotonic_ns();
        let due_ns = bucket.reserve(1, now_ns);
        if due_ns > now_ns {
            self.shared.waiter.until(due_ns, &self.shared.stop).await;
        }
    }

    /// Spends the CPU time of an operation in a simulated run; yields to other workers on a shared thread.
    async fn spend_cpu_time(&mut self) {
        match &self.shared.waiter {
            Waiter::Thread(_) => {}
            Waiter::SharedThread(_) => {
                self.ops_since_yield += 1;
                if self.ops_since_yield == OPS_PER_YIELD {
                    self.ops_since_yield = 0;
                    yield_to_others().await;
                }
            }
            Waiter::Task { cpu_ns_per_op, .. } => {
                self.unspent_cpu_ns += cpu_ns_per_op;
                if self.unspent_cpu_ns >= MIN_CPU_STEP_NS {
                    let now_ns = self.shared.clock.monotonic_ns();
                    let until_ns = now_ns + std::mem::take(&mut self.unspent_cpu_ns);
                    self.shared.waiter.until(until_ns, &self.shared.stop).await;
                }
            }
        }
    }

    async fn pause(&self, pause_ns: u64) {
        let until_ns = self.shared.clock.monotonic_ns().saturating_add(pause_ns);
        self.shared.waiter.until(until_ns, &self.shared.stop).await;
    }

    /// Prefetches memory for a later request. Skipped in a simulated run, where memory access takes no time.
    #[inline]
    fn look_ahead(&mut self, source: &dyn Source) {
        if self.owns_thread
            && self.sampling.allows_look_ahead()
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

    /// Inserts the value after a miss, if the workload is look-aside.
    async fn fill_after_miss(&mut self, request: &Request<'_>) {
        if self.shared.settings.lookaside {
            let how = self.how(request, false);
            self.set(request, how).await;
            self.chain_after_miss(request).await;
        }
    }

    /// Executes and counts a get; returns whether it hit.
    async fn find(&mut self, request: &Request<'_>) -> bool {
        let _chain = match self.chain_lock(request.key_id) {
            Some(lock) => Some(lock.read().await),
            None => None,
        };
        let shared = self.shared;
        self.stats.counting.gets.one();
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

    /// Records the result of a get.
    #[inline]
    fn found(
        &mut self,
        request: &Request<'_>,
        item: Option<&T::Item<'_>>,
        started: Option<u64>,
        checked: Option<Begun>,
    ) -> bool {
        let kind = match item.map(Found::layer) {
            Some(Layer::Dram) => Timed::GetDram,
            Some(Layer::Flash) => Timed::GetFlash,
            None => Timed::GetMiss,
        };
        self.end_timing(kind, started);
        let counting = &self.stats.counting;
        match kind {
            Timed::GetDram => counting.get_hits_dram.one(),
            Timed::GetFlash => counting.get_hits_flash.one(),
            _ => counting.get_misses.one(),
        }
        if let Some(bytes) = &mut self.tenant_bytes {
            bytes.get(item.map(|item| item.len() as u64), request.value_bytes);
        }
        if let (Some(checking), Some(begun)) = (&self.shared.checking, checked) {
            let result = self.check(checking, request.key_id, item, begun);
            self.report(checking, result);
        } else if let Some(item) = item
            && self.shared.settings.touch_value
        {
            touch(item);
        }
        item.is_some()
    }

    /// Executes and counts a set; returns whether the value was stored.
    async fn set(&mut self, request: &Request<'_>, how: SetHow) -> bool {
        if self.shared.learned.as_ref().is_some_and(|learned| !learned.admits(request)) {
            self.stats.counting.sets_skipped.one();
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
        if let Some(bytes) = self.tenant_bytes.as_mut().filter(|_| outcome == SetOutcome::Stored) {
            bytes.stored = bytes.stored.saturating_add(request.value_bytes);
        }
        let counting = &self.stats.counting;
        match outcome {
            SetOutcome::Stored => counting.sets.one(),
            SetOutcome::Kept => counting.sets_skipped.one(),
            SetOutcome::Refused => {
                counting.sets.one();
                counting.set_failures.one();
                let overhead_bytes = (cache::internals::dram::HEADER_BYTES + request.key.len()) as u64;
                let item_bytes = request.value_bytes.saturating_add(overhead_bytes);
                self.stats.largest_refused_bytes.fetch_max(item_bytes, Ordering::Relaxed);
            }
        }
        outcome == SetOutcome::Stored
    }

    async fn delete(&mut self, request: &Request<'_>) {
        let _chain = self.read_chain(request.key_id).await;
        self.stats.counting.deletes.one();
        let started = self.start_timing();
        let found = self.delete_checked(request);
        self.end_timing(Timed::Delete, started);
        if !found {
            self.stats.counting.delete_misses.one();
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

    /// A get that is followed, on a hit, by a set of a new value.
    async fn update(&mut self, request: &Request<'_>) {
        self.stats.counting.updates.one();
        if self.find(request).await {
            let how = self.how(request, false);
            self.set(request, how).await;
        } else {
            self.stats.counting.update_misses.one();
        }
    }

    fn could_exist(&mut self, request: &Request<'_>) {
        self.stats.counting.could_exist.one();
        let started = self.start_timing();
        let could_exist = self.shared.target.could_exist(request.key);
        self.end_timing(Timed::CouldExist, started);
        if !could_exist {
            self.stats.counting.could_exist_misses.one();
        }
    }
}

/// Consistency checks.
impl<T: Target> Worker<'_, T> {
    /// A version is unique within the run: the run's mark, the thread, and a count. It is never 0.
    fn next_version(&mut self) -> u64 {
        self.sets_done += 1;
        self.version_now()
    }

    fn version_now(&self) -> u64 {
        self.shared.run_mark() << MARK_SHIFT
            | u64::from(self.number) << THREAD_SHIFT
            | (self.sets_done & ((1 << THREAD_SHIFT) - 1))
    }

    /// The value size: at least the payload's header if values are checked.
    fn value_bytes(&self, requested: u64) -> usize {
        let min_bytes = if self.shared.needs_header() { payload::HEADER_BYTES as u64 } else { 0 };
        usize::try_from(requested.max(min_bytes)).unwrap_or(usize::MAX)
    }

    fn check(
        &self,
        checking: &Checking,
        key_id: u64,
        item: Option<&T::Item<'_>>,
        begun: Begun,
    ) -> Result<(), Inconsistency> {
        let Some(item) = item else { return checking.checker.end_get(key_id, begun, None, false) };
        let mut versions = Vec::new();
        let mut intact = true;
        let mut verify = |value: &[u8]| match self.shared.payload.verify(value, key_id) {
            Ok(version) => versions.push(version.low_bits),
            Err(_) => intact = false,
        };
        verify(item);
        item.each_link(&mut verify);
        if !intact {
            // The damaged version is unknown, so for the checker this get is a miss.
            let _ = checking.checker.end_get(key_id, begun, None, false);
            return Err(checking.checker.damaged(key_id));
        }
        let inherited = versions.first().is_some_and(|version| version >> MARK_SHIFT != checking.run_mark);
        checking.checker.end_get(key_id, begun, Some(fold(&versions)), inherited)
    }

    fn report(&self, checking: &Checking, result: Result<(), Inconsistency>) {
        let Err(inconsistency) = result else { return };
        self.stats.counting.inconsistencies.one();
        let mut found = checking.found.lock();
        if found.len() < KEPT_INCONSISTENCIES {
            found.push(inconsistency);
        }
        self.shared.stop.count_inconsistency(self.shared.settings.max_inconsistencies);
    }
}

/// Yields once to the other tasks of the thread.
async fn yield_to_others() {
    let mut yielded = false;
    let poll = |context: &mut Context<'_>| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    };
    std::future::poll_fn(poll).await;
}

/// The version of an item with chained items: its own and theirs combined, in any order.
fn fold(versions: &[u64]) -> Version {
    match versions {
        [single] => Version(*single),
        several => {
            let mix = |version: &u64| {
                (version ^ (version >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31)
            };
            // Bit 63 distinguishes combined versions from single ones.
            Version(several.iter().map(mix).fold(0, u64::wrapping_add) | 1 << 63)
        }
    }
}

/// Reads every byte, chained items included.
fn touch(item: &impl Found) {
    let mut sum = 0_u64;
    let mut add = |value: &[u8]| sum = value.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
    add(item);
    item.each_link(&mut add);
    std::hint::black_box(sum);
}
