//! Simulates hit ratios of policies at several cache sizes over a trace, without an engine or device.
//!
//! A [`Plan`] lists the policies and sizes. The trace is read once: [`numbered`] assigns numbers to keys and makes batches,
//! which [`parallel`] runs through all simulations concurrently. If the footprint or next uses must be known in advance, the trace
//! is first written to a temporary file ([`spool`]). [`policies`] is the table of names; [`report`] formats the results.

/// The methods of [`Simulator`](policy::simulate::Simulator) that a wrapper passes on unchanged.
macro_rules! forward_simulator {
    ($field:ident) => {
        fn counts(&self) -> policy::simulate::Counts {
            self.$field.counts()
        }

        fn holds(&self, object: u32) -> bool {
            self.$field.holds(object)
        }

        fn expire(&mut self, object: u32) {
            self.$field.expire(object);
        }

        fn needs_future(&self) -> bool {
            self.$field.needs_future()
        }
    };
}
pub(crate) use forward_simulator;

mod batch;
mod curve;
mod custom;
mod designs;
mod lifetimes;
pub(crate) mod numbered;
pub(crate) mod parallel;
pub mod plot;
pub mod policies;
mod regions;
pub mod report;
mod sample;
mod series;
mod shard;
pub(crate) mod spool;
pub mod tenants;
mod warmup;

use std::io;

use policy::UnknownName;
use policy::simulate::Counts;
use workload::trace::{Accesses, ReadReport, TraceError};

pub(crate) use batch::{BATCH_ACCESSES, Batch, Batches};
pub use custom::{CustomPolicy, NameError};
pub use designs::{Design, FlashSettings};
pub use numbered::Totals;
pub use policies::Named;
pub use policy::simulate::{RuleBook, Settings, SimulatedAdmission, SizeOnHit};
pub use series::{Interval as SeriesInterval, Point};
pub use shard::Shard;
pub use tenants::{Tenant, TenantCounts, TenantGroup};
pub use warmup::Warmup;

use crate::run::stop::Stop;
use curve::Job;
use device::names::noun;
use numbered::Numbered;
use shard::ShardAccesses;
use spool::Spool;

/// Settings of a simulation.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Policies. A name that is given twice is simulated once; aliases have separate rows.
    pub policies: Vec<Named>,
    /// Cache sizes. Equal sizes are simulated once.
    pub sizes: Vec<Size>,
    /// Rules for all policies.
    pub settings: Settings,
    /// Settings of flash caches.
    pub flash: FlashSettings,
    /// Warm-up, which the figures exclude.
    pub warmup: Warmup,
    /// Length of the intervals whose hits are reported; `None` reports none.
    pub series: Option<SeriesInterval>,
    /// Whether each object keeps the size of its first request.
    pub first_size: bool,
    /// Whether every object has weight 1. [`Size::Bytes`] and all byte counts are then numbers of objects.
    pub ignore_size: bool,
    /// Whether TTLs of the trace are ignored.
    pub ignore_ttl: bool,
    /// Share of the objects to simulate, in addition to the most popular ones; `None` is all.
    pub sample: Option<f64>,
    /// Number of tenants to report by name; `None` does not distinguish tenants.
    pub tenants: Option<usize>,
    /// The share of the objects and of the sizes to simulate; `None` is all.
    pub shard: Option<Shard>,
    /// Number of threads.
    pub threads: usize,
}

/// Size of a cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// Share of the trace's footprint: the total size of all objects, each with the size of its first request.
    Footprint(f64),
}

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
    fn of(named: &Named, size_bytes: u64, counts: Counts) -> Self {
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
    /// Only a few sampled objects, at the weight of all objects that they represent, fit in the cache.
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
    /// Of the object hit ratio.
    pub object_hit_ratio: (f64, f64),
    /// Of the byte hit ratio.
    pub byte_hit_ratio: (f64, f64),
}

/// Error of a simulation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Unknown policy name.
    #[error(transparent)]
    Policy(#[from] UnknownName),
    /// The temporary file that holds the trace.
    #[error("the temporary file in {}: {source} (set TMPDIR to use another directory)", folder.display())]
    Spool {
        /// Directory of the file.
        folder: std::path::PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The sampling rate is out of range.
    #[error("a sample of {percent} %: must be above 0 and below 100 %")]
    NoSample {
        /// The rate.
        percent: f64,
    },
    /// The sample has no drawn object.
    #[error("a sample of {percent} % drew none of {of} objects: take a larger share, or all")]
    NoneDrawn {
        /// The rate.
        percent: f64,
        /// Number of objects that could have been drawn.
        of: u64,
    },
    /// Stopped before any request was counted.
    #[error("interrupted: nothing was counted yet")]
    Interrupted,
    /// The warm-up covers all requests.
    #[error("all {requests} requests are warm-up, and none is left to count: lower --warmup")]
    AllWarmup {
        /// Requests of the trace.
        requests: u64,
    },
    /// Flash caches evict blocks or sets, which a sample of objects does not fill.
    #[error("{name} moves many objects at a time and cannot be sampled: leave out --sample")]
    NotSampled {
        /// Name of the policy.
        name: String,
    },
    /// The error of an estimate depends on the policy, and that of a custom policy is not known.
    #[error("{name} is not a built-in policy and cannot be sampled: leave out --sample")]
    CustomNotSampled {
        /// Name of the policy.
        name: String,
    },
    /// A sample does not represent single tenants.
    #[error("--by-tenant cannot be combined with --sample")]
    NoTenantsInSample,
    /// A flash cache needs object sizes.
    #[error("{name} has blocks or sets of bytes, and cannot ignore the sizes of objects")]
    NeedsSizes {
        /// Name of the policy.
        name: String,
    },
    /// No object fits in any of the caches.
    #[error(
        "no object fits into {size_bytes} {}: the smallest has {smallest_bytes}; a size is in bytes, and {size_bytes}obj is a cache of so \
         many objects", noun(*size_bytes, "byte")
    )]
    NothingFits {
        /// Size of the largest cache.
        size_bytes: u64,
        /// Size of the smallest object.
        smallest_bytes: u64,
    },
    /// A warm-up by time needs a count that is not known in advance.
    #[error("--warmup: a time cannot be combined with {flag}; give a number of requests or a percentage")]
    NoTimedWarmup {
        /// The other flag.
        flag: &'static str,
    },
    /// A length of time was given for a trace without times.
    #[error("{flag}: the trace has no times; give a number of requests instead")]
    NoTimes {
        /// The flag with the time.
        flag: &'static str,
    },
    /// The trace is empty.
    #[error("the trace has no requests")]
    Empty,
    /// A share of the footprint is less than one byte.
    #[error("a cache of {percent} % of the footprint ({footprint_bytes} {}) is less than one byte", noun(*footprint_bytes, "byte"))]
    NoByte {
        /// The share.
        percent: f64,
        /// The footprint.
        footprint_bytes: u64,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// Runs the simulations of `plan` over `trace`. `progress` receives the number of completed requests, and the total if it is known.
///
/// # Errors
/// The trace cannot be read, the settings are invalid, or a temporary file or thread cannot be created.
pub fn run(
    plan: &Plan,
    trace: Box<dyn Accesses>,
    stop: &Stop,
    mut progress: impl FnMut(u64, Option<u64>),
) -> Result<Outcome, SimulateError> {
    if let Some(flash) = plan.policies.iter().find(|named| plan.ignore_size && named.is_flash()) {
        return Err(SimulateError::NeedsSizes { name: flash.to_string() });
    }
    let trace = match plan.shard {
        Some(shard) => Box::new(ShardAccesses::new(trace, shard)),
        None => trace,
    };
    let mut numbered = Numbered::new(trace, plan.first_size)
        .with_unit_sizes(plan.ignore_size)
        .with_tenants(plan.tenants.is_some())
        .with_ttls(!plan.ignore_ttl);
    if plan.tenants.is_some() && matches!(plan.warmup, Warmup::Seconds(_)) {
        return Err(SimulateError::NoTimedWarmup { flag: "--by-tenant" });
    }
    let outcome = match plan.sample {
        Some(_) if plan.tenants.is_some() => return Err(SimulateError::NoTenantsInSample),
        Some(rate) => sample::run(plan, rate, &mut numbered, stop, progress),
        None => run_all(plan, &mut numbered, stop, &mut progress),
    };
    let outcome = match outcome {
        // A trace that was not read may not be empty.
        Err(SimulateError::Empty) if stop.is_set() => return Err(SimulateError::Interrupted),
        other => other?,
    };
    if let Some(flag) = plan.flag_with_time().filter(|_| !outcome.read.has_time) {
        return Err(SimulateError::NoTimes { flag });
    }
    let counted = outcome.rows.first().map_or(0, |row| row.counts.requests);
    match outcome.totals.requests {
        _ if counted == 0 && outcome.was_stopped => Err(SimulateError::Interrupted),
        0 => Err(SimulateError::Empty),
        requests if counted == 0 => Err(SimulateError::AllWarmup { requests }),
        _ => match outcome.nothing_fits() {
            Some(error) => Err(error),
            None => Ok(outcome),
        },
    }
}

impl Outcome {
    /// Returns an error if every cache is smaller than the smallest object.
    fn nothing_fits(&self) -> Option<SimulateError> {
        let size_bytes = self.rows.iter().map(|row| row.size_bytes).max()?;
        let smallest_bytes = self.totals.smallest_bytes?;
        // Object sizes may change: a smaller object may follow.
        let none_fits = size_bytes < smallest_bytes && self.rows.iter().all(|row| row.counts.hits == 0);
        none_fits.then_some(SimulateError::NothingFits { size_bytes, smallest_bytes })
    }

    /// Rows without any insert or hit, for example because no object fits.
    pub fn empty_rows(&self) -> impl Iterator<Item = &Row> {
        let is_counted = self.sampled.is_none();
        self.rows.iter().filter(move |row| is_counted && row.counts.inserts == 0 && row.counts.hits == 0)
    }
}

fn run_all(
    plan: &Plan,
    numbered: &mut Numbered,
    stop: &Stop,
    progress: &mut impl FnMut(u64, Option<u64>),
) -> Result<Outcome, SimulateError> {
    let needs_future = plan.needs_future();
    let needs_footprint = plan.sizes.iter().any(|size| matches!(size, Size::Footprint(_)));
    // Counts by tenant need the length of the warm-up in advance.
    let needs_length = plan.tenants.is_some() && plan.warmup.is_share();
    let tasks = if needs_future || needs_footprint || needs_length {
        let mut spool = Spool::of(numbered, needs_future, stop, |done| progress(done, None))?;
        if numbered.totals().requests == 0 {
            return Err(SimulateError::Empty);
        }
        let total = numbered.totals().accesses;
        let known = plan.tenants.map(|_| Plan { warmup: plan.warmup.of(total), ..plan.clone() });
        let plan = known.as_ref().unwrap_or(plan);
        let tasks = jobs(plan, Some(numbered.totals().footprint_bytes))?;
        parallel::run(&mut spool, tasks, plan.threads, stop, |done| progress(done, Some(total)))?
    } else {
        let tasks = jobs(plan, None)?;
        parallel::run(numbered, tasks, plan.threads, stop, |done| progress(done, None))?
    };
    let warmup_requests = tasks.first().map_or(0, Job::warmup_requests);
    let (rows, tallies): (Vec<_>, Vec<_>) = tasks.into_iter().flat_map(Job::into_rows_and_tallies).unzip();
    let tallies: Vec<_> = tallies.into_iter().flatten().collect();
    Ok(Outcome {
        warmup_requests,
        rows,
        totals: numbered.totals(),
        sampled: None,
        tenants: tenants::by_requests(&tallies, &numbered.tenants().all(), plan.tenants.unwrap_or(0)),
        read: numbered.report().clone(),
        ignored_size: plan.ignore_size,
        ignored_ttl: plan.ignore_ttl,
        was_stopped: stop.is_set(),
    })
}

impl Plan {
    /// Caches whose blocks are smaller than requested, since a cache needs several: policy, cache size and block size.
    #[must_use]
    pub fn smaller_blocks(&self, rows: &[Row]) -> Vec<(String, u64, u64)> {
        let Some(requested_bytes) = self.flash.block_bytes else { return Vec::new() };
        let of = |named: &Named, row: &Row| {
            let used_bytes =
                named.block_bytes(row.size_bytes, requested_bytes).filter(|used| *used < requested_bytes)?;
            Some((row.policy.clone(), row.size_bytes, used_bytes))
        };
        let policies = || self.different_policies();
        let named = |row: &Row| policies().find(|named| named.to_string() == row.policy);
        rows.iter().filter_map(|row| of(named(row)?, row)).collect()
    }

    /// A flag that was given a length of time.
    fn flag_with_time(&self) -> Option<&'static str> {
        match (self.warmup, self.series) {
            (Warmup::Seconds(_), _) => Some("--warmup"),
            (_, Some(SeriesInterval::Seconds(_))) => Some("--interval"),
            _ => None,
        }
    }

    fn needs_future(&self) -> bool {
        self.policies.iter().any(Named::needs_future)
    }

    /// The policies without duplicates.
    fn different_policies(&self) -> impl Iterator<Item = &Named> {
        let is_first = |(place, named): &(usize, &Named)| {
            !self.policies[..*place].iter().any(|it| it.is_asked_as(named))
        };
        self.policies.iter().enumerate().filter(is_first).map(|(_, named)| named)
    }
}

/// Sizes in bytes without duplicates: shares of a small footprint may be equal.
fn sizes_bytes(plan: &Plan, footprint_bytes: u64) -> Result<Vec<u64>, SimulateError> {
    let mut all = Vec::new();
    for size in &plan.sizes {
        let bytes = match (size, plan.shard) {
            (Size::Bytes(bytes), Some(shard)) => shard.of_size(*bytes),
            // The footprint is that of the shard's objects.
            _ => size.bytes(footprint_bytes)?,
        };
        if !all.contains(&bytes) {
            all.push(bytes);
        }
    }
    Ok(all)
}

/// An empty cache for each policy and size.
fn jobs(plan: &Plan, footprint_bytes: Option<u64>) -> Result<Vec<Job>, SimulateError> {
    let sizes = sizes_bytes(plan, footprint_bytes.unwrap_or(0))?;
    Ok(plan.different_policies().flat_map(|named| Job::of(named, &sizes, plan)).collect())
}

impl Size {
    /// Size in bytes for this footprint, rounded down.
    fn bytes(self, footprint_bytes: u64) -> Result<u64, SimulateError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Footprint(share) => match (footprint_bytes as f64 * share) as u64 {
                0 => Err(SimulateError::NoByte { percent: share * 100.0, footprint_bytes }),
                bytes => Ok(bytes),
            },
        }
    }
}
