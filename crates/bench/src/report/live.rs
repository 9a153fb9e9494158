//! The figures of a run for Prometheus while it runs.

use std::sync::Arc;
use std::time::Duration;

use device::counters::Kind::State;
use device::prometheus::Metrics;
use parking_lot::Mutex;

use super::series::Span;
use crate::progress::nearest_end;
use crate::run::latency::Timed;
use crate::run::{Observable, Watcher};

/// Refreshes between two readings: one second. A reading of a large cache takes too long for each.
const REFRESHES: u32 = 5;

/// Quantiles of latency.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// The last reading of a run.
#[derive(Debug)]
pub struct Live {
    state: Mutex<(String, Result<(), String>)>,
}

impl Default for Live {
    fn default() -> Self {
        Self { state: Mutex::new((String::new(), Ok(()))) }
    }
}

impl Live {
    /// The figures in Prometheus's text format.
    #[must_use]
    pub fn text(&self) -> String {
        self.state.lock().0.clone()
    }

    /// Whether all reads were consistent and flash accepts writes.
    ///
    /// # Errors
    /// The first problem.
    pub fn health(&self) -> Result<(), String> {
        self.state.lock().1.clone()
    }
}

/// Reads the figures each second, in front of another watcher.
pub struct LiveWatcher<'a> {
    watcher: &'a mut dyn Watcher,
    live: Arc<Live>,
    timeout: Option<Duration>,
    refreshes: u32,
}

impl<'a> LiveWatcher<'a> {
    /// Stores readings in `live`. `timeout` is the time limit of the run.
    pub fn new(watcher: &'a mut dyn Watcher, live: Arc<Live>, timeout: Option<Duration>) -> Self {
        Self { watcher, live, timeout, refreshes: 0 }
    }
}

impl Watcher for LiveWatcher<'_> {
    fn refresh(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        self.watcher.refresh(instances, elapsed);
        if self.refreshes.is_multiple_of(REFRESHES) {
            let text = text(instances, elapsed, self.timeout);
            *self.live.state.lock() = (text, health(instances));
        }
        self.refreshes = self.refreshes.wrapping_add(1);
    }

    fn sample(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        self.watcher.sample(instances, elapsed);
    }

    fn warmed_up(&mut self) {
        self.watcher.warmed_up();
    }

    fn warn(&mut self, text: &str) {
        self.watcher.warn(text);
    }

    fn needs_intervals(&self) -> bool {
        self.watcher.needs_intervals()
    }

    fn interval(&mut self, span: &Span) {
        self.watcher.interval(span);
    }
}

fn text(instances: &[&dyn Observable], elapsed: Duration, timeout: Option<Duration>) -> String {
    let mut metrics = Metrics::new("flashwright_bench");
    metrics.sample("elapsed_seconds", State, "Time since the start.", &[], elapsed.as_secs_f64());
    if let Some((_, share)) = nearest_end(instances, elapsed, timeout) {
        metrics.sample("progress_ratio", State, "Completed share of the run, 0 to 1.", &[], share);
    }
    for (number, instance) in instances.iter().enumerate() {
        let number = number.to_string();
        let cache = ("cache", &*number);
        metrics.table("", &instance.counts(), &[cache], "");
        metrics.table("cache", &instance.snapshot().stats, &[cache], "class");
        let latencies = instance.latencies();
        for kind in Timed::ALL {
            let histogram = latencies.of(kind);
            let Some(mean_ns) = histogram.mean_ns() else { continue };
            let quantiles =
                QUANTILES.map(|share| (share, histogram.quantile_ns(share).unwrap_or(0) as f64 / 1e9));
            let count = histogram.count();
            metrics.summary(
                ("operation_seconds", "Time of the timed operations, by kind."),
                &[cache, ("operation", kind.name())],
                quantiles,
                (mean_ns * count as f64 / 1e9, count),
            );
        }
    }
    metrics.into_text()
}

fn health(instances: &[&dyn Observable]) -> Result<(), String> {
    let inconsistencies: u64 = instances.iter().map(|it| it.counts().inconsistencies).sum();
    if inconsistencies > 0 {
        return Err(format!("{inconsistencies} reads were inconsistent"));
    }
    match instances.iter().filter_map(|it| it.flash_stats()).find(|flash| !flash.health.is_healthy()) {
        None => Ok(()),
        Some(flash) => {
            let reason = flash.health.last_error.unwrap_or_else(|| "regions are out of service".into());
            Err(format!("flash does not accept writes: {reason}"))
        }
    }
}
