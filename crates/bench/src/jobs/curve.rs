//! Figures over the bytes that the host writes: write amplification, bandwidth and latency of each interval.

use serde_json::{Value, json};
use workload::block::BlockKind;

use crate::run::latency::Histogram;

/// One interval of a run.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Bytes that the host had written at its end, since the jobs began.
    pub host_bytes: u64,
    /// Bytes that the drive had programmed by then.
    pub media_bytes: u64,
    /// Virtual time at the end of the interval.
    pub end_ns: u64,
    /// Length of the interval.
    pub duration_ns: u64,
    /// Bytes that the host wrote in the interval.
    pub written_bytes: u64,
    /// Bytes programmed in the interval.
    pub programmed_bytes: u64,
    /// Bytes read in the interval.
    pub read_bytes: u64,
    /// Median and 99th percentile of the latency of its writes, if there are any.
    pub write_ns: [Option<u64>; 2],
    /// Median and 99th percentile of the latency of its reads, if there are any.
    pub read_ns: [Option<u64>; 2],
}

impl Interval {
    /// Bytes programmed per byte that the host wrote, in this interval.
    #[must_use]
    pub fn dlwa(&self) -> Option<f64> {
        (self.written_bytes > 0).then(|| self.programmed_bytes as f64 / self.written_bytes as f64)
    }

    fn rate(&self, bytes: u64) -> f64 {
        bytes as f64 * 1e9 / self.duration_ns.max(1) as f64
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "host_bytes": self.host_bytes,
            "media_bytes": self.media_bytes,
            "seconds": self.end_ns as f64 / 1e9,
            "dlwa": self.dlwa(),
            "dlwa_since_start": self.media_bytes as f64 / self.host_bytes.max(1) as f64,
            "write_bytes_per_second": self.rate(self.written_bytes),
            "read_bytes_per_second": self.rate(self.read_bytes),
            "write_p50_ns": self.write_ns[0],
            "write_p99_ns": self.write_ns[1],
            "read_p50_ns": self.read_ns[0],
            "read_p99_ns": self.read_ns[1],
        })
    }
}

/// The header of [`csv`].
const COLUMNS: [&str; 11] = [
    "host_bytes",
    "media_bytes",
    "seconds",
    "dlwa",
    "dlwa_since_start",
    "write_bytes_per_second",
    "read_bytes_per_second",
    "write_p50_ns",
    "write_p99_ns",
    "read_p50_ns",
    "read_p99_ns",
];

/// The intervals as CSV; unknown figures are empty fields.
#[must_use]
pub fn csv(intervals: &[Interval]) -> String {
    let line = |interval: &Interval| {
        let figures = interval.json();
        let cell = |name: &&str| match &figures[*name] {
            Value::Null => String::new(),
            value => value.to_string(),
        };
        COLUMNS.iter().map(cell).collect::<Vec<String>>().join(",") + "\n"
    };
    COLUMNS.join(",") + "\n" + &intervals.iter().map(line).collect::<String>()
}

/// Collects intervals of a run.
pub(super) struct Curve {
    interval_bytes: u64,
    read_bytes: u64,
    writes: Histogram,
    reads: Histogram,
    started_ns: u64,
    media_at_start: u64,
    host_at_start: u64,
    pub(super) intervals: Vec<Interval>,
}

impl Curve {
    pub(super) fn new(interval_bytes: u64) -> Self {
        Self {
            interval_bytes: interval_bytes.max(1),
            read_bytes: 0,
            writes: Histogram::default(),
            reads: Histogram::default(),
            started_ns: 0,
            media_at_start: 0,
            host_at_start: 0,
            intervals: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn record(&mut self, kind: BlockKind, bytes: u64, latency_ns: u64) {
        match kind {
            BlockKind::Read => {
                self.read_bytes += bytes;
                self.reads.record(latency_ns);
            }
            BlockKind::Write => self.writes.record(latency_ns),
            BlockKind::Discard | BlockKind::Flush => (),
        }
    }

    /// Whether the present interval is complete.
    #[inline]
    pub(super) fn is_due(&self, host_bytes: u64) -> bool {
        host_bytes - self.host_at_start >= self.interval_bytes
    }

    /// Ends the present interval with the drive's counters at `now_ns`.
    pub(super) fn end(&mut self, now_ns: u64, host_bytes: u64, media_bytes: u64) {
        let quantiles = |latencies: &Histogram| [0.5, 0.99].map(|share| latencies.quantile_ns(share));
        self.intervals.push(Interval {
            host_bytes,
            media_bytes,
            end_ns: now_ns,
            duration_ns: now_ns - self.started_ns,
            written_bytes: host_bytes - self.host_at_start,
            programmed_bytes: media_bytes - self.media_at_start,
            read_bytes: std::mem::take(&mut self.read_bytes),
            write_ns: quantiles(&self.writes),
            read_ns: quantiles(&self.reads),
        });
        (self.writes, self.reads) = Default::default();
        (self.started_ns, self.host_at_start, self.media_at_start) = (now_ns, host_bytes, media_bytes);
    }

    /// Ends the last interval, if anything happened in it.
    pub(super) fn finish(&mut self, now_ns: u64, host_bytes: u64, media_bytes: u64) {
        if host_bytes > self.host_at_start || self.reads.count() > 0 {
            self.end(now_ns, host_bytes, media_bytes);
        }
    }
}
