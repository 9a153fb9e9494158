//! Hits by tenant: each simulation makes its requests one at a time, and what each changed is its tenant's.

use std::sync::Arc;

use policy::simulate::{Access, Counts, Simulator};

use super::Batch;
use super::warmup::Warmed;
use crate::tenants::{ByTenant, Sums};

/// What was counted of a tenant after warming up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantCounts {
    /// Requests.
    pub requests: u64,
    /// Of them, hits.
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

    /// Hits over requests.
    #[must_use]
    pub fn object_hit_ratio(&self) -> Option<f64> {
        crate::run::counts::ratio(self.hits, self.requests)
    }

    /// Bytes of hits over bytes of requests.
    #[must_use]
    pub fn byte_hit_ratio(&self) -> Option<f64> {
        crate::run::counts::ratio(self.hit_bytes, self.bytes)
    }
}

/// Who made requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// A tenant.
    Named(Arc<str>),
    /// So many more, and all that are not told apart.
    Others(usize),
    /// Requests that tell no tenant.
    Nobody,
}

/// A tenant in all simulations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Who.
    pub who: Who,
    /// In the order of [`Outcome::rows`](super::Outcome).
    pub rows: Vec<TenantCounts>,
}

/// The tenants of one simulation: requests without one, those not told apart, then each by its index.
pub(super) struct Tally {
    rows: Vec<TenantCounts>,
    /// Accesses that warm up, and those seen.
    warmup: u64,
    seen: u64,
    before: Counts,
}

impl Tally {
    pub(super) fn new(warmup: u64) -> Self {
        Self { rows: Vec::new(), warmup, seen: 0, before: Counts::default() }
    }

    /// Makes the batch's requests.
    pub(super) fn run(&mut self, simulator: &mut dyn Simulator, warmed: &mut Warmed, batch: &Batch) {
        warmed.run(&mut Watched { simulator, tally: self, tenants: &batch.tenants }, batch);
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

/// A simulation that is watched for the length of a batch.
struct Watched<'a> {
    simulator: &'a mut dyn Simulator,
    tally: &'a mut Tally,
    /// Whose the accesses to come are.
    tenants: &'a [u32],
}

impl Simulator for Watched<'_> {
    fn run(&mut self, accesses: &[Access], next_uses: &[u64]) {
        for (place, access) in accesses.iter().enumerate() {
            self.simulator.run(std::slice::from_ref(access), next_uses.get(place..=place).unwrap_or(&[]));
            let tenant = self.tenants.get(place).copied().unwrap_or(0);
            self.tally.count(tenant, self.simulator.counts());
        }
        self.tenants = self.tenants.get(accesses.len()..).unwrap_or(&[]);
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
}

/// What a tenant did in each of the simulations.
#[derive(Debug, Clone, Default)]
struct InEach(Vec<TenantCounts>);

impl Sums for InEach {
    /// Which requests a tenant made is the same in all simulations.
    fn requests(&self) -> u64 {
        self.0.first().map_or(0, |counts| counts.requests)
    }

    fn add(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), TenantCounts::default());
        self.0.iter_mut().zip(&other.0).for_each(|(sum, it)| sum.add(it));
    }
}

/// The `shown` tenants with the most requests, then the others together, then what nobody asked for by name. None of them where
/// nobody has a name.
pub(super) fn told(tallies: &[Tally], names: &[Arc<str>], shown: usize) -> Vec<Tenant> {
    let places = tallies.iter().map(|tally| tally.rows.len()).max().unwrap_or(0);
    let in_each = |place: usize| {
        InEach(tallies.iter().map(|tally| tally.rows.get(place).copied().unwrap_or_default()).collect())
    };
    let rows: Vec<InEach> = (0..places).map(in_each).collect();
    let Some(all) = ByTenant::of(&rows, names) else { return Vec::new() };
    if all.others(0).1.requests() == 0 {
        return Vec::new();
    }
    let (count, others) = all.others(shown);
    let named = all.named.into_iter().take(shown).map(|(name, rows)| (Who::Named(name), rows));
    let more = [(Who::Others(count), others), (Who::Nobody, all.nobody)];
    let asked = more.into_iter().filter(|(_, rows)| rows.requests() > 0);
    named.chain(asked).map(|(who, InEach(rows))| Tenant { who, rows }).collect()
}
