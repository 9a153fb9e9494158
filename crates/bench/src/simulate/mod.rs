//! Simulates hit ratios of policies at several cache sizes over a trace, without an engine or device.
//!
//! A [`Plan`] lists the policies and sizes. The trace is read once: [`numbered`] assigns numbers to keys and makes batches,
//! which [`parallel`] runs through all simulations concurrently. If the footprint or next uses must be known in advance, the trace
//! is first written to a temporary file ([`spool`]). [`policies`] is the table of names; [`report`] formats the results.

mod batch;
mod curve;
mod custom;
mod designs;
mod error;
mod forward;
mod lifetimes;
pub(crate) mod numbered;
mod outcome;
pub(crate) mod parallel;
mod plan;
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

use workload::trace::Accesses;

pub(crate) use batch::{BATCH_ACCESSES, Batch, Batches};
pub use custom::{CustomPolicy, NameError};
pub use designs::{Design, FlashSettings};
pub use error::SimulateError;
pub(crate) use forward::forward_simulator;
pub use numbered::Totals;
pub use outcome::{Interval, Outcome, Row, SampleWarning, Sampled};
pub use plan::{Plan, Size};
pub use policies::Named;
pub use policy::simulate::{RuleBook, Settings, SimulatedAdmission, SizeOnHit};
pub use series::{Interval as SeriesInterval, Point};
pub use shard::Shard;
pub use tenants::{Tenant, TenantCounts, TenantGroup};
pub use warmup::Warmup;

use crate::run::stop::Stop;
use curve::Job;
use numbered::Numbered;
use shard::ShardAccesses;
use spool::Spool;

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
