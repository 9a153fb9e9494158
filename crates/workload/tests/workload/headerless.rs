//! Key-value traces without a header, or with an incomplete one.

use std::path::PathBuf;

use flashwright_workload::trace::{Format, OpenOptions, Replay, ReplayConfig, TraceError, open};
use flashwright_workload::{RequestKind, Workload};
use tempfile::TempDir;

const OF_2022: &str = "key,op,size,op_count,key_size";
const OF_2024: &str = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase";

/// Key, operation, value length, repetitions, TTL, time in seconds.
type Seen = (String, RequestKind, u64, u32, Option<u32>, Option<u64>);

struct Files {
    _folder: TempDir,
    paths: Vec<PathBuf>,
}

impl Files {
    fn new(texts: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let write = |(number, text): (usize, &&str)| {
            let path = folder.path().join(format!("{number}.csv"));
            std::fs::write(&path, text).unwrap();
            path
        };
        let paths = texts.iter().enumerate().map(write).collect();
        Self { _folder: folder, paths }
    }

    fn replay(&self) -> Replay {
        let mut config = ReplayConfig::new(self.paths.clone(), Format::named("kvcache").unwrap());
        config.time_units_per_second = 1;
        Replay::new(config)
    }

    fn refusal(&self) -> String {
        self.replay().check_files().unwrap_err().to_string()
    }
}

fn seen(replay: &Replay) -> Vec<Seen> {
    replay.check_files().unwrap();
    let mut source = replay.sources(1, 0).unwrap().remove(0);
    let mut all = Vec::new();
    while let Some(it) = source.next() {
        let key = String::from_utf8(it.key.to_vec()).unwrap();
        let seconds = it.time_ns.map(|ns| ns / 1_000_000_000);
        all.push((key, it.kind, it.value_bytes, it.repeat, it.ttl_seconds, seconds));
    }
    drop(source);
    let stats = replay.stats();
    assert_eq!((stats.rejected_rows, stats.failure), (0, None));
    all
}

/// Rows of both orders, with numeric keys as in the published files.
fn rows_of_2022() -> String {
    (0..50).map(|row| format!("{},{},{},{},20\n", row % 7, op(row), 100 + row, 1 + row % 3)).collect()
}

fn rows_of_2024() -> String {
    let row = |row: u32| {
        format!("{},{},20,{},{},{},1,60,366,300\n", 600 + row, row % 7, op(row), 1 + row % 3, 100 + row)
    };
    (0..50).map(row).collect()
}

fn op(row: u32) -> &'static str {
    if row.is_multiple_of(5) { "SET" } else { "GET_LEASE" }
}

/// Catches a regression: the columns are read in the order of 2022, so that every row is invalid and the run makes no
/// request.
#[test]
fn headerless_trace_of_2024_is_read_in_its_order() {
    for (header, rows) in [(OF_2022, rows_of_2022()), (OF_2024, rows_of_2024())] {
        let named = seen(&Files::new(&[&format!("{header}\n{rows}")]).replay());
        assert_eq!(named.len(), 50);
        assert_eq!(seen(&Files::new(&[&rows]).replay()), named, "{header}");
        // An invalid first row does not decide the order.
        let torn = Files::new(&[&format!("9,20,PUT,1\n{rows}")]);
        torn.replay().check_files().unwrap();
        let files = Files::new(&[&rows]);
        let trace = open(&files.paths, None, &OpenOptions::default()).unwrap();
        assert_eq!(trace.report().format, "kvcache", "{header}");
    }
}

/// Catches a regression: the second file is read with the first one's header.
#[test]
fn each_headerless_file_has_its_own_order() {
    let (of_2022, of_2024) = (rows_of_2022(), rows_of_2024());
    let headed = |header: &str, rows: &str| format!("{header}\n{rows}");
    let (one, other) = (seen(&Files::new(&[&of_2022]).replay()), seen(&Files::new(&[&of_2024]).replay()));
    for (first, second, expected) in [
        (headed(OF_2024, &of_2024), of_2022.clone(), [other.clone(), one.clone()]),
        (headed(OF_2022, &of_2022), of_2024.clone(), [one.clone(), other.clone()]),
        (of_2024.clone(), of_2022.clone(), [other.clone(), one.clone()]),
        (of_2022.clone(), of_2024.clone(), [one.clone(), other]),
        (headed(OF_2022, &of_2022), of_2022.clone(), [one.clone(), one]),
    ] {
        assert_eq!(seen(&Files::new(&[&first, &second]).replay()), expected.concat());
    }
    // The second part of a split file.
    let odd = "size,key,op\n".to_owned() + &"10,a,GET\n20,b,SET\n".repeat(20);
    let two = seen(&Files::new(&[&odd, "10,a,GET\n20,b,SET\n"]).replay());
    assert_eq!(two[40..], two[..2]);
}

/// Catches a regression: the key lengths are silently read as value sizes.
#[test]
fn headerless_file_with_two_readings_is_rejected() {
    let odd: String = (0..50).map(|row| format!("{row},GET,20,{},1\n", 100 + row)).collect();
    let files = Files::new(&[&format!("key,op,key_size,size,op_count\n{odd}"), &rows_of_2022()]);
    let message = files.refusal();
    assert!(
        message
            .contains("1.csv: it has no header, and its rows can be read as `key,op,key_size,size,op_count`"),
        "{message}"
    );
    assert!(
        message.contains("or as `key,op,size,op_count,key_size,ttl`: put the header on top"),
        "{message}"
    );
    let mut trace = open(&files.paths, Some("kvcache"), &OpenOptions::default()).unwrap();
    let mut batch = Vec::new();
    let failed = loop {
        match trace.next_batch(&mut batch) {
            Ok(true) => {}
            Ok(false) => panic!("the file was read"),
            Err(failed) => break failed,
        }
    };
    assert!(matches!(failed, TraceError::Header { .. }), "{failed}");
}

/// Catches a regression: the only message is "The trace had no valid request; 50 of its rows are bad", after the run.
#[test]
fn trace_without_a_valid_row_reports_row_reason_and_columns() {
    let unknown: String = (0..50).map(|row| format!("{row},x{},7,9\n", row % 3)).collect();
    let message = Files::new(&[&rows_of_2022(), &unknown]).refusal();
    assert!(
        message.contains(
            "1.csv: none of its first 50 rows is a request of a `kvcache` trace; row 1: `x0` is not a"
        ),
        "{message}"
    );
    assert!(
        message.contains(
            "without one its columns are key,op,size,op_count,key_size,ttl or op_time,key,key_size"
        ),
        "{message}"
    );
    let headed = format!("key,op,size\n{unknown}");
    let message = Files::new(&[&headed]).refusal();
    assert!(
        message.contains("row 2: `x0` is not a") && message.contains("its columns are read as key,op,size"),
        "{message}"
    );
    // One valid row after many invalid ones suffices.
    Files::new(&[&format!("{headed}a,GET,1\n")]).replay().check_files().unwrap();
}

#[test]
fn invalid_rows_are_counted_by_reason() {
    let text = "key,op,size\na,GET,1\nb,SEND,1\nc,GET,x\nd,GOT,1\ne,GET,\nf,GET,y\ng,HEAD,1\n";
    let files = Files::new(&[text]);
    let replay = files.replay();
    let mut source = replay.sources(1, 0).unwrap().remove(0);
    while source.next().is_some() {}
    drop(source);
    let stats = replay.stats();
    let reasons: Vec<_> = stats.rejected.iter().map(|it| (it.reason.as_str(), it.rows)).collect();
    let number = "column `size` is not a whole number in its range";
    assert_eq!(
        reasons,
        [("the operation is not a known one", 2), (number, 2), ("column `size` is missing", 1)]
    );
    assert!(stats.rejected[1].first.ends_with(
        "0.csv:4: column `size` is `x`, which is not a whole number from 0 to 18446744073709551615"
    ));
    assert_eq!((stats.rows, stats.rejected_rows), (1, 5));
}

#[test]
fn unknown_and_missing_columns_are_reported() {
    let mismatch = |header: &str| {
        let files = Files::new(&[&format!("{header}\na,GET,1,1\n")]);
        let mut all = files.replay().check_files().unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0).1
    };
    let slip = mismatch("key,op,size,opcount");
    assert_eq!(slip.unknown, ["opcount"]);
    assert!(slip.lacking.contains(&"op_count"));
    assert_eq!(slip.meant.iter().map(|(column, _)| *column).collect::<Vec<_>>(), ["op_count", "key_size"]);
    let whole = mismatch("key,op,size,op_count,key_size,cache_hits");
    assert!(whole.unknown.is_empty() && whole.meant.is_empty(), "{whole:?}");
    // Reported once for several files with the same header.
    let text = "key,op,size\na,GET,1\n";
    assert_eq!(Files::new(&[text, text]).replay().check_files().unwrap().len(), 1);
}
