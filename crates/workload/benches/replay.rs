//! Rows a second, from file to request: `cargo bench -p flashwright-workload --bench replay`.
#![allow(clippy::print_stdout, reason = "a benchmark reports on standard output")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fmt::Write;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use flashwright_workload::Workload;
use flashwright_workload::trace::{Format, Replay, ReplayConfig};

const ROWS: u64 = 1_000_000;

fn main() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let kv = kvcache_rows();
    let plain = plain_rows();
    let packed = zstd::encode_all(kv.as_bytes(), 3).expect("compresses");
    for (name, format, bytes) in [
        ("kvcache, 10 columns", "kvcache", kv.as_bytes()),
        ("kvcache, 10 columns, zstd", "kvcache", &packed),
        ("plain, 4 columns", "plain", plain.as_bytes()),
    ] {
        let path = folder.path().join(format!("trace-{}", name.len()));
        std::fs::write(&path, bytes).expect("writes the trace");
        report(name, path, Format::named(format).expect("a known format"));
    }
}

fn report(name: &str, path: PathBuf, format: &'static Format) {
    let replay = Replay::new(ReplayConfig::new(vec![path], format));
    let best = (0..5).map(|_| seconds(&replay)).fold(f64::INFINITY, f64::min);
    println!("{name:<32} {:6.2} M rows/s through one parser and one worker", ROWS as f64 / best / 1e6);
}

fn seconds(replay: &Replay) -> f64 {
    let start = Instant::now();
    let mut source = replay.sources(1, 0).expect("opens").remove(0);
    let mut rows = 0;
    while let Some(request) = source.next() {
        black_box(request.key_id);
        rows += 1;
    }
    assert_eq!(rows, ROWS);
    start.elapsed().as_secs_f64()
}

fn kvcache_rows() -> String {
    let mut text = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n".to_owned();
    for row in 0..ROWS {
        let key = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (row % 7);
        let size = key % 5000;
        writeln!(
            text,
            "{},{key:016x},{},GET,1,{size},1,0,366387042,3003229276",
            604_038_471 + row / 100,
            20 + key % 60
        )
        .expect("writes to memory");
    }
    text
}

fn plain_rows() -> String {
    let mut text = "ts,key,op,size\n".to_owned();
    for row in 0..ROWS {
        writeln!(text, "{}.{:03},{},GET,{}", row / 1000, row % 1000, row * 7919 % 100_003, row % 900)
            .expect("writes to memory");
    }
    text
}
