//! Constructed reports for tests.
#![allow(dead_code, reason = "each test creates the reports it needs")]

use cache::stats::{ClassStats, FlashStats, PoolStats};
use flashwright_bench::config::plan::RunSettings;
use flashwright_bench::report::RunReport;
use flashwright_bench::report::series::Series;
use flashwright_bench::run::InstanceReport;
use flashwright_bench::run::counts::Counts;
use flashwright_bench::run::latency::Latencies;
use flashwright_bench::run::target::{FlashDevice, Snapshot};

/// A closed loop of 32 threads.
pub fn settings() -> RunSettings {
    RunSettings {
        threads: 32,
        ops_per_thread: 100_000,
        populate: true,
        max_inconsistencies: 50,
        ..RunSettings::default()
    }
}

/// A run with one instance.
pub fn report(instance: InstanceReport) -> RunReport {
    RunReport {
        unwritten: Vec::new(),
        drive: None,
        instances: vec![instance],
        warnings: vec!["w".into()],
        errors: Vec::new(),
        series: Series::default(),
        seed: 1,
        config: serde_json::json!({}),
        environment: serde_json::json!({}),
    }
}

/// Counters of a cache with flash.
pub fn with_flash(flash: FlashStats, device: FlashDevice) -> Snapshot {
    let stats = cache::Stats { flash: Some(flash), ..cache::Stats::default() };
    Snapshot { stats, device: Some(device), item_limit: None }
}

/// A pool of one slab with one class.
pub fn pool(class: ClassStats) -> PoolStats {
    PoolStats { quota_slabs: 1, slab_bytes: 4 << 20, classes: vec![class], ..PoolStats::default() }
}

/// An idle instance that ran for `seconds`.
pub fn instance(seconds: f64) -> InstanceReport {
    InstanceReport {
        settings: settings(),
        seconds,
        counts: Counts::default(),
        latencies: Latencies::default(),
        timed_all: true,
        snapshot: Snapshot::default(),
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
    }
}
