//! Key-value traces whose files have no header, or one that says little.

#![allow(
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test; the exception in clippy.toml covers test functions only"
)]

use std::path::PathBuf;

use flashwright_workload::trace::{Format, OpenOptions, Replay, ReplayConfig, TraceError, open};
use flashwright_workload::{RequestKind, Workload};
use tempfile::TempDir;

const OF_2022: &str = "key,op,size,op_count,key_size";
const OF_2024: &str = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase";

/// Key, operation, length of the value, repetitions, time to live, time in seconds.
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
        self.replay().check_beginnings().unwrap_err().to_string()
    }
}

fn seen(replay: &Replay) -> Vec<Seen> {
    replay.check_beginnings().unwrap();
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

/// Rows of both kinds, with numbers for keys as the published files have them.
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

/// Every row was wrong, since its columns were taken for those of 2022, and the run made no request.
#[test]
fn a_trace_of_2024_without_a_header_was_read_by_the_columns_of_2022() {
    for (header, rows) in [(OF_2022, rows_of_2022()), (OF_2024, rows_of_2024())] {
        let named = seen(&Files::new(&[&format!("{header}\n{rows}")]).replay());
        assert_eq!(named.len(), 50);
        assert_eq!(seen(&Files::new(&[&rows]).replay()), named, "{header}");
        // A first row that is wrong decides nothing.
        let torn = Files::new(&[&format!("9,20,PUT,1\n{rows}")]);
        torn.replay().check_beginnings().unwrap();
        let files = Files::new(&[&rows]);
        let trace = open(&files.paths, None, &OpenOptions::default()).unwrap();
        assert_eq!(trace.report().format, "kvcache", "{header}");
    }
}

/// The second file was read by the header of the first.
#[test]
fn each_file_without_a_header_is_read_by_its_own_columns() {
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
    // The second part of a divided file.
    let odd = "size,key,op\n".to_owned() + &"10,a,GET\n20,b,SET\n".repeat(20);
    let two = seen(&Files::new(&[&odd, "10,a,GET\n20,b,SET\n"]).replay());
    assert_eq!(two[40..], two[..2]);
}

/// Its lengths of keys were taken for sizes of values, without a word.
#[test]
fn a_file_that_can_be_read_by_the_header_before_it_and_otherwise_is_refused() {
    let odd: String = (0..50).map(|row| format!("{row},GET,20,{},1\n", 100 + row)).collect();
    let files = Files::new(&[&format!("key,op,key_size,size,op_count\n{odd}"), &rows_of_2022()]);
    let said = files.refusal();
    assert!(
        said.contains("1.csv: it has no header, and its rows can be read as `key,op,key_size,size,op_count`"),
        "{said}"
    );
    assert!(said.contains("or as `key,op,size,op_count,key_size,ttl`: put the header on top"), "{said}");
    let mut trace = open(&files.paths, Some("kvcache"), &OpenOptions::default()).unwrap();
    let mut batch = Vec::new();
    let failed = loop {
        match trace.next_batch(&mut batch) {
            Ok(true) => {}
            Ok(false) => panic!("it was read"),
            Err(failed) => break failed,
        }
    };
    assert!(matches!(failed, TraceError::Header { .. }), "{failed}");
}

/// "The trace had no valid request; 50 of its rows are bad", after the run, was all that was said.
#[test]
fn a_trace_none_of_whose_rows_is_right_says_which_why_and_how_it_was_read() {
    let unknown: String = (0..50).map(|row| format!("{row},x{},7,9\n", row % 3)).collect();
    let said = Files::new(&[&rows_of_2022(), &unknown]).refusal();
    assert!(
        said.contains(
            "1.csv: none of its first 50 rows is a request of a `kvcache` trace; row 1: `x0` is not a"
        ),
        "{said}"
    );
    assert!(
        said.contains(
            "without one its columns are key,op,size,op_count,key_size,ttl or op_time,key,key_size"
        ),
        "{said}"
    );
    let headed = format!("key,op,size\n{unknown}");
    let said = Files::new(&[&headed]).refusal();
    assert!(
        said.contains("row 2: `x0` is not a") && said.contains("its columns are read as key,op,size"),
        "{said}"
    );
    // One that is right behind many that are not is enough.
    Files::new(&[&format!("{headed}a,GET,1\n")]).replay().check_beginnings().unwrap();
}

#[test]
fn rows_that_are_wrong_are_counted_by_their_reasons() {
    let text = "key,op,size\na,GET,1\nb,PUT,1\nc,GET,x\nd,POST,1\ne,GET,\nf,GET,y\ng,HEAD,1\n";
    let files = Files::new(&[text]);
    let replay = files.replay();
    let mut source = replay.sources(1, 0).unwrap().remove(0);
    while source.next().is_some() {}
    drop(source);
    let stats = replay.stats();
    let told: Vec<_> = stats.rejected.iter().map(|it| (it.reason.as_str(), it.rows)).collect();
    let number = "column `size` is not a whole number in its range";
    assert_eq!(told, [("the operation is not a known one", 3), (number, 2), ("column `size` is missing", 1)]);
    assert!(stats.rejected[1].first.ends_with(
        "0.csv:4: column `size` is `x`, which is not a whole number from 0 to 18446744073709551615"
    ));
    assert_eq!((stats.rows, stats.rejected_rows), (1, 6));
}

#[test]
fn columns_that_nobody_knows_and_those_that_are_missing_are_told() {
    let told = |header: &str| {
        let files = Files::new(&[&format!("{header}\na,GET,1,1\n")]);
        let mut all = files.replay().check_beginnings().unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0).1
    };
    let slip = told("key,op,size,opcount");
    assert_eq!(slip.unknown, ["opcount"]);
    assert!(slip.lacking.contains(&"op_count"));
    assert_eq!(slip.meant.iter().map(|(column, _)| *column).collect::<Vec<_>>(), ["op_count", "key_size"]);
    let whole = told("key,op,size,op_count,key_size,cache_hits");
    assert!(whole.unknown.is_empty() && whole.meant.is_empty(), "{whole:?}");
    // Once for several files.
    let text = "key,op,size\na,GET,1\n";
    assert_eq!(Files::new(&[text, text]).replay().check_beginnings().unwrap().len(), 1);
}
