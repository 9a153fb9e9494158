//! The requests that we generate for a job file beside those of fio itself, from its log. Skipped without fio.
use std::collections::HashMap;
use std::process::Command;

use flashwright_workload::block::BlockKind;
use flashwright_workload::fio::JobFile;
use flashwright_workload::fio::requests::{Extent, Operation, Requests};

const SIZE: u64 = 64 << 20;

/// The requests of fio, which runs the job on its `null` engine and logs them.
fn of_fio(options: &[&str]) -> Option<Vec<Operation>> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = Command::new("fio");
    command.current_dir(&folder).args(["--name=j", "--ioengine=null", "--output=/dev/null"]);
    command.args([format!("--size={SIZE}"), format!("--write_iolog={}", log.display())]);
    command.args(options.iter().map(|option| format!("--{option}")));
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("fio: {error}"),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&log).unwrap();
    let operation = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, kind, first, bytes] = fields[..] else { return None };
        let kind = match kind {
            "read" => BlockKind::Read,
            "write" => BlockKind::Write,
            "trim" => BlockKind::Discard,
            _ => return None,
        };
        Some(Operation { kind, first_byte: first.parse().ok()?, bytes: bytes.parse().ok()? })
    };
    Some(text.lines().filter_map(operation).collect())
}

fn of_ours(options: &[&str]) -> Vec<Operation> {
    let file = JobFile::parse(&format!("[j]\nioengine=null\n{}\n", options.join("\n")), |_| None).unwrap();
    let job = &file.jobs[0];
    let limit = job.io_size.map(|amount| amount.of(SIZE, 1));
    let mut requests = Requests::new(job, (Extent { first_byte: 0, bytes: SIZE }, 1), limit, 1, 0);
    std::iter::from_fn(|| requests.next()).collect()
}

/// How often the offsets occur, most frequent first.
fn popularity(operations: &[Operation]) -> Vec<u64> {
    let mut counts = HashMap::new();
    operations.iter().for_each(|it| *counts.entry(it.first_byte).or_insert(0_u64) += 1);
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

fn share(operations: &[Operation], mut is: impl FnMut(&Operation) -> bool) -> f64 {
    operations.iter().filter(|it| is(it)).count() as f64 / operations.len() as f64
}

/// Shares that describe the requests and do not depend on the random numbers.
fn figures(operations: &[Operation]) -> Vec<(String, f64)> {
    let counts = popularity(operations);
    let total = operations.len() as f64;
    let mut figures = vec![("distinct offsets".to_owned(), counts.len() as f64 / total)];
    for top in [1, 10, 100, 1000] {
        let sum: u64 = counts.iter().take(top).sum();
        figures.push((format!("top {top} offsets"), sum as f64 / total));
    }
    for kind in [BlockKind::Read, BlockKind::Write, BlockKind::Discard] {
        figures.push((format!("{kind:?}"), share(operations, |it| it.kind == kind)));
    }
    for bytes in [512, 4096, 8192, 16_384, 65_536] {
        figures.push((format!("{bytes} bytes"), share(operations, |it| it.bytes == bytes)));
    }
    let follows =
        operations.windows(2).filter(|it| it[0].first_byte + it[0].bytes == it[1].first_byte).count();
    figures.push(("sequential".to_owned(), follows as f64 / total));
    figures
}

fn compare(options: &[&str], zones: &[f64]) {
    let Some(theirs) = of_fio(options) else { return eprintln!("SKIPPED: fio is not installed") };
    let ours = of_ours(options);
    let volume = |operations: &[Operation]| operations.iter().map(|it| it.bytes).sum::<u64>() as f64;
    let difference = volume(&ours) / volume(&theirs) - 1.0;
    assert!(difference.abs() < 0.002, "{options:?}: bytes differ by {:.2} %", difference * 100.0);
    for ((name, ours), (_, theirs)) in figures(&ours).into_iter().zip(figures(&theirs)) {
        assert!((ours - theirs).abs() < 0.012, "{options:?}: {name}: ours {ours:.4}, fio {theirs:.4}");
    }
    for zone in zones.windows(2) {
        let bounds = [zone[0], zone[1]].map(|edge| (edge * SIZE as f64) as u64);
        let is_in = |it: &Operation| (bounds[0]..bounds[1]).contains(&it.first_byte);
        let (ours, theirs) = (share(&ours, is_in), share(&theirs, is_in));
        assert!((ours - theirs).abs() < 0.012, "{options:?}: {zone:?}: ours {ours:.4}, fio {theirs:.4}");
    }
}

const TENTHS: [f64; 11] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

#[test]
fn uniform_requests_match_those_of_fio() {
    compare(&["rw=randwrite", "bs=4k", "io_size=128m"], &TENTHS);
    compare(&["rw=randwrite", "bs=4k", "norandommap"], &TENTHS);
    compare(&["rw=randwrite:8", "bs=4k", "norandommap", "io_size=1g"], &TENTHS);
    compare(
        &["rw=randrw", "rwmixread=30", "bssplit=4k/70:8k/20:64k/10", "norandommap", "io_size=1g"],
        &TENTHS,
    );
    compare(&["rw=randrw", "bs=4k,8k", "norandommap", "io_size=512m"], &TENTHS);
    compare(&["rw=randwrite", "bsrange=4k-16k"], &TENTHS);
    compare(&["rw=randwrite", "bs=4k", "percentage_random=40", "norandommap"], &[0.0, 1.0]);
}

#[test]
fn skewed_requests_match_those_of_fio() {
    for distribution in
        ["zipf:0.7", "zipf:1.2", "zipf:2.2", "pareto:0.2", "pareto:0.4", "normal:10", "normal:50"]
    {
        compare(
            &["rw=randwrite", "bs=4k", "io_size=256m", &format!("random_distribution={distribution}")],
            &[0.0, 1.0],
        );
    }
    let zones = "random_distribution=zoned:80/20:10/20:10/60";
    compare(&["rw=randwrite", "bs=4k", zones], &[0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]);
    let zones = "random_distribution=zoned_abs:60/8m:30/16m:10/40m";
    compare(&["rw=randread", "bs=4k", zones], &[0.0, 0.125, 0.375, 0.6, 1.0]);
}

#[test]
fn sequential_requests_are_exactly_those_of_fio() {
    for options in [
        &["rw=write", "bs=128k"][..],
        &["rw=read", "bs=4k", "io_size=32m"],
        &["rw=write:4k", "bs=4k"],
        &["rw=write", "bs=64k", "loops=2"],
        &["rw=write", "bs=64k", "number_ios=10"],
    ] {
        let Some(theirs) = of_fio(options) else { return eprintln!("SKIPPED: fio is not installed") };
        let ours = of_ours(options);
        assert_eq!(ours.len(), theirs.len(), "{options:?}");
        assert!(ours == theirs, "{options:?}: offsets differ");
    }
}
