//! Estimates hit ratios from a sample: all requests for some objects are simulated, and none for the others.
//!
//! Method: Waldspurger, Park, Garthwaite, Ahmad: "Efficient MRC construction with SHARDS", FAST'15 (spatial sampling by hash).
//! A cache scaled down with its objects behaves like the full one. There, the few most popular or largest objects distort the
//! estimate, depending on whether they are in the sample. Here they are always in it, at their real weight; every drawn object
//! has 1/rate times its weight in a cache of full size, and represents that many similar objects.
//!
//! The interval is that of the ratio estimator over the sampled objects (Cochran: "Sampling techniques", 1977, section 6.3). It
//! covers the choice of objects, not the coarseness of a small cache. There is no interval if it would be misleading: if all
//! drawn objects are alike, if new objects wait in a part of the cache that is too small for weighted objects (TinyLFU then
//! degenerates to LRU), if the cache holds only a few drawn objects, or if the policy values objects by size.

use std::sync::Arc;

use parking_lot::Mutex;
use policy::eviction::Kind;
use policy::simulate::{Access, Counts, Policy, Settings, Simulator, TOO_HEAVY, hash_of};

use super::numbered::Numbered;
use super::parallel::{self, Task};
use super::spool::Spool;
use super::{
    Batch, Batches, Doubt, Interval, Outcome, Plan, Row, Sampled, SimulateError, Warmup, sizes_bytes,
};
use crate::run::stop::Stop;

/// Hot objects: this share of all,
const HOT_ONE_IN: usize = 1000;
/// but at least this number.
const MIN_HOT: usize = 100;
/// An object is a giant if it has this many times the mean.
const GIANT_MEANS: u64 = 10;
/// Standard errors in a 95 % interval.
const STANDARD_ERRORS: f64 = 1.96;
/// With fewer objects the variance is unknown, and the estimate is not normally distributed.
const MIN_DRAWN: usize = 30;
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
    };
    let warmup = (warmup * spool.len() as f64) as u64;
    let (tasks, tallies) = tasks(plan, &sample, totals.footprint_bytes, warmup)?;
    let total = spool.len();
    let tasks = parallel::run(&mut spool, tasks, plan.threads, stop, |done| progress(done, Some(total)))?;
    let rows = tasks.into_iter().zip(tallies).map(|(task, tally)| {
        let tally = tally.lock();
        let row = tally.estimate(task.into_row(), &sample);
        let doubt = doubt(tally.policy, row.size_bytes, &sample).filter(|_| sampled.other_objects > 0);
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
fn doubt(policy: Policy, size_bytes: u64, sample: &Sample) -> Option<Doubt> {
    few_wait(policy, size_bytes, sample).or_else(|| {
        if matches!(policy, Policy::Eviction(Kind::Gdsf) | Policy::ClairvoyantSized)
            && sample.stands_for > 1.0
        {
            return Some(Doubt::BySize);
        }
        let objects = size_bytes as f64 / (sample.drawn_typical_bytes * sample.stands_for);
        let rate = sample.rate * MIN_IN_CACHE / objects;
        let is_sample = sample.stands_for > 1.0 && sample.drawn_typical_bytes > 0.0;
        (is_sample && objects < MIN_IN_CACHE).then_some(Doubt::Coarse { objects, rate })
    })
}

fn few_wait(policy: Policy, size_bytes: u64, sample: &Sample) -> Option<Doubt> {
    let percent = policy.waiting_percent()?;
    let waiting_bytes = size_bytes as f64 * f64::from(percent) / 100.0;
    let objects = waiting_bytes / (sample.drawn_mean_bytes * sample.stands_for);
    match policy {
        _ if sample.stands_for <= 1.0 => None,
        _ if objects < MIN_WAITING => {
            Some(Doubt::FewWait { percent, objects, rate: sample.rate * MIN_WAITING / objects })
        }
        Policy::Eviction(Kind::WTinyLfu) => Some(Doubt::Erratic),
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
        let policy = named.exact().expect("flash caches were refused");
        for &size_bytes in &sizes {
            let tally = Arc::new(Mutex::new(Tally::new(policy, sample)));
            let watched = TallyingSimulator::new(policy, size_bytes, &plan.settings, sample, &tally, warmup);
            tasks.push(Task::with(Box::new(watched), named, size_bytes, Warmup::Accesses(0)));
            tallies.push(tally);
        }
    }
    Ok((tasks, tallies))
}

/// The objects of a sample.
struct Sample {
    rate: f64,
    /// Weight factor of drawn objects: bytes of all objects that are not hot per byte of a drawn one. It is close to 1/rate
    /// only if sizes are similar.
    stands_for: f64,
    /// Mean size of a drawn object at its first request.
    drawn_mean_bytes: f64,
    /// The same mean weighted by bytes: the size of the object to which an average byte belongs.
    drawn_typical_bytes: f64,
    /// Bytes per unit of weight, a power of two, so that weighted sizes fit in 32 bits.
    unit_bytes: f64,
    is_hot: Vec<bool>,
    /// Requests and bytes of all objects of the trace that are not hot.
    cold_requests: u64,
    cold_bytes: u64,
}

impl Sample {
    fn counts(&self, objects: u64) -> Sampled {
        let (all, drawn) = (self.is_hot.len(), self.is_hot.iter().filter(|is_hot| !**is_hot).count());
        let hot_objects = (all - drawn) as u64;
        Sampled {
            hot_objects,
            drawn_objects: drawn as u64,
            other_objects: objects.saturating_sub(hot_objects),
        }
    }
}

/// Not in the sample, or not seen yet.
const OUT: u32 = u32::MAX;
/// Only removed and never requested: not in any cache, and represents nothing.
const NEVER_REQUESTED: u32 = OUT - 1;

/// Filters a trace to the objects of the sample, with new numbers.
struct Chosen {
    whole: Spool,
    rate: f64,
    seed: u64,
    is_hot: Vec<bool>,
    numbers: Vec<u32>,
    /// Size of each object at its first request, sums over the drawn objects, and the largest size of any request.
    first_weights: Vec<u32>,
    drawn_bytes: u64,
    drawn_squares: f64,
    heaviest: u32,
    sample: Sample,
    batch: Batch,
}

impl Chosen {
    fn of(mut whole: Spool, rate: f64, seed: u64, objects: usize) -> Result<Self, SimulateError> {
        let mut batch = Batch::default();
        let mut asked = vec![(0_u32, 0_u64); objects];
        let mut first_weights = vec![0; objects];
        let mut heaviest = 0;
        while whole.next(&mut batch)? {
            for access in batch.accesses.iter().filter(|access| !access.is_removal) {
                let (requests, bytes) = &mut asked[access.object as usize];
                if *requests == 0 {
                    first_weights[access.object as usize] = access.weight;
                }
                *requests = requests.saturating_add(1);
                *bytes += u64::from(access.weight);
                heaviest = heaviest.max(access.weight);
            }
        }
        whole.rewind();
        let is_hot = certain(&asked, &first_weights);
        let cold = || asked.iter().zip(&is_hot).filter(|(_, is_hot)| !**is_hot).map(|(asked, _)| asked);
        let sample = Sample {
            rate,
            stands_for: 1.0 / rate,
            drawn_mean_bytes: 0.0,
            drawn_typical_bytes: 0.0,
            unit_bytes: 1.0,
            is_hot: Vec::new(),
            cold_requests: cold().map(|(requests, _)| u64::from(*requests)).sum(),
            cold_bytes: cold().map(|(_, bytes)| bytes).sum(),
        };
        let number = |(requests, _): &(u32, u64)| if *requests == 0 { NEVER_REQUESTED } else { OUT };
        let numbers = asked.iter().map(number).collect();
        Ok(Self {
            whole,
            rate,
            seed,
            is_hot,
            numbers,
            first_weights,
            drawn_bytes: 0,
            drawn_squares: 0.0,
            heaviest,
            sample,
            batch,
        })
    }

    /// Number of the object in the sample, if it is in it. Numbers are assigned in order of first use.
    fn number(&mut self, object: u32) -> Option<u32> {
        let number = &mut self.numbers[object as usize];
        if *number == NEVER_REQUESTED {
            return None;
        }
        if *number == OUT {
            let is_hot = self.is_hot[object as usize];
            let drawn = hash_of(u64::from(object) ^ self.seed.rotate_left(32));
            if !is_hot && drawn as f64 >= self.rate * u64::MAX as f64 {
                return None;
            }
            *number = self.sample.is_hot.len() as u32;
            self.sample.is_hot.push(is_hot);
            let weight = if is_hot { 0 } else { self.first_weights[object as usize] };
            self.drawn_bytes += u64::from(weight);
            self.drawn_squares += f64::from(weight).powi(2);
        }
        Some(*number)
    }

    fn into_sample(self) -> Sample {
        let cold = self.first_weights.iter().zip(&self.is_hot).filter(|(_, is_hot)| !**is_hot);
        let cold_bytes: u64 = cold.map(|(weight, _)| u64::from(*weight)).sum();
        let mut sample = self.sample;
        if self.drawn_bytes > 0 {
            let drawn = sample.is_hot.iter().filter(|is_hot| !**is_hot).count();
            sample.drawn_mean_bytes = self.drawn_bytes as f64 / drawn as f64;
            sample.drawn_typical_bytes = self.drawn_squares / self.drawn_bytes as f64;
            sample.stands_for = cold_bytes as f64 / self.drawn_bytes as f64;
        }
        sample.unit_bytes = unit_bytes(f64::from(self.heaviest) * sample.stands_for);
        sample
    }
}

impl Batches for Chosen {
    fn next(&mut self, batch: &mut Batch) -> Result<bool, SimulateError> {
        batch.clear();
        let mut all = std::mem::take(&mut self.batch);
        while batch.accesses.is_empty() && self.whole.next(&mut all)? {
            for (place, access) in all.accesses.iter().enumerate() {
                let Some(object) = self.number(access.object) else { continue };
                batch.push(Access { object, ..*access }, all.ttl_seconds(place));
            }
        }
        self.batch = all;
        Ok(!batch.accesses.is_empty())
    }
}

/// The smallest unit in which this weight fits in 32 bits.
fn unit_bytes(heaviest: f64) -> f64 {
    (heaviest / f64::from(u32::MAX)).max(1.0).log2().ceil().exp2()
}

/// Selects the objects that are always in the sample: those with the most requests, and giants by size or by bytes requested.
/// Without them the share of the cache or of the bytes that such an object has would be missing or multiplied.
fn certain(asked: &[(u32, u64)], first_weights: &[u32]) -> Vec<bool> {
    let mut is_hot = vec![false; asked.len()];
    let count = (asked.len() / HOT_ONE_IN).max(MIN_HOT).min(asked.len());
    mark_most(&mut is_hot, count, 0, |object| u64::from(asked[object].0));
    let giant = |all: u64| GIANT_MEANS * all / asked.len().max(1) as u64;
    let (weight, bytes) = (
        first_weights.iter().map(|weight| u64::from(*weight)).sum(),
        asked.iter().map(|asked| asked.1).sum(),
    );
    mark_most(&mut is_hot, count, giant(weight), |object| u64::from(first_weights[object]));
    mark_most(&mut is_hot, count, giant(bytes), |object| asked[object].1);
    is_hot
}

/// Marks up to `count` objects with the largest values above `least`.
fn mark_most(is_marked: &mut [bool], count: usize, least: u64, of: impl Fn(usize) -> u64) {
    let mut order: Vec<u32> =
        (0..is_marked.len() as u32).filter(|object| of(*object as usize) > least).collect();
    if count < order.len() {
        order.select_nth_unstable_by_key(count, |object| std::cmp::Reverse((of(*object as usize), *object)));
    }
    order.iter().take(count).for_each(|object| is_marked[*object as usize] = true);
}

/// A simulator that counts hits by object.
struct TallyingSimulator {
    simulator: Box<dyn Simulator>,
    sample: Arc<Sample>,
    tally: Arc<Mutex<Tally>>,
    /// Larger objects are not admitted.
    bytes_at_most: u64,
    warmup: u64,
    seen: u64,
}

impl TallyingSimulator {
    fn new(
        policy: Policy,
        size_bytes: u64,
        settings: &Settings,
        sample: &Arc<Sample>,
        tally: &Arc<Mutex<Tally>>,
        warmup: u64,
    ) -> Self {
        Self {
            simulator: policy.simulator(
                (size_bytes as f64 / sample.unit_bytes) as u64,
                &Settings { any_weight: true, ..*settings },
            ),
            sample: Arc::clone(sample),
            tally: Arc::clone(tally),
            bytes_at_most: policy.weight_at_most(size_bytes, settings),
            warmup,
            seen: 0,
        }
    }

    /// Applies the weight factor of drawn objects. Whether an object may be admitted depends on its own size.
    fn weighted(&self, access: &Access) -> Access {
        if u64::from(access.weight) > self.bytes_at_most {
            return Access { weight: TOO_HEAVY, ..*access };
        }
        let stands_for =
            if self.sample.is_hot[access.object as usize] { 1.0 } else { self.sample.stands_for };
        let weight = f64::from(access.weight) * stands_for / self.sample.unit_bytes;
        Access { weight: (weight.round() as u32).min(TOO_HEAVY - 1), ..*access }
    }
}

impl Simulator for TallyingSimulator {
    fn run(&mut self, accesses: &[Access], next_uses: &[u64]) {
        let tally = Arc::clone(&self.tally);
        let mut tally = tally.lock();
        for (place, access) in accesses.iter().enumerate() {
            let before = self.simulator.counts().hits;
            let next_use = next_uses.get(place..=place).unwrap_or(&[]);
            self.simulator.run(&[self.weighted(access)], next_use);
            let is_hit = self.simulator.counts().hits > before;
            self.seen += 1;
            if !access.is_removal {
                tally.count(access, is_hit, self.seen > self.warmup, &self.sample);
            }
        }
    }

    fn counts(&self) -> Counts {
        self.simulator.counts()
    }

    fn holds(&self, object: u32) -> bool {
        self.simulator.holds(object)
    }

    fn expire(&mut self, object: u32) {
        self.simulator.expire(object);
    }

    fn needs_future(&self) -> bool {
        self.simulator.needs_future()
    }
}

/// Requests and hits of each object of the sample.
struct Tally {
    policy: Policy,
    objects: Vec<ObjectCounts>,
    /// Requests for cold objects and their bytes, including the warm-up.
    cold: (f64, f64),
}

#[derive(Clone, Copy, Default)]
struct ObjectCounts {
    requests: f64,
    hits: f64,
    bytes: f64,
    hit_bytes: f64,
}

impl Tally {
    fn new(policy: Policy, sample: &Sample) -> Self {
        Self { policy, objects: vec![ObjectCounts::default(); sample.is_hot.len()], cold: (0.0, 0.0) }
    }

    fn count(&mut self, access: &Access, is_hit: bool, is_warm: bool, sample: &Sample) {
        let asked = &mut self.objects[access.object as usize];
        let (bytes, hit) = (f64::from(access.weight), f64::from(u8::from(is_hit)));
        if !sample.is_hot[access.object as usize] {
            self.cold = (self.cold.0 + 1.0, self.cold.1 + bytes);
        }
        if !is_warm {
            return;
        }
        asked.requests += 1.0;
        asked.hits += hit;
        asked.bytes += bytes;
        asked.hit_bytes += bytes * hit;
    }

    /// Estimates the row of all objects.
    fn estimate(&self, row: Row, sample: &Sample) -> Row {
        // Requests of the trace per request of the sample, which is close to 1/rate only on average.
        let each = sample.cold_requests as f64 / self.cold.0;
        let each_byte = sample.cold_bytes as f64 / self.cold.1;
        let by_requests = self.whole(sample, each, |asked| (asked.requests, asked.hits));
        let by_bytes = self.whole(sample, each_byte, |asked| (asked.bytes, asked.hit_bytes));
        let counts = Counts {
            requests: by_requests.all.round() as u64,
            hits: by_requests.hit.round() as u64,
            weight: by_bytes.all.round() as u64,
            hit_weight: by_bytes.hit.round() as u64,
            ..Counts::default()
        };
        let intervals = by_requests.interval().zip(by_bytes.interval());
        let interval =
            intervals.map(|(object_hit_ratio, byte_hit_ratio)| Interval { object_hit_ratio, byte_hit_ratio });
        Row { counts, interval, ..row }
    }

    /// Adds the hot objects and the scaled cold objects.
    fn whole(&self, sample: &Sample, stands_for: f64, of: fn(&ObjectCounts) -> (f64, f64)) -> Estimate {
        let part = |hot: bool| {
            let of_kind = self.objects.iter().zip(&sample.is_hot).filter(move |(_, is_hot)| **is_hot == hot);
            of_kind.map(|(asked, _)| of(asked))
        };
        let sum = |hot| part(hot).fold((0.0, 0.0), |sum, (all, hit)| (sum.0 + all, sum.1 + hit));
        let ((hot, hot_hit), (cold, cold_hit)) = (sum(true), sum(false));
        if cold == 0.0 {
            return Estimate { all: hot, hit: hot_hit, hit_error: None };
        }
        let ratio = cold_hit / cold;
        let cold_counted = cold * stands_for;
        let squares: f64 = part(false).map(|(all, hit)| (hit - ratio * all).powi(2)).sum();
        let drawn = part(false).filter(|(all, _)| *all > 0.0).count();
        // If all objects have the same ratio, the variance of the others is not known.
        let knows_error = drawn >= MIN_DRAWN && squares > 0.0;
        let ratio_error = ((1.0 - sample.rate) * squares).sqrt() / cold;
        Estimate {
            all: hot + cold_counted,
            hit: hot_hit + ratio * cold_counted,
            hit_error: knows_error.then_some(ratio_error * cold_counted),
        }
    }
}

struct Estimate {
    all: f64,
    hit: f64,
    /// Standard error of the hits, if known.
    hit_error: Option<f64>,
}

impl Estimate {
    fn interval(&self) -> Option<(f64, f64)> {
        let error = self.hit_error?;
        let at = |errors: f64| ((self.hit + errors * error) / self.all).clamp(0.0, 1.0);
        Some((at(-STANDARD_ERRORS), at(STANDARD_ERRORS)))
    }
}
