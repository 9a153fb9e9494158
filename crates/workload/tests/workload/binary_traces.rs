//! Binary traces: a converted trace makes the same requests as the original.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use flashwright_workload::trace::{
    Access, Amplify, Format, OnBadRow, OpenOptions, Order, ReadReport, Replay, ReplayConfig, Target,
    TenantsFrom, Writer, ZeroSize, copy, open,
};
use flashwright_workload::{RequestKind, Workload};
use tempfile::TempDir;

/// Enough rows for several blocks.
const ROWS: u64 = 5000;

/// Uses every column: times that go back, keys that end in zeros, repetitions, TTLs, misses, tenants.
fn kvcache_text() -> String {
    let mut text = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n".to_owned();
    for row in 0..ROWS {
        let mixed = row.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let time = 604_038_471 + row / 7 - u64::from(row % 97 == 0) * 5;
        let op = ["GET", "SET", "DELETE", "GET_LEASE"][(mixed >> 20) as usize % 4];
        let (count, ttl) = (1 + mixed % 5 * (mixed >> 9 & 1), [0, 0, 60, 7200][(mixed >> 33) as usize % 4]);
        let (size, usecase) = (mixed % 9 * 1000, ["366387042", "ads", ""][(mixed >> 40) as usize % 3]);
        writeln!(
            text,
            "{time},{:x}00,{},{op},{count},{size},1,{ttl},{usecase},7",
            mixed >> 50,
            mixed >> 45 & 0x7f
        )
        .unwrap();
    }
    text
}

fn options() -> OpenOptions {
    OpenOptions { zero_size: ZeroSize::Keep, tenants: TenantsFrom::Usual, ..OpenOptions::default() }
}

/// Converts a trace to a binary trace.
fn convert(from: &Path, format: &str, to: &Path, options: &OpenOptions) -> ReadReport {
    let mut trace = copy(&[from], Some(format), options).unwrap();
    let mut writer = Writer::create(to, Target::Binary).unwrap().with_tenants(trace.tenants());
    while trace.step(&mut writer).unwrap() {}
    assert_eq!(writer.finish().unwrap().accesses, trace.report().accesses);
    trace.report().clone()
}

fn kvcache_and_binary(folder: &TempDir, name: &str) -> (PathBuf, PathBuf) {
    let (csv, binary) = (folder.path().join("trace.csv"), folder.path().join(name));
    std::fs::write(&csv, kvcache_text()).unwrap();
    convert(&csv, "kvcache", &binary, &options());
    (csv, binary)
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    kind: RequestKind,
    key: Vec<u8>,
    key_id: u64,
    value_bytes: u64,
    repeat: u32,
    ttl_seconds: Option<u32>,
    time_ns: Option<u64>,
    tenant: Option<String>,
}

/// The requests of each worker. One thread runs all workers, so that batches arrive in the same order each time.
fn replayed(path: &Path, format: &str, workers: usize, change: impl Fn(&mut ReplayConfig)) -> Vec<Vec<Seen>> {
    let mut config = ReplayConfig::new(vec![path.to_owned()], Format::named(format).unwrap());
    (config.time_units_per_second, config.one_thread) = (1, true);
    change(&mut config);
    let replay = Replay::new(config);
    replay.check_files().unwrap();
    let all = replay.sources(workers, 0).unwrap().into_iter().map(|mut source| {
        let mut seen = Vec::new();
        while let Some(it) = source.next() {
            let (kind, key, key_id, value_bytes) = (it.kind, it.key.to_vec(), it.key_id, it.value_bytes);
            let (repeat, ttl_seconds, time_ns) = (it.repeat, it.ttl_seconds, it.time_ns);
            let tenant = it.tenant.map(|tenant| replay.tenants().of(tenant).unwrap().to_string());
            seen.push(Seen { kind, key, key_id, value_bytes, repeat, ttl_seconds, time_ns, tenant });
        }
        seen
    });
    let all = all.collect();
    assert_eq!(replay.stats().failure, None);
    all
}

#[test]
fn binary_replay_equals_csv_replay() {
    let folder = TempDir::new().unwrap();
    let (csv, binary) = kvcache_and_binary(&folder, "trace.fwt");
    let plain = |_: &mut ReplayConfig| ();
    let expected = replayed(&csv, "kvcache", 3, plain);
    assert_eq!(expected.iter().map(Vec::len).sum::<usize>() as u64, ROWS);
    assert!(expected.iter().flatten().any(|seen| seen.tenant.is_some() && seen.repeat > 1));
    assert_eq!(replayed(&binary, "binary", 3, plain), expected);
    let amplified = |config: &mut ReplayConfig| {
        config.amplify = Amplify { copies: 3, size_factor: 2, ..Amplify::default() };
        (config.skip_rows, config.passes, config.repeat) = (1234, Some(2), true);
        config.order = Order::Turns;
    };
    assert_eq!(replayed(&binary, "binary", 2, amplified), replayed(&csv, "kvcache", 2, amplified));
}

#[test]
fn compressed_binary_trace_has_the_same_requests() {
    let folder = TempDir::new().unwrap();
    let (_, plain) = kvcache_and_binary(&folder, "trace.fwt");
    let expected = replayed(&plain, "binary", 1, |_| ());
    for name in ["trace.fwt.zst", "trace.fwt.gz", "trace.fwt.xz"] {
        let (_, packed) = kvcache_and_binary(&folder, name);
        assert!(std::fs::metadata(&packed).unwrap().len() < std::fs::metadata(&plain).unwrap().len());
        assert_eq!(replayed(&packed, "binary", 1, |_| ()), expected);
    }
}

fn accesses(path: &Path, format: &str, options: &OpenOptions) -> (Vec<Access>, ReadReport) {
    let mut trace = open(&[path], Some(format), options).unwrap();
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch).unwrap() {
        all.extend_from_slice(&batch);
    }
    (all, trace.report().clone())
}

#[test]
fn binary_accesses_equal_csv_accesses() {
    let folder = TempDir::new().unwrap();
    let (csv, binary) = kvcache_and_binary(&folder, "trace.fwt");
    for options in [OpenOptions::default(), OpenOptions { zero_size: ZeroSize::As(10), ..options() }] {
        let (expected, was) = accesses(&csv, "kvcache", &options);
        // The format is detected.
        let (found, is) = accesses(&binary, "auto", &options);
        assert!(found == expected && !found.is_empty());
        assert_eq!((is.format, is.rows, is.bad_rows), ("binary", was.rows, was.bad_rows));
        assert_eq!((is.zero_sizes, is.backward_times), (was.zero_sizes, was.backward_times));
    }
}

#[test]
fn disk_ranges_stay_ranges() {
    let folder = TempDir::new().unwrap();
    let (csv, binary) = (folder.path().join("disk.csv"), folder.path().join("disk.fwt"));
    let rows =
        (0..3000_u64).map(|i| format!("{},hm,{},Read,{},{},1\n", i * 10, i % 3, i * 8192, i % 5 * 6000));
    std::fs::write(&csv, rows.collect::<String>()).unwrap();
    convert(&csv, "msr", &binary, &options());
    assert_eq!(accesses(&binary, "auto", &options()).0, accesses(&csv, "msr", &options()).0);
}

/// The length of the discard does not fit into one row. Catches a regression: the discard damages the block that
/// contains it.
#[test]
fn large_discard_is_written_in_several_rows() {
    let folder = TempDir::new().unwrap();
    let (log, binary) = (folder.path().join("trim.log"), folder.path().join("trim.fwt"));
    let trim_bytes = (1_u64 << 44) + (1 << 42);
    let text =
        format!("fio version 3 iolog\n1 sdb read 0 4096\n2 sdb trim 4096 {trim_bytes}\n3 sdb read 0 4096\n");
    std::fs::write(&log, text).unwrap();
    let report = convert(&log, "fio-iolog", &binary, &options());
    assert_eq!((report.rows, report.accesses), (3, trim_bytes / 4096 + 2));
    let limit = OpenOptions { limit: Some(3000), ..options() };
    let (found, report) = accesses(&binary, "auto", &limit);
    assert_eq!(found, accesses(&log, "fio-iolog", &limit).0);
    assert_eq!((report.bad_rows, report.accesses), (0, 3000));
}

#[test]
fn conversion_honours_invalid_rows_and_limits() {
    let folder = TempDir::new().unwrap();
    let (csv, binary) = (folder.path().join("some.csv"), folder.path().join("some.fwt"));
    std::fs::write(&csv, "key,op,size,op_count\na,GET,1,2\nb,GOT,1,1\nc,GET,0,1\nd,SET,7,5\ne,GET,1,1\n")
        .unwrap();
    let report = convert(&csv, "kvcache", &binary, &options());
    assert_eq!((report.rows, report.bad_rows, report.zero_sizes, report.accesses), (5, 1, 1, 9));
    let limit = OpenOptions { limit: Some(5), ..options() };
    assert_eq!(convert(&csv, "kvcache", &binary, &limit).accesses, 5);
    assert_eq!(accesses(&binary, "binary", &options()).0, accesses(&csv, "kvcache", &limit).0);
    let skip = OpenOptions { zero_size: ZeroSize::Skip, ..options() };
    assert_eq!(convert(&csv, "kvcache", &binary, &skip).accesses, 8);
    let stop = OpenOptions { on_bad_row: OnBadRow::Stop, ..options() };
    let mut trace = copy(&[&csv], Some("kvcache"), &stop).unwrap();
    let mut writer = Writer::create(&binary, Target::Binary).unwrap();
    assert!(
        trace.step(&mut writer).unwrap_err().to_string().contains("row 3: `GOT` is not a known operation")
    );
}

#[test]
fn generated_requests_read_back_unchanged() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("made.fwt");
    let made = |i: u64| Access {
        time_ns: i * 1_000_001,
        key: i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        size_bytes: 1 + i % 70_000,
        ttl_seconds: i.is_multiple_of(3).then_some(60),
        tenant: None,
        kind: [
            flashwright_workload::trace::AccessKind::Get,
            flashwright_workload::trace::AccessKind::Set,
            flashwright_workload::trace::AccessKind::Delete,
        ][i as usize % 3],
    };
    let all: Vec<_> = (0..ROWS).map(made).collect();
    let mut writer = Writer::create(&path, Target::of_name(&path).unwrap()).unwrap();
    all.chunks(999).for_each(|some| writer.write(some).unwrap());
    assert_eq!(writer.finish().unwrap().accesses, ROWS);
    assert_eq!(accesses(&path, "auto", &options()).0, all);
}

/// Damage is reported with the last row before it, after the complete rows have been returned.
#[test]
fn damage_ends_the_trace_at_its_position() {
    let folder = TempDir::new().unwrap();
    let (_, whole) = kvcache_and_binary(&folder, "trace.fwt");
    let mut bytes = std::fs::read(&whole).unwrap();
    let damaged = folder.path().join("damaged.fwt");
    let (middle, length) = (bytes.len() / 2, bytes.len());
    bytes[middle] ^= 4;
    for (bytes, expected) in [(&bytes[..], "is damaged"), (&bytes[..middle], "is cut off")] {
        std::fs::write(&damaged, bytes).unwrap();
        let mut trace = open(&[&damaged], None, &options()).unwrap();
        let (mut batch, mut rows) = (Vec::new(), 0);
        let message = loop {
            match trace.next_batch(&mut batch) {
                Ok(true) => rows += batch.len(),
                Ok(false) => panic!("the damage was not detected"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(message.contains("damaged.fwt: after row 2048: ") && message.contains(expected), "{message}");
        assert!(rows >= 2048, "{rows} of {length} bytes");
        let replay = Replay::new(ReplayConfig::new(vec![damaged.clone()], Format::named("binary").unwrap()));
        let mut source = replay.sources(1, 0).unwrap().remove(0);
        let mut requests = 0;
        while source.next().is_some() {
            requests += 1;
        }
        assert_eq!(requests, 2048);
        assert!(replay.stats().failure.unwrap().contains(expected));
    }
}

/// CacheBench's binary traces are detected and convert to the same requests.
#[test]
fn cachebench_binary_traces_are_detected_and_converted() {
    let folder = TempDir::new().unwrap();
    let theirs = folder.path().join("kv_trace.bin");
    let count = 3000_u64;
    let mut bytes = count.to_le_bytes().to_vec();
    let keys: Vec<_> = (0..count).map(|i| format!("key{}", i * 7919 % 500)).collect();
    let mut key_at = 8 + 24 * count;
    for (i, key) in (0..count).zip(&keys) {
        let own = bytes.len() as u64;
        bytes.extend([key.len() as u8, (i % 3) as u8, (1 + i % 2) as u8, 0]);
        bytes.extend((i as u32 % 2 * 60).to_le_bytes());
        bytes.extend((key_at - own).to_le_bytes());
        bytes.extend([(i as u32).to_le_bytes(), [0xaa; 4]].concat());
        key_at += key.len() as u64;
    }
    keys.iter().for_each(|key| bytes.extend(key.as_bytes()));
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    std::fs::write(&theirs, &bytes).unwrap();
    let seen = &replayed(&theirs, "cachebench-binary", 1, |_| ())[0];
    assert_eq!(seen.len() as u64, count);
    for (i, (seen, key)) in seen.iter().zip(&keys).enumerate() {
        let kind = [RequestKind::Set, RequestKind::Get, RequestKind::Delete][i % 3];
        assert_eq!((seen.kind, seen.key.as_slice(), seen.value_bytes), (kind, key.as_bytes(), i as u64));
        let (repeat, ttl) = (1 + i as u32 % 2, (i % 2 == 1).then_some(60));
        assert_eq!((seen.repeat, seen.ttl_seconds, seen.time_ns), (repeat, ttl, None));
    }
    let ours = folder.path().join("ours.fwt");
    assert_eq!(convert(&theirs, "auto", &ours, &options()).format, "cachebench-binary");
    assert_eq!(&replayed(&ours, "binary", 1, |_| ())[0], seen);
}
