//! Reads traces as accesses through the public interface.

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
fn rows_are_read_as_accesses() {
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
    assert_ne!(accesses[2].key, 7, "07 and 7 are different keys");
    assert_eq!((report.rows, report.bad_rows, report.zero_sizes), (3, 0, 0));
    assert!(report.has_time && report.messages.is_empty());
}

#[test]
fn page_size_without_effect_is_reported() {
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
fn second_file_in_another_format_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let plain = write(&folder, "a.csv", PLAIN.as_bytes());
    let records: Vec<u8> = (1..=8_u32)
        .flat_map(|number| {
            let [time, size] = [number, 100].map(u32::to_le_bytes);
            [&time[..], &u64::from(number).to_le_bytes(), &size, &(-1_i64).to_le_bytes()].concat()
        })
        .collect();
    let oracle = write(&folder, "b.oracleGeneral", &records);
    // The second part of a split trace has no header.
    let rest = write(&folder, "c.csv", b"2,8,GET,10\n");
    let message = drain_all(&[plain.clone(), oracle.clone()], None).unwrap_err();
    assert!(
        matches!(&message, TraceError::MixedFormats { found: "oracle-general", expected: "plain", path } if *path == oracle),
        "{message}"
    );
    assert_eq!(drain_all(&[plain.clone(), rest, plain.clone()], None).unwrap(), 7);
    assert!(matches!(drain_all(&[plain, "/no/such".into()], None), Err(TraceError::Open { .. })));
    assert_eq!(drain_all(&[oracle.clone(), oracle], Some("oracle-general")).unwrap(), 16);
}

#[test]
fn repeated_row_is_several_accesses_up_to_the_limit() {
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
fn rows_behind_the_limit_are_not_read() {
    let text = "ts,key,op,size\n0,1,GET,1\n1,2,GET,1\n2,3,GIT,1\n3,4,GET,0\n";
    for on_bad_row in [OnBadRow::Skip, OnBadRow::Stop] {
        let options = OpenOptions { limit: Some(2), on_bad_row, bad_rows_limit: 0, ..OpenOptions::default() };
        let (accesses, report) = read(text, &options).unwrap();
        assert_eq!((accesses.len(), report.rows, report.bad_rows, report.zero_sizes), (2, 2, 0, 0));
    }
}

#[test]
fn access_without_timestamp_gets_its_number_as_time() {
    let (accesses, report) = read("key,op,size\n1,GET,1\n2,GET,1\n", &OpenOptions::default()).unwrap();
    assert_eq!([accesses[0].time_ns, accesses[1].time_ns], [0, 1_000_000]);
    assert!(!report.has_time);
}

#[test]
fn invalid_rows_are_skipped_counted_and_reported() {
    let text = "ts,key,op,size\n0,1,GET,1\n1,2,GIT,1\n2,3,GET,x\n3,4,GET,1\n";
    let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
    assert_eq!(accesses.iter().map(|access| access.key).collect::<Vec<_>>(), [1, 4]);
    assert_eq!((report.rows, report.bad_rows), (4, 2));
    assert!(report.messages[0].ends_with("trace.csv: row 3: `GIT` is not a known operation; skipped"));
    let limited = read(text, &OpenOptions { bad_rows_limit: 1, ..OpenOptions::default() });
    let message = limited.unwrap_err().to_string();
    assert!(message.contains("row 4: column `size` is `x`") && message.contains("the first: "), "{message}");
    let stopped = read(text, &OpenOptions { on_bad_row: OnBadRow::Stop, ..OpenOptions::default() });
    let message = stopped.unwrap_err().to_string();
    assert!(message.ends_with("row 3: `GIT` is not a known operation; stopped there"), "{message}");
}

#[test]
fn accesses_before_an_error_are_returned_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "trace.csv", b"ts,key,op,size\n0,1,GET,1\n1,2,GIT,1\n");
    let options = OpenOptions { on_bad_row: OnBadRow::Stop, ..OpenOptions::default() };
    let mut trace = open(&[path], None, &options).unwrap();
    let mut batch = Vec::new();
    assert!(trace.next_batch(&mut batch).unwrap());
    assert_eq!(batch.len(), 1);
    assert!(matches!(trace.next_batch(&mut batch), Err(TraceError::BadRow { row: 3, .. })));
    assert!(!trace.next_batch(&mut batch).unwrap(), "an error is returned once");
}

#[test]
fn objects_of_zero_bytes_are_skipped_kept_or_sized() {
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
fn timestamp_that_goes_back_is_replaced_or_an_error() {
    let text = "ts,key,op,size\n5,1,GET,1\n3,2,GET,1\n6,3,GET,1\n";
    let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
    let seconds: Vec<_> = accesses.iter().map(|access| access.time_ns / 1_000_000_000).collect();
    assert_eq!((seconds, report.backward_times), (vec![5, 5, 6], 1));
    let message = &report.messages[0];
    assert!(
        message.ends_with(
            "row 3: the time is 2000000000 ns before that of the previous row; set to that row's time"
        ),
        "{message}"
    );
    let stopped = read(text, &OpenOptions { on_bad_row: OnBadRow::Stop, ..OpenOptions::default() });
    assert!(matches!(stopped, Err(TraceError::BadRow { row: 3, .. })));
}

#[test]
fn damaged_archive_reports_the_last_row() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..50_000u64).map(|i| format!("{i},{},GET,10\n", i * i % 7919)).collect();
    let whole = zstd::encode_all(format!("ts,key,op,size\n{text}").as_bytes(), 3).unwrap();
    let path = write(&folder, "trace.csv.zst", &whole[..whole.len() / 2]);
    let message = drain(&path, &OpenOptions::default()).unwrap_err().to_string();
    assert!(message.contains("after row ") && message.contains("cannot read its zstd data"), "{message}");
}

#[test]
fn unrecognised_file_is_rejected_with_the_format_names() {
    let options = OpenOptions::default();
    let message = read("some text\nof no kind\n", &options).unwrap_err().to_string();
    assert!(
        message.contains("matches none of the formats") && message.contains("oracle-general"),
        "{message}"
    );
    let message = open(&["x"], Some("orcale"), &options).err().unwrap().to_string();
    assert!(
        message.starts_with("there is no trace format `orcale`; valid formats are auto, plain, "),
        "{message}"
    );
    assert!(matches!(open(&["no such file"], None, &options), Err(TraceError::Open { .. })));
    assert!(matches!(read("", &options), Err(TraceError::Empty { .. })));
}

#[test]
fn header_without_a_column_is_rejected() {
    let message = read("key,verb\n7,GET\n", &OpenOptions::default()).unwrap_err().to_string();
    assert!(message.contains("the header has no column"), "{message}");
}

#[test]
fn each_file_of_a_trace_can_have_its_own_header() {
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

/// The error when `text` is read.
fn refusal(text: &str, options: &OpenOptions) -> String {
    read(text, options).expect_err(text).to_string()
}

#[test]
fn byte_order_mark_does_not_hide_the_first_column() {
    let (accesses, report) = read(&format!("\u{feff}{PLAIN}"), &OpenOptions::default()).unwrap();
    assert_eq!(report.format, "plain", "the first column was recognised");
    assert_eq!((accesses, report.has_time), (read(PLAIN, &OpenOptions::default()).unwrap().0, true));
}

#[test]
fn header_with_unknown_names_is_rejected() {
    let error = refusal("when,how much,verb,what\n1,100,GET,7\n", &OpenOptions::default());
    assert!(error.contains("its header has no known column (a plain trace has ts,key,op,size)"), "{error}");
}

#[test]
fn trace_without_a_valid_row_is_an_error() {
    let error = refusal("ts,key,op,size\n1,7,GET,-5\n2,7,GET,-5\n", &OpenOptions::default());
    assert!(error.contains("none of 2 rows is a valid request; the first error: "), "{error}");
    assert!(error.contains("row 2: column `size` is `-5`"), "{error}");
    let (accesses, report) =
        read("ts,key,op,size\n1,7,GET,-5\n2,7,GET,5\n", &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.bad_rows), (1, 1));
}

#[test]
fn milliseconds_read_as_seconds_are_an_error() {
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
fn impossible_sizes_are_rejected() {
    let text =
        "ts,key,op,size\n1,7,GET,9999999999999999999\n1,8,GET,18446744073709551615\n1,9,GET,17592186044416\n";
    let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.bad_rows), (1, 2));
    assert!(report.messages[0].contains("no object is larger than 16 TiB"), "{:?}", report.messages);
}

#[test]
fn spaces_quotes_and_zero_decimals_are_ignored() {
    let text = "\"ts\", \"key\", \"op\", \"size\"\n0.5, 7, \"GET\", 100.0\n";
    let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
    assert_eq!((accesses[0].key, accesses[0].size_bytes, report.bad_rows), (7, 100, 0));
}

#[test]
fn unsupported_compressions_and_encodings_are_reported_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let message = |bytes: &[u8]| {
        let path = write(&folder, "trace.csv", bytes);
        drain(&path, &OpenOptions::default()).expect_err("no trace").to_string()
    };
    assert!(message(b"BZh91AY&SY").contains("it is bzip2 data, which is not read directly: bzip2 -dc "));
    assert!(message(b"PK\x03\x04...").contains("it is a ZIP archive"));
    assert!(message(b"\xff\xfet\0s\0").contains("it is UTF-16 text"));
    assert!(message(b"\x5d\0\0\x80\0\xff\t\n").contains("it is LZMA data"), "not a table separated by tabs");
    let twice = zstd::encode_all(&zstd::encode_all(&b"ts,key,op,size\n"[..], 1).unwrap()[..], 1).unwrap();
    assert!(message(&twice).contains("it is zstd data in compressed data: unpack it once"));
    assert!(message(b"1;7;GET;5\n").contains("its columns are separated by semicolons"));
}

#[test]
fn rows_without_timestamp_take_the_previous_time() {
    let text = "op_time,key,op,size\n,1,GET,5\n,2,GET,5\n100,3,GET,5\n,4,GET,5\n101,5,GET,5\n";
    let (accesses, report) = read(text, &OpenOptions::default()).unwrap();
    let milliseconds: Vec<u64> = accesses.iter().map(|access| access.time_ns / 1_000_000).collect();
    assert_eq!((milliseconds, report.backward_times), (vec![0, 1, 100_000, 100_000, 101_000], 0));
}

/// Catches a regression: the timestamp is compared with the row numbers that replace missing timestamps.
#[test]
fn first_timestamp_after_rows_without_one_does_not_go_back() {
    let text =
        "op_time,key,op,size\n,1,GET,5\n,2,GET,5\n,3,GET,5\n0,3,GET,5\n,4,GET,5\n101,5,GET,5\n50,6,GET,5\n";
    let stop = OpenOptions { on_bad_row: OnBadRow::Stop, limit: Some(6), ..OpenOptions::default() };
    let (accesses, report) = read(text, &stop).unwrap();
    let milliseconds: Vec<u64> = accesses[3..].iter().map(|access| access.time_ns / 1_000_000).collect();
    assert_eq!((milliseconds, report.backward_times, report.untimed), (vec![0, 0, 101_000], 0, 3));
    assert_eq!(
        read(text, &OpenOptions::default()).unwrap().1.backward_times,
        1,
        "the last timestamp goes back"
    );
}

#[test]
fn utf16_text_is_not_read_as_a_binary_trace() {
    let text = "\u{feff}ts,key,op,size\n5,1,GET,7\n6,1,GET,7\n";
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let folder = tempfile::tempdir().unwrap();
    let message =
        drain(&write(&folder, "trace.csv", &bytes), &OpenOptions::default()).expect_err("no records");
    assert!(message.to_string().contains("it is UTF-16 text"), "{message}");
}

#[test]
fn quotes_and_zero_decimals_are_ignored_in_every_format() {
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
fn short_trace_with_invalid_rows_reports_the_nearest_format() {
    let message = refusal("0,k,3,10,4,get,0\n1,k,3,10,4,got,0\n2,k,3,10,4,get,0\n", &OpenOptions::default());
    let expected = "1 of its first 3 rows are wrong for `twitter` (the first: `got` is not a known operation); \
                 name that format to read it anyway; ";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn recording_that_begins_with_other_events_is_detected() {
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
    // A recording of completions alone, as of a CPU that only handles interrupts.
    let completed = completed.repeat(50);
    assert_eq!(trace("sda.blktrace.1", &completed), (2000, "blktrace"));
    assert_eq!(trace("sda.blktrace.2", &[&completed[..], &queued].concat()), (40, "blktrace"));
    assert_eq!(trace("late.txt", (event("C").repeat(1500) + &event("Q")).as_bytes()), (1500, "blkparse"));
}

#[test]
fn block_trace_header_with_invalid_rows_is_detected() {
    let systor = "Timestamp,Response,IOType,LUN,Offset,Size\n1.5,,,3,0,4096\n1.6,0.1,R,3,0,4096\n";
    let (accesses, report) = read(systor, &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.format, report.bad_rows), (1, "systor", 1));
    assert!(report.messages[0].ends_with("row 2: `IOType` is missing; skipped"), "{:?}", report.messages);
    let csv = "time_us,op,offset,bytes\n1,R,x,1\n2,R,512,512\n";
    let (accesses, report) = read(csv, &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.format, report.bad_rows), (1, "block-csv", 1));
    let fio = "fio version 2 iolog\nmy file add\nmy file read 0 512\n";
    assert!(refusal(fio, &OpenOptions::default()).contains("row 2: `file` is not a known operation"));
    let message = refusal("timestamp,op,offset,bytes\n5,R,0,512\n", &OpenOptions::default());
    assert!(message.ends_with("`block-csv`: the column `timestamp` does not say its unit: call it `time_ns`, `time_us`, `time_ms` or `time_s`"), "{message}");
}

#[test]
fn named_trace_with_an_object_of_zero_bytes_is_detected() {
    let record = |seconds: u32, size: u32, next: i64| {
        let (time, object) = (seconds.to_le_bytes(), 7_u64.to_le_bytes());
        [&time[..], &object, &size.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    let bytes = [record(5, 0, 2), record(4, 10, 3), record(6, 10, -1)].concat();
    let folder = tempfile::tempdir().unwrap();
    let named = write(&folder, "w.oracleGeneral.zst", &zstd::encode_all(&bytes[..], 1).unwrap());
    let (accesses, report) = drain(&named, &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.zero_sizes, report.format), (2, 1, "oracle-general"));
    assert!(
        drain(&write(&folder, "w", &bytes), &OpenOptions::default()).is_err(),
        "the content alone is ambiguous"
    );
}

#[test]
fn text_with_carriage_returns_only_is_rejected() {
    let message = "its lines end in carriage returns alone: convert them to line feeds";
    let text = "key,op,size\rk,GET,10\rk,GET,10\r";
    assert!(refusal(text, &OpenOptions::default()).ends_with(&format!("read as `kvcache`: {message}")));
    let folder = tempfile::tempdir().unwrap();
    let named = drain_all(&[write(&folder, "trace.csv", text.as_bytes())], Some("kvcache")).unwrap_err();
    assert!(named.to_string().ends_with(message), "{named}");
    let long = refusal(&text.repeat(5000), &OpenOptions::default());
    assert!(long.contains(message), "{long}");
}
