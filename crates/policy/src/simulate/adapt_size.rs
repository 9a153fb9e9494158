//! AdaptSize: admits an object of size s with the probability e^(-s/c), and tunes c to the requests: a model predicts the hit ratio of the
//! cache for a value of c, and a search finds the best value.
//!
//! Berger, Sitaraman, Harchol-Balter: "AdaptSize: orchestrating the hot object memory cache in a content delivery network", NSDI'17,
//! sections 4 and 5, with the constants of libCacheSim 0.3.5, which are the authors'.

use super::Access;

/// Weight of the history when the requests of an interval are added.
const DECAY: f64 = 0.3;
/// Objects with fewer requests than this in the decayed history are dropped.
const LEAST_REQUESTS: f64 = 0.1;
/// c until the first tuning.
const FIRST_C: f64 = 32_768.0;
/// Tuning starts when the requested objects are larger than the cache by this factor.
const FOOTPRINT_FACTOR: u64 = 3;
/// Requests until tuning is tried again, if they are not.
const RETRY_REQUESTS: u64 = 1000;
/// The golden section, and the precision and steps of the search.
const GOLDEN: f64 = 0.618_033_99;
const TOLERANCE: f64 = 3.0e-8;
const SEARCH_STEPS: u32 = 15;
/// Steps of the fixed-point iteration for the characteristic time.
const TIME_STEPS: u32 = 20;

/// The tuned admission probability.
pub(super) struct AdaptSize {
    capacity_weight: f64,
    interval: u64,
    until_tuning: u64,
    /// Total size of the known objects.
    footprint: u64,
    c: f64,
    /// By object number.
    seen: Vec<Seen>,
    /// The objects with requests.
    known: Vec<u32>,
}

/// Requests for an object and its size: in this interval, and in the decayed history. No requests: not known there.
#[derive(Clone, Copy, Default)]
struct Seen {
    requests: f64,
    size: u32,
    past_requests: f64,
    past_size: u32,
}

/// The requests of an object, its size and its admission probability.
struct Candidate {
    requests: f64,
    size: f64,
}

impl AdaptSize {
    pub(super) fn new(interval: u64, capacity_weight: u64) -> Self {
        Self {
            capacity_weight: capacity_weight as f64,
            interval,
            until_tuning: interval,
            footprint: 0,
            c: FIRST_C,
            seen: Vec::new(),
            known: Vec::new(),
        }
    }

    /// Probability with which an object is admitted.
    pub(super) fn probability(&self, weight: u32) -> f64 {
        (-f64::from(weight) / self.c).exp()
    }

    /// Counts a request, hit or not; tunes c if it is time.
    pub(super) fn observe(&mut self, access: &Access) {
        self.until_tuning -= 1;
        if self.until_tuning == 0 {
            self.until_tuning = RETRY_REQUESTS;
            if self.footprint as f64 > self.capacity_weight * FOOTPRINT_FACTOR as f64 {
                self.until_tuning = self.interval;
                let objects = self.end_interval();
                self.tune(&objects);
            }
        }
        self.count(access);
    }

    fn count(&mut self, access: &Access) {
        let object = access.object as usize;
        if object >= self.seen.len() {
            self.seen.resize(object + 1, Seen::default());
        }
        let seen = &mut self.seen[object];
        let size = u64::from(access.weight);
        if seen.requests == 0.0 && seen.past_requests == 0.0 {
            self.footprint += size;
            self.known.push(access.object);
        }
        for (requests, before) in [(seen.requests, seen.size), (seen.past_requests, seen.past_size)] {
            if requests > 0.0 && before != access.weight {
                self.footprint = (self.footprint + size).saturating_sub(before.into());
            }
        }
        seen.requests += 1.0;
        seen.size = access.weight;
    }

    /// Adds the interval's requests to the history, drops objects that are requested too rarely, and returns the others.
    fn end_interval(&mut self) -> Vec<Candidate> {
        let (seen, footprint) = (&mut self.seen, &mut self.footprint);
        let mut objects = Vec::new();
        self.known.retain(|object| {
            let seen = &mut seen[*object as usize];
            if seen.requests > 0.0 {
                let is_new = seen.past_requests == 0.0;
                let share = if is_new { 1.0 } else { 1.0 - DECAY };
                seen.past_requests = seen.past_requests * DECAY + share * seen.requests;
                (seen.past_size, seen.requests) = (seen.size, 0.0);
            } else {
                seen.past_requests *= DECAY;
            }
            let is_kept = seen.past_requests >= LEAST_REQUESTS;
            if is_kept {
                objects.push(Candidate { requests: seen.past_requests, size: seen.past_size.into() });
            } else {
                *footprint = footprint.saturating_sub(seen.past_size.into());
                *seen = Seen::default();
            }
            is_kept
        });
        objects
    }

    /// Sets c to the value with the best predicted hit ratio: the best of a coarse grid, refined by a golden-section search over log2(c).
    fn tune(&mut self, objects: &[Candidate]) {
        let rate = |log2_c: f64| predicted_hits(objects, log2_c, self.capacity_weight);
        let (mut low, mut high) = (0.0, self.capacity_weight.log2());
        let mut inner = high;
        let mut best = 0.0;
        let mut log2_c = 2.0;
        while log2_c < high {
            let hits = rate(log2_c);
            if hits > best {
                (best, inner) = (hits, log2_c);
            }
            log2_c += 4.0;
        }
        let (mut left, mut right) = (inner, inner);
        let (mut left_hits, mut right_hits) = (best, best);
        if high - inner > inner - low {
            right = inner + (1.0 - GOLDEN) * (high - inner);
            right_hits = rate(right);
        } else {
            left = low + (1.0 - GOLDEN) * (inner - low);
            left_hits = rate(left);
        }
        for _ in 0..SEARCH_STEPS {
            let is_narrow = (high - low).abs() <= TOLERANCE * (left.abs() + right.abs());
            if is_narrow || left_hits.is_nan() || right_hits.is_nan() {
                break;
            }
            if right_hits > left_hits {
                (low, left) = (left, right);
                right = GOLDEN * left + (1.0 - GOLDEN) * high;
                (left_hits, right_hits) = (right_hits, rate(right));
            } else {
                (high, right) = (right, left);
                left = GOLDEN * right + (1.0 - GOLDEN) * low;
                (right_hits, left_hits) = (left_hits, rate(left));
            }
        }
        if !left_hits.is_nan() && !right_hits.is_nan() {
            self.c = if left_hits > right_hits { left } else { right }.exp2();
        }
    }
}

/// Hits of an LRU cache behind the admission, per unit of time in which the objects have their requests.
///
/// An object stays in the cache for the characteristic time T after a request, so it is there with the probability that section 4.2 gives;
/// T is the value at which the objects fill the cache.
fn predicted_hits(objects: &[Candidate], log2_c: f64, capacity: f64) -> f64 {
    let c = log2_c.exp2();
    let admitted: Vec<f64> = objects.iter().map(|object| (-object.size / c).exp()).collect();
    let entering = objects.iter().zip(&admitted).map(|(object, p)| object.requests * p * object.size);
    let entering: f64 = entering.sum();
    if entering <= 0.0 {
        return 0.0;
    }
    let mut time = capacity / entering;
    for _ in 0..TIME_STEPS {
        if time > 1e70 {
            break;
        }
        let occupied =
            objects.iter().zip(&admitted).map(|(object, p)| object.size * presence(object, *p, time));
        time *= capacity / occupied.sum::<f64>();
    }
    let hits = objects.iter().zip(&admitted);
    hits.map(|(object, p)| object.requests * approximate_presence(object.requests, *p, time)).sum()
}

/// Probability that an object is in the cache: p (e^(rT) - 1) / (1 + p (e^(rT) - 1)).
fn presence(object: &Candidate, p: f64, time: f64) -> f64 {
    let exponent = object.requests * time;
    if exponent > 150.0 {
        return 1.0;
    }
    let odds = p * (exponent.exp() - 1.0);
    odds / (1.0 + odds)
}

/// Approximates [`presence`] by the authors' Padé approximation, which does not overflow.
fn approximate_presence(r: f64, p: f64, t: f64) -> f64 {
    let above = r * p * t * (840.0 + 60.0 * r * t + 20.0 * r * r * t * t + r * r * r * t * t * t);
    let below = 840.0
        + 120.0 * r * (-3.0 + 7.0 * p) * t
        + 60.0 * r * r * (1.0 + p) * t * t
        + 4.0 * r * r * r * (-1.0 + 5.0 * p) * t * t * t
        + r * r * r * r * p * t * t * t * t;
    if above != 0.0 && below == 0.0 {
        return 0.0;
    }
    // NaN stays NaN, so that the search ends.
    (above / below).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal objects are each in the cache with the probability that the cache has room for it, independent of c.
    #[test]
    fn equal_objects_hit_with_the_share_of_them_that_fits() {
        for (log2_c, share) in [(10.0, 0.1), (14.0, 0.1), (20.0, 0.3), (20.0, 0.05)] {
            let objects: Vec<_> = (0..1000).map(|_| Candidate { requests: 2.0, size: 1000.0 }).collect();
            let hits = predicted_hits(&objects, log2_c, 1_000_000.0 * share) / 2000.0;
            assert!((hits - share).abs() < 0.005 * share, "c 2^{log2_c}: {hits}, not {share}");
        }
    }

    /// Popular small objects that fit into the cache, and large objects that would displace them.
    #[test]
    fn tuning_rejects_large_rare_objects() {
        let mut rule = AdaptSize::new(1000, 100_000);
        for number in 0..20_000_u32 {
            let is_small = number % 2 == 0;
            let object = if is_small { number / 2 % 100 } else { 100 + number };
            let weight = if is_small { 500 } else { 50_000 };
            let times = Access { object, weight, now_seconds: 0, is_removal: false, is_set: false };
            rule.observe(&times);
        }
        assert!(rule.probability(500) > 0.5, "small objects: {}", rule.probability(500));
        assert!(rule.probability(50_000) < 0.01, "large objects: {}", rule.probability(50_000));
    }

    #[test]
    fn rule_does_not_tune_before_the_footprint_is_three_times_the_cache() {
        let mut rule = AdaptSize::new(10, 1_000_000);
        for object in 0..3000 {
            rule.observe(&Access { object, weight: 1000, now_seconds: 0, is_removal: false, is_set: false });
        }
        assert_eq!(rule.c, FIRST_C);
        for object in 3000..5000 {
            rule.observe(&Access { object, weight: 1000, now_seconds: 0, is_removal: false, is_set: false });
        }
        assert_ne!(rule.c, FIRST_C);
    }
}
