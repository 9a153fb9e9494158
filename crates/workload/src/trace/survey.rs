//! Statistics of a trace, counted in one pass.
//!
//! An object belongs to the tenant that requested it first, so the tenants' objects add up to the total.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::access::{Access, AccessKind};

/// Statistics of a trace. Deletes are requests, but do not count as requests for an object.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Lookups.
    pub gets: u64,
    /// Stores.
    pub sets: u64,
    /// Removals.
    pub deletes: u64,
    /// Bytes of all requested objects, counted at every request.
    pub requested_bytes: u64,
    /// Bytes of all distinct objects, each with its size at the first request.
    pub footprint_bytes: u64,
    /// Requests for an object with another size than in its first request.
    pub size_changes: u64,
    /// Time of the first request with a timestamp.
    pub first_ns: Option<u64>,
    /// Time of the last one.
    pub last_ns: u64,
    /// The smallest and the largest requested object.
    pub size_range_bytes: Option<(u64, u64)>,
    untimed: u64,
    objects: HashMap<u64, Object>,
    /// Requests without a tenant, then tenants by index.
    tenants: Vec<TenantSurvey>,
}

/// Statistics of one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantSurvey {
    /// Lookups.
    pub gets: u64,
    /// Stores.
    pub sets: u64,
    /// Removals.
    pub deletes: u64,
    /// Bytes of all requested objects, counted at every request.
    pub requested_bytes: u64,
    /// Distinct objects requested first by this tenant.
    pub objects: u64,
    /// Bytes of the same objects.
    pub footprint_bytes: u64,
}

impl TenantSurvey {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.gets += other.gets;
        self.sets += other.sets;
        self.deletes += other.deletes;
        self.requested_bytes = self.requested_bytes.saturating_add(other.requested_bytes);
        self.objects += other.objects;
        self.footprint_bytes = self.footprint_bytes.saturating_add(other.footprint_bytes);
    }

    /// All requests, deletes included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.gets + self.sets + self.deletes
    }
}

#[derive(Debug, Clone, Copy)]
struct Object {
    requests: u64,
    first_size_bytes: u64,
}

impl Survey {
    /// Ignores the times of the first `untimed` requests, which have no timestamps (see
    /// [`ReadReport::untimed`](super::access::ReadReport::untimed)).
    pub fn leave_untimed(&mut self, untimed: u64) {
        if self.untimed != untimed {
            (self.untimed, self.first_ns) = (untimed, None);
        }
    }

    /// Counts these accesses, which follow those counted before.
    pub fn add(&mut self, accesses: &[Access]) {
        for access in accesses {
            if self.requests() >= self.untimed {
                self.first_ns.get_or_insert(access.time_ns);
            }
            self.last_ns = access.time_ns;
            let tenant = tenant(&mut self.tenants, access);
            match access.kind {
                AccessKind::Get => (self.gets, tenant.gets) = (self.gets + 1, tenant.gets + 1),
                AccessKind::Set => (self.sets, tenant.sets) = (self.sets + 1, tenant.sets + 1),
                AccessKind::Delete => {
                    (self.deletes, tenant.deletes) = (self.deletes + 1, tenant.deletes + 1);
                    continue;
                }
            }
            let size_bytes = access.size_bytes;
            tenant.requested_bytes = tenant.requested_bytes.saturating_add(size_bytes);
            self.requested_bytes = self.requested_bytes.saturating_add(size_bytes);
            let (low, high) = self.size_range_bytes.unwrap_or((size_bytes, size_bytes));
            self.size_range_bytes = Some((low.min(size_bytes), high.max(size_bytes)));
            match self.objects.entry(access.key) {
                Entry::Vacant(vacant) => {
                    self.footprint_bytes = self.footprint_bytes.saturating_add(size_bytes);
                    tenant.footprint_bytes = tenant.footprint_bytes.saturating_add(size_bytes);
                    tenant.objects += 1;
                    vacant.insert(Object { requests: 1, first_size_bytes: size_bytes });
                }
                Entry::Occupied(mut occupied) => {
                    let object = occupied.get_mut();
                    object.requests += 1;
                    self.size_changes += u64::from(object.first_size_bytes != size_bytes);
                }
            }
        }
    }

    /// The requests without a tenant, then those of each tenant by index; empty if there are no tenants.
    #[must_use]
    pub fn tenants(&self) -> &[TenantSurvey] {
        if self.tenants.len() > 1 { &self.tenants } else { &[] }
    }

    /// All requests, deletes included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.gets + self.sets + self.deletes
    }

    /// Distinct requested objects.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Footprint / objects.
    #[must_use]
    pub fn mean_size_bytes(&self) -> Option<f64> {
        share(self.footprint_bytes, self.objects())
    }

    /// Objects requested once / objects.
    #[must_use]
    pub fn one_hit_wonder_ratio(&self) -> Option<f64> {
        let once = self.objects.values().filter(|object| object.requests == 1).count();
        share(once as u64, self.objects())
    }

    /// Objects / requests for objects: the miss ratio of a cache that never evicts.
    #[must_use]
    pub fn compulsory_miss_ratio(&self) -> Option<f64> {
        share(self.objects(), self.gets + self.sets)
    }

    /// Time from the first request to the last.
    #[must_use]
    pub fn span_ns(&self) -> u64 {
        self.last_ns - self.first_ns.unwrap_or(self.last_ns)
    }

    /// The exponent of the power law that fits requests by rank best: the negative slope of the least-squares line through the logarithms.
    /// Ranks are sampled at equal steps of their logarithm, so that the many rare objects do not dominate, and only down to 5 requests per
    /// object, because lower counts form steps. `None` with fewer than 10 ranks.
    #[must_use]
    pub fn zipf_exponent(&self) -> Option<f64> {
        const STEP: f64 = 1.25;
        const FEWEST_REQUESTS: u64 = 5;
        const FEWEST_RANKS: usize = 10;
        let mut counts: Vec<u64> = self.objects.values().map(|object| object.requests).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let (mut points, mut rank) = (Vec::new(), 1.0f64);
        while let Some(&count) = counts.get(rank as usize - 1).filter(|count| **count >= FEWEST_REQUESTS) {
            points.push(((rank.floor()).ln(), (count as f64).ln()));
            rank = (rank * STEP).max(rank + 1.0);
        }
        if points.len() < FEWEST_RANKS {
            return None;
        }
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let along: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let across: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        Some(-along / across)
    }
}

/// The counts of the request's tenant.
#[inline]
fn tenant<'a>(tenants: &'a mut Vec<TenantSurvey>, access: &Access) -> &'a mut TenantSurvey {
    let place = access.tenant.map_or(0, |tenant| tenant.index() + 1);
    if place >= tenants.len() {
        tenants.resize(place + 1, TenantSurvey::default());
    }
    &mut tenants[place]
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tenant;

    fn access(time_ns: u64, key: u64, size_bytes: u64, kind: AccessKind) -> Access {
        Access { time_ns, key, size_bytes, ttl_seconds: None, tenant: None, kind }
    }

    #[test]
    fn requests_without_timestamps_are_excluded_from_the_span() {
        let times = |times: [u64; 3]| times.map(|time_ns| access(time_ns, 1, 10, AccessKind::Get));
        let mut survey = Survey::default();
        survey.add(&times([0, 1, 2]));
        survey.leave_untimed(4);
        survey.add(&times([3, 1000, 1010]));
        survey.leave_untimed(4);
        survey.add(&times([1020, 1030, 1040]));
        assert_eq!((survey.first_ns, survey.span_ns()), (Some(1000), 40));
    }

    #[test]
    fn small_trace_matches_counts_by_hand() {
        use AccessKind::{Delete, Get, Set};
        let mut survey = Survey::default();
        survey.add(&[access(5, 1, 10, Get), access(6, 2, 20, Set), access(7, 1, 12, Get)]);
        survey.add(&[access(8, 3, 0, Delete), access(9, 1, 10, Set), access(9, 1, 10, Get)]);
        assert_eq!((survey.requests(), survey.gets, survey.sets, survey.deletes), (6, 3, 2, 1));
        assert_eq!((survey.objects(), survey.footprint_bytes, survey.requested_bytes), (2, 30, 62));
        assert_eq!((survey.size_changes, survey.span_ns()), (1, 4));
        assert_eq!((survey.one_hit_wonder_ratio(), survey.mean_size_bytes()), (Some(0.5), Some(15.0)));
        assert_eq!(survey.compulsory_miss_ratio(), Some(0.4));
        assert_eq!(survey.size_range_bytes, Some((10, 20)));
        assert_eq!(survey.zipf_exponent(), None);
        assert_eq!(Survey::default().mean_size_bytes(), None);
    }

    #[test]
    fn tenant_counts_add_up_to_the_total() {
        use AccessKind::{Delete, Get, Set};
        let of =
            |tenant: Option<usize>, access: Access| Access { tenant: tenant.map(Tenant::of_index), ..access };
        let mut survey = Survey::default();
        survey.add(&[access(0, 1, 10, Get)]);
        assert_eq!(survey.tenants(), [], "no access has a tenant");
        survey.add(&[of(Some(2), access(0, 1, 10, Get)), of(Some(2), access(0, 2, 20, Set))]);
        survey.add(&[of(Some(1), access(0, 2, 20, Get)), of(None, access(0, 2, 0, Delete))]);
        let counted: Vec<_> = survey
            .tenants()
            .iter()
            .map(|it| (it.requests(), it.requested_bytes, it.objects, it.footprint_bytes))
            .collect();
        assert_eq!(counted, [(2, 10, 1, 10), (0, 0, 0, 0), (1, 20, 0, 0), (2, 30, 1, 20)]);
        assert_eq!(
            (survey.requests(), survey.requested_bytes, survey.objects(), survey.footprint_bytes),
            (5, 60, 2, 30)
        );
    }

    #[test]
    fn exact_power_law_gives_its_exponent() {
        let mut survey = Survey::default();
        for rank in 1..=1000u32 {
            let requests = (1e6 / f64::from(rank).powf(0.8)).round() as u64;
            survey.objects.insert(rank.into(), Object { requests, first_size_bytes: 1 });
        }
        let exponent = survey.zipf_exponent().unwrap();
        assert!((exponent - 0.8).abs() < 1e-3, "{exponent}");
    }
}
