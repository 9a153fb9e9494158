//! An export that counts requests by kind, size and latency. The latency is that of the client: from submission to result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use device::{Clock, ErrorKind, IoError};

use super::{Context, Export, Extent, Operation, OperationResult, Reply, Shape};

/// Kinds of requests that are counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// Reads.
    Read,
    /// Writes, durable or not.
    Write,
    /// Zeroing, with or without freeing space.
    Zero,
    /// Discards.
    Trim,
    /// Flushes.
    Flush,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Zero, Self::Trim, Self::Flush];

    /// The name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["read", "write", "zero", "trim", "flush"][self as usize]
    }

    /// The kind and length of an operation. A prefetch has none: its client does not wait for the data.
    fn of(operation: &Operation) -> Option<(Self, u64)> {
        Some(match operation {
            Operation::Read { len, .. } => (Self::Read, u64::from(*len)),
            Operation::Write { data, .. } => (Self::Write, data.len() as u64),
            Operation::Zero { len, .. } => (Self::Zero, *len),
            Operation::Trim { len, .. } => (Self::Trim, *len),
            Operation::Flush => (Self::Flush, 0),
            Operation::Prefetch { .. } => return None,
        })
    }
}

/// Sectors of the longest request with its own counter, as in Flashcache's `iosize_hist`: 16 KiB.
const SIZES: usize = 32;

/// Width of the first latency classes.
const UNIT_NS: u64 = 256;

/// Latency classes per doubling: a reported latency is at most a quarter too high.
const PARTS: usize = 4;

/// Number of latency classes. They reach to 137 s; longer latencies count in the last.
const LATENCIES: usize = 28 * PARTS;

/// Counters for all kinds. Counters of one snapshot may be from slightly different times.
pub struct Meter {
    kinds: [Counts; RequestKind::ALL.len()],
}

struct Counts {
    requests: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
    /// Requests by size in sectors, rounded up; the first entry counts longer requests.
    sizes: [AtomicU64; SIZES + 1],
    latencies: [AtomicU64; LATENCIES],
}

/// Counters of one kind of request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requests {
    /// Successful requests.
    pub requests: u64,
    /// Bytes of successful requests.
    pub bytes: u64,
    /// Failed requests, which count nowhere else. Unsupported operations are not counted, because clients use them to probe for
    /// features.
    pub errors: u64,
    /// Sum of the latencies of successful requests.
    pub total_ns: u64,
    /// Highest latency of a successful request.
    pub longest_ns: u64,
    sizes: Vec<u64>,
    latencies: Vec<u64>,
}

impl Meter {
    /// A meter without counts.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { kinds: std::array::from_fn(|_| Counts::new()) })
    }

    /// Wraps `inner` so that its requests are counted here, with latencies by `clock`.
    #[must_use]
    pub fn of(self: &Arc<Self>, inner: Arc<dyn Export>, clock: Arc<dyn Clock>) -> MeasuredExport {
        MeasuredExport { inner, clock, meter: Arc::clone(self) }
    }

    /// Current counters of a kind.
    #[must_use]
    pub fn of_kind(&self, kind: RequestKind) -> Requests {
        self.kinds[kind as usize].snapshot()
    }

    /// Resets all counters.
    pub fn zero(&self) {
        self.kinds.iter().for_each(Counts::zero);
    }
}

impl Counts {
    fn new() -> Self {
        Self {
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
            sizes: std::array::from_fn(|_| AtomicU64::new(0)),
            latencies: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn all(&self) -> impl Iterator<Item = &AtomicU64> {
        let plain = [&self.requests, &self.bytes, &self.errors, &self.total_ns, &self.longest_ns];
        plain.into_iter().chain(&self.sizes).chain(&self.latencies)
    }

    fn zero(&self) {
        self.all().for_each(|count| count.store(0, Relaxed));
    }

    fn count(&self, bytes: u64, ns: u64, is_ok: bool) {
        if !is_ok {
            self.errors.fetch_add(1, Relaxed);
            return;
        }
        self.requests.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.total_ns.fetch_add(ns, Relaxed);
        self.longest_ns.fetch_max(ns, Relaxed);
        let sectors = bytes.div_ceil(512) as usize;
        self.sizes[if sectors > SIZES { 0 } else { sectors.max(1) }].fetch_add(1, Relaxed);
        self.latencies[class_of(ns)].fetch_add(1, Relaxed);
    }

    fn snapshot(&self) -> Requests {
        let load = |count: &AtomicU64| count.load(Relaxed);
        Requests {
            requests: load(&self.requests),
            bytes: load(&self.bytes),
            errors: load(&self.errors),
            total_ns: load(&self.total_ns),
            longest_ns: load(&self.longest_ns),
            sizes: self.sizes.iter().map(load).collect(),
            latencies: self.latencies.iter().map(load).collect(),
        }
    }
}

impl Requests {
    /// Number of requests by size: each size that occurred up to 16 KiB, in steps of 512 bytes, rounded up; last, without a size, all
    /// longer ones.
    pub fn sizes(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let short = (1..=SIZES).map(|sectors| (Some(sectors as u64 * 512), self.sizes[sectors]));
        short.chain([(None, self.sizes[0])]).filter(|(_, count)| *count > 0)
    }

    /// Number of requests with a latency of at most [`UNIT_NS`] × 2^`doublings`. Exact, because this is the bound of a class.
    #[must_use]
    pub fn within(&self, doublings: u32) -> u64 {
        let bound = UNIT_NS << doublings;
        (0..LATENCIES).filter(|&class| longest_of(class) <= bound).map(|class| self.latencies[class]).sum()
    }

    /// The bound used by [`within`](Self::within).
    #[must_use]
    pub fn bound_ns(doublings: u32) -> u64 {
        UNIT_NS << doublings
    }

    /// Quantile of the latency in nanoseconds, at most a quarter too high; `None` without requests.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let all: u64 = self.latencies.iter().sum();
        let wanted = ((all as f64 * share).ceil() as u64).max(1);
        let mut counted = 0;
        let class = self.latencies.iter().position(|count| {
            counted += count;
            counted >= wanted
        })?;
        Some(longest_of(class).min(self.longest_ns))
    }
}

/// The class of a latency. The first eight are one unit wide; beyond, each doubling has [`PARTS`].
fn class_of(ns: u64) -> usize {
    // A bound belongs to the lower class.
    let units = ns.saturating_sub(1) / UNIT_NS;
    let doublings = units.max(1).ilog2().saturating_sub(PARTS.ilog2());
    (PARTS * doublings as usize + (units >> doublings) as usize).min(LATENCIES - 1)
}

/// Upper bound of a class.
fn longest_of(class: usize) -> u64 {
    let doublings = (class / PARTS).saturating_sub(1);
    (((class - PARTS * doublings) as u64 + 1) << doublings) * UNIT_NS
}

/// See [`Meter`].
pub struct MeasuredExport {
    inner: Arc<dyn Export>,
    clock: Arc<dyn Clock>,
    meter: Arc<Meter>,
}

impl Export for MeasuredExport {
    fn shape(&self) -> Shape {
        self.inner.shape()
    }

    fn submit(&self, operation: Operation, reply: Reply) {
        let Some((kind, bytes)) = RequestKind::of(&operation) else {
            return self.inner.submit(operation, reply);
        };
        let (clock, meter) = (Arc::clone(&self.clock), Arc::clone(&self.meter));
        let begun_ns = clock.monotonic_ns();
        let measured = Reply::new(move |result: OperationResult| {
            let ns = clock.monotonic_ns().saturating_sub(begun_ns);
            let is_refused = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported);
            if !is_refused {
                meter.kinds[kind as usize].count(bytes, ns, result.is_ok());
            }
            reply.send(result);
        });
        self.inner.submit(operation, measured);
    }

    fn contexts(&self) -> &[Context] {
        self.inner.contexts()
    }

    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError> {
        self.inner.extents(context, offset, len, most)
    }
}

#[cfg(test)]
mod tests {
    use device::{IoBuffer, MemoryDevice, VirtualClock};

    use super::super::DeviceExport;
    use super::*;

    #[test]
    fn latency_classes_are_contiguous_with_exact_bounds() {
        let mut last = 0;
        for class in 0..LATENCIES {
            let longest = longest_of(class);
            assert!(longest > last, "class {class}");
            assert_eq!((class_of(last + 1), class_of(longest)), (class, class));
            assert!(class < 8 || longest - last <= longest / 4, "class {class} is too wide");
            last = longest;
        }
        assert!(last > 60_000_000_000, "{last}");
        assert_eq!(class_of(u64::MAX), LATENCIES - 1);
        assert!(
            (3..25).all(|doublings| (0..LATENCIES).any(|class| longest_of(class) == UNIT_NS << doublings))
        );
    }

    #[test]
    fn requests_are_counted_by_kind_and_size_until_reset() {
        let meter = Meter::new();
        let device = Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(1 << 20))));
        let export = meter.of(device, Arc::new(VirtualClock::default()));
        let submit = |operation| export.submit(operation, Reply::new(drop));
        for len in [512, 4096, 4096, 65536] {
            submit(Operation::Read { offset: 0, len });
        }
        submit(Operation::Write { offset: 0, data: IoBuffer::zeroed(1024).into(), durable: true });
        submit(Operation::Flush);
        submit(Operation::Prefetch { offset: 0, len: 512 });
        let reads = meter.of_kind(RequestKind::Read);
        assert_eq!((reads.requests, reads.bytes, reads.errors), (4, 512 + 8192 + 65536, 0));
        let sizes: Vec<_> = reads.sizes().collect();
        assert_eq!(sizes, [(Some(512), 1), (Some(4096), 2), (None, 1)]);
        assert_eq!(meter.of_kind(RequestKind::Write).sizes().next(), Some((Some(1024), 1)));
        assert_eq!(meter.of_kind(RequestKind::Flush).requests, 1);
        submit(Operation::Read { offset: 1 << 20, len: 512 });
        assert_eq!(meter.of_kind(RequestKind::Read).errors, 1);
        meter.zero();
        assert_eq!(meter.of_kind(RequestKind::Read), meter.of_kind(RequestKind::Trim));
    }

    /// Clients probe for fast zeroing with such requests.
    #[test]
    fn unsupported_operation_is_not_counted_as_error() {
        let meter = Meter::new();
        let device = Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(1 << 20))));
        let export = meter.of(device, Arc::new(VirtualClock::default()));
        let submit = |offset| {
            let operation =
                Operation::Zero { offset, len: 512, may_trim: false, only_if_fast: true, durable: false };
            let (sender, receiver) = std::sync::mpsc::channel();
            export.submit(operation, Reply::new(move |result| sender.send(result).unwrap()));
            (receiver.recv().unwrap().unwrap_err().kind(), meter.of_kind(RequestKind::Zero).errors)
        };
        assert_eq!(submit(0), (ErrorKind::Unsupported, 0));
    }

    #[test]
    fn quantile_is_at_most_a_quarter_too_high() {
        let counts = Counts::new();
        (1..=1000).for_each(|number| counts.count(512, number * 10_000, true));
        let requests = counts.snapshot();
        for share in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let (reported, exact) = (requests.quantile_ns(share).unwrap() as f64, share * 1e7);
            assert!(reported >= exact && reported <= exact * 1.26, "{share}: {reported}");
        }
        assert_eq!(requests.quantile_ns(1.0), Some(10_000_000));
        assert_eq!(requests.within(14), 419, "up to 4.19 ms");
        assert_eq!(Counts::new().snapshot().quantile_ns(0.5), None);
    }
}
