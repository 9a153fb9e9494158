//! Published tables with headers through the public interface.

use flashwright_workload::trace::{Access, AccessKind, OpenOptions, ReadReport, TraceError, open};

fn read_named(name: &str, text: &str, format: Option<&str>) -> Result<(Vec<Access>, ReadReport), TraceError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let mut trace = open(&[path], format, &OpenOptions::default())?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch)? {
        all.extend_from_slice(&batch);
    }
    Ok((all, trace.report().clone()))
}

fn read(text: &str) -> (Vec<Access>, ReadReport) {
    read_named("trace.csv", text, None).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn read_as(format: &str, text: &str) -> (Vec<Access>, ReadReport) {
    read_named("t", text, Some(format)).unwrap_or_else(|error| panic!("{format} {text:?}: {error}"))
}

fn refusal(text: &str, format: Option<&str>) -> String {
    read_named("trace.csv", text, format).expect_err(text).to_string()
}

/// Key, size and time in nanoseconds of each access.
fn triples(accesses: &[Access]) -> Vec<(u64, u64, u64)> {
    accesses.iter().map(|access| (access.key, access.size_bytes, access.time_ns)).collect()
}

const ROWS: [(u64, u64, u64); 2] = [(7, 100, 1_000_000_000), (8, 200, 2_000_000_000)];

#[test]
fn header_with_any_separator_gives_the_order_of_columns() {
    for between in ["\t", " ", "  ", ",", ";", "|"] {
        for name in ["trace.csv", "trace.tr", "trace"] {
            let rows = [["timestamp", "size", "id"], ["1", "100", "7"], ["2", "200", "8"]];
            let text: String = rows.map(|row| row.join(between) + "\n").concat();
            let (accesses, report) = read_named(name, &text, None).unwrap();
            assert_eq!((triples(&accesses), report.bad_rows), (ROWS.to_vec(), 0), "{name} {text:?}");
            assert_eq!(report.columns.unwrap(), "time=timestamp,size=size,key=id");
        }
    }
    let error = refusal("timestamp size id\n1 100 7\n", Some("webcachesim"));
    let expected = "column 2 was taken for `key`, and the header calls it `size`: list the columns as the header has them \
                 (csv:time,size,key)";
    assert!(error.contains(expected), "{error}");
    let (accesses, report) =
        read_named("t", "time id size\n1 7 100\n2 8 200\n", Some("webcachesim")).unwrap();
    assert_eq!((triples(&accesses), report.bad_rows), (ROWS.to_vec(), 0));
}

#[test]
fn comment_above_the_header_is_skipped() {
    for (format, text) in [
        (
            "plain",
            "# made by hand, in a hurry\n## size, key and all\nsize,key,op,ts\n100,7,GET,1\n200,8,GET,2\n",
        ),
        ("plain", "#ts,key,op,size\n1,7,GET,100\n2,8,GET,200\n"),
        ("csv", "# the time and the key\ntime size key\n1 100 7\n# a pause\n2 200 8\n"),
        ("csv", "# key size time\n7 100 1\n8 200 2\n"),
        ("csv", "#\n# size;key;ts\n100;7;1\n200;8;2\n"),
        ("webcachesim", "# time key size of requests\n1 7 100\n2 8 200\n"),
        ("webcachesim", "# time id size\n1 7 100\n2 8 200\n"),
    ] {
        let (accesses, report) = read(text);
        assert_eq!((triples(&accesses), report.bad_rows), (ROWS.to_vec(), 0), "{text} {:?}", report.messages);
        assert_eq!(report.format, format, "{text}");
    }
}

#[test]
fn repeated_header_among_rows_is_accepted() {
    for text in [
        "ts,key,op,size\n1,7,GET,100\nts,key,op,size\n2,8,GET,200\n",
        "ts,key,op,size\n1,7,GET,100\nsize,key,op,ts\n200,8,GET,2\n",
        "time;size;id\n1;100;7\ntime;size;id\n2;200;8\n",
        "time;size;id\n1;100;7\nid;size;time\n8;200;2\n",
    ] {
        let (accesses, report) = read(text);
        assert_eq!((triples(&accesses), report.bad_rows, report.rows), (ROWS.to_vec(), 0, 2), "{text}");
    }
    let (_, report) = read("ts,key,op,size\n1,7,GET,100\nwhat,is,this,then\n2,8,GET,200\n");
    assert_eq!(report.bad_rows, 1, "a line that is not a header is an invalid row");
    for text in
        ["ts,key,op,size\n1,7,GET,100\nkey,op,size\n8,GET,200\n", "time;size;id\n1;100;7\nid;size\n8;200\n"]
    {
        let (accesses, report) = read(text);
        assert_eq!(
            (triples(&accesses), report.bad_rows),
            (ROWS[..1].to_vec(), 2),
            "the times would be lost: {text}"
        );
    }
}

#[test]
fn key_that_begins_with_a_hash_sign_is_a_key() {
    let (accesses, report) = read("#a,GET,1\n#b,GET,2\n#a,GET,1\n");
    assert_eq!((accesses.len(), report.format, report.bad_rows), (3, "kvcache", 0));
}

#[test]
fn first_rows_with_keys_that_begin_with_a_hash_sign_are_read() {
    for (format, text) in [
        ("csv:key,size", "#rust,100\n#go,200\nfoo,300\n"),
        ("csv:size=2,key=1", "# in all 3 tags, by hand\n#rust;100\n#go;200\nfoo;300\n"),
        ("csv:key,size", "# 3 tags\n#rust\t100\n# 5\n#go\t200\nfoo\t300\n"),
        ("csv:key,size", "# key,size\n#rust,100\n#go,200\nid,300\n"),
        ("csv", "# key,size\n#rust,100\n#go,200\nid,300\n"),
    ] {
        let (accesses, report) = read_as(format, text);
        let sizes: Vec<u64> = accesses.iter().map(|access| access.size_bytes).collect();
        assert_eq!((sizes, report.bad_rows), (vec![100, 200, 300], 0), "{format} {text}");
    }
    let keys = read_as("csv:key", "# the tags\n#rust\n#go\n").0;
    assert_eq!(keys.len(), 2);
}

#[test]
fn comment_that_mentions_columns_is_not_a_header() {
    for (format, text) in [
        ("csv", "# sorted by time, key\ntime,key,size\n1,7,100\n2,8,200\n"),
        ("csv", "# one row per request: time, object, bytes\ntime,object,bytes\n1,7,100\n2,8,200\n"),
        ("csv", "# time, key\ntime,key,size\n1,7,100\n2,8,200\n"),
        ("csv", "# key\n# time, key, size\nkey,size,time\n7,100,1\n8,200,2\n"),
        ("csv", "time,key,size\n1,7,100\n# day 2, size, key, time\n2,8,200\n"),
        ("csv", "time,key,size\n1,7,100\n# size, key, time\n2,8,200\n"),
        ("plain", "# columns used: id, key, op, size\nts,key,op,size\n1,7,GET,100\n2,8,GET,200\n"),
        ("plain", "# key, op, size\nts,key,op,size\n1,7,GET,100\n2,8,GET,200\n"),
        ("kvcache", "op_time,key,op,size\n1,7,GET,100\n# op_time, op, key, size\n2,8,GET,200\n"),
        ("csv", "# day 2, ts, op\nkey,op,size,time\n7,GET,100,1\n8,GET,200,2\n"),
    ] {
        let (accesses, report) = read(text);
        assert_eq!((triples(&accesses), report.bad_rows), (ROWS.to_vec(), 0), "{text}");
        assert_eq!((report.format, report.rows), (format, 2), "{text}");
        assert_eq!(
            report.columns.unwrap().split(',').count(),
            if text.contains("op,") { 4 } else { 3 },
            "{text}"
        );
    }
    let (accesses, report) = read("7,SET,100\n# old, key, op, size\n8,SET,200\n");
    assert_eq!((accesses.len(), report.bad_rows, report.format), (2, 0, "kvcache"));
    let (accesses, report) = read("# old, key, op, size\n7,SET,100,1\n8,SET,200,1\n");
    assert_eq!((accesses.len(), report.bad_rows, report.format), (2, 0, "kvcache"));
}

#[test]
fn commented_header_contains_the_configured_columns() {
    let headers = [
        ("#url,bytes", ","),
        ("# url,bytes,how much", ","),
        ("## URL , bytes", ","),
        ("#url bytes", " "),
        ("# made by hand\n#url\tbytes", "\t"),
    ];
    for format in ["csv:key=url,size=bytes", "csv:key=#url,size=bytes", "csv:key=1,size=bytes"] {
        for (header, between) in headers {
            let (accesses, report) = read_as(format, &format!("{header}\n/a{between}100\n/b{between}200\n"));
            let sizes: Vec<u64> = accesses.iter().map(|access| access.size_bytes).collect();
            assert_eq!((sizes, report.bad_rows), (vec![100, 200], 0), "{format} {header}");
        }
    }
    let below = read_as("csv:key=url,size=bytes", "# the url, its kind, bytes\nbytes,url\n100,/a\n").0;
    assert_eq!((below.len(), below[0].size_bytes), (1, 100));
    // The column name contains the time unit.
    let timed = read_as("csv:time,key,size", "# time_ms,key,size,flags\n1000,7,100,0\n2000,8,200,0\n").0;
    assert_eq!(triples(&timed), ROWS);
    let error = refusal("# url of a page\n/a 100\n", Some("csv:key=url,size=bytes"));
    assert!(error.contains("the table has no column `url`"), "{error}");
}

#[test]
fn header_among_the_rows_reports_its_columns() {
    let (_, report) = read("7,GET,100\nop_time,key,op,size\n2,8,GET,200\n");
    assert_eq!(report.columns.as_deref(), Some("op_time=op_time,key=key,op=op,size=size"));
    // The last header read is the current one.
    let (accesses, report) =
        read("ts,key,op,size\n1,7,GET,100\nsize,key,op,ts\n200,8,GET,2\nts,key,op,size\n2,8,GET,200\n");
    assert_eq!((triples(&accesses), report.bad_rows), (vec![ROWS[0], ROWS[1], ROWS[1]], 0));
}

#[test]
fn time_columns_with_other_names_are_read() {
    for (format, text) in [
        ("csv", "timestamp,op,key,size\n1,GET,7,100\n2,GET,8,200\n"),
        ("csv", "key,op,size,time_ms\n7,GET,100,1000\n8,GET,200,2000\n"),
        ("kvcache", "op_time,key,op,size\n1,7,GET,100\n2,8,GET,200\n"),
    ] {
        let (accesses, report) = read(text);
        assert_eq!(
            (triples(&accesses), report.format, report.has_time),
            (ROWS.to_vec(), format, true),
            "{text}"
        );
    }
}

#[test]
fn repeat_count_beside_plain_columns_is_read() {
    let (accesses, report) = read("ts,key,op,size,count\n1,7,GET,100,3\n");
    assert_eq!((accesses.len(), report.format), (3, "csv"));
}

#[test]
fn table_that_names_key_and_size_is_detected() {
    let timed = [
        "time,id,size\n1,7,100\n2,8,200\n",
        ",timestamp_us,Object ID,Size (bytes)\n0,1e6,7,1e2\n1,2e6,8,200.0\n",
    ];
    for text in timed {
        assert_eq!(triples(&read(text).0), ROWS, "{text}");
    }
    let (accesses, report) = read("key,size,colour\n7,100,red\n8,200,blue\n");
    assert_eq!((accesses.len(), report.has_time), (2, false));
    assert_eq!(report.columns.unwrap(), "key=key,size=size; not used: colour");
    // A plain trace has few operations; a table can have others.
    let (accesses, _) = read("ts,key,op,size\n1,7,read,100\n2,8,write,200\n");
    assert_eq!((triples(&accesses), accesses[1].kind), (ROWS.to_vec(), AccessKind::Set));
    let (accesses, _) = read("ts,key,op,size\n1,\"a,b\",GET,100\n2,\"a,b\",GET,200\n");
    assert!(accesses[0].key == accesses[1].key && accesses[1].size_bytes == 200);
}

#[test]
fn unrecognised_table_suggests_the_option_to_read_it() {
    let unnamed = refusal("time,url,size\n1,/a,100\n", None);
    assert!(
        unnamed.ends_with("read it with --format csv:key=url,time=time,size=size, if `url` is the object"),
        "{unnamed}"
    );
    let (accesses, _) =
        read_named("t", "time,url,size\n1,/a,100\n", Some("csv:key=url,time=time,size=size")).unwrap();
    assert_eq!((accesses.len(), accesses[0].size_bytes), (1, 100));
    let bare = refusal("1.5,/a,100\n2.5,/b,100\n", None);
    assert!(bare.contains("it may be a table without a header: name its columns to read it"), "{bare}");
    let sizeless = refusal("key,op,ttl\n7,GET,0\n", None);
    assert!(
        sizeless.contains("read it with --format csv, each object with the page size (--page-size)"),
        "{sizeless}"
    );
}

#[test]
fn columns_contradicted_by_the_header_are_rejected() {
    let text = "time,size,key,client\n1,100,7,3\n";
    let contradicted = refusal(text, Some("csv:time,key,size"));
    let expected = "column 2 was taken for `key`, and the header calls it `size`: list the columns as the header has them \
                 (csv:time,size,key,tenant), or give a column by its name to take it for something else (as in key=size)";
    assert!(contradicted.contains(expected), "{contradicted}");
    assert!(refusal("size,id\n100,7\n", Some("csv:key")).contains("the header calls it `size`"));
    for format in ["csv:time,size,key", "csv:key=client,size=2", "csv:key=3,size=size,time=1"] {
        assert_eq!(read_named("t", text, Some(format)).unwrap().0.len(), 1, "{format}");
    }
    // If only the key has a column, any line parses as a row.
    assert_eq!(read_named("t", "id\n7\n8\n", Some("csv:key")).unwrap().0.len(), 2);
}
