//! CacheBench's stressors that make their own requests: many references to one item, maps in chained items, and a shutdown while memory
//! moves between size classes.
//!
//! A stressor replaces the request loop of an instance's workers. Its failures fail the run; its figures are in the report.

mod failures;
mod maps;
mod references;
mod shutdown;

use std::sync::atomic::Ordering;

use super::target::Target;
use super::worker::{Shared, WorkerStats};
use crate::config::plan::StressorPlan;
use failures::Failures;
pub use failures::StressorReport;
use maps::Maps;
use references::References;
pub use shutdown::OpenCache;
use shutdown::Shutdown;

/// The stressor of one instance.
pub struct Stressor {
    plan: StressorPlan,
    kind: Kind,
    failures: Failures,
}

enum Kind {
    References(References),
    Maps(Maps),
    Shutdown(Shutdown),
}

impl Stressor {
    /// Creates the stressor of `plan`. The stressor of fast shutdowns opens caches by `open`.
    #[must_use]
    pub fn new(plan: StressorPlan, seed: u64, open: OpenCache) -> Self {
        let kind = match plan {
            StressorPlan::References => Kind::References(References::new(seed)),
            StressorPlan::Map => Kind::Maps(Maps::new(seed, false)),
            StressorPlan::RangeMap => Kind::Maps(Maps::new(seed, true)),
            StressorPlan::FastShutdown => Kind::Shutdown(Shutdown::new(open)),
        };
        Self { plan, kind, failures: Failures::default() }
    }

    /// The loop of worker `number`.
    pub(super) async fn work<T: Target>(&self, shared: &Shared<T>, stats: &WorkerStats, number: usize) {
        match &self.kind {
            Kind::References(references) => references.work(shared, stats, number, &self.failures).await,
            Kind::Maps(maps) => maps.work(shared, stats, number, &self.failures).await,
            Kind::Shutdown(shutdown) => shutdown.work(shared, stats, &self.failures),
        }
    }

    /// Checks the target after all workers have ended.
    pub(super) fn finish<T: Target>(&self, target: &T) {
        if let Kind::References(references) = &self.kind {
            references.finish(target, &self.failures);
        }
    }

    /// The figures and failures so far.
    pub(super) fn report(&self) -> StressorReport {
        StressorReport {
            name: self.plan.name(),
            figures: match &self.kind {
                Kind::References(references) => references.figures(),
                Kind::Maps(maps) => maps.figures(),
                Kind::Shutdown(shutdown) => shutdown.figures(),
            },
            failed: self.failures.count.load(Ordering::Relaxed),
            failures: self.failures.described.lock().clone(),
        }
    }
}
