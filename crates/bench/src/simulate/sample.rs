//! Estimates hit ratios from a sample: all requests for some objects are simulated, and none for the others.
//!
//! Method: Waldspurger, Park, Garthwaite, Ahmad: "Efficient MRC construction with SHARDS", FAST'15 (spatial sampling by hash).
//! A cache scaled down with its objects behaves like the full one. There, the few most popular or largest objects distort the
//! estimate, depending on whether they are in the sample. Here they are always in it, at their real weight; every drawn object
//! has 1/rate times its weight in a cache of full size, and represents that many similar objects.
//!
//! The interval is that of random groups (Wolter: "Introduction to variance estimation", 2007, chapter 2): the drawn objects are
//! divided by hash into groups, and each group is simulated by itself, in a cache that is scaled down further. The spread of the
//! groups measures the error of the choice of objects, including its effect on the order of evictions. The distance of their mean
//! from the estimate measures the error of a small cache; the interval has both. There is none if it would be misleading: if all
//! groups are alike, if new objects wait in a part of the cache that is too small for weighted objects (TinyLFU then degenerates to
//! LRU), if the cache holds only a few drawn objects, or if the policy values objects by size.

mod chosen;
mod tally;

use std::sync::Arc;

use chosen::{Chosen, Sample};
use parking_lot::Mutex;
use policy::eviction::Kind;
use policy::simulate::Policy;
use tally::{GROUPS, Tally, TallyingSimulator};

use super::numbered::Numbered;
use super::parallel::{self, Task};
use super::spool::Spool;
use super::{Outcome, Plan, Row, SampleWarning, SimulateError, Warmup, sizes_bytes};
use crate::run::stop::Stop;

/// Minimum number of drawn objects in the cache: with fewer, measured errors exceeded the interval (docs/simulate.md).
const MIN_IN_CACHE: f64 = 10.0;
/// Minimum number of drawn objects in the part where new objects wait: with fewer, measured errors exceeded the interval
/// (docs/simulate.md).
const MIN_WAITING: f64 = 10.0;

/// Simulates a sample of the trace.
pub(super) fn run(
    plan: &Plan,
    rate: f64,
    numbered: &mut Numbered,
    stop: &Stop,
    mut progress: impl FnMut(u64, Option<u64>),
) -> Result<Outcome, SimulateError> {
    if !(rate > 0.0 && rate < 1.0) {
        return Err(SimulateError::NoSample { percent: rate * 100.0 });
    }
    if let Some(flash) = plan.policies.iter().find(|named| named.is_flash()) {
        return Err(SimulateError::NotSampled { name: flash.to_string() });
    }
    if let Some(custom) = plan.policies.iter().find(|named| named.exact().is_none()) {
        return Err(SimulateError::CustomNotSampled { name: custom.to_string() });
    }
    let whole = Spool::of(numbered, false, stop, |done| progress(done, None))?;
    let totals = numbered.totals();
    if totals.requests == 0 {
        return Err(SimulateError::Empty);
    }
    let mut chosen = Chosen::of(whole, rate, plan.settings.seed, numbered.keys() as usize)?;
    let mut spool = Spool::of(&mut chosen, plan.needs_future(), stop, |_| ())?;
    let sample = Arc::new(chosen.into_sample());
    let sampled = sample.counts(totals.objects);
    if sampled.drawn_objects == 0 && sampled.other_objects > 0 && !stop.is_set() {
        return Err(SimulateError::NoneDrawn { percent: rate * 100.0, of: sampled.other_objects });
    }
    let warmup = match plan.warmup {
        Warmup::Accesses(accesses) => accesses as f64 / totals.accesses as f64,
        Warmup::Share(share) => share,
        Warmup::Seconds(_) => return Err(SimulateError::NoTimedWarmup { flag: "--sample" }),
    };
    let warmup = (warmup * spool.len() as f64) as u64;
    let (tasks, tallies) = tasks(plan, &sample, totals.footprint_bytes, warmup)?;
    let total = spool.len();
    let tasks = parallel::run(&mut spool, tasks, plan.threads, stop, |done| progress(done, Some(total)))?;
    // For each policy and size, the whole sample comes first, and its groups follow.
    let parts = tallies.chunks(usize::from(GROUPS) + 1);
    let rows = tasks.into_iter().step_by(usize::from(GROUPS) + 1).zip(parts).map(|(task, parts)| {
        let parts: Vec<Tally> = parts.iter().map(|tally| *tally.lock()).collect();
        let row = tally::estimate(task.into_row(), &parts, &sample);
        let doubt =
            sample_warning(parts[0].policy, row.size_bytes, &sample).filter(|_| sampled.other_objects > 0);
        Row { interval: row.interval.filter(|_| doubt.is_none()), doubt, ..row }
    });
    let rows: Vec<Row> = rows.collect();
    let counted = rows.first().map_or(0, |row| row.counts.requests);
    Ok(Outcome {
        rows,
        totals,
        warmup_requests: totals.requests.saturating_sub(counted),
        sampled: Some(sampled),
        tenants: Vec::new(),
        read: numbered.report().clone(),
        ignored_size: plan.ignore_size,
        ignored_ttl: plan.ignore_ttl,
        was_stopped: stop.is_set(),
    })
}

type Tallies = Vec<Arc<Mutex<Tally>>>;

/// Reason why the error of this estimate is not known, if so.
fn sample_warning(policy: Policy, size_bytes: u64, sample: &Sample) -> Option<SampleWarning> {
    few_wait(policy, size_bytes, sample).or_else(|| {
        if matches!(policy, Policy::Eviction(Kind::Gdsf) | Policy::ClairvoyantSized)
            && sample.stands_for > 1.0
        {
            return Some(SampleWarning::BySize);
        }
        let objects = size_bytes as f64 / (sample.drawn_typical_bytes * sample.stands_for);
        let rate = sample.rate * MIN_IN_CACHE / objects;
        let is_sample = sample.stands_for > 1.0 && sample.drawn_typical_bytes > 0.0;
        (is_sample && objects < MIN_IN_CACHE).then_some(SampleWarning::Coarse { objects, rate })
    })
}

fn few_wait(policy: Policy, size_bytes: u64, sample: &Sample) -> Option<SampleWarning> {
    let percent = policy.waiting_percent()?;
    let waiting_bytes = size_bytes as f64 * f64::from(percent) / 100.0;
    let objects = waiting_bytes / (sample.drawn_mean_bytes * sample.stands_for);
    match policy {
        _ if sample.stands_for <= 1.0 => None,
        _ if objects < MIN_WAITING => {
            Some(SampleWarning::FewWait { percent, objects, rate: sample.rate * MIN_WAITING / objects })
        }
        Policy::Eviction(Kind::WTinyLfu) => Some(SampleWarning::Erratic),
        _ => None,
    }
}

fn tasks(
    plan: &Plan,
    sample: &Arc<Sample>,
    footprint_bytes: u64,
    warmup: u64,
) -> Result<(Vec<Task>, Tallies), SimulateError> {
    let (mut tasks, mut tallies) = (Vec::new(), Vec::new());
    let sizes = sizes_bytes(plan, footprint_bytes)?;
    for named in plan.different_policies() {
        let policy = named.exact().expect("the others were refused");
        for &size_bytes in &sizes {
            for group in std::iter::once(None).chain((0..GROUPS).map(Some)) {
                let tally = Arc::new(Mutex::new(Tally::new(policy)));
                let tallying =
                    TallyingSimulator::new(size_bytes, &plan.settings, (sample, group), &tally, warmup);
                tasks.push(Task::with(Box::new(tallying), named, size_bytes, Warmup::Accesses(0)));
                tallies.push(tally);
            }
        }
    }
    Ok((tasks, tallies))
}
