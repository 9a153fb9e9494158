//! Hit ratios of policies at sizes over a trace: no engine, no device.
//!
//! A [`Plan`] says what to simulate. The trace is read once: keys are numbered and requests made up into batches
//! ([`numbered`]), which all simulations run over at the same time ([`crew`]). Where something must be known of the whole
//! trace before (its footprint, next uses) it is surveyed and laid down in a temporary file first ([`spool`]).
//! [`policies`] is the table of names; [`report`] says what came of it.

mod batch;
pub(crate) mod crew;
mod designs;
mod lifetimes;
pub(crate) mod numbered;
pub mod plot;
pub mod policies;
mod regions;
pub mod report;
mod sample;
pub(crate) mod spool;
pub mod tenants;
mod warmup;

use std::io;

use policy::UnknownName;
use policy::simulate::Counts;
use workload::trace::{Accesses, ReadReport, TraceError};

pub(crate) use batch::{BATCH_ACCESSES, Batch, Batches};
pub use designs::{Design, FlashSettings};
pub use numbered::Totals;
pub use policies::Named;
pub use policy::simulate::{RuleBook, Settings, SizeOnHit};
pub use tenants::{Tenant, TenantCounts, Who};
pub use warmup::Warmup;

use crate::report::text::noun;
use crate::run::stop::Stop;
use crew::Seat;
use numbered::Numbered;
use spool::Spool;

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The policies. One whose name is typed twice is simulated once; each alias has rows of its own.
    pub policies: Vec<Named>,
    /// The sizes that each is simulated at. Those that are the same bytes are one.
    pub sizes: Vec<Size>,
    /// Rules that are common to all.
    pub settings: Settings,
    /// What the flash caches are made of.
    pub flash: FlashSettings,
    /// What is left out at the beginning.
    pub warmup: Warmup,
    /// Every object has the size of its first request for ever.
    pub first_size: bool,
    /// Every object weighs 1 instead of its size. [`Size::Bytes`] and all counts of bytes are then numbers of objects.
    pub ignore_size: bool,
    /// Objects live for ever, whatever the trace says.
    pub ignore_ttl: bool,
    /// Simulate this share of the objects only, and those asked for most; `None` is all.
    pub sample: Option<f64>,
    /// Tell tenants apart, so many by name; `None` does not.
    pub tenants: Option<usize>,
    /// Threads that simulate.
    pub threads: usize,
}

/// How large a cache is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// A share of the trace's footprint: of the bytes that all its objects take together, each as large as at first.
    Footprint(f64),
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// One a policy and size, policies first.
    pub rows: Vec<Row>,
    /// What is in the trace.
    pub totals: Totals,
    /// Requests that warmed up and were not counted.
    pub warmup_requests: u64,
    /// Which objects stood for all; `None` where all were simulated.
    pub sampled: Option<Sampled>,
    /// Who made the requests, those with the most first; empty where nobody asked or the trace does not tell.
    pub tenants: Vec<Tenant>,
    /// How reading went.
    pub read: ReadReport,
    /// Every object weighed 1: sizes and bytes are numbers of objects.
    pub ignored_size: bool,
    /// Nothing expired, as was asked for.
    pub ignored_ttl: bool,
    /// Somebody stopped it early: the counts are of what was seen until then.
    pub was_stopped: bool,
}

/// A policy at a size.
#[derive(Debug, Clone)]
pub struct Row {
    /// The policy's canonical name.
    pub policy: String,
    /// The name that was typed, which may be an alias.
    pub asked: String,
    /// Bytes of the cache.
    pub size_bytes: u64,
    /// Counts after warming up.
    pub counts: Counts,
    /// It is a model of a flash cache: what it wrote was counted.
    pub is_flash: bool,
    /// Where the ratios are estimates, and it is known how good they are.
    pub interval: Option<Interval>,
    /// Why that is not known of a policy that treats a sample otherwise than the whole.
    pub doubt: Option<Doubt>,
}

impl Row {
    /// The canonical name, and the alias if one was typed.
    #[must_use]
    pub fn label(&self) -> String {
        let plain = |name: &str| name.replace(['-', '_'], "");
        if plain(&self.policy) == plain(&self.asked) {
            self.policy.clone()
        } else {
            format!("{} ({})", self.policy, self.asked)
        }
    }

    /// Whether both rows are for the same name as typed.
    #[must_use]
    pub fn has_policy_of(&self, other: &Self) -> bool {
        self.policy == other.policy && self.asked == other.asked
    }
}

/// Why nobody knows how far a sample's ratios are off, however many objects it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Doubt {
    /// Newcomers wait in a part of the cache that is too small for objects that stand for many.
    FewWait {
        /// The part, in percent.
        percent: u8,
        /// Objects of the sample for which it has room.
        objects: f64,
        /// The sample that would do; none smaller than all does where this is 1 or more.
        rate: f64,
    },
    /// The cache has room for a few of the drawn objects only, each as large as all that it stands for.
    Coarse {
        /// For how many, weighed by their bytes.
        objects: f64,
        /// The sample that would do; none smaller than all does where this is 1 or more.
        rate: f64,
    },
    /// The policy values objects by their size, and a drawn one is as large as all that it stands for.
    BySize,
    /// The ratio of all objects jumps between neighbouring sizes, and that of a sample jumps elsewhere.
    Erratic,
}

/// Which objects stood for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// Those asked for most and those with the most bytes, which are always simulated.
    pub hot_objects: u64,
    /// Those drawn from the others.
    pub drawn_objects: u64,
    /// How many the others are; 0 is a sample that was everything.
    pub other_objects: u64,
}

/// Where ratios lie that were estimated from a sample, in 19 of 20 samples: low and high.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Of hits over requests.
    pub object_hit_ratio: (f64, f64),
    /// Of bytes.
    pub byte_hit_ratio: (f64, f64),
}

/// Why nothing was simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A name that is no policy's.
    #[error(transparent)]
    Policy(#[from] UnknownName),
    /// The temporary file that holds what must be read twice.
    #[error("the temporary file in {}: {source} (set TMPDIR to use another directory)", folder.display())]
    Spool {
        /// Where it is.
        folder: std::path::PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// What is no share of the objects.
    #[error("a sample of {percent} %: must be above 0 and below 100 %")]
    NoSample {
        /// The share.
        percent: f64,
    },
    /// A sample without a single object that was drawn.
    #[error("a sample of {percent} % drew none of {of} objects: take a larger share, or all")]
    NoneDrawn {
        /// The share.
        percent: f64,
        /// Objects that could have been drawn.
        of: u64,
    },
    /// Somebody stopped it before anything was counted.
    #[error("interrupted: nothing was counted yet")]
    Interrupted,
    /// Nothing is left when all is warm.
    #[error("all {requests} requests are warm-up, and none is left to count: lower --warmup")]
    AllWarmup {
        /// What the trace has.
        requests: u64,
    },
    /// Flash caches hold blocks and sets, of which a sample of the objects has none.
    #[error("{name} moves many objects at a time and cannot be sampled: leave out --sample")]
    NotSampled {
        /// The policy.
        name: String,
    },
    /// A sample of the objects is none of the tenants.
    #[error("--by-tenant cannot be combined with --sample")]
    NoTenantsInSample,
    /// A flash cache without sizes.
    #[error("{name} has blocks or sets of bytes, and cannot ignore the sizes of objects")]
    NeedsSizes {
        /// The policy.
        name: String,
    },
    /// No cache has room for any object.
    #[error(
        "no object fits into {size_bytes} {}: the smallest has {smallest_bytes}; a size is in bytes, and {size_bytes}obj is a cache of so \
         many objects", noun(*size_bytes, "byte")
    )]
    NothingFits {
        /// The largest cache.
        size_bytes: u64,
        /// The smallest object.
        smallest_bytes: u64,
    },
    /// There is nothing in the trace.
    #[error("the trace has no requests")]
    Empty,
    /// A share of the footprint that is less than a byte.
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

/// Simulates what is planned over `trace`. `progress` is told how many requests were made, of how many where that is known.
///
/// # Errors
/// The trace cannot be read, or the machine lacks what it takes.
pub fn run(
    plan: &Plan,
    trace: Box<dyn Accesses>,
    stop: &Stop,
    mut progress: impl FnMut(u64, Option<u64>),
) -> Result<Outcome, SimulateError> {
    if let Some(flash) = plan.policies.iter().find(|named| plan.ignore_size && named.is_flash()) {
        return Err(SimulateError::NeedsSizes { name: flash.to_string() });
    }
    let mut numbered = Numbered::new(trace, plan.first_size)
        .with_unit_sizes(plan.ignore_size)
        .with_tenants(plan.tenants.is_some())
        .with_ttls(!plan.ignore_ttl);
    let outcome = match plan.sample {
        Some(_) if plan.tenants.is_some() => return Err(SimulateError::NoTenantsInSample),
        Some(rate) => sample::run(plan, rate, &mut numbered, stop, progress),
        None => run_all(plan, &mut numbered, stop, &mut progress),
    };
    let outcome = match outcome {
        // Of a trace that has not been read nothing is known, not even that it is empty.
        Err(SimulateError::Empty) if stop.is_set() => return Err(SimulateError::Interrupted),
        other => other?,
    };
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
    /// The error if every cache is smaller than the smallest object.
    fn nothing_fits(&self) -> Option<SimulateError> {
        let size_bytes = self.rows.iter().map(|row| row.size_bytes).max()?;
        let smallest_bytes = self.totals.smallest_bytes?;
        // A trace whose sizes change may have a smaller object later.
        let none_fits = size_bytes < smallest_bytes && self.rows.iter().all(|row| row.counts.hits == 0);
        none_fits.then_some(SimulateError::NothingFits { size_bytes, smallest_bytes })
    }

    /// Rows whose policy admitted nothing at their size although others may have.
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
    // Which requests of a tenant are to be counted must be known when they are made.
    let needs_length = plan.tenants.is_some() && plan.warmup.is_share();
    let seats = if needs_future || needs_footprint || needs_length {
        let mut spool = Spool::of(numbered, needs_future, stop, |done| progress(done, None))?;
        if numbered.totals().requests == 0 {
            return Err(SimulateError::Empty);
        }
        let total = numbered.totals().accesses;
        let known = plan.tenants.map(|_| Plan { warmup: plan.warmup.of(total), ..plan.clone() });
        let plan = known.as_ref().unwrap_or(plan);
        let seats = seats(plan, Some(numbered.totals().footprint_bytes))?;
        crew::run(&mut spool, seats, plan.threads, stop, |done| progress(done, Some(total)))?
    } else {
        let seats = seats(plan, None)?;
        crew::run(numbered, seats, plan.threads, stop, |done| progress(done, None))?
    };
    let warmup_requests = seats.first().map_or(0, Seat::warmup_requests);
    let (rows, tallies): (Vec<_>, Vec<_>) = seats.into_iter().map(Seat::into_row_and_tally).unzip();
    let tallies: Vec<_> = tallies.into_iter().flatten().collect();
    Ok(Outcome {
        warmup_requests,
        rows,
        totals: numbered.totals(),
        sampled: None,
        tenants: tenants::told(&tallies, &numbered.tenants().all(), plan.tenants.unwrap_or(0)),
        read: numbered.report().clone(),
        ignored_size: plan.ignore_size,
        ignored_ttl: plan.ignore_ttl,
        was_stopped: stop.is_set(),
    })
}

impl Plan {
    /// Where caches have smaller blocks than those asked for, since they need several: policy, bytes of the cache and of its blocks.
    #[must_use]
    pub fn smaller_blocks(&self, rows: &[Row]) -> Vec<(String, u64, u64)> {
        let Some(asked_bytes) = self.flash.block_bytes else { return Vec::new() };
        let of = |named: &Named, row: &Row| {
            let used_bytes =
                named.block_bytes(row.size_bytes, asked_bytes).filter(|used| *used < asked_bytes)?;
            Some((row.policy.clone(), row.size_bytes, used_bytes))
        };
        let policies = || self.different_policies();
        let named = |row: &Row| policies().find(|named| named.to_string() == row.policy);
        rows.iter().filter_map(|row| of(named(row)?, row)).collect()
    }

    fn needs_future(&self) -> bool {
        self.policies.iter().any(Named::needs_future)
    }

    /// Each name once.
    fn different_policies(&self) -> impl Iterator<Item = &Named> {
        let is_first = |(place, named): &(usize, &Named)| {
            !self.policies[..*place].iter().any(|it| it.is_asked_as(named))
        };
        self.policies.iter().enumerate().filter(is_first).map(|(_, named)| named)
    }
}

/// The sizes in bytes, each once: shares of a small footprint may be the same.
fn sizes_bytes(plan: &Plan, footprint_bytes: u64) -> Result<Vec<u64>, SimulateError> {
    let mut all = Vec::new();
    for size in &plan.sizes {
        let bytes = size.bytes(footprint_bytes)?;
        if !all.contains(&bytes) {
            all.push(bytes);
        }
    }
    Ok(all)
}

/// An empty cache for each policy and size.
fn seats(plan: &Plan, footprint_bytes: Option<u64>) -> Result<Vec<Seat>, SimulateError> {
    let sizes = sizes_bytes(plan, footprint_bytes.unwrap_or(0))?;
    let each = |named| sizes.iter().map(move |&size_bytes| Seat::new(named, size_bytes, plan));
    Ok(plan.different_policies().flat_map(each).collect())
}

impl Size {
    /// Bytes of a cache over a trace of this footprint, rounded down.
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
