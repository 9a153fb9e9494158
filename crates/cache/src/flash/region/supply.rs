//! The supply of clean regions and buffers: insertion points take them; flush and reclaim return them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::{Completion, IoBuffer, Pending};
use event_listener::Event;
use parking_lot::Mutex;

use super::buffer::RegionBuffer;
use super::layout::RegionId;
use super::sealed::Flush;
use crate::flash::outage::{Outage, TestPlan, Verdict};

/// The purpose for which a region is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A new item.
    New,
    /// Reinsertion of an item from a region that is being reclaimed. It may take the reserve: only a reclaim produces clean regions, so a
    /// reclaim must not wait for one.
    Reinserted,
}

/// The clean regions and free buffers of a store. The store and its buffers share it: a dropped buffer returns its memory here.
pub(crate) struct Supply {
    state: Mutex<SupplyState>,
    /// Notified when a region or a buffer is returned for which an insertion may be waiting.
    pub(crate) region_returned: Event,
    /// Notified when [`super::RegionStore::step`] has work.
    pub(crate) work: Event,
    region_bytes: usize,
    /// Whether reinsertions used the reserve of regions and no reclaim has refilled it. Kept beside the state because every insertion reads
    /// it.
    below_reserve: AtomicBool,
}

struct SupplyState {
    clean: VecDeque<RegionId>,
    /// Empty regions that must be trimmed before they are clean.
    untrimmed: VecDeque<RegionId>,
    /// Regions with writes or trims in flight.
    changing: HashMap<RegionId, Changing>,
    /// Full regions without pending reservations, oldest first.
    sealed: VecDeque<Flush>,
    /// The state of the device, derived from failed writes.
    outage: Outage,
    spare: Vec<IoBuffer>,
    /// Number of buffers that may still be allocated.
    unallocated: usize,
    /// Clean regions and buffers that only reinsertions may take.
    reserve: usize,
    /// Regions being reclaimed now.
    reclaiming: usize,
    /// Regions that may be reclaimed concurrently.
    most_reclaiming: usize,
    /// Regions being flushed now.
    flushing: usize,
    /// Regions being flushed now whose last write failed.
    flushing_again: usize,
    /// Regions that are not retired.
    in_service: usize,
    /// Retired regions that are not being tested.
    retired: Vec<(RegionId, TestPlan)>,
}

/// The write errors in a store's health report.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteHealth {
    /// Whether writes fail, so that new items are refused.
    pub(crate) is_failing: bool,
    /// Sealed regions whose last write failed.
    pub(crate) regions_to_retry: usize,
    /// The last failed write since the store was opened.
    pub(crate) last_error: Option<String>,
}

/// A region with requests in flight that change it.
#[derive(Default)]
struct Changing {
    /// Requests in flight.
    requests: usize,
    /// Whether the region becomes clean when these requests complete.
    is_given: bool,
}

impl Supply {
    pub(crate) fn new(
        region_bytes: usize,
        buffers: usize,
        reserve: usize,
        regions: usize,
        most_reclaiming: usize,
    ) -> Self {
        let state = SupplyState {
            clean: VecDeque::new(),
            untrimmed: VecDeque::new(),
            changing: HashMap::new(),
            sealed: VecDeque::new(),
            outage: Outage::default(),
            spare: Vec::new(),
            unallocated: buffers,
            reserve,
            reclaiming: 0,
            most_reclaiming,
            flushing: 0,
            flushing_again: 0,
            in_service: regions,
            retired: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
            region_returned: Event::new(),
            work: Event::new(),
            region_bytes,
            below_reserve: AtomicBool::new(false),
        }
    }

    /// Takes a clean region and a buffer for it. `None` if either is missing.
    pub(crate) fn take(&self, claim: Claim) -> Option<(RegionId, IoBuffer)> {
        let mut state = self.state.lock();
        if !state.has(claim) {
            return None;
        }
        let region = state.clean.pop_front()?;
        let spare = state.spare.pop();
        if spare.is_none() {
            state.unallocated -= 1;
        }
        self.note_reserve(&state);
        drop(state);
        self.work.notify(usize::MAX);
        Some((region, spare.unwrap_or_else(|| IoBuffer::zeroed(self.region_bytes))))
    }

    /// Whether [`take`](Self::take) would return a region.
    pub(crate) fn has(&self, claim: Claim) -> bool {
        self.state.lock().has(claim)
    }

    /// Returns a region to the clean ones, immediately or when its last request in flight completes.
    pub(crate) fn give_region(&self, region: RegionId) {
        let mut state = self.state.lock();
        if let Some(changing) = state.changing.get_mut(&region) {
            changing.is_given = true;
            return;
        }
        state.clean.push_back(region);
        self.note_reserve(&state);
        drop(state);
        self.region_returned.notify(usize::MAX);
    }

    /// A completion and its receiver for a request that changes a region. The region is not clean before the request completes: the
    /// device executes a submitted request even if its task is dropped, and would otherwise overwrite the next content of the region.
    pub(crate) fn begin_change(self: &Arc<Self>, region: RegionId) -> (Completion, Pending) {
        self.state.lock().changing.entry(region).or_default().requests += 1;
        let (notified, pending) = Completion::pair();
        let supply = Arc::clone(self);
        let completion = Completion::new(move |outcome| {
            supply.end_change(region);
            notified.complete(outcome);
        });
        (completion, pending)
    }

    fn end_change(&self, region: RegionId) {
        let mut state = self.state.lock();
        let changing = state.changing.get_mut(&region).expect("a change that ends has begun");
        changing.requests -= 1;
        if changing.requests > 0 {
            return;
        }
        let is_given = state.changing.remove(&region).is_some_and(|changing| changing.is_given);
        drop(state);
        if is_given {
            self.give_region(region);
        } else {
            self.region_returned.notify(usize::MAX);
        }
    }

    /// Whether the device is changing some region.
    pub(crate) fn is_changing(&self) -> bool {
        !self.state.lock().changing.is_empty()
    }

    /// Queues an empty region for its trim, after which it is clean.
    pub(crate) fn give_untrimmed(&self, region: RegionId) {
        self.state.lock().untrimmed.push_back(region);
        self.work.notify(usize::MAX);
    }

    /// The next region to be trimmed.
    pub(crate) fn next_untrimmed(&self) -> Option<RegionId> {
        self.state.lock().untrimmed.pop_front()
    }

    /// Whether there are regions to be trimmed.
    pub(crate) fn has_untrimmed(&self) -> bool {
        !self.state.lock().untrimmed.is_empty()
    }

    fn note_reserve(&self, state: &SupplyState) {
        self.below_reserve.store(state.clean.len() < state.reserve, Ordering::Relaxed);
    }

    /// Whether reinsertions have used the reserve.
    pub(crate) fn is_below_reserve(&self) -> bool {
        self.below_reserve.load(Ordering::Relaxed)
    }

    /// Takes a region out of service until a [test](Self::next_test) of it succeeds.
    pub(crate) fn retire_region(&self, region: RegionId, plan: TestPlan) {
        let mut state = self.state.lock();
        state.in_service -= 1;
        state.retired.push((region, plan));
        drop(state);
        self.region_returned.notify(usize::MAX);
    }

    /// A retired region whose test is due. The caller tests it, and then [returns it to service](Self::return_to_service) or
    /// [puts it back](Self::put_back_retired).
    pub(crate) fn next_test(&self, now_ns: u64) -> Option<(RegionId, TestPlan)> {
        let mut state = self.state.lock();
        let at = state.retired.iter().position(|(_, plan)| plan.due_ns <= now_ns)?;
        Some(state.retired.swap_remove(at))
    }

    /// Returns a retired region to the list after its test failed or was dropped.
    pub(crate) fn put_back_retired(&self, region: RegionId, plan: TestPlan) {
        self.state.lock().retired.push((region, plan));
    }

    /// Returns a retired region to service as clean, after its test write succeeded.
    pub(crate) fn return_to_service(&self, region: RegionId) {
        self.state.lock().in_service += 1;
        self.give_region(region);
    }

    /// Counts a successful region write. If it ends an outage, the pauses of all failed regions end too.
    pub(crate) fn write_succeeded(&self) {
        let mut state = self.state.lock();
        if state.outage.succeeded() {
            state.sealed.iter_mut().for_each(|flush| flush.due_ns = 0);
        }
    }

    /// Counts a failed region write and decides whether the region is retried.
    pub(crate) fn write_failed(&self, flush: &mut Flush, error: String, now_ns: u64) -> Verdict {
        let verdict = self.state.lock().outage.failed(&mut flush.failures, error, now_ns);
        if let Verdict::Retry { due_ns, .. } = verdict {
            flush.due_ns = due_ns;
        }
        verdict
    }

    /// Whether writes fail: during an outage, or if every sealed region waits for the retry of a failed write. New items do not wait then.
    pub(crate) fn is_failing(&self) -> bool {
        self.state.lock().is_failing()
    }

    /// The store's part of the health report.
    pub(crate) fn write_health(&self) -> WriteHealth {
        let state = self.state.lock();
        let to_retry = state.sealed.iter().filter(|flush| flush.failures.is_some()).count();
        WriteHealth {
            is_failing: state.is_failing(),
            regions_to_retry: to_retry + state.flushing_again,
            last_error: state.outage.last_error().map(str::to_owned),
        }
    }

    /// The time of the next retry or test, if any is pending.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        let state = self.state.lock();
        let pauses = |flush: &&Flush| flush.failures.is_some() || state.outage.is_failing();
        let retry = state.sealed.iter().filter(pauses);
        let retry = retry.map(|flush| flush.due_ns.max(state.outage.resume_ns()));
        retry.chain(state.retired.iter().map(|(_, plan)| plan.due_ns)).min()
    }

    /// Returns a buffer. `None` if a request in flight still uses it: the buffer is freed when the request completes, and a new one may
    /// be allocated instead.
    pub(crate) fn give_buffer(&self, buffer: Option<IoBuffer>) {
        let mut state = self.state.lock();
        match buffer {
            Some(buffer) => state.spare.push(buffer),
            None => state.unallocated += 1,
        }
        drop(state);
        self.region_returned.notify(usize::MAX);
    }

    /// Queues a full region without pending reservations for its flush.
    pub(crate) fn seal(&self, buffer: Arc<RegionBuffer>) {
        self.state.lock().sealed.push_back(Flush::new(buffer));
        self.work.notify(usize::MAX);
    }

    /// Queues an interrupted flush again, behind the others: its transfer may take long.
    pub(crate) fn put_back(&self, flush: Flush) {
        self.state.lock().sealed.push_back(flush);
        self.work.notify(usize::MAX);
    }

    /// The next region to flush; `None` while writes pause. The caller must call [`flush_ended`](Self::flush_ended).
    pub(crate) fn next_sealed(&self, now_ns: u64) -> Option<Flush> {
        let mut state = self.state.lock();
        let at = state.due(now_ns)?;
        state.take_sealed(at)
    }

    /// As [`next_sealed`](Self::next_sealed), but ignores pauses: for a store that is being closed.
    pub(crate) fn next_sealed_or_paused(&self) -> Option<Flush> {
        self.state.lock().take_sealed(0)
    }

    /// Ends a flush, successful or not. `had_failed`: the region's previous write had failed.
    pub(crate) fn flush_ended(&self, had_failed: bool) {
        let mut state = self.state.lock();
        state.flushing -= 1;
        state.flushing_again -= usize::from(had_failed);
        drop(state);
        self.region_returned.notify(usize::MAX);
    }

    /// Whether a flush is running, which will free a buffer.
    pub(crate) fn is_flushing(&self) -> bool {
        self.state.lock().flushing > 0
    }

    /// Whether there are sealed regions to be flushed now.
    pub(crate) fn has_sealed(&self, now_ns: u64) -> bool {
        self.state.lock().due(now_ns).is_some()
    }

    /// Whether there are retired regions to be tested now.
    pub(crate) fn has_test(&self, now_ns: u64) -> bool {
        self.state.lock().retired.iter().any(|(_, plan)| plan.due_ns <= now_ns)
    }

    /// Whether fewer than `target` regions are clean or about to be clean, and another reclaim may start.
    pub(crate) fn needs_reclaim(&self, target: usize) -> bool {
        self.state.lock().needs_reclaim(target)
    }

    /// Starts a reclaim if [`needs_reclaim`](Self::needs_reclaim) holds. The reclaim counts as running until the result is dropped.
    pub(crate) fn start_reclaim(&self, target: usize) -> Option<Reclaiming<'_>> {
        let mut state = self.state.lock();
        let needed = state.needs_reclaim(target);
        state.reclaiming += usize::from(needed);
        needed.then(|| Reclaiming(self))
    }

    /// Regions that are not retired.
    pub(crate) fn in_service(&self) -> usize {
        self.state.lock().in_service
    }

    /// Clean regions.
    pub(crate) fn clean(&self) -> usize {
        self.state.lock().clean.len()
    }

    /// Drops the sealed regions when the store ends: their buffers hold references to this supply, a cycle.
    pub(crate) fn close(&self) {
        let sealed = std::mem::take(&mut self.state.lock().sealed);
        drop(sealed);
    }
}

/// A reclaim in progress.
pub(crate) struct Reclaiming<'a>(&'a Supply);

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.state.lock().reclaiming -= 1;
        // Other tasks may have been refused because of this reclaim, or must start another if it was dropped.
        self.0.work.notify(usize::MAX);
    }
}

impl SupplyState {
    /// The first sealed region whose pause is over.
    fn due(&self, now_ns: u64) -> Option<usize> {
        let due = || self.sealed.iter().position(|flush| flush.due_ns <= now_ns);
        if self.outage.pauses(now_ns) { None } else { due() }
    }

    fn take_sealed(&mut self, at: usize) -> Option<Flush> {
        let flush = self.sealed.remove(at)?;
        self.flushing += 1;
        self.flushing_again += usize::from(flush.failures.is_some());
        Some(flush)
    }

    fn is_failing(&self) -> bool {
        let has_any = self.flushing + self.sealed.len() > 0;
        let all_failed = || {
            self.flushing == self.flushing_again && self.sealed.iter().all(|flush| flush.failures.is_some())
        };
        has_any && (self.outage.is_failing() || all_failed())
    }

    fn needs_reclaim(&self, target: usize) -> bool {
        let given = self.changing.values().filter(|changing| changing.is_given).count();
        let about_to_be_clean = self.untrimmed.len() + given + self.reclaiming;
        self.clean.len() + about_to_be_clean < target && self.reclaiming < self.most_reclaiming
    }

    fn has(&self, claim: Claim) -> bool {
        let reserve = if claim == Claim::New { self.reserve } else { 0 };
        self.clean.len() > reserve && self.spare.len() + self.unallocated > reserve
    }
}
