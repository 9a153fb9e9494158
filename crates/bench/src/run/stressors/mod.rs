//! CacheBench's stressors that make their own requests: many references to one item, maps in chained items, and a shutdown while memory
//! moves between size classes.
//!
//! A stressor replaces the request loop of an instance's workers. Its failures fail the run; its figures are in the report.

mod maps;
mod references;
mod shutdown;

use std::sync::atomic::{AtomicU64, Ordering};

use cache::Cache;
use parking_lot::Mutex;

use super::target::Target;
use super::worker::{Shared, WorkerStats};
use crate::config::plan::StressorPlan;
use maps::Maps;
use references::References;
use shutdown::Shutdown;

/// Limit of described failures; all are counted.
const DESCRIBED: usize = 10;

/// Opens another cache like the instance's.
pub type OpenCache = Box<dyn Fn() -> Result<Cache, String> + Send + Sync>;

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

/// The failures of a stressor.
#[derive(Default)]
pub(super) struct Failures {
    count: AtomicU64,
    described: Mutex<Vec<String>>,
}

/// The figures and failures of a stressor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StressorReport {
    /// CacheBench's name of the stressor.
    pub name: &'static str,
    /// Each figure's name in the JSON, label in the text, and value.
    pub figures: Vec<(&'static str, &'static str, u64)>,
    /// Number of failures.
    pub failed: u64,
    /// Descriptions of the first failures.
    pub failures: Vec<String>,
}

impl Failures {
    fn add(&self, message: impl FnOnce() -> String) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut described = self.described.lock();
        if described.len() < DESCRIBED {
            described.push(message());
        }
    }
}

impl Stressor {
    /// Creates the stressor of `plan`; `open` opens a cache for the one that shuts caches down.
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

impl StressorReport {
    /// The failures, in one sentence.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let message =
            || format!("Found {} {} failures: {}", self.failed, self.name, self.failures.join("; "));
        (self.failed > 0).then(message)
    }
}
