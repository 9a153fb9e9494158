//! Published traces: format detection by content, files that are not traces, and optional columns with unreadable values.

use std::path::PathBuf;

use flashwright_workload::Workload as _;
use flashwright_workload::trace::block::{BlockTrace, BlockTraceOptions};
use flashwright_workload::trace::{
    Access, AccessKind, Format, OnBadRow, OpenOptions, ReadReport, Replay, ReplayConfig, TraceError, open,
};
use tempfile::TempDir;

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn read_files(
    files: &[(&str, &[u8])],
    format: Option<&str>,
    options: &OpenOptions,
) -> Result<(Vec<Access>, ReadReport), TraceError> {
    let folder = TempDir::new().unwrap();
    let paths: Vec<PathBuf> = files.iter().map(|(name, bytes)| write(&folder, name, bytes)).collect();
    let mut trace = open(&paths, format, options)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch)? {
        all.extend_from_slice(&batch);
    }
    Ok((all, trace.report().clone()))
}

fn read(name: &str, bytes: &[u8]) -> Result<(Vec<Access>, ReadReport), TraceError> {
    read_files(&[(name, bytes)], None, &OpenOptions::default())
}

fn refusal(name: &str, bytes: &[u8]) -> String {
    read(name, bytes).expect_err("it is refused").to_string()
}

fn lcs(version: u64) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    let magic = 0x1234_5678_9abc_def0_u64.to_le_bytes();
    bytes[..8].copy_from_slice(&magic);
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes[8184..].copy_from_slice(&magic);
    for (seconds, object) in [(1_u32, 7_u64), (2, 8)] {
        bytes.extend(seconds.to_le_bytes());
        bytes.extend(object.to_le_bytes());
        bytes.extend(100_u32.to_le_bytes());
        bytes.extend((-1_i64).to_le_bytes());
    }
    bytes
}

const DIGEST: &str = "8f5fbb8b9ab7ae9ab9a8cb3df4b8f1d4";

#[test]
fn published_formats_are_detected_and_read() {
    let fiu = format!("1000 42 nfsd 8 8 W 6 0 {DIGEST}\n2000 42 nfsd 16 8 R 6 0 {DIGEST}\n");
    let squid = "1.5 3 10.0.0.1 TCP_MISS/200 100 GET http://a/ - DIRECT/1.1.1.1 text/html\n\
                 2.5 3 10.0.0.1 TCP_HIT/200 100 GET http://a/ - NONE/- text/html\n";
    let log = "10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.0\" 200 100\n\
               10.0.0.1 - - [10/Oct/2000:13:55:37 -0700] \"GET /a HTTP/1.0\" 200 100\n";
    let cos = "10 REST.PUT.OBJECT 8d4fcda3d675bac9 100\n20 REST.GET.OBJECT 8d4fcda3d675bac9 100 0 99\n";
    let wikimedia = "relative_unix\thashed_path_query\timage_type\tresponse_size\ttime_firstbyte\n\
                     1\t-77\tjpeg\t100\t0.1\n2\t88\tpng\t100\t0.2\n";
    let wikimedia_text = "relative_unix\thashed_host_path_query\tresponse_size\ttime_firstbyte\n1\t7\t100\t0.1\n2\t8\t100\t0.1\n";
    for (format, name, bytes) in [
        ("lcs", "a", lcs(1)),
        ("disksim", "a", b"0.5 0 8 8 1\n1.25 0 16 8 0\n".to_vec()),
        ("mqsim", "a", b"938513000 4 264719032 8 0\n938828000 3 197570568 8 1\n".to_vec()),
        ("fiu", "a", fiu.into_bytes()),
        ("squid", "access.log", squid.into()),
        ("common-log", "access_log", log.into()),
        ("ibm-cos", "a", cos.into()),
        ("csv", "u.tsv", wikimedia.into()),
        ("csv", "t.tsv", wikimedia_text.into()),
        ("cloudphysics-csv", "trace.csv", b"1,5633898368802,2a,512,8\n1,5633898368803,28,512,16\n".to_vec()),
        (
            "msr",
            "a",
            b"datetime,host,disk,type,offset,size,lat\n2007-02-22 17:00:03.5,hm,1,Read,0,512,1\n\
                       2007-02-22 17:00:04.5,hm,1,Read,4096,512,1\n"
                .to_vec(),
        ),
    ] {
        let (accesses, report) = read(name, &bytes).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert_eq!((accesses.len(), report.format, report.bad_rows), (2, format, 0), "{report:?}");
        assert!(report.has_time && accesses[0].time_ns < accesses[1].time_ns, "{format}: {accesses:?}");
    }
}

#[test]
fn block_reader_detects_the_same_formats() {
    let folder = TempDir::new().unwrap();
    let fiu = format!("1000 42 nfsd 8 8 W 6 0 {DIGEST}\n");
    for (format, bytes) in [("disksim", "0.5 0 8 8 1\n"), ("mqsim", "500000 0 8 8 1\n"), ("fiu", &fiu)] {
        let path = write(&folder, format, bytes.as_bytes());
        let mut trace = BlockTrace::open(&[path], BlockTraceOptions::default()).unwrap();
        let request = trace.next().unwrap().unwrap();
        assert_eq!(
            (request.first_byte, request.bytes, trace.stats().formats.clone()),
            (4096, 4096, vec![format])
        );
    }
}

#[test]
fn commented_header_of_libcachesim_is_a_header() {
    for (text, format) in [
        ("# time, object, size, next_access_vtime\n1, 7, 100, 3\n2, 8, 200, -1\n", "csv"),
        ("# time object size next_access_vtime\n1 7 100 3\n2 8 200 4\n", "webcachesim"),
        ("time, object, size, next_access_vtime\n1, 7, 100, 3\n2, 8, 200, -1\n", "csv"),
    ] {
        let (accesses, report) = read("cloudPhysicsIO.csv", text.as_bytes()).unwrap();
        let seen: Vec<(u64, u64)> = accesses.iter().map(|it| (it.key, it.size_bytes)).collect();
        assert_eq!((seen, report.bad_rows, report.format), (vec![(7, 100), (8, 200)], 0, format), "{text}");
    }
}

#[test]
fn four_number_columns_are_detected_as_arc_or_webcachesim() {
    let arc = b"230027 8 0 12\n5 1 0 13\n99 4 0 14\n";
    let lrb = b"0 230027 800 12\n0 5 100 13\n7 99 400 14\n";
    assert_eq!(read("a.txt", arc).unwrap().1.format, "arc");
    assert_eq!(read("a.txt", lrb).unwrap().1.format, "webcachesim");
    let neither = refusal("a.txt", b"9 230027 800 12\n4 5 100 13\n7 99 400 14\n");
    assert!(neither.contains("--format arc") && neither.contains("--format webcachesim"), "{neither}");
}

#[test]
fn files_that_are_no_trace_are_named_without_a_guess() {
    let escape = refusal("t.csv", b"time,key,op,size\n1,a,\x1b[31mGET,1\n2,b,GET,1\n");
    assert!(escape.contains("line 2 has a control byte 0x1b (tr -d '\\033' removes them)"), "{escape}");
    for (bytes, words) in [
        (
            &b"{\"time\":1,\"key\":\"a\"}\n{\"time\":2,\"key\":\"b\"}\n"[..],
            "it is JSON, which is not read directly: jq -r",
        ),
        (b"<!DOCTYPE html><html>404, not found</html>", "it is an HTML page, not a trace"),
        (b"version https://git-lfs.github.com/spec/v1\nsize 1\n", "it is a pointer of Git LFS, not the data"),
        (b"SQLite format 3\0\x10\0\x01\x01\0", "it is an SQLite database"),
    ] {
        let refused = refusal("t.csv", bytes);
        assert!(refused.contains(words) && !refused.contains("none of the formats"), "{refused}");
    }
}

#[test]
fn table_without_header_is_not_detected_as_spc() {
    let text: String = (0..8).map(|row| format!("{row},7,2549,W,0\n")).collect();
    let refused = refusal("t.csv", text.as_bytes());
    assert!(refused.contains("it may be a table without a header: name its columns"), "{refused}");
    let spc = b"0,20941264,8192,W,0.551706\n0,20939840,8192,W,0.554041\n";
    assert_eq!(read("Financial1", spc).unwrap().1.format, "spc");
    for other in
        ["3,R,7,2549,0\n4,W,8,100,1\n", "0,7,W,3,100,50\n1,7,R,3,200,50\n", "1,7,100,0,3\n2,8,100,1,3\n"]
    {
        let refused = refusal("t.csv", other.as_bytes());
        assert!(
            refused.contains("it may be a table without a header"),
            "alibaba, systor, tencent: {refused}"
        );
    }
}

#[test]
fn second_file_without_valid_rows_is_rejected() {
    let first: (&str, &[u8]) = ("1.csv", b"ts,key,op,size\n1,7,GET,100\n");
    for (second, format) in [
        (&b"some words\nand more words\n"[..], None),
        (b"1 2 3\n2 3 4\n", Some("plain")),
        (b"alpha;beta\n1;2\n", Some("plain")),
    ] {
        let error =
            read_files(&[first, ("2.csv", second)], format, &OpenOptions::default()).unwrap_err().to_string();
        assert!(error.contains("2.csv: none of its rows is valid: row "), "{error}");
    }
    let block: (&str, &[u8]) = ("1.csv", b"time_ns,op,offset,bytes\n1,R,0,512\n");
    let words: (&str, &[u8]) = ("2.csv", b"time_ns,op,offset,bytes\nx,R,0,512\ny,R,0,512\n");
    let error = read_files(&[block, words], None, &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("2.csv: none of its rows is valid: row 2: "), "merged: {error}");
    let other: (&str, &[u8]) = ("2.csv", b"0,20941264,8192,W,0.551706\n");
    let error = read_files(&[first, other], None, &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("2.csv: a `spc` trace after a `plain` trace"), "{error}");
}

#[test]
fn wrong_format_is_rejected_with_the_detected_one() {
    let spc = b"0,20941264,8192,W,0.551706\n0,20939840,8192,W,0.554041\n";
    let error = read_files(&[("t", spc)], Some("plain"), &OpenOptions::default()).unwrap_err().to_string();
    assert!(
        error.contains("none of 2 rows is a valid request") && error.ends_with("--format spc"),
        "{error}"
    );
}

#[test]
fn dates_are_accepted_as_times() {
    let text = b"datetime,key,size\n2007-02-22 17:00:03.5,7,100\n2007-02-22T17:00:04Z,8,100\n";
    let (accesses, report) = read("t.csv", text).unwrap();
    assert_eq!((accesses[1].time_ns - accesses[0].time_ns, report.format), (500_000_000, "csv"));
}

#[test]
fn archives_are_reported_under_a_named_format_too() {
    let mut tar = vec![b'a'; 512];
    tar[257..262].copy_from_slice(b"ustar");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &tar).unwrap();
    let gzip = encoder.finish().unwrap();
    let utf16: Vec<u8> =
        b"\xff\xfe".iter().copied().chain("1,7,GET,5\n".bytes().flat_map(|it| [it, 0])).collect();
    for (bytes, what) in [
        (gzip, "a tar archive, which is not read directly: tar -xOf"),
        (b"BZh91AY&SY".to_vec(), "bzip2 data, which is not read directly: bzip2 -dc"),
        (b"PK\x03\x04".to_vec(), "a ZIP archive, which is not read directly: unzip -p"),
        (utf16, "UTF-16 text, which is not read directly: iconv -f UTF-16 -t UTF-8"),
    ] {
        for format in [None, Some("plain"), Some("csv:time,key,-,size")] {
            let read = read_files(&[("t.csv", &bytes)], format, &OpenOptions::default());
            let error = read.unwrap_err().to_string();
            assert!(error.contains(what), "{format:?}: {error}");
        }
        let folder = TempDir::new().unwrap();
        let path = write(&folder, "t.csv", &bytes);
        let error = BlockTrace::open(&[&path], BlockTraceOptions::default()).err().unwrap().to_string();
        assert!(error.contains(what), "block trace: {error}");
        let replay = Replay::new(ReplayConfig::new(vec![path], Format::named("kvcache").unwrap()));
        let error = replay.check_files().unwrap_err().to_string();
        assert!(error.contains(what), "replay: {error}");
    }
}

#[test]
fn control_bytes_make_one_invalid_row_and_are_escaped_in_messages() {
    let text = b"ts,key,op,size\n1,7,GET,100\n2,8,G\0ET,100\n3,9,GET,100\n4,9,GET,100\n5,9,GET,100\n";
    let (accesses, report) = read("t.csv", text).unwrap();
    assert_eq!((accesses.len(), report.bad_rows), (4, 1));
    assert!(!report.messages[0].contains('\0'), "{:?}", report.messages);
    let (_, report) = read("t.csv", b"ts,key,op,size\n1,7,GET,1\n2,8,\x1b[31mred,1\n").unwrap();
    assert!(report.messages[0].contains("`\\u{1b}[31mred` is not"), "{:?}", report.messages);
}

#[test]
fn unreadable_optional_values_are_absent_and_counted_by_column() {
    let text =
        "ts,key,op,size,ttl\n1,7,SET,10,60\n2,7,SET,10,-1\n3,7,SET,10,3600.5\n4,7,SET,10,99999999999999\n";
    let (accesses, report) = read("t.csv", text.as_bytes()).unwrap();
    let ttls: Vec<Option<u32>> = accesses.iter().map(|it| it.ttl_seconds).collect();
    assert_eq!((ttls, report.bad_rows), (vec![Some(60), None, None, None], 0));
    let [unreadable] = report.unreadable.as_slice() else { panic!("{report:?}") };
    assert_eq!((unreadable.column, unreadable.values), ("ttl", 3));
    assert!(unreadable.first.contains("t.csv: row 3: column `ttl` is `-1`"), "{unreadable}");
    let stop = OpenOptions { on_bad_row: OnBadRow::Stop, ..OpenOptions::default() };
    assert!(read_files(&[("t.csv", text.as_bytes())], None, &stop).is_err());
}

#[test]
fn row_with_unreadable_count_size_or_time_is_kept() {
    let kv = "key,op,size,op_count,op_time\n7,GET,10,-3,1\n7,GET,10,2,1.5\n7,GET,10,1,3\n";
    let (accesses, report) =
        read_files(&[("t.csv", kv.as_bytes())], Some("kvcache"), &OpenOptions::default()).unwrap();
    assert_eq!((accesses.len(), report.bad_rows), (4, 0), "{report:?}");
    let columns: Vec<_> = report.unreadable.iter().map(|it| (it.column, it.values)).collect();
    assert_eq!(columns, [("op_count", 1), ("op_time", 1)]);
    let apache = "time,url_id,size\n1,7,-\n2,7,100\n3,8,-\n";
    let (accesses, report) =
        read_files(&[("t.csv", apache.as_bytes())], Some("csv:time,key,size"), &OpenOptions::default())
            .unwrap();
    let sizes: Vec<u64> = accesses.iter().map(|it| it.size_bytes).collect();
    assert_eq!((sizes, report.unreadable[0].values), (vec![4096, 100, 4096], 2));
    let ten = "time,key,size\n1,7,ten\n2,7,100\n";
    assert_eq!(
        read("t.csv", ten.as_bytes()).unwrap().1.bad_rows,
        1,
        "the size of a stored object is required"
    );
}

#[test]
fn http_and_store_operations_are_known_and_numbers_are_gets() {
    let text = "time,key,op,size\n1,7,PURGE,10\n2,7,OPTIONS,10\n3,7,s,10\n4,7,l,10\n5,7,3,10\n";
    let (accesses, report) = read("t.csv", text.as_bytes()).unwrap();
    let kinds: Vec<AccessKind> = accesses.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [AccessKind::Delete, AccessKind::Set, AccessKind::Get, AccessKind::Get]);
    assert_eq!(report.bad_rows, 0);
    let [left_out, number] = report.unreadable.as_slice() else { panic!("{report:?}") };
    assert_eq!((left_out.column, left_out.is_row_left_out, left_out.values), ("op", true, 1));
    assert_eq!((number.column, number.is_row_left_out, number.values), ("op", false, 1));
    let unknown = read("t.csv", b"time,key,op,size\n1,7,GET,10\n2,7,frobnicate,10\n").unwrap().1;
    assert_eq!(unknown.bad_rows, 1, "the operation is unknown");
}

#[test]
fn rows_that_request_no_object_are_counted_in_every_format_with_operations() {
    let squid = "1.0 5 10.0.0.1 TCP_MISS/200 4100 HEAD http://a/ - DIRECT/1 text/html\n\
                 2.0 5 10.0.0.1 TCP_MISS/200 4100 GET http://a/ - DIRECT/1 text/html\n";
    for (name, text) in [
        ("t.csv", "ts,key,op,size\n1,7,GET,10\n2,7,HEAD,10\n"),
        ("t.csv", "key,op,size,op_count,key_size\n7,GET,10,1,3\n7,HEAD,10,1,3\n"),
        ("access.log", squid),
        ("cos.txt", "1 REST.HEAD.OBJECT a 10\n2 REST.GET.OBJECT a 10\n"),
    ] {
        let (accesses, report) = read(name, text.as_bytes()).unwrap();
        assert_eq!((accesses.len(), report.bad_rows), (1, 0), "{text}");
        let remark = report.remarks().pop().unwrap_or_default();
        assert!(remark.contains("1 row that requests no object was left out; the first: "), "{remark}");
        assert!(remark.contains("HEAD"), "{remark}");
    }
}

#[test]
fn file_of_bare_numbers_is_read_with_a_note_that_names_the_format() {
    let numbers = "1 77 100\n2 78 200\n3 77 100\n";
    let (accesses, report) = read("three.txt", numbers.as_bytes()).unwrap();
    assert_eq!(accesses.len(), 3);
    let [note] = report.notes.as_slice() else { panic!("{report:?}") };
    assert!(note.contains("three.txt: read as webcachesim (text: time id size"), "{note}");
    let (_, report) = read("three.tr", numbers.as_bytes()).unwrap();
    assert_eq!(report.notes, Vec::<String>::new(), "the name says the format");
}

#[test]
fn first_of_columns_with_one_name_is_used_with_a_note() {
    for text in ["ts,key,op,size,size\n1,7,GET,100,999\n", "time;key;size;size\n1;7;100;999\n"] {
        let (accesses, report) = read("t.csv", text.as_bytes()).unwrap();
        assert_eq!(accesses[0].size_bytes, 100, "{text}");
        assert!(report.notes[0].contains("several columns `size`; the first one is used"), "{report:?}");
    }
}

#[test]
fn replay_counts_unreadable_values() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "t.csv", b"key,op,size,ttl,ttl\na,GET,10,-1,5\nb,GET,10,60,5\n");
    let replay = Replay::new(ReplayConfig::new(vec![path], Format::named("kvcache").unwrap()));
    replay.check_files().unwrap();
    let mut source = replay.sources(1, 0).unwrap().remove(0);
    let mut ttls = Vec::new();
    while let Some(request) = source.next() {
        ttls.push(request.ttl_seconds);
    }
    drop(source);
    let stats = replay.stats();
    assert_eq!((ttls, stats.rejected_rows), (vec![None, Some(60)], 0));
    assert!(stats.notes.iter().any(|it| it.contains("several columns `ttl`")), "{:?}", stats.notes);
    assert!(stats.notes.iter().any(|it| it.contains("1 value of the column `ttl`")), "{:?}", stats.notes);
}
