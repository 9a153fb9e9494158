//! Hits of a sample and of its groups, and the estimate and interval that follow from them.

use std::sync::Arc;

use parking_lot::Mutex;
use policy::simulate::{Access, Counts, Policy, Settings, Simulator, TOO_HEAVY};

use super::chosen::Sample;
use crate::simulate::{Interval, Row};

/// Number of groups of drawn objects, each simulated by itself.
pub(super) const GROUPS: u8 = 8;
/// The 97.5 % quantile of Student's t with one degree of freedom less than there are groups.
const STUDENT_T: f64 = 2.3646;
/// The groups share the hot objects and the times of scans, so their spread is too small on block traces. These factors were fitted
/// on 40 samples each of three traces at three rates and six policies; `tests/bench/sample_intervals.rs` measures the result.
const SPREAD_FACTOR: f64 = 1.5;
const BIAS_FACTOR: f64 = 2.0;
/// With fewer objects the groups are too small for an estimate.
const MIN_DRAWN: usize = 30;

/// A simulator of a sample or of a group of it, which counts hits of hot and of drawn objects.
pub(super) struct TallyingSimulator {
    simulator: Box<dyn Simulator>,
    sample: Arc<Sample>,
    /// `None` is the whole sample.
    group: Option<u8>,
    tally: Arc<Mutex<Tally>>,
    /// Larger objects are not admitted.
    bytes_at_most: u64,
    warmup: u64,
    seen: u64,
}

impl TallyingSimulator {
    pub(super) fn new(
        size_bytes: u64,
        settings: &Settings,
        (sample, group): (&Arc<Sample>, Option<u8>),
        tally: &Arc<Mutex<Tally>>,
        warmup: u64,
    ) -> Self {
        let policy = tally.lock().policy;
        Self {
            simulator: policy.simulator(
                (size_bytes as f64 / sample.unit_bytes) as u64,
                &Settings { any_weight: true, ..*settings },
            ),
            sample: Arc::clone(sample),
            group,
            tally: Arc::clone(tally),
            bytes_at_most: policy.weight_at_most(size_bytes, settings),
            warmup,
            seen: 0,
        }
    }

    /// Applies the weight factor of drawn objects. Whether an object may be admitted depends on its own size.
    fn weighted(&self, access: &Access, object: u32) -> Access {
        if u64::from(access.weight) > self.bytes_at_most {
            return Access { object, weight: TOO_HEAVY, ..*access };
        }
        let stands_for =
            if self.sample.is_hot(access.object) { 1.0 } else { self.sample.weight_factor(self.group) };
        let weight = f64::from(access.weight) * stands_for / self.sample.unit_bytes;
        Access { object, weight: (weight.round() as u32).min(TOO_HEAVY - 1), ..*access }
    }
}

impl Simulator for TallyingSimulator {
    fn run(&mut self, accesses: &[Access], next_uses: &[u64]) {
        let tally = Arc::clone(&self.tally);
        let mut tally = tally.lock();
        for (place, access) in accesses.iter().enumerate() {
            // Requests outside the group count too, so that all groups warm up to the same time.
            self.seen += 1;
            let Some(object) = self.sample.number_in(self.group, access.object) else { continue };
            let before = self.simulator.counts().hits;
            let next_use = next_uses.get(place..=place).unwrap_or(&[]);
            self.simulator.run(&[self.weighted(access, object)], next_use);
            let is_hit = self.simulator.counts().hits > before;
            if !access.is_removal {
                tally.count(access, is_hit, self.seen > self.warmup, self.sample.is_hot(access.object));
            }
        }
    }

    fn counts(&self) -> Counts {
        self.simulator.counts()
    }

    fn holds(&self, object: u32) -> bool {
        self.sample.number_in(self.group, object).is_some_and(|object| self.simulator.holds(object))
    }

    fn expire(&mut self, object: u32) {
        if let Some(object) = self.sample.number_in(self.group, object) {
            self.simulator.expire(object);
        }
    }

    fn needs_future(&self) -> bool {
        self.simulator.needs_future()
    }
}

/// Requests and hits of a simulation, apart for hot and drawn objects.
#[derive(Clone, Copy)]
pub(super) struct Tally {
    pub(super) policy: Policy,
    hot: Sums,
    drawn: Sums,
    /// Requests for drawn objects and their bytes, including the warm-up.
    drawn_requests: (f64, f64),
}

#[derive(Clone, Copy, Default)]
struct Sums {
    requests: f64,
    hits: f64,
    bytes: f64,
    hit_bytes: f64,
}

impl Tally {
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy, hot: Sums::default(), drawn: Sums::default(), drawn_requests: (0.0, 0.0) }
    }

    fn count(&mut self, access: &Access, is_hit: bool, is_warm: bool, is_hot: bool) {
        let (bytes, hit) = (f64::from(access.weight), f64::from(u8::from(is_hit)));
        if !is_hot {
            self.drawn_requests = (self.drawn_requests.0 + 1.0, self.drawn_requests.1 + bytes);
        }
        if !is_warm {
            return;
        }
        let sums = if is_hot { &mut self.hot } else { &mut self.drawn };
        sums.requests += 1.0;
        sums.hits += hit;
        sums.bytes += bytes;
        sums.hit_bytes += bytes * hit;
    }

    /// Estimates of all objects, by requests and by bytes: the hot objects and the scaled drawn ones.
    fn estimates(&self, sample: &Sample) -> [Estimate; 2] {
        // Requests of the trace per request of the sample, which is close to 1/rate only on average.
        let each = sample.cold_requests as f64 / self.drawn_requests.0;
        let each_byte = sample.cold_bytes as f64 / self.drawn_requests.1;
        let (hot, drawn) = (&self.hot, &self.drawn);
        [
            Estimate::of((hot.requests, hot.hits), (drawn.requests, drawn.hits), each),
            Estimate::of((hot.bytes, hot.hit_bytes), (drawn.bytes, drawn.hit_bytes), each_byte),
        ]
    }
}

#[derive(Clone, Copy)]
struct Estimate {
    all: f64,
    hit: f64,
}

impl Estimate {
    fn of(hot: (f64, f64), drawn: (f64, f64), stands_for: f64) -> Self {
        if drawn.0 == 0.0 {
            return Self { all: hot.0, hit: hot.1 };
        }
        Self { all: hot.0 + drawn.0 * stands_for, hit: hot.1 + drawn.1 * stands_for }
    }

    fn ratio(self) -> f64 {
        self.hit / self.all
    }
}

/// The row of all objects, of the tallies of the whole sample and of its groups.
pub(super) fn estimate(row: Row, parts: &[Tally], sample: &Sample) -> Row {
    let all: Vec<[Estimate; 2]> = parts.iter().map(|tally| tally.estimates(sample)).collect();
    let [by_requests, by_bytes] = all[0];
    let counts = Counts {
        requests: by_requests.all.round() as u64,
        hits: by_requests.hit.round() as u64,
        weight: by_bytes.all.round() as u64,
        hit_weight: by_bytes.hit.round() as u64,
        ..Counts::default()
    };
    let has_objects = sample.drawn() >= MIN_DRAWN && parts.iter().all(|part| part.drawn.requests > 0.0);
    let interval = |by: usize| {
        let ratios: Vec<f64> = all[1..].iter().map(|of| of[by].ratio()).collect();
        has_objects.then(|| interval(all[0][by].ratio(), &ratios, sample.rate)).flatten()
    };
    let interval = interval(0).zip(interval(1));
    let interval =
        interval.map(|(object_hit_ratio, byte_hit_ratio)| Interval { object_hit_ratio, byte_hit_ratio });
    Row { counts, interval, ..row }
}

/// The 95 % interval around the estimate, if the groups' ratios differ.
fn interval(estimate: f64, groups: &[f64], rate: f64) -> Option<(f64, f64)> {
    let count = groups.len() as f64;
    let mean = groups.iter().sum::<f64>() / count;
    let squares: f64 = groups.iter().map(|ratio| (ratio - mean).powi(2)).sum();
    let standard_error = ((1.0 - rate) * squares / (count - 1.0) / count).sqrt();
    let margin = SPREAD_FACTOR * STUDENT_T * standard_error + BIAS_FACTOR * (mean - estimate).abs();
    (squares > 0.0).then(|| ((estimate - margin).max(0.0), (estimate + margin).min(1.0)))
}
