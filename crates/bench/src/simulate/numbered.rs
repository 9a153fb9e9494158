//! Prepares a trace for simulation: keys become numbers, sizes and times 32-bit integers.

use std::collections::HashSet;

use policy::simulate::{Access, Objects};
use workload::trace::{self, AccessKind, Accesses, ReadReport, TenantNames};

use super::{BATCH_ACCESSES, Batch, Batches, SimulateError};

/// Totals of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// Requests and removals.
    pub accesses: u64,
    /// Gets and sets.
    pub requests: u64,
    /// Distinct objects in requests.
    pub objects: u64,
    /// Total size of all objects, each with the size of its first request.
    pub footprint_bytes: u64,
    /// Size of the smallest object at its first request; `None` without requests.
    pub smallest_bytes: Option<u64>,
    /// Time from the first access with a timestamp to the last.
    pub span_seconds: f64,
    /// Requests for objects of 4 GiB or more, whose size was clamped to 4 GiB minus 1 byte.
    pub clamped_sizes: u64,
    /// Requests with a TTL.
    pub ttl_requests: u64,
    /// Requests with a TTL that was applied: they have a timestamp, and TTLs are not ignored.
    pub ttl_requests_honoured: u64,
}

/// Reads a trace and assigns numbers to its keys.
pub(crate) struct Numbered {
    trace: Box<dyn Accesses>,
    objects: Objects,
    /// Number of distinct keys.
    keys: u32,
    /// Objects that were removed and not requested so far. The size in a removal is not an object's size.
    only_removed: HashSet<u32>,
    /// Size of each object at its first request, if it is to stay.
    first_sizes: Option<Vec<u32>>,
    /// Whether every object has weight 1.
    unit_sizes: bool,
    raw: Vec<trace::Access>,
    numbers: Vec<u32>,
    /// Origin of times, with wrap-around: times continue where the accesses without a timestamp ended.
    start_ns: u64,
    last_ns: u64,
    /// Number of accesses without a timestamp, and the time of the first one after them.
    untimed: u64,
    first_ns: u64,
    totals: Totals,
    with_tenants: bool,
    with_ttls: bool,
}

impl Numbered {
    pub(crate) fn new(trace: Box<dyn Accesses>, first_size: bool) -> Self {
        Self {
            trace,
            objects: Objects::new(),
            keys: 0,
            only_removed: HashSet::new(),
            first_sizes: first_size.then(Vec::new),
            unit_sizes: false,
            raw: Vec::new(),
            numbers: Vec::new(),
            start_ns: 0,
            last_ns: 0,
            untimed: 0,
            first_ns: 0,
            totals: Totals::default(),
            with_tenants: false,
            with_ttls: false,
        }
    }

    /// Enables the column of tenants.
    pub(crate) fn with_tenants(self, with_tenants: bool) -> Self {
        Self { with_tenants, ..self }
    }

    /// Enables the column of TTLs.
    pub(crate) fn with_ttls(self, with_ttls: bool) -> Self {
        Self { with_ttls, ..self }
    }

    /// Gives every object weight 1.
    pub(crate) fn with_unit_sizes(self, unit_sizes: bool) -> Self {
        Self { unit_sizes, ..self }
    }

    pub(crate) fn tenants(&self) -> TenantNames {
        self.trace.tenants()
    }

    /// Totals of the accesses read so far.
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn report(&self) -> &ReadReport {
        self.trace.report()
    }

    /// Number of distinct keys so far, including keys that were only removed.
    pub(crate) fn keys(&self) -> u32 {
        self.keys
    }

    fn access(&mut self, raw: &trace::Access, object: u32) -> Access {
        if self.totals.accesses == self.untimed {
            let passed_ns = self.last_ns.wrapping_sub(self.start_ns);
            (self.start_ns, self.first_ns) = (raw.time_ns.wrapping_sub(passed_ns), raw.time_ns);
        }
        self.last_ns = raw.time_ns;
        let now_seconds =
            (raw.time_ns.wrapping_sub(self.start_ns) / 1_000_000_000).min(u32::MAX.into()) as u32;
        self.totals.span_seconds = raw.time_ns.saturating_sub(self.first_ns) as f64 / 1e9;
        let is_removal = raw.kind == AccessKind::Delete;
        let size_bytes = if self.unit_sizes { 1 } else { raw.size_bytes };
        let weight = self.weight(size_bytes, object, is_removal);
        self.totals.accesses += 1;
        self.totals.requests += u64::from(!is_removal);
        self.totals.ttl_requests += u64::from(!is_removal && raw.ttl_seconds.is_some());
        Access { object, weight, now_seconds, is_removal, is_set: raw.kind == AccessKind::Set }
    }

    /// Returns the object's weight in this request and adds it to the totals.
    fn weight(&mut self, size_bytes: u64, object: u32, is_removal: bool) -> u32 {
        let weight = u32::try_from(size_bytes).unwrap_or(u32::MAX);
        self.totals.clamped_sizes += u64::from(!is_removal && u64::from(weight) < size_bytes);
        let is_new = object == self.keys;
        if is_new {
            self.keys += 1;
            self.first_sizes.iter_mut().for_each(|sizes| sizes.push(weight));
        }
        if is_removal {
            if is_new {
                self.only_removed.insert(object);
            }
        } else if is_new || (!self.only_removed.is_empty() && self.only_removed.remove(&object)) {
            self.totals.objects += 1;
            self.totals.footprint_bytes += u64::from(weight);
            let smallest = self.totals.smallest_bytes.unwrap_or(u64::MAX);
            self.totals.smallest_bytes = Some(smallest.min(u64::from(weight)));
            self.first_sizes.iter_mut().for_each(|sizes| sizes[object as usize] = weight);
        }
        self.first_sizes.as_ref().map_or(weight, |sizes| sizes[object as usize])
    }
}

impl Batches for Numbered {
    fn next(&mut self, batch: &mut Batch) -> Result<bool, SimulateError> {
        batch.clear();
        while batch.accesses.len() < BATCH_ACCESSES && self.trace.next_batch(&mut self.raw)? {
            self.numbers.clear();
            self.objects.number_all(self.raw.iter().map(|access| access.key), &mut self.numbers);
            let raw = std::mem::take(&mut self.raw);
            let report = self.trace.report();
            // Without timestamps TTLs cannot expire.
            let with_ttls = self.with_ttls && report.has_time;
            self.untimed = report.untimed;
            for (place, raw) in raw.iter().enumerate() {
                let with_ttl = with_ttls && self.totals.accesses >= self.untimed;
                let access = self.access(raw, self.numbers[place]);
                let ttl_seconds = if with_ttl { raw.ttl_seconds.unwrap_or(0) } else { 0 };
                self.totals.ttl_requests_honoured += u64::from(ttl_seconds > 0 && !access.is_removal);
                batch.push(access, ttl_seconds);
            }
            if self.with_tenants {
                let places = raw.iter().map(|raw| raw.tenant.map_or(0, |tenant| tenant.index() as u32 + 1));
                batch.tenants.extend(places);
            }
            self.raw = raw;
        }
        Ok(!batch.accesses.is_empty())
    }
}
