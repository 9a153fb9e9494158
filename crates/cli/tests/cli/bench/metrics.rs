//! Metrics of a running `bench`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::{SMALL, config, endless};
use crate::http_get;

/// A process, killed at the end.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn value(metrics: &str, name: &str) -> Option<f64> {
    let line =
        metrics.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn running_bench_serves_its_counters_latencies_and_health() {
    let (directory, file) = config("small.json", SMALL);
    let mut command = endless(&file, &directory.path().join("result.json"));
    command.args(["--metrics", "127.0.0.1:0"]).stdout(Stdio::piped());
    let mut child = Killed(command.spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines
        .find_map(|line| Some(line.strip_prefix("metrics and a live page on http://")?.to_owned()))
        .unwrap();
    let address = address.trim_end_matches('/');
    let ops = "flashwright_bench_ops_total{cache=\"0\"}";
    let metrics = loop {
        let metrics = http_get(address, "/metrics");
        if value(&metrics, ops).is_some_and(|ops| ops > 100.0) {
            break metrics;
        }
        std::thread::yield_now();
    };
    for name in [
        "flashwright_bench_cache_inserts_stored_total{cache=\"0\"}",
        "flashwright_bench_cache_pools_classes_items{cache=\"0\",pool=\"0\"}",
        "flashwright_bench_operation_seconds_count{cache=\"0\",operation=\"set\"}",
        "flashwright_bench_operation_seconds{cache=\"0\",operation=\"set\",quantile=\"0.99\"}",
        "flashwright_bench_elapsed_seconds",
    ] {
        assert!(value(&metrics, name).is_some_and(|value| value > 0.0), "{name}: {metrics}");
    }
    assert!(http_get(address, "/health").starts_with("HTTP/1.1 200 "));
}

#[test]
fn metrics_on_an_address_of_other_machines_need_permission() {
    let (directory, file) = config("small.json", SMALL);
    let result = directory.path().join("result.json");
    let mut command = endless(&file, &result);
    let output = command.args(["--metrics", "0.0.0.0:0"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("--metrics 0.0.0.0:0") && error.contains("--allow-remote"), "{error}");
    assert!(!output.status.success() && !result.exists());
}
