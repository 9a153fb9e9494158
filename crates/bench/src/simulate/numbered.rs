//! A trace made up for simulations: keys numbered, sizes and times in the width that simulations use.

use std::collections::HashSet;

use policy::simulate::{Access, Objects};
use workload::trace::{self, AccessKind, Accesses, ReadReport, TenantNames};

use super::{BATCH_ACCESSES, Batch, Batches, SimulateError};

/// What is in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// Requests and removals.
    pub accesses: u64,
    /// Of them, requests: gets and sets.
    pub requests: u64,
    /// Different objects that were asked for.
    pub objects: u64,
    /// Bytes that all of them take together, each as large as when it was first asked for.
    pub footprint_bytes: u64,
    /// Bytes of the smallest, at its first request; `None` without requests.
    pub smallest_bytes: Option<u64>,
    /// From the first access that has a time to the last, where the trace tells any.
    pub span_seconds: f64,
    /// Requests for objects of 4 GiB and more, which were taken to be a byte smaller than that.
    pub clamped_sizes: u64,
    /// Requests with a time to live.
    pub ttl_requests: u64,
    /// Of them, those whose objects can expire: they have a time, and nobody asked for objects that live for ever.
    pub ttl_requests_honoured: u64,
}

/// Reads a trace and numbers its keys.
pub(crate) struct Numbered {
    trace: Box<dyn Accesses>,
    objects: Objects,
    /// How many keys have a number.
    keys: u32,
    /// Numbers of objects that were removed and not asked for so far. What a removal says of a size is no object's.
    only_removed: HashSet<u32>,
    /// The size of each object at first, where that is to stay.
    first_sizes: Option<Vec<u32>>,
    /// Every object weighs 1.
    unit_sizes: bool,
    raw: Vec<trace::Access>,
    numbers: Vec<u32>,
    /// Times are counted from here, wrapping around 0: those of the trace go on where its accesses without a time ended.
    start_ns: u64,
    last_ns: u64,
    /// How many those are, and the time of the first one behind them.
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

    /// The same, telling whose each access is if `with_tenants`.
    pub(crate) fn with_tenants(self, with_tenants: bool) -> Self {
        Self { with_tenants, ..self }
    }

    /// The same, telling how long objects live if `with_ttls`.
    pub(crate) fn with_ttls(self, with_ttls: bool) -> Self {
        Self { with_ttls, ..self }
    }

    /// The same with objects that all weigh 1 if `unit_sizes`.
    pub(crate) fn with_unit_sizes(self, unit_sizes: bool) -> Self {
        Self { unit_sizes, ..self }
    }

    pub(crate) fn tenants(&self) -> TenantNames {
        self.trace.tenants()
    }

    /// What was read so far.
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn report(&self) -> &ReadReport {
        self.trace.report()
    }

    /// Different keys so far: those that were only removed, too.
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

    /// What the object weighs in this request, which is counted in the totals.
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
            // Without a time nobody knows when one to live is over.
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
