//! Hits by tenant: each simulation makes its requests one at a time, and what each changed is its tenant's.

use std::cmp::Reverse;
use std::sync::Arc;

use policy::simulate::{Access, Counts, Simulator};

use super::Batch;
use super::warmup::Warmed;

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
}

/// The `shown` tenants with the most requests, then the others together, then what nobody asked for by name.
pub(super) fn told(tallies: &[Tally], names: &[Arc<str>], shown: usize) -> Vec<Tenant> {
    let of = |place: usize| -> Vec<TenantCounts> {
        tallies.iter().map(|tally| tally.rows.get(place).copied().unwrap_or_default()).collect()
    };
    let requests = |place: usize| {
        tallies.first().and_then(|tally| tally.rows.get(place)).map_or(0, |counts| counts.requests)
    };
    // Which requests a tenant made is the same in all simulations.
    let mut named: Vec<usize> = (2..names.len() + 2).filter(|place| requests(*place) > 0).collect();
    if named.is_empty() && requests(1) == 0 {
        return Vec::new();
    }
    named.sort_by_key(|place| (Reverse(requests(*place)), Arc::clone(&names[place - 2])));
    let rest = named.split_off(shown.min(named.len()));
    let mut all: Vec<Tenant> = named
        .into_iter()
        .map(|place| Tenant { who: Who::Named(Arc::clone(&names[place - 2])), rows: of(place) })
        .collect();
    let mut others = of(1);
    for place in &rest {
        others.iter_mut().zip(of(*place)).for_each(|(sum, it)| sum.add(&it));
    }
    let more = [(Who::Others(rest.len()), others), (Who::Nobody, of(0))];
    let asked = more.into_iter().filter(|(_, rows)| rows.iter().any(|it| it.requests > 0));
    all.extend(asked.map(|(who, rows)| Tenant { who, rows }));
    all
}
