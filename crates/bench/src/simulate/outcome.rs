//! Results of a simulation.

use policy::simulate::Counts;
use workload::trace::ReadReport;

use super::numbered::Totals;
use super::policies::Named;
use super::series::Point;
use super::tenants::Tenant;

/// Results of a simulation.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// One row for each policy and size, grouped by policy.
    pub rows: Vec<Row>,
    /// Totals of the trace.
    pub totals: Totals,
    /// Warm-up requests, which were not counted.
    pub warmup_requests: u64,
    /// The objects of the sample; `None` if all were simulated.
    pub sampled: Option<Sampled>,
    /// Tenants, those with the most requests first; empty if not requested or if the trace has none.
    pub tenants: Vec<Tenant>,
    /// Report of the trace reader.
    pub read: ReadReport,
    /// Whether every object had weight 1: sizes and bytes are numbers of objects.
    pub ignored_size: bool,
    /// Whether TTLs were ignored.
    pub ignored_ttl: bool,
    /// Whether the simulation was stopped early: counts cover the requests until then.
    pub was_stopped: bool,
}

/// Result of a policy at a size.
#[derive(Debug, Clone)]
pub struct Row {
    /// Canonical name of the policy.
    pub policy: String,
    /// Name as given, which may be an alias.
    pub as_given: String,
    /// Cache size in bytes.
    pub size_bytes: u64,
    /// Counts after the warm-up.
    pub counts: Counts,
    /// Whether it models a flash cache, whose writes are counted.
    pub is_flash: bool,
    /// Counts over time, warm-up included; empty if not requested.
    pub series: Vec<Point>,
    /// Confidence interval of an estimate, if known.
    pub interval: Option<Interval>,
    /// Reason why the interval of an estimate is not known.
    pub doubt: Option<SampleWarning>,
}

impl Row {
    pub(super) fn of(named: &Named, size_bytes: u64, counts: Counts) -> Self {
        Self {
            policy: named.to_string(),
            as_given: named.as_given().to_owned(),
            size_bytes,
            counts,
            is_flash: named.is_flash(),
            series: Vec::new(),
            interval: None,
            doubt: None,
        }
    }

    /// Canonical name, with the alias if one was given.
    #[must_use]
    pub fn label(&self) -> String {
        let plain = |name: &str| name.replace(['-', '_'], "");
        if plain(&self.policy) == plain(&self.as_given) {
            self.policy.clone()
        } else {
            format!("{} ({})", self.policy, self.as_given)
        }
    }

    /// Whether both rows have the same name as given.
    #[must_use]
    pub fn has_policy_of(&self, other: &Self) -> bool {
        self.policy == other.policy && self.as_given == other.as_given
    }
}

/// Reason why the error of a sample is not known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SampleWarning {
    /// New objects wait in a part of the cache that is too small for the weight of sampled objects.
    FewWait {
        /// Size of the part, in percent.
        percent: u8,
        /// Number of sampled objects that fit in that part.
        objects: f64,
        /// Sampling rate that suffices; 1 or more means that no sample suffices.
        rate: f64,
    },
    /// Each sampled object has the weight of all objects that it represents, and only a few such objects fit in the cache.
    Coarse {
        /// Number of sampled objects that fit, weighted by their bytes.
        objects: f64,
        /// Sampling rate that suffices; 1 or more means that no sample suffices.
        rate: f64,
    },
    /// The policy values objects by size, and a sampled object has the weight of all that it represents.
    BySize,
    /// The hit ratio jumps between similar cache sizes, at different sizes in a sample than for all objects.
    Erratic,
}

/// Numbers of objects in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// Objects that are always simulated: those with the most requests or bytes.
    pub hot_objects: u64,
    /// Objects drawn from the rest.
    pub drawn_objects: u64,
    /// Size of the rest; 0 if the sample has all objects.
    pub other_objects: u64,
}

/// 95 % confidence intervals of ratios that were estimated from a sample: low and high.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Interval of the object hit ratio.
    pub object_hit_ratio: (f64, f64),
    /// Interval of the byte hit ratio.
    pub byte_hit_ratio: (f64, f64),
}
