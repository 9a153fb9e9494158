//! The open loop compared with queueing theory, in virtual time with a constant service time.
use crate::twin;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::twin::NoWatcher;
use crate::twin::slow::SlowTarget;
use device::Simulation;
use flashwright_bench::config::cachebench::load_text;
use flashwright_bench::config::lower::lower;
use flashwright_bench::config::plan::{RunSettings, WorkloadPlan};
use flashwright_bench::config::{Loaded, Override};
use flashwright_bench::run::pace::Waiter;
use flashwright_bench::run::punctuality::Punctuality;
use flashwright_bench::run::simulated::run_simulated;
use flashwright_bench::run::stop::StopReason;
use flashwright_bench::run::{Instance, InstanceOptions, InstanceReport};
use workload::generate::Online;

const CONFIG: &str = r#"{
  "cache_config": { "cacheSizeMB": 64 },
  "test_config": { "generator": "online", "numOps": 200000, "numThreads": 1, "numKeys": 50, "opRatePerSec": 50000,
    "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [1, 300], "valSizeRangeProbability": [1.0],
    "getRatio": 1.0 }
}"#;

const SERVICE_NS: u64 = 10_000;
const SEED: u64 = 11;

fn plan(changes: &[&str]) -> (RunSettings, Online) {
    let overrides: Vec<Override> = changes.iter().map(|change| change.parse().unwrap()).collect();
    let Ok(Loaded::Config(config)) = load_text(Path::new("c.json"), CONFIG, &overrides) else {
        panic!("bad config")
    };
    let plan = lower(&config).unwrap().instances.remove(0);
    let WorkloadPlan::Online(config) = &plan.workload else { panic!("not here") };
    (plan.run, Online::new(config).unwrap())
}

fn run_for(changes: &[&str], seed: u64, timeout: Option<Duration>) -> InstanceReport {
    let (settings, workload) = plan(changes);
    let simulation = Simulation::new(seed);
    let timer: Arc<dyn device::timer::Timer> = Arc::new(simulation.world());
    let options = InstanceOptions {
        seed,
        clock: Arc::new(simulation.world()),
        waiter: Waiter::Task { timer: Arc::clone(&timer), cpu_ns_per_op: 0 },
        ..twin::options()
    };
    let target = SlowTarget::new(timer, SERVICE_NS);
    let instance = Arc::new(Instance::new(target, settings, Box::new(workload), options));
    run_simulated(&simulation, &[instance], timeout, &mut NoWatcher).unwrap().remove(0)
}

fn run(changes: &[&str]) -> (InstanceReport, Punctuality) {
    let report = run_for(changes, SEED, None);
    let punctuality = report.punctuality.clone().unwrap();
    (report, punctuality)
}

/// A constant service time and one worker with Poisson arrivals are an M/D/1 queue, whose mean wait is known.
#[test]
fn poisson_arrivals_at_one_worker_wait_as_in_m_d_1_queue() {
    for (per_second, tolerance) in [(30_000_u64, 0.03), (50_000, 0.03), (80_000, 0.06)] {
        let rate = format!("test_config.opRatePerSec={per_second}");
        let (report, punctuality) = run(&["test_config.arrivals=poisson", &rate]);
        let load = per_second as f64 * SERVICE_NS as f64 / 1e9;
        let wait_ns = load * SERVICE_NS as f64 / (2.0 * (1.0 - load));
        let lateness_ns = punctuality.lateness.mean_ns().unwrap();
        assert!(
            (lateness_ns / wait_ns - 1.0).abs() < tolerance,
            "seed {SEED}: {lateness_ns} for {wait_ns} at {load}"
        );
        let latency_ns = report.latencies.gets().mean_ns().unwrap();
        let expected_ns = wait_ns + SERVICE_NS as f64;
        assert!((latency_ns / expected_ns - 1.0).abs() < tolerance, "{latency_ns} for {expected_ns}");
        let service_ns = punctuality.service.gets().mean_ns().unwrap();
        assert!((service_ns / SERVICE_NS as f64 - 1.0).abs() < 0.01, "{service_ns}");
        assert_eq!(report.latencies.gets().count(), 200_000, "every request is timed");
        assert!(punctuality.kept_up());
        assert!((report.counts.ops as f64 / report.seconds / per_second as f64 - 1.0).abs() < 0.01);
    }
}

#[test]
fn uniform_arrivals_below_capacity_do_not_wait() {
    for threads in [1, 3] {
        let threads = format!("test_config.numThreads={threads}");
        let changes = ["test_config.arrivals=uniform", &threads, "test_config.opRatePerSec=99000"];
        let (report, punctuality) = run(&changes);
        assert_eq!(punctuality.lateness.max_ns(), Some(1), "the histogram's minimum");
        assert!(report.latencies.gets().max_ns().unwrap().abs_diff(SERVICE_NS) < SERVICE_NS / 100);
        assert!(punctuality.kept_up() && punctuality.backlog == Some(0));
    }
}

/// The closed loop shows the service time of an overloaded drive; the open loop also shows the backlog.
#[test]
fn overload_appears_in_open_loop_latency_and_backlog() {
    let changes = ["test_config.opRatePerSec=125000", "test_config.opRateBurstSize=1"];
    let closed = run_for(&changes, SEED, None);
    assert!(closed.latencies.gets().max_ns().unwrap() < SERVICE_NS * 101 / 100);
    let changes = ["test_config.opRatePerSec=125000", "test_config.arrivals=uniform"];
    let (report, punctuality) = run(&changes);
    // 200,000 requests are due in 1.6 s and take 2 s.
    let (behind, seconds) = (punctuality.behind.as_secs_f64(), report.seconds);
    assert!(
        (behind - 0.4).abs() < 0.001 && (seconds - 2.0).abs() < 0.001,
        "{behind} s behind in {seconds} s"
    );
    assert!((report.latencies.gets().mean_ns().unwrap() / 1e9 - 0.2).abs() < 0.002);
    assert!(!punctuality.kept_up());
}

#[test]
fn backlog_counts_due_requests_not_started_at_timeout() {
    let changes = ["test_config.opRatePerSec=125000", "test_config.arrivals=uniform"];
    let report = run_for(&changes, SEED, Some(Duration::from_secs(1)));
    assert_eq!(report.stopped, Some(StopReason::Timeout));
    let backlog = report.punctuality.unwrap().backlog.unwrap();
    let due = report.seconds * 125_000.0;
    assert!(((report.counts.ops + backlog) as f64 - due).abs() < 2.0, "{} and {backlog}", report.counts.ops);
}

#[test]
fn open_loop_is_reproducible_by_seed() {
    let changes = ["test_config.arrivals=poisson", "test_config.numThreads=4", "test_config.numOps=5000"];
    let [first, again, other] = [1, 1, 2].map(|seed| run_for(&changes, seed, None).punctuality);
    assert!(first == again && first != other);
}

#[test]
fn timeout_ends_run_while_workers_wait_for_due_time() {
    let slow = ["test_config.arrivals=uniform", "test_config.opRatePerSec=1", "test_config.numThreads=100"];
    let report = run_for(&slow, SEED, Some(Duration::from_secs(5)));
    assert!(
        report.seconds < 5.2 && report.counts.ops == 6,
        "{} s, {} ops",
        report.seconds,
        report.counts.ops
    );
    let paused = ["test_config.opDelayBatch=1", "test_config.opDelayNs=3600000000000"];
    let report = run_for(&paused, SEED, Some(Duration::from_secs(5)));
    assert!(report.seconds < 5.2, "{} s", report.seconds);
}
