//! Limits the flash write rate: each candidate is admitted with a probability that is adjusted periodically, from the bytes that the
//! device wrote and the bytes that it may write.
//!
//! The policy of CacheLib's flash tier ("dynamic_random"). The budget is an average: bytes not written so far may be written within the
//! next day, up to a maximum rate. Larger candidates are less likely to be admitted, because hits are counted per entry and many small
//! entries fit where one large entry does.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::admission::coin::{Chance, Coin};
use crate::{Admission, Candidate};

const SECONDS_PER_DAY: f64 = 86_400.0;
const NS_PER_SECOND: f64 = 1e9;
const FACTOR_AT_LEAST: f64 = 0.001;
const FACTOR_AT_MOST: f64 = 10.0;

/// Target write rate and control parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DynamicRandomConfig {
    /// Average bytes per second that the device may write.
    pub target_bytes_per_second: u64,
    /// Maximum bytes per second while catching up.
    pub at_most_bytes_per_second: u64,
    /// Seconds between two adjustments of the probability.
    pub interval_seconds: u32,
    /// Initial probability factor.
    pub first_factor: f64,
    /// The size whose probability is not scaled.
    pub base_size_bytes: u64,
    /// Influence of the size: 0 is none, 1 is proportional to its logarithm.
    pub size_decay: f64,
    /// Largest relative change of the factor per adjustment.
    pub change_at_most: f64,
    /// Source of random decisions.
    pub chance: Chance,
}

impl DynamicRandomConfig {
    /// The usual settings for a rate.
    #[must_use]
    pub fn new(target_bytes_per_second: u64) -> Self {
        Self {
            target_bytes_per_second,
            at_most_bytes_per_second: (160 << 20).max(target_bytes_per_second),
            interval_seconds: 60,
            first_factor: 1.0,
            base_size_bytes: 4096,
            size_decay: 0.3,
            change_at_most: 0.25,
            chance: Chance::default(),
        }
    }
}

/// The controller.
pub struct DynamicRandom {
    config: DynamicRandomConfig,
    /// Base probability by the number of bits in the size.
    by_size: [f64; 65],
    /// Bits of the `f64` factor, read by every decision.
    factor: AtomicU64,
    written: Mutex<Option<Written>>,
    coin: Coin,
}

/// Measured device writes.
#[derive(Clone, Copy)]
struct Written {
    first_bytes: u64,
    first_ns: u64,
    last_bytes: u64,
    last_ns: u64,
}

impl DynamicRandom {
    /// A controller without history.
    ///
    /// # Panics
    /// If the target, the interval, the base size or the first factor is 0, or if a share is not between 0 and 1.
    #[must_use]
    pub fn new(config: DynamicRandomConfig) -> Self {
        assert!(config.target_bytes_per_second > 0, "the write-rate target must be above 0 bytes/s");
        assert!(config.interval_seconds > 0, "the write rate must be measured over more than 0 s");
        assert!(config.base_size_bytes > 0, "the base size must be above 0 bytes");
        assert!(config.first_factor > 0.0, "the first probability factor must be above 0");
        assert!((0.0..=1.0).contains(&config.size_decay), "size decay {} is not in 0..=1", config.size_decay);
        let change = config.change_at_most;
        assert!(change > 0.0 && change < 1.0, "the largest change {change} is not between 0 and 1");
        Self {
            config,
            by_size: std::array::from_fn(|bits| base_probability(&config, bits as u32)),
            factor: AtomicU64::new(config.first_factor.to_bits()),
            written: Mutex::new(None),
            coin: Coin::new(config.chance),
        }
    }

    /// The current factor of the base probabilities.
    #[must_use]
    pub fn factor(&self) -> f64 {
        f64::from_bits(self.factor.load(Ordering::Relaxed))
    }

    /// The current probability of admission for this size.
    #[must_use]
    pub fn probability(&self, size_bytes: u64) -> f64 {
        (self.by_size[bits(size_bytes) as usize] * self.factor()).clamp(0.0, 1.0)
    }

    fn adjust(&self, written: &Written, now_bytes: u64, now_ns: u64) {
        let seconds = (now_ns - written.last_ns) as f64 / NS_PER_SECOND;
        let observed_rate = now_bytes.saturating_sub(written.last_bytes) as f64 / seconds;
        if observed_rate == 0.0 {
            return; // Nothing was written, so the effect of the probability on the rate is unknown.
        }
        let elapsed_seconds = (now_ns - written.first_ns) as f64 / NS_PER_SECOND;
        let allowed_by_tomorrow =
            self.config.target_bytes_per_second as f64 * (elapsed_seconds + SECONDS_PER_DAY);
        let so_far = now_bytes.saturating_sub(written.first_bytes) as f64;
        let wanted_rate = ((allowed_by_tomorrow - so_far) / SECONDS_PER_DAY)
            .clamp(0.0, self.config.at_most_bytes_per_second as f64);
        let change_at_most = self.config.change_at_most;
        let change = (wanted_rate / observed_rate).clamp(1.0 - change_at_most, 1.0 + change_at_most);
        let factor = (self.factor() * change).clamp(FACTOR_AT_LEAST, FACTOR_AT_MOST);
        self.factor.store(factor.to_bits(), Ordering::Relaxed);
    }
}

impl Admission for DynamicRandom {
    fn admit(&self, candidate: &Candidate, _now_ns: u64) -> bool {
        self.coin.toss(candidate.hash, self.probability(candidate.size_bytes))
    }

    fn observe(&self, written_bytes: u64, now_ns: u64) {
        let mut seen = self.written.lock();
        let Some(written) = &mut *seen else {
            *seen = Some(Written {
                first_bytes: written_bytes,
                first_ns: now_ns,
                last_bytes: written_bytes,
                last_ns: now_ns,
            });
            return;
        };
        let interval_ns = u64::from(self.config.interval_seconds) * NS_PER_SECOND as u64;
        if now_ns.saturating_sub(written.last_ns) >= interval_ns {
            self.adjust(written, written_bytes, now_ns);
            written.last_bytes = written_bytes;
            written.last_ns = now_ns;
        }
    }

    fn name(&self) -> &'static str {
        "dynamic-random"
    }
}

fn bits(size_bytes: u64) -> u32 {
    u64::BITS - size_bytes.leading_zeros()
}

/// 1 for the base size, less for larger sizes. Sizes are compared by their highest set bit.
fn base_probability(config: &DynamicRandomConfig, size_bits: u32) -> f64 {
    (f64::from(bits(config.base_size_bytes)) / f64::from(size_bits.max(1))).powf(config.size_decay)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn candidate(hash: u64, size_bytes: u64) -> Candidate {
        Candidate { hash, size_bytes, ttl_seconds: None, idle_seconds: 0 }
    }

    #[test]
    fn base_size_is_admitted_at_first_and_larger_ones_less() {
        let policy = DynamicRandom::new(DynamicRandomConfig::new(1 << 20));
        assert_eq!(policy.probability(4096), 1.0);
        assert_eq!(policy.probability(100), 1.0);
        // 13 bits compared with 17: (13 / 17)^0.3.
        assert!((policy.probability(1 << 16) - 0.922_674).abs() < 1e-6, "{}", policy.probability(1 << 16));
        let even = DynamicRandom::new(DynamicRandomConfig { size_decay: 0.0, ..DynamicRandomConfig::new(1) });
        assert_eq!(even.probability(1 << 30), 1.0);
        assert_eq!(even.probability(0), 1.0);
    }

    #[test]
    fn factor_changes_by_at_most_a_quarter_per_interval() {
        let policy = DynamicRandom::new(DynamicRandomConfig::new(1_000_000));
        policy.observe(0, 0);
        policy.observe(u64::MAX / 2, 59 * SECOND_NS);
        assert_eq!(policy.factor(), 1.0, "the interval is not over");
        policy.observe(60 * 4_000_000, 60 * SECOND_NS);
        assert_eq!(policy.factor(), 0.75, "four times the target was written");
        policy.observe(60 * 4_000_000, 120 * SECOND_NS);
        assert_eq!(policy.factor(), 0.75, "nothing was written");
        policy.observe(60 * 4_000_000 + 60_000, 180 * SECOND_NS);
        assert_eq!(policy.factor(), 0.75 * 1.25, "a thousandth of the target was written");
    }

    #[test]
    fn factor_stays_within_its_bounds() {
        let policy = DynamicRandom::new(DynamicRandomConfig::new(1_000_000));
        for minute in 0..100 {
            policy.observe(minute * 60_000, minute * 60 * SECOND_NS);
        }
        assert_eq!(policy.factor(), 10.0);
        for minute in 100..200 {
            policy.observe(6_000_000 + (minute - 99) * (60 << 30), minute * 60 * SECOND_NS);
        }
        assert_eq!(policy.factor(), 0.001);
    }

    #[test]
    fn sustained_overload_is_reduced_to_the_target_rate() {
        let target = 1_000_000;
        let policy = DynamicRandom::new(DynamicRandomConfig::new(target));
        let mut written = 5_000_000_000; // before the cache was opened: does not count
        let mut rate_of_last_hour = 0;
        for second in 0..86_400_u64 {
            let before = written;
            for offered in 0..100 {
                let size_bytes = 100_000;
                if policy.admit(&candidate(second * 100 + offered, size_bytes), second * SECOND_NS) {
                    written += size_bytes;
                }
            }
            policy.observe(written, second * SECOND_NS);
            rate_of_last_hour += if second >= 82_800 { written - before } else { 0 };
        }
        let rate = rate_of_last_hour as f64 / 3600.0;
        assert!((rate / target as f64 - 1.0).abs() < 0.1, "{rate} bytes/s in the last hour");
    }
}
