//! CPU time per row of all threads, from file to request and from file to access: `cargo bench -p flashwright-workload --bench replay`.
#![allow(clippy::print_stdout, reason = "a benchmark reports on standard output")]

use std::fmt::Write;
use std::hint::black_box;
use std::path::{Path, PathBuf};

use flashwright_workload::Workload;
use flashwright_workload::generate::cdn::{Cdn, CdnConfig};
use flashwright_workload::trace::{
    Accesses, Format, OpenOptions, Replay, ReplayConfig, Target, Writer, ZeroSize, copy, open,
};

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
        report(name, path.clone(), Format::named(format).expect("a known format"));
        report_accesses(name, &path, format);
        if format == "kvcache" && bytes.len() == kv.len() {
            report_binary(&path);
        }
    }
    let config = CdnConfig { requests: ROWS, objects: ROWS * 3 / 10, ..CdnConfig::default() };
    let generated = best_of(|| drain(&mut Cdn::new(&config, 1)));
    print("photo CDN", generated, "per generated access");
    let path = folder.path().join("trace.bin");
    let mut writer = Writer::create(&path, Target::OracleGeneral).expect("creates");
    let (mut cdn, mut batch) = (Cdn::new(&config, 1), Vec::new());
    while cdn.next_batch(&mut batch).expect("goes on") {
        writer.write(&batch).expect("writes");
    }
    writer.finish().expect("writes");
    report_accesses("oracle-general", &path, "oracle-general");
}

/// Measures the requests of the trace `kvcache` as a binary trace, plain and compressed.
fn report_binary(kvcache: &Path) {
    for ending in ["fwt", "fwt.zst"] {
        let path = kvcache.with_extension(ending);
        let options = OpenOptions { zero_size: ZeroSize::Keep, ..OpenOptions::default() };
        let mut trace = copy(&[kvcache], Some("kvcache"), &options).expect("opens");
        let mut writer = Writer::create(&path, Target::Binary).expect("creates");
        while trace.step(&mut writer).expect("copies") {}
        writer.finish().expect("writes");
        let bytes = std::fs::metadata(&path).expect("is there").len() as f64 / ROWS as f64;
        let name = format!("the same, {ending}, {bytes:.1} bytes");
        report(&name, path.clone(), Format::named("binary").expect("a known format"));
        report_accesses(&name, &path, "binary");
    }
}

fn report_accesses(name: &str, path: &Path, format: &str) {
    let read = || {
        let mut trace =
            open(&[path], Some(format), &OpenOptions { zero_size: ZeroSize::Keep, ..OpenOptions::default() });
        drain(trace.as_mut().expect("opens").as_mut())
    };
    print(name, best_of(read), "per row read as accesses");
}

fn drain(accesses: &mut dyn Accesses) -> u64 {
    let (mut batch, mut count) = (Vec::new(), 0);
    while accesses.next_batch(&mut batch).expect("reads") {
        count += black_box(&batch).len() as u64;
    }
    count
}

/// Nanoseconds of CPU time per row of [`ROWS`] in the fastest of some rounds.
fn best_of(work: impl Fn() -> u64) -> f64 {
    let round = || {
        let start = cpu_ns();
        assert_eq!(work(), ROWS);
        (cpu_ns() - start) / ROWS as f64
    };
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// CPU time of this process, all threads together.
fn cpu_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn print(name: &str, nanoseconds: f64, of: &str) {
    println!("{name:<32} {nanoseconds:6.1} ns of CPU {of}");
}

fn report(name: &str, path: PathBuf, format: &'static Format) {
    let replay = Replay::new(ReplayConfig::new(vec![path], format));
    let read = || {
        let mut source = replay.sources(1, 0).expect("opens").remove(0);
        let mut rows = 0;
        while let Some(request) = source.next() {
            black_box(request.key_id);
            rows += 1;
        }
        rows
    };
    print(name, best_of(read), "per row, one parser and one worker");
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
