//! Recordings of block devices: per-CPU files merged by time, and recordings without queue events.

use std::path::{Path, PathBuf};

use flashwright_workload::Workload as _;
use flashwright_workload::trace::block::{BlockTrace, BlockTraceOptions, Events};
use flashwright_workload::trace::{
    Access, Format, OpenOptions, Order, PageSize, ReadReport, Replay, ReplayConfig, Target, TraceError,
    Writer, copy, open,
};

const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;
const READ: u32 = 1 << 16;

/// A blktrace record of a read of 4096 bytes.
fn record(action: u32, time_ns: u64, sector: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(0x6561_7407_u32.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    out.extend(time_ns.to_le_bytes());
    out.extend(sector.to_le_bytes());
    out.extend(4096_u32.to_le_bytes());
    out.extend((READ | action).to_le_bytes());
    out.extend(77_u32.to_le_bytes());
    out.extend((8_u32 << 20).to_le_bytes());
    out.extend([0; 8]);
    out
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn read(paths: &[PathBuf], options: &OpenOptions) -> Result<(Vec<Access>, ReadReport), TraceError> {
    let mut trace = open(paths, None, options)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch)? {
        all.extend_from_slice(&batch);
    }
    Ok((all, trace.report().clone()))
}

/// Two CPUs alternate on pages 0, 1, 2 …: each page is requested by both in immediate succession.
fn two_cpus(folder: &Path) -> [PathBuf; 2] {
    let of = |cpu: u64| {
        (0..100_u64).flat_map(move |page| record(QUEUE, page * 100 + cpu, page * 8)).collect::<Vec<u8>>()
    };
    [file(folder, "sda.blktrace.0", &of(0)), file(folder, "sda.blktrace.1", &of(1))]
}

fn keys(accesses: &[Access]) -> Vec<u64> {
    let mut keys: Vec<u64> = accesses.iter().map(|access| access.key).collect();
    keys.dedup();
    keys
}

#[test]
fn per_cpu_files_are_merged_by_time_for_accesses() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_cpus(folder.path());
    let (accesses, report) = read(&paths, &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), keys(&accesses).len(), report.backward_times), (200, 100, 0));
    assert_eq!((report.rows, report.notes), (200, vec!["2 files are merged by time".to_owned()]));
}

#[test]
fn per_cpu_files_are_merged_by_time_for_copies_and_replays() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_cpus(folder.path());
    let copied = folder.path().join("copy.fwt");
    let mut writer = Writer::create(&copied, Target::Binary).unwrap();
    let mut from = copy(&paths, None, &OpenOptions::default()).unwrap();
    while from.step(&mut writer).unwrap() {}
    writer.finish().unwrap();
    let (accesses, _) = read(&[copied], &OpenOptions::default()).unwrap();
    assert_eq!(keys(&accesses).len(), 100, "the copy has all accesses");

    let config = ReplayConfig {
        order: Order::Strict,
        ..ReplayConfig::new(paths.to_vec(), Format::named("blktrace").unwrap())
    };
    let replay = Replay::new(config);
    let mut sources = replay.sources(1, 0).unwrap();
    let mut replayed = Vec::new();
    while let Some(request) = sources[0].next() {
        replayed.push(request.key.to_vec());
    }
    replayed.dedup();
    assert_eq!(replayed.len(), 100, "the replay has all requests");
    assert_eq!(replay.stats().notes, ["2 files are merged by time"]);
}

#[test]
fn merged_files_honour_the_limit_and_report_invalid_rows() {
    let folder = tempfile::tempdir().unwrap();
    let csv = |rows: &str| format!("time_ns,op,offset,bytes\n{rows}");
    let paths = [
        file(folder.path(), "a.csv", csv("1,R,0,4096\n3,R,x,4096\n5,R,8192,4096\n").as_bytes()),
        file(folder.path(), "b.csv", csv("2,R,4096,4096\n4,R,12288,4096\n").as_bytes()),
    ];
    let (accesses, report) = read(&paths, &OpenOptions::default()).unwrap();
    assert_eq!(accesses.iter().map(|it| it.key).collect::<Vec<_>>(), [0, 1, 3, 2]);
    assert_eq!((report.bad_rows, report.rows), (1, 5));
    assert!(report.messages[0].contains("a.csv: row 3: `offset`"), "{:?}", report.messages);
    let limited = OpenOptions { limit: Some(1), bad_rows_limit: 0, ..OpenOptions::default() };
    assert_eq!(read(&paths, &limited).unwrap().0.len(), 1, "the invalid row is behind the limit");
}

#[test]
fn key_value_files_are_read_in_sequence_and_overlaps_noted() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [
        file(folder.path(), "1.csv", b"ts,key,op,size\n10,a,GET,1\n20,b,GET,1\n"),
        file(folder.path(), "2.csv", b"ts,key,op,size\n15,c,GET,1\n30,d,GET,1\n"),
    ];
    let (accesses, report) = read(&paths, &OpenOptions::default()).unwrap();
    let seconds: Vec<u64> = accesses.iter().map(|it| it.time_ns / 1_000_000_000).collect();
    assert_eq!((seconds, report.backward_times), (vec![10, 20, 20, 30], 1));
    let [note] = report.notes.as_slice() else { panic!("{:?}", report.notes) };
    assert!(note.contains("2.csv: its first timestamp is 5 s before the last one"), "{note}");
}

/// Like a recording with `blktrace -a issue -a complete`: at most a stray queue event among many others.
fn without_queue(stray: u64, of: &[u32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..stray).flat_map(|at| record(QUEUE, at, 1 << 20)).collect();
    for at in 0..1200_u64 {
        of.iter().for_each(|action| bytes.extend(record(*action, 10 + at * 10 + u64::from(*action), at * 8)));
    }
    bytes
}

#[test]
fn recording_without_queue_events_uses_issue_or_completion_events() {
    let folder = tempfile::tempdir().unwrap();
    for (stray, actions, note) in [
        (0, vec![ISSUE, COMPLETE], "no queue (Q) events"),
        (1, vec![ISSUE, COMPLETE], "only 1 queue (Q) event"),
        (0, vec![COMPLETE], "completion (C) events are used"),
    ] {
        let paths = [file(folder.path(), "trace", &without_queue(stray, &actions))];
        let (accesses, report) = read(&paths, &OpenOptions::default()).unwrap();
        assert_eq!(accesses.len(), 1200, "{actions:?}");
        assert!(report.notes[0].contains(note), "{:?}", report.notes);
        let mut trace = BlockTrace::open(&paths, BlockTraceOptions::default()).unwrap();
        assert_eq!(trace.by_ref().count(), 1200, "{actions:?}");
        assert_eq!(trace.stats().notes, report.notes);
    }
}

#[test]
fn blkparse_text_without_queue_events_is_detected_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let line = |at: u64, action: &str| {
        format!("  8,0    3 {at:8}     0.{at:09}   697  {action}   R {} + 8 [a]\n", at * 8)
    };
    let text: String = (0..100).flat_map(|at| [line(at, "D"), line(at, "C")]).collect();
    let paths = [file(folder.path(), "trace.txt", text.as_bytes())];
    let (accesses, report) = read(&paths, &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.format, report.notes.len()), (100, "blkparse", 1));
}

#[test]
fn events_are_selected_by_name_for_formats_that_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = without_queue(0, &[QUEUE, COMPLETE]);
    bytes.extend(record(QUEUE, 1 << 40, 0));
    let paths = [file(folder.path(), "trace", &bytes)];
    let options = |events| OpenOptions { events, ..OpenOptions::default() };
    assert_eq!(read(&paths, &options(None)).unwrap().0.len(), 1201);
    assert_eq!(read(&paths, &options(Some(Events::Complete))).unwrap().0.len(), 1200);
    let error = read(&paths, &options(Some(Events::Issue))).unwrap_err().to_string();
    assert!(error.contains("the trace has no requests: none of its 2401 rows is one"), "{error}");
    let csv = [file(folder.path(), "b.csv", b"time_ns,op,offset,bytes\n1,R,0,4096\n")];
    let error = read(&csv, &options(Some(Events::Issue))).unwrap_err().to_string();
    assert!(error.starts_with("`issue` events cannot be chosen"), "{error}");
    let chosen = BlockTraceOptions { events: Some(Events::Issue), ..BlockTraceOptions::default() };
    assert!(BlockTrace::open(&csv, chosen).is_err());
}

#[test]
fn page_size_applies_to_merged_files() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_cpus(folder.path());
    let options = OpenOptions { page: Some(PageSize::Bytes(1024)), ..OpenOptions::default() };
    assert_eq!(read(&paths, &options).unwrap().0.len(), 800);
}
