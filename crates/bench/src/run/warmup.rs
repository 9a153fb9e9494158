//! Detects the end of the warm-up, and the limits that end a run besides its number of operations.
//!
//! The watcher checks periodically, so both are detected a little late: by up to 200 ms in real time, and by up to 10 ms of virtual time
//! in a simulated run, where all runs with one seed detect them at the same time. The figures start and end at the detection.

use std::sync::Arc;
use std::time::Duration;

use super::counts::{CounterTable, Counts};
use super::latency::Latencies;
use super::punctuality::Punctuality;
use super::stop::StopReason;
use super::target::{Snapshot, Target};
use super::tenants::Ledger;
use super::{Instance, InstanceReport, Observable, Watcher};
use crate::config::plan::{LimitsPlan, WarmupPlan};
use crate::steady::Rounds;

/// Counters of an instance at the end of its warm-up.
#[derive(Debug, Clone)]
pub(super) struct Baseline {
    pub elapsed: Duration,
    pub counts: Counts,
    pub latencies: Latencies,
    pub punctuality: Punctuality,
    pub snapshot: Snapshot,
    pub tenants: Ledger,
}

/// The warm-up, which is excluded from the figures.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Warmup {
    /// Whether the warm-up ended; otherwise the figures include the whole run.
    pub ended: bool,
    /// Length of the warm-up in seconds.
    pub seconds: f64,
    /// Counters of the warm-up.
    pub counts: Counts,
    /// Bytes written to flash during the warm-up.
    pub flash_bytes: u64,
}

impl Baseline {
    /// Excludes the warm-up from `report`, which covers the whole run. Errors and inconsistent reads of the warm-up are kept, as they
    /// matter whenever they occur.
    pub(super) fn exclude_from(&self, report: &mut InstanceReport) {
        let inconsistencies = report.counts.inconsistencies;
        report.counts = Counts { inconsistencies, ..report.counts.since(&self.counts) };
        report.latencies = report.latencies.since(&self.latencies);
        report.snapshot = counted_since(&report.snapshot, &self.snapshot);
        if let Some(punctuality) = &mut report.punctuality {
            *punctuality = punctuality.since(&self.punctuality, self.elapsed);
        }
        let seconds = self.elapsed.as_secs_f64().min(report.seconds);
        report.seconds -= seconds;
        report.warmup = Some(Warmup {
            ended: true,
            seconds,
            counts: Counts { inconsistencies: 0, ..self.counts },
            flash_bytes: self.snapshot.stats.flash.as_ref().map_or(0, |flash| flash.device.written_bytes),
        });
    }
}

/// The difference between `whole` and `earlier`, except that errors are those of the whole run.
fn counted_since(whole: &Snapshot, earlier: &Snapshot) -> Snapshot {
    let mut part = whole.since(earlier);
    if let (Some(part), Some(whole)) = (&mut part.stats.flash, &whole.stats.flash) {
        part.copy_errors_of(whole);
    }
    part
}

/// Tracks the end of the warm-up and the limits of a run.
pub(super) struct PhaseTracker {
    warming_up: bool,
    rounds: Vec<Rounds>,
}

impl PhaseTracker {
    pub(super) fn new<T: Target>(instances: &[Arc<Instance<T>>]) -> Self {
        let warming_up = instances.iter().any(|it| it.settings().warmup != WarmupPlan::default());
        Self { warming_up, rounds: instances.iter().map(|_| Rounds::default()).collect() }
    }

    /// Checks all instances. The warm-up of all ends at the same time, so that their figures cover the same interval.
    pub(super) fn update<T: Target>(
        &mut self,
        instances: &[Arc<Instance<T>>],
        elapsed: Duration,
        watcher: &mut dyn Watcher,
    ) {
        if self.warming_up && instances.iter().all(|instance| is_warm(instance, elapsed)) {
            self.warming_up = false;
            instances.iter().for_each(|instance| instance.end_warmup(elapsed));
            watcher.warmed_up();
        }
        for (instance, rounds) in instances.iter().zip(&mut self.rounds) {
            if let Some(reason) = limit(instance, rounds, elapsed) {
                instance.shared.stop.end_instance(reason);
            }
        }
    }
}

fn is_warm<T: Target>(instance: &Instance<T>, elapsed: Duration) -> bool {
    let WarmupPlan { ops_per_thread, seconds, flash_bytes, flash_evictions, trace_seconds } =
        instance.settings().warmup;
    let ops = ops_per_thread.saturating_mul(instance.settings().threads as u64);
    elapsed >= Duration::from_secs(seconds)
        && (ops == 0 || instance.counts().ops >= ops)
        && (flash_bytes == 0 || instance.flash_written_bytes() >= flash_bytes)
        && (flash_evictions == 0 || instance.flash_evictions() >= flash_evictions)
        && (trace_seconds == 0 || instance.trace_seconds() >= trace_seconds)
}

fn limit<T: Target>(instance: &Instance<T>, rounds: &mut Rounds, elapsed: Duration) -> Option<StopReason> {
    let LimitsPlan { flash_bytes, steady_round_ops } = instance.settings().limits;
    if flash_bytes > 0 && instance.flash_written_bytes() >= flash_bytes {
        return Some(StopReason::FlashWritten);
    }
    if steady_round_ops > 0 && rounds.is_over(&instance.counts(), steady_round_ops) {
        rounds.end(elapsed.as_secs_f64(), instance.counts(), &instance.snapshot());
        return rounds.is_steady().then_some(StopReason::Steady);
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::path::Path;

    use cache::stats::{FlashStats, RegionStats, SocStats};

    use super::*;
    use crate::config::Loaded;
    use crate::config::cachebench::load_text;
    use crate::config::lower::lower;
    use crate::config::plan::RunSettings;
    use crate::run::latency::Timed;

    #[test]
    fn errors_of_the_warm_up_are_kept_in_the_report() {
        let at = |offered: u64, failed: u64| {
            let soc = SocStats { lost_items: failed, checksum_errors: failed, ..SocStats::default() };
            let regions = RegionStats {
                items_lost: failed,
                header_checksum_errors: failed,
                value_checksum_errors: failed,
                table_checksum_errors: failed,
                ..RegionStats::default()
            };
            let mut flash = FlashStats { soc: Some(soc), regions: Some(regions), ..FlashStats::default() };
            (flash.puts.offered, flash.device.errors) = (offered, failed);
            with_flash(flash)
        };
        assert_eq!(counted_since(&at(10, 2), &at(4, 2)), at(6, 2));
    }

    fn with_flash(flash: FlashStats) -> Snapshot {
        let stats = cache::Stats { flash: Some(flash), ..cache::Stats::default() };
        Snapshot { stats, ..Snapshot::default() }
    }

    fn settings() -> RunSettings {
        let text = r#"{ "test_config": { "generator": "online", "numOps": 10, "numThreads": 1, "numKeys": 10, "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0],
            "valSizeRange": [1, 300], "valSizeRangeProbability": [1.0], "getRatio": 1.0 }, "cache_config": { "cacheSizeMB": 64 } }"#;
        let Ok(Loaded::Config(config)) = load_text(Path::new("c.json"), text, &[]) else {
            panic!("bad config")
        };
        lower(&config).unwrap().instances.remove(0).run
    }

    #[test]
    fn warm_up_is_excluded_except_for_inconsistencies() {
        let counts = |ops: u64, inconsistencies: u64| Counts { ops, inconsistencies, ..Counts::default() };
        let latencies = |count: u64| {
            let mut latencies = Latencies::default();
            (0..count).for_each(|_| latencies.record(Timed::Set, 1000));
            latencies
        };
        let written = |host: u64| {
            let mut flash = FlashStats::default();
            flash.device.written_bytes = host;
            with_flash(flash)
        };
        let report = |seconds: f64, ops: u64, inconsistencies: u64, host: u64| InstanceReport {
            settings: settings(),
            seconds,
            counts: counts(ops, inconsistencies),
            latencies: latencies(ops),
            timed_all: true,
            snapshot: written(host),
            largest_refused_bytes: 0,
            inconsistencies: Vec::new(),
            stopped: None,
            punctuality: None,
            warmup: None,
            trace: None,
            tenants: None,
            misses: None,
            destructors: None,
            stressor: None,
            sweeps: None,
            events: None,
        };
        let warm = |elapsed: Duration| Baseline {
            elapsed,
            counts: counts(4, 2),
            latencies: latencies(4),
            punctuality: Punctuality::default(),
            snapshot: written(100),
            tenants: Ledger::default(),
        };
        let mut run = report(10.0, 10, 3, 300);
        warm(Duration::from_secs(4)).exclude_from(&mut run);
        let (warmup, of_run) = (
            Warmup { ended: true, seconds: 4.0, counts: counts(4, 0), flash_bytes: 100 },
            report(6.0, 6, 3, 200),
        );
        assert_eq!((run.warmup, run.seconds, run.counts), (Some(warmup), of_run.seconds, of_run.counts));
        assert_eq!((run.latencies, run.snapshot), (of_run.latencies, of_run.snapshot));
        // The check is periodic, so the threads may have ended before it.
        let mut over = report(10.0, 4, 2, 100);
        warm(Duration::from_secs(11)).exclude_from(&mut over);
        assert_eq!((over.seconds, over.warmup.unwrap().seconds), (0.0, 10.0));
    }
}
