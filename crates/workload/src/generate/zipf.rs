//! Independent accesses by Zipf's law.

use rand_distr::{Distribution, Zipf};

use super::error::Problem;
use super::random::{Stream, stream};
use crate::trace::{Access, AccessKind, Accesses, ReadReport, TraceError};

/// Accesses per batch.
const BATCH_ACCESSES: u64 = 4096;
/// Interval between two accesses.
const STEP_NS: u64 = 1_000_000;

/// Parameters of the workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ZipfConfig {
    /// Number of accesses, a thousand per second.
    pub requests: u64,
    /// Number of objects; their keys are their ranks, from 0.
    pub objects: u64,
    /// The object of rank `r` has weight `r^-exponent`.
    pub exponent: f64,
    /// Size of every object.
    pub size_bytes: u64,
}

/// The accesses.
pub struct ZipfAccesses {
    ranks: Zipf<f64>,
    random: Stream,
    config: ZipfConfig,
    report: ReadReport,
}

impl ZipfAccesses {
    /// The workload for `config`.
    ///
    /// # Errors
    /// There are no objects, or the exponent is negative or not a number.
    pub fn new(config: ZipfConfig, seed: u64) -> Result<Self, String> {
        if config.objects == 0 {
            return Err("the number of objects must be above 0".to_owned());
        }
        let ranks = Zipf::new(config.objects as f64, config.exponent)
            .map_err(|_| Problem::Zipf(config.exponent).to_string())?;
        let report = ReadReport { format: "zipf", has_time: true, ..ReadReport::default() };
        Ok(Self { ranks, random: stream(seed, 0), config, report })
    }
}

impl Accesses for ZipfAccesses {
    fn next_batch(&mut self, batch: &mut Vec<Access>) -> Result<bool, TraceError> {
        batch.clear();
        let done = self.report.accesses;
        let end = self.config.requests.min(done + BATCH_ACCESSES);
        batch.extend((done..end).map(|number| {
            let rank = self.ranks.sample(&mut self.random) as u64;
            Access {
                time_ns: number * STEP_NS,
                key: rank.clamp(1, self.config.objects) - 1,
                size_bytes: self.config.size_bytes,
                ttl_seconds: None,
                tenant: None,
                kind: AccessKind::Get,
            }
        }));
        self.report.accesses = end;
        self.report.rows = end;
        Ok(end > done)
    }

    fn report(&self) -> &ReadReport {
        &self.report
    }
}
