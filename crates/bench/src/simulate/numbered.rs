//! A trace made up for simulations: keys numbered, sizes and times in the width that simulations use.

use policy::simulate::{Access, Objects};
use workload::trace::{self, AccessKind, Accesses, ReadReport};

use super::{BATCH_ACCESSES, Batch, Batches, SimulateError};

/// What is in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests and removals.
    pub accesses: u64,
    /// Of them, requests: gets and sets.
    pub requests: u64,
    /// Different keys.
    pub objects: u64,
    /// Bytes that all objects take together, each as large as when it first appeared.
    pub footprint_bytes: u64,
    /// Objects larger than 4 GiB, which were taken to be as large as that.
    pub clamped_sizes: u64,
}

/// Reads a trace and numbers its keys.
pub(super) struct Numbered {
    trace: Box<dyn Accesses>,
    objects: Objects,
    /// The size of each object at first, where that is to stay.
    first_sizes: Option<Vec<u32>>,
    raw: Vec<trace::Access>,
    numbers: Vec<u32>,
    /// Times are counted from the first one.
    start_ns: Option<u64>,
    totals: Totals,
}

impl Numbered {
    pub(super) fn new(trace: Box<dyn Accesses>, first_size: bool) -> Self {
        Self {
            trace,
            objects: Objects::new(),
            first_sizes: first_size.then(Vec::new),
            raw: Vec::new(),
            numbers: Vec::new(),
            start_ns: None,
            totals: Totals::default(),
        }
    }

    /// What was read so far.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn report(&self) -> &ReadReport {
        self.trace.report()
    }

    fn access(&mut self, raw: &trace::Access, object: u32) -> Access {
        let mut weight = u32::try_from(raw.size_bytes).unwrap_or_else(|_| {
            self.totals.clamped_sizes += 1;
            u32::MAX
        });
        let is_first = u64::from(object) == self.totals.objects;
        if is_first {
            self.totals.objects += 1;
            self.totals.footprint_bytes += u64::from(weight);
        }
        if let Some(first_sizes) = &mut self.first_sizes {
            if is_first {
                first_sizes.push(weight);
            }
            weight = first_sizes[object as usize];
        }
        let start_ns = *self.start_ns.get_or_insert(raw.time_ns);
        let is_removal = raw.kind == AccessKind::Delete;
        self.totals.accesses += 1;
        self.totals.requests += u64::from(!is_removal);
        let now_seconds = (raw.time_ns.saturating_sub(start_ns) / 1_000_000_000).min(u32::MAX.into()) as u32;
        Access { object, weight, now_seconds, is_removal }
    }
}

impl Batches for Numbered {
    fn next(&mut self, batch: &mut Batch) -> Result<bool, SimulateError> {
        batch.accesses.clear();
        while batch.accesses.len() < BATCH_ACCESSES && self.trace.next_batch(&mut self.raw)? {
            self.numbers.clear();
            self.objects.number_all(self.raw.iter().map(|access| access.key), &mut self.numbers);
            let raw = std::mem::take(&mut self.raw);
            for (place, raw) in raw.iter().enumerate() {
                let access = self.access(raw, self.numbers[place]);
                batch.accesses.push(access);
            }
            self.raw = raw;
        }
        Ok(!batch.accesses.is_empty())
    }
}
