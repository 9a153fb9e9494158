//! Hits by tenant: each simulation processes one request at a time, and the change of its counts belongs to the tenant.

use std::sync::Arc;

use policy::simulate::{Access, Counts, Simulator};

use super::Batch;
use super::warmup::Warmed;
use crate::tenants::{ByTenant, Sums};

/// Counts of a tenant after the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantCounts {
    /// Gets and sets.
    pub requests: u64,
    /// Gets and sets that hit.
    pub hits: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Bytes of the requests that hit.
    pub hit_bytes: u64,
}

impl TenantCounts {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.hits += other.hits;
        self.bytes += other.bytes;
        self.hit_bytes += other.hit_bytes;
    }

    /// Hits per request.
    #[must_use]
    pub fn object_hit_ratio(&self) -> Option<f64> {
        crate::run::counts::ratio(self.hits, self.requests)
    }

    /// Bytes of hits per byte of requests.
    #[must_use]
    pub fn byte_hit_ratio(&self) -> Option<f64> {
        crate::run::counts::ratio(self.hit_bytes, self.bytes)
    }
}

/// A tenant or a group of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantGroup {
    /// A tenant by name.
    Named(Arc<str>),
    /// The remaining tenants, and their number.
    Others(usize),
    /// Requests without a tenant.
    NoTenant,
}

/// Counts of a tenant in all simulations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// The tenant.
    pub who: TenantGroup,
    /// Counts in the order of [`Outcome::rows`](super::Outcome).
    pub rows: Vec<TenantCounts>,
}

/// Counts of one simulation: requests without a tenant, then each tenant by index.
pub(super) struct Tally {
    rows: Vec<TenantCounts>,
    /// Number of warm-up accesses, and accesses so far.
    warmup: u64,
    seen: u64,
    before: Counts,
}

impl Tally {
    pub(super) fn new(warmup: u64) -> Self {
        Self { rows: Vec::new(), warmup, seen: 0, before: Counts::default() }
    }

    /// Runs the batch and counts its requests.
    pub(super) fn run(&mut self, simulator: &mut dyn Simulator, warmed: &mut Warmed, batch: &Batch) {
        warmed.run(&mut TallyingSimulator { simulator, tally: self, tenants: &batch.tenants }, batch);
    }

    fn count(&mut self, place: u32, now: Counts) {
        self.seen += 1;
        let made = now.since(&self.before);
        self.before = now;
        if self.seen <= self.warmup || made.requests == 0 {
            return;
        }
        let place = place as usize;
        if place >= self.rows.len() {
            self.rows.resize(place + 1, TenantCounts::default());
        }
        self.rows[place].add(&TenantCounts {
            requests: made.requests,
            hits: made.hits,
            bytes: made.weight,
            hit_bytes: made.hit_weight,
        });
    }
}

/// A simulator that counts by tenant for the duration of a batch.
struct TallyingSimulator<'a> {
    simulator: &'a mut dyn Simulator,
    tally: &'a mut Tally,
    /// Tenants of the remaining accesses.
    tenants: &'a [u32],
}

impl Simulator for TallyingSimulator<'_> {
    fn run(&mut self, accesses: &[Access], next_uses: &[u64]) {
        for (place, access) in accesses.iter().enumerate() {
            self.simulator.run(std::slice::from_ref(access), next_uses.get(place..=place).unwrap_or(&[]));
            let tenant = self.tenants.get(place).copied().unwrap_or(0);
            self.tally.count(tenant, self.simulator.counts());
        }
        self.tenants = self.tenants.get(accesses.len()..).unwrap_or(&[]);
    }

    super::forward_simulator!(simulator);
}

/// Counts of a tenant in each simulation.
#[derive(Debug, Clone, Default)]
struct PerSimulation(Vec<TenantCounts>);

impl Sums for PerSimulation {
    /// The number of requests is the same in all simulations.
    fn requests(&self) -> u64 {
        self.0.first().map_or(0, |counts| counts.requests)
    }

    fn add(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), TenantCounts::default());
        self.0.iter_mut().zip(&other.0).for_each(|(sum, it)| sum.add(it));
    }
}

/// The `shown` tenants with the most requests, then the others as a group, then the requests without a tenant. Empty if no
/// request has a tenant.
pub(super) fn by_requests(tallies: &[Tally], names: &[Arc<str>], shown: usize) -> Vec<Tenant> {
    let places = tallies.iter().map(|tally| tally.rows.len()).max().unwrap_or(0);
    let in_each = |place: usize| {
        PerSimulation(
            tallies.iter().map(|tally| tally.rows.get(place).copied().unwrap_or_default()).collect(),
        )
    };
    let rows: Vec<PerSimulation> = (0..places).map(in_each).collect();
    let Some(all) = ByTenant::of(&rows, names) else { return Vec::new() };
    if all.others(0).1.requests() == 0 {
        return Vec::new();
    }
    let (count, others) = all.others(shown);
    let named = all.named.into_iter().take(shown).map(|(name, rows)| (TenantGroup::Named(name), rows));
    let more = [(TenantGroup::Others(count), others), (TenantGroup::NoTenant, all.without_tenant)];
    let requested = more.into_iter().filter(|(_, rows)| rows.requests() > 0);
    named.chain(requested).map(|(who, PerSimulation(rows))| Tenant { who, rows }).collect()
}
