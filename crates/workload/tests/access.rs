//! Traces as accesses, seen from outside.

#![allow(
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test; the exception in clippy.toml covers test functions only"
)]

use std::path::{Path, PathBuf};

use flashwright_workload::trace::{
    Access, AccessKind, OnBadRow, OpenOptions, PageSize, ReadReport, TraceError, ZeroSize, open,
};
use tempfile::TempDir;

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn drain(path: &Path, options: &OpenOptions) -> Result<(Vec<Access>, ReadReport), TraceError> {
    let mut trace = open(&[path], None, options)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch)? {
        all.extend_from_slice(&batch);
    }
    assert!(batch.is_empty());
    assert_eq!(trace.report().accesses, all.len() as u64);
    Ok((all, trace.report().clone()))
}

fn read(text: &str, options: &OpenOptions) -> Result<(Vec<Access>, ReadReport), TraceError> {
    let folder = tempfile::tempdir().unwrap();
    drain(&write(&folder, "trace.csv", text.as_bytes()), options)
}

const PLAIN: &str = "ts,key,op,size\n0.5,7,GET,100\n1,abc,SET,200\n1,07,DELETE,0\n";

#[test]
fn rows_become_accesses() {
    let (accesses, report) = read(PLAIN, &OpenOptions::default()).unwrap();
    let first = Access {
        time_ns: 500_000_000,
        key: 7,
        size_bytes: 100,
        ttl_seconds: None,
        tenant: None,
        kind: AccessKind::Get,
    };
    assert_eq!(accesses[0], first);
    assert_eq!((accesses[1].size_bytes, accesses[1].kind), (200, AccessKind::Set));
    assert_eq!((accesses[2].size_bytes, accesses[2].kind), (0, AccessKind::Delete));
    assert_ne!(accesses[2].key, 7, "07 is another key than 7");
    assert_eq!((report.rows, report.bad_rows, report.zero_sizes), (3, 0, 0));
    assert!(report.has_time && report.messages.is_empty());
}

#[test]
fn a_page_size_was_ignored_without_a_word_where_there_are_no_ranges() {
    let paged = OpenOptions { page: Some(PageSize::Bytes(100)), ..OpenOptions::default() };
    let (_, report) = read(PLAIN, &paged).unwrap();
    assert_eq!(report.messages.len(), 1, "{:?}", report.messages);
    assert!(
        report.messages[0].contains("a page size has no effect: `plain` traces"),
        "{:?}",
        report.messages
    );
    let ranges = "time_us,op,offset,bytes\n1,R,0,8192\n";
    assert!(read(ranges, &paged).unwrap().1.messages.is_empty());
}

fn drain_all(paths: &[PathBuf], format: Option<&str>) -> Result<usize, TraceError> {
    let mut trace = open(paths, format, &OpenOptions::default())?;
    let (mut accesses, mut batch) = (0, Vec::new());
    while trace.next_batch(&mut batch)? {
        accesses += batch.len();
    }
    Ok(accesses)
}

#[test]
fn a_file_of_another_format_behind_the_first_is_no_run_of_wrong_rows() {
    let folder = tempfile::tempdir().unwrap();
    let plain = write(&folder, "a.csv", PLAIN.as_bytes());
    let records: Vec<u8> = (1..=8_u32)
        .flat_map(|number| {
            let [time, size] = [number, 100].map(u32::to_le_bytes);
            [&time[..], &u64::from(number).to_le_bytes(), &size, &(-1_i64).to_le_bytes()].concat()
        })
        .collect();
    let oracle = write(&folder, "b.oracleGeneral", &records);
    // A part of a trace that was cut in two has no header.
    let rest = write(&folder, "c.csv", b"2,8,GET,10\n");
    let told = drain_all(&[plain.clone(), oracle.clone()], None).unwrap_err();
    assert!(
        matches!(&told, TraceError::MixedFormats { found: "oracle-general", wanted: "plain", path } if *path == oracle),
        "{told}"
    );
    assert_eq!(drain_all(&[plain.clone(), rest, plain.clone()], None).unwrap(), 7);
    assert!(matches!(drain_all(&[plain, "/no/such".into()], None), Err(TraceError::Open { .. })));
    assert_eq!(drain_all(&[oracle.clone(), oracle], Some("oracle-general")).unwrap(), 16);
}

#[test]
fn a_repeated_row_is_several_accesses_and_a_limit_cuts_it() {
    let text = "op_time,key,key_size,op,op_count,size\n5,a,1,GET,5000,10\n6,b,1,SET,2,20\n";
    let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.rows), (5002, 2));
    assert!(accesses[..5000].iter().all(|access| access.key == accesses[0].key));
    for limit in [0, 1, 4096, 4999, 5001] {
        let (cut, _) = read(text, &OpenOptions { limit: Some(limit), ..OpenOptions::default() }).unwrap();
        assert_eq!(cut, accesses[..limit as usize]);
    }
}

#[test]
fn what_stood_behind_the_limit_was_read_and_judged_until_a_row_was_right() {
    let text = "ts,key,op,size\n0,1,GET,1\n1,2,GET,1\n2,3,GIT,1\n3,4,GET,0\n";
    for on_bad_row in [OnBadRow::Skip, OnBadRow::Stop] {
        let options = OpenOptions { limit: Some(2), on_bad_row, bad_rows_limit: 0, ..OpenOptions::default() };
        let (accesses, report) = read(text, &options).unwrap();
        assert_eq!((accesses.len(), report.rows, report.bad_rows, report.zero_sizes), (2, 2, 0, 0));
    }
}

#[test]
fn without_times_accesses_are_numbered() {
    let (accesses, report) = read("key,op,size\n1,GET,1\n2,GET,1\n", &OpenOptions::default()).unwrap();
    assert_eq!([accesses[0].time_ns, accesses[1].time_ns], [0, 1_000_000]);
    assert!(!report.has_time);
}

#[test]
fn wrong_rows_are_skipped_counted_and_told() {
    let text = "ts,key,op,size\n0,1,GET,1\n1,2,GIT,1\n2,3,GET,x\n3,4,GET,1\n";
    let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
    assert_eq!(accesses.iter().map(|access| access.key).collect::<Vec<_>>(), [1, 4]);
    assert_eq!((report.rows, report.bad_rows), (4, 2));
    assert!(report.messages[0].ends_with("trace.csv: row 3: `GIT` is not a known operation; skipped"));
    let limited = read(text, &OpenOptions { bad_rows_limit: 1, ..OpenOptions::default() });
    let told = limited.unwrap_err().to_string();
    assert!(told.contains("row 4: column `size` is `x`") && told.contains("the first: "), "{told}");
    let stopped = read(text, &OpenOptions { on_bad_row: OnBadRow::Stop, ..OpenOptions::default() });
    let told = stopped.unwrap_err().to_string();
    assert!(told.ends_with("row 3: `GIT` is not a known operation; stopped there"), "{told}");
}

#[test]
fn what_came_before_an_error_is_handed_out_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "trace.csv", b"ts,key,op,size\n0,1,GET,1\n1,2,GIT,1\n");
    let options = OpenOptions { on_bad_row: OnBadRow::Stop, ..OpenOptions::default() };
    let mut trace = open(&[path], None, &options).unwrap();
    let mut batch = Vec::new();
    assert!(trace.next_batch(&mut batch).unwrap());
    assert_eq!(batch.len(), 1);
    assert!(matches!(trace.next_batch(&mut batch), Err(TraceError::BadRow { row: 3, .. })));
    assert!(!trace.next_batch(&mut batch).unwrap(), "an error is told once");
}

#[test]
fn objects_without_bytes_are_skipped_kept_or_sized() {
    let text = "ts,key,op,size\n0,1,GET,0\n1,2,GET,1\n";
    let of = |zero_size| read(text, &OpenOptions { zero_size, ..OpenOptions::default() }).unwrap();
    let sizes = |accesses: Vec<Access>| accesses.iter().map(|access| access.size_bytes).collect::<Vec<_>>();
    let (accesses, report) = of(ZeroSize::Skip);
    assert_eq!((sizes(accesses), report.zero_sizes, report.bad_rows), (vec![1], 1, 0));
    assert!(report.messages[0].ends_with("row 2: the size is 0; skipped"));
    let (accesses, report) = of(ZeroSize::As(9));
    assert_eq!((sizes(accesses), report.zero_sizes, report.messages.len()), (vec![9, 1], 1, 0));
    assert_eq!(sizes(of(ZeroSize::Keep).0), [0, 1]);
}

#[test]
fn time_that_goes_back_stands_still_or_stops() {
    let text = "ts,key,op,size\n5,1,GET,1\n3,2,GET,1\n6,3,GET,1\n";
    let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
    let seconds: Vec<_> = accesses.iter().map(|access| access.time_ns / 1_000_000_000).collect();
    assert_eq!((seconds, report.backward_times), (vec![5, 5, 6], 1));
    let told = &report.messages[0];
    assert!(
        told.ends_with(
            "row 3: the time is 2000000000 ns before that of the previous row; set to that row's time"
        ),
        "{told}"
    );
    let stopped = read(text, &OpenOptions { on_bad_row: OnBadRow::Stop, ..OpenOptions::default() });
    assert!(matches!(stopped, Err(TraceError::BadRow { row: 3, .. })));
}

#[test]
fn a_torn_archive_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..50_000u64).map(|i| format!("{i},{},GET,10\n", i * i % 7919)).collect();
    let whole = zstd::encode_all(format!("ts,key,op,size\n{text}").as_bytes(), 3).unwrap();
    let path = write(&folder, "trace.csv.zst", &whole[..whole.len() / 2]);
    let told = drain(&path, &OpenOptions::default()).unwrap_err().to_string();
    assert!(told.contains("after row ") && told.contains("cannot read its zstd data"), "{told}");
}

#[test]
fn what_is_no_trace_is_refused_with_the_names_of_formats() {
    let options = OpenOptions::default();
    let told = read("some text\nof no kind\n", &options).unwrap_err().to_string();
    assert!(told.contains("matches none of the formats") && told.contains("oracle-general"), "{told}");
    let told = open(&["x"], Some("orcale"), &options).err().unwrap().to_string();
    assert!(told.starts_with("there is no trace format `orcale`; valid formats are auto, plain, "), "{told}");
    assert!(matches!(open(&["no such file"], None, &options), Err(TraceError::Open { .. })));
    assert!(matches!(read("", &options), Err(TraceError::Empty { .. })));
}

#[test]
fn a_header_that_lacks_a_column_is_told() {
    let told = read("key,verb\n7,GET\n", &OpenOptions::default()).unwrap_err().to_string();
    assert!(told.contains("the header has no column"), "{told}");
}

#[test]
fn each_file_of_a_trace_may_have_a_header_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder, "1.csv", b"ts,key,op,size\n0,1,GET,1\n");
    let second = write(&folder, "2.csv", b"key,size,op,ts\n2,20,SET,5\n");
    let block = b"time_s,op,offset,size\n0,R,0,4096\n";
    let blocks = ["3.csv", "4.csv"].map(|name| write(&folder, name, block));
    for (files, expected) in [([first, second], vec![1, 2]), (blocks, vec![0, 0])] {
        let mut trace = open(&files, None, &OpenOptions::default()).unwrap();
        let (mut keys, mut batch) = (Vec::new(), Vec::new());
        while trace.next_batch(&mut batch).unwrap() {
            keys.extend(batch.iter().map(|access| access.key));
        }
        assert_eq!((keys, trace.report().bad_rows), (expected, 0), "{:?}", trace.report());
    }
}

/// What a text of the product's own columns is refused with.
fn refusal(text: &str, options: &OpenOptions) -> String {
    read(text, options).expect_err(text).to_string()
}

#[test]
fn a_mark_in_front_of_the_header_does_not_hide_its_first_column() {
    let (accesses, report) = read(&format!("\u{feff}{PLAIN}"), &OpenOptions::default()).unwrap();
    assert_eq!(report.format, "plain", "it was taken for CacheBench's, without times");
    assert_eq!((accesses, report.has_time), (read(PLAIN, &OpenOptions::default()).unwrap().0, true));
}

#[test]
fn a_header_of_other_names_is_not_skipped_with_the_columns_read_in_the_usual_order() {
    let error = refusal("when,how much,verb,what\n1,100,GET,7\n", &OpenOptions::default());
    assert!(error.contains("its header has no known column (a plain trace has ts,key,op,size)"), "{error}");
}

#[test]
fn a_trace_of_which_nothing_can_be_read_is_no_empty_one() {
    let error = refusal("ts,key,op,size\n1,7,GET,-5\n2,7,GET,-5\n", &OpenOptions::default());
    assert!(error.contains("none of 2 rows is a valid request; the first error: "), "{error}");
    assert!(error.contains("row 2: column `size` is `-5`"), "{error}");
    let (accesses, report) =
        read("ts,key,op,size\n1,7,GET,-5\n2,7,GET,5\n", &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.bad_rows), (1, 1));
}

#[test]
fn times_in_milliseconds_are_not_seconds_at_the_end_of_time() {
    for header in ["ts,key,op,size", "op_time,key,op,size"] {
        let text = format!("{header}\n1700000000000,7,GET,5\n1700000000500,7,GET,5\n");
        let error = refusal(&text.replace("1700000000", "1700000000000"), &OpenOptions::default());
        assert!(error.contains("beyond 584 years: the trace has a smaller time unit"), "{error}");
        let options = OpenOptions { time_units_per_second: Some(1000), ..OpenOptions::default() };
        let (accesses, _) = read(&text, &options).unwrap();
        assert_eq!(accesses[1].time_ns - accesses[0].time_ns, 500_000_000, "{header}");
    }
}

#[test]
fn sizes_that_no_object_has_do_not_run_over_in_sums() {
    let text =
        "ts,key,op,size\n1,7,GET,9999999999999999999\n1,8,GET,18446744073709551615\n1,9,GET,17592186044416\n";
    let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.bad_rows), (1, 2));
    assert!(report.messages[0].contains("no object is larger than 16 TiB"), "{:?}", report.messages);
}

#[test]
fn spaces_quotes_and_decimals_of_zero_are_read_as_meant() {
    let text = "\"ts\", \"key\", \"op\", \"size\"\n0.5, 7, \"GET\", 100.0\n";
    let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
    assert_eq!((accesses[0].key, accesses[0].size_bytes, report.bad_rows), (7, 100, 0));
}

#[test]
fn other_compressions_and_encodings_are_told_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let told = |bytes: &[u8]| {
        let path = write(&folder, "trace.csv", bytes);
        drain(&path, &OpenOptions::default()).expect_err("no trace").to_string()
    };
    assert!(told(b"BZh91AY&SY").contains("it is bzip2 data, which is not read directly: bzip2 -dc "));
    assert!(told(b"PK\x03\x04...").contains("it is a ZIP archive"));
    assert!(told(b"\xff\xfet\0s\0").contains("it is UTF-16 text"));
    assert!(told(b"\x5d\0\0\x80\0\xff\t\n").contains("it is LZMA data"), "and no columns between tabs");
    let twice = zstd::encode_all(&zstd::encode_all(&b"ts,key,op,size\n"[..], 1).unwrap()[..], 1).unwrap();
    assert!(told(&twice).contains("it is zstd data in compressed data: unpack it once"));
    assert!(told(b"1;7;GET;5\n").contains("its columns are separated by semicolons"));
}

#[test]
fn rows_without_a_time_among_others_do_not_make_time_go_back() {
    let text = "op_time,key,op,size\n,1,GET,5\n,2,GET,5\n100,3,GET,5\n,4,GET,5\n101,5,GET,5\n";
    let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
    let milliseconds: Vec<u64> = accesses.iter().map(|access| access.time_ns / 1_000_000).collect();
    assert_eq!((milliseconds, report.backward_times), (vec![0, 1, 100_000, 100_000, 101_000], 0));
}

/// It was compared with the numbers that rows without a time have for one.
#[test]
fn a_trace_that_begins_at_time_0_behind_rows_without_a_time_was_said_to_go_back() {
    let text =
        "op_time,key,op,size\n,1,GET,5\n,2,GET,5\n,3,GET,5\n0,3,GET,5\n,4,GET,5\n101,5,GET,5\n50,6,GET,5\n";
    let stop = OpenOptions { on_bad_row: OnBadRow::Stop, limit: Some(6), ..OpenOptions::default() };
    let (accesses, report) = read(text, &stop).unwrap();
    let milliseconds: Vec<u64> = accesses[3..].iter().map(|access| access.time_ns / 1_000_000).collect();
    assert_eq!((milliseconds, report.backward_times, report.untimed), (vec![0, 0, 101_000], 0, 3));
    assert_eq!(read(text, &OpenOptions::default()).unwrap().1.backward_times, 1, "the last does go back");
}

#[test]
fn text_of_two_bytes_a_letter_is_no_binary_trace() {
    let text = "\u{feff}ts,key,op,size\n5,1,GET,7\n6,1,GET,7\n";
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let folder = tempfile::tempdir().unwrap();
    let told = drain(&write(&folder, "trace.csv", &bytes), &OpenOptions::default()).expect_err("no records");
    assert!(told.to_string().contains("it is UTF-16 text"), "{told}");
}

#[test]
fn quotes_and_decimals_of_zero_are_read_as_meant_in_every_format() {
    let cdn =
        "timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL\n";
    for (format, text, sizes) in [
        ("twitter", "0,\"k,1\",3,10,4,\"get\",0\n1, k ,3.0,\"10.0\", 4, set ,60\n", vec![13, 13]),
        ("msr", "\"128166372003061629\",\"hm\",\"1\",\"Read\",\"0\",\"4096\",\"9\"\n", vec![4096]),
        ("msr", "128166372003061629,hm,1,Read,4096.0,4096.0,9\n", vec![4096]),
        ("systor", "\"1.5\",,\"W\",\"3\",\"0\",\"4096\"\n", vec![4096]),
        (
            "cloudphysics-csv",
            "\"version\",\"time\",\"op\",\"size\",\"lbn\"\n1,2,\"2a\",\"512\",\"8\"\n",
            vec![4096],
        ),
        ("block-csv", "\"time_s\",\"op\",\"offset\",\"bytes\"\n1.5,\"R\",0.0,4096.0\n", vec![4096]),
        ("cdn", &format!("{cdn}1000.0,k,1.0,500.0,300.0,20.0,-1.0,-1.0,60.0\n"), vec![520]),
        ("cdn", &format!("{cdn}1000,k,1,500,300,20,100,9223372036854775807,60\n"), vec![520]),
    ] {
        let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
        let found: Vec<u64> = accesses.iter().map(|access| access.size_bytes).collect();
        assert_eq!((report.format, found, report.bad_rows), (format, sizes, 0), "{:?}", report.messages);
    }
}

#[test]
fn a_short_trace_with_wrong_rows_is_told_what_it_is_most_like() {
    let told = refusal("0,k,3,10,4,get,0\n1,k,3,10,4,got,0\n2,k,3,10,4,get,0\n", &OpenOptions::default());
    let words = "1 of its first 3 rows are wrong for `twitter` (the first: `got` is not a known operation); \
                 name that format to read it anyway; ";
    assert!(told.contains(words), "{told}");
}

#[test]
fn a_recording_that_began_with_what_asks_for_nothing_was_in_no_format() {
    let folder = tempfile::tempdir().unwrap();
    let event = |action: &str| format!("  8,0 3 1 0.5 697 {action} R 8 + 8 [a]\n");
    let text = event("C").repeat(40) + &event("Q").repeat(40);
    let trace = |name, bytes: &[u8]| {
        let (accesses, report) = drain(&write(&folder, name, bytes), &OpenOptions::default()).unwrap();
        (accesses.len(), report.format)
    };
    assert_eq!(trace("sda.txt", text.as_bytes()), (40, "blkparse"));
    let record = |action: u32| {
        let mut record = [0; 48];
        record[..4].copy_from_slice(&0x6561_7407_u32.to_le_bytes());
        record[24..28].copy_from_slice(&4096_u32.to_le_bytes());
        record[28..32].copy_from_slice(&(1 << 16 | action).to_le_bytes());
        record
    };
    let (completed, queued) = (record(8).repeat(40), record(1).repeat(40));
    assert_eq!(trace("sda.blktrace.0", &[&completed[..], &queued].concat()), (40, "blktrace"));
    // A recording of completions alone, as of a processor that does nothing else.
    let completed = completed.repeat(50);
    assert_eq!(trace("sda.blktrace.1", &completed), (2000, "blktrace"));
    assert_eq!(trace("sda.blktrace.2", &[&completed[..], &queued].concat()), (40, "blktrace"));
    assert_eq!(trace("late.txt", (event("C").repeat(1500) + &event("Q")).as_bytes()), (1500, "blkparse"));
}

#[test]
fn a_header_of_a_block_trace_with_wrong_rows_behind_it_was_blamed_on_another_format() {
    let systor = "Timestamp,Response,IOType,LUN,Offset,Size\n1.5,,,3,0,4096\n1.6,0.1,R,3,0,4096\n";
    let (accesses, report) = read(systor, &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.format, report.bad_rows), (1, "systor", 1));
    assert!(report.messages[0].ends_with("row 2: `IOType` is missing; skipped"), "{:?}", report.messages);
    let csv = "time_us,op,offset,bytes\n1,R,x,1\n2,R,512,512\n";
    let (accesses, report) = read(csv, &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.format, report.bad_rows), (1, "block-csv", 1));
    let fio = "fio version 2 iolog\nmy file add\nmy file read 0 512\n";
    assert!(refusal(fio, &OpenOptions::default()).contains("row 2: `file` is not a known operation"));
    let told = refusal("timestamp,op,offset,bytes\n5,R,0,512\n", &OpenOptions::default());
    assert!(told.ends_with("`block-csv`: the column `timestamp` does not say its unit: call it `time_ns`, `time_us`, `time_ms` or `time_s`"), "{told}");
}

#[test]
fn a_trace_whose_name_says_what_it_is_was_refused_for_an_object_without_bytes() {
    let record = |seconds: u32, size: u32, next: i64| {
        let (time, object) = (seconds.to_le_bytes(), 7_u64.to_le_bytes());
        [&time[..], &object, &size.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    let bytes = [record(5, 0, 2), record(4, 10, 3), record(6, 10, -1)].concat();
    let folder = tempfile::tempdir().unwrap();
    let named = write(&folder, "w.oracleGeneral.zst", &zstd::encode_all(&bytes[..], 1).unwrap());
    let (accesses, report) = drain(&named, &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.zero_sizes, report.format), (2, 1, "oracle-general"));
    assert!(drain(&write(&folder, "w", &bytes), &OpenOptions::default()).is_err(), "it could be anything");
}

#[test]
fn a_text_of_carriage_returns_alone_was_a_header_without_rows() {
    let told = "its lines end in carriage returns alone: convert them to line feeds";
    let text = "key,op,size\rk,GET,10\rk,GET,10\r";
    assert!(refusal(text, &OpenOptions::default()).ends_with(&format!("read as `kvcache`: {told}")));
    let folder = tempfile::tempdir().unwrap();
    let named = drain_all(&[write(&folder, "trace.csv", text.as_bytes())], Some("kvcache")).unwrap_err();
    assert!(named.to_string().ends_with(told), "{named}");
    let long = refusal(&text.repeat(5000), &OpenOptions::default());
    assert!(long.contains(told), "{long}");
}
