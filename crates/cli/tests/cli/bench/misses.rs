//! `missTraceFile`: the misses of a cache form the trace of the next cache level.

use std::path::Path;

use serde_json::Value;

use super::{config, err, flashwright, json, out};

const HEADER: &str = "timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL,SamplingRate,cache_hit,item_value,RequestHandler,cdn_content_type_id,vip_type";
/// Header bytes of every response.
const HEADER_BYTES: u64 = 100;

/// A config that replays `trace.csv`, with the trace beside it.
fn replay(rows: &[String], cache_mib: u32, more: &str) -> (tempfile::TempDir, String) {
    let text = format!(
        r#"{{ "cache_config": {{ "cacheSizeMB": {cache_mib} }},
          "test_config": {{ "generator": "piecewise-replay", "numOps": 10000000, "numThreads": 1, "traceFileName": "trace.csv",
            "missTraceFile": "misses.csv" {more} }} }}"#
    );
    let (directory, file) = config("replay.json", &text);
    std::fs::write(directory.path().join("trace.csv"), format!("{HEADER}\n{}\n", rows.join("\n"))).unwrap();
    (directory, file)
}

fn run(file: &str, changes: &[&str]) -> Value {
    let set = changes.iter().flat_map(|change| ["--set", change]);
    json(&["bench", file].into_iter().chain(set).collect::<Vec<_>>())
}

fn refused(file: &str, flags: &[&str], text: &str) {
    let output = flashwright(&[&["bench", file], flags].concat());
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains(text), "{}", err(&output));
}

fn count(result: &Value, path: &str) -> u64 {
    result.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {result:#}"))
}

/// The rows after the header.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text.lines().next(), Some(HEADER));
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn sum(rows: &[Vec<String>], column: usize) -> u64 {
    rows.iter().map(|row| row[column].parse::<u64>().unwrap()).sum()
}

fn names(directory: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The second request finds the object's header and misses its first piece; the third and the fifth are hits. Bytes beyond the cached
/// pieces are missed each time.
#[test]
fn miss_has_the_range_to_be_fetched() {
    let trace = [
        "1000,large,1,150000,50100,100,100000,149999,3600,1,0,0,24,-,4",
        "2000,large,1,150000,150100,100,-1,-1,3600,1,0,0,24,-,4",
        "3000,large,1,150000,150100,100,-1,-1,3600,1,0,0,24,-,4",
        "4000,small,1,1000,110,100,990,5000,60,1,1,0,web,,",
        "5000,small,1,1000,110,100,990,5000,60,1,1,0,,,",
        "6001,large,1,150000,100,100,-1,-1,3600,1,0,0,,,",
        "6002,other,1,70000,100,100,-1,-1,3600,1,0,0,,,",
    ];
    let (directory, file) = replay(&trace.map(str::to_owned), 64, "");
    let misses = directory.path().join("misses.csv");
    let result = run(&file, &[]);
    let row_of = |row: &str| row.split(',').map(str::to_owned).collect::<Vec<_>>();
    let expected = [
        "1000,large,1,150000,84564,100,65536,149999,3600,1.0,0,0,24,-,4",
        "2000,large,1,150000,150100,100,-1,-1,3600,1.0,0,0,24,-,4",
        "4000,small,1,1000,1100,100,-1,-1,60,1.0,0,0,web,,",
        "6002,other,1,70000,100,100,-1,-1,3600,1.0,0,0,,,",
    ];
    assert_eq!(rows(&misses), expected.map(row_of));
    assert_eq!(result["totals"]["miss_trace"]["requests"], 4);
    assert_eq!(result["instances"][0]["miss_trace"]["file"], misses.to_str().unwrap());

    run(&file, &["test_config.maxCachePieces=1", "test_config.timestampFactor=1"]);
    let expected = [
        // Times are milliseconds in any case.
        "1000000,large,1,150000,50100,100,100000,149999,3600,1.0,0,0,24,-,4",
        "2000000,large,1,150000,150100,100,-1,-1,3600,1.0,0,0,24,-,4",
        "3000000,large,1,150000,84564,100,65536,149999,3600,1.0,0,0,24,-,4",
        "4000000,small,1,1000,1100,100,-1,-1,60,1.0,0,0,web,,",
        "6002000,other,1,70000,100,100,-1,-1,3600,1.0,0,0,,,",
    ];
    assert_eq!(rows(&misses), expected.map(row_of));
}

/// A generated trace of few popular objects and many others; a third of the requests have a range.
fn made(requests: u64) -> Vec<String> {
    let row = |number: u64| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let object = if mixed.is_multiple_of(3) { 1000 + mixed / 3 % 3000 } else { mixed % 150 };
        let bytes = [700, 20_000, 65_536, 90_000, 1_000_000][object as usize % 5] + object;
        let start = mixed / 7 % bytes;
        let (range, sent) = match mixed / 11 % 6 {
            0 => (format!("{start},-1"), bytes - start),
            1 => (format!("{start},{}", bytes - 1), bytes - start),
            _ => ("-1,-1".to_owned(), bytes),
        };
        format!(
            "{},key{object},1,{bytes},{},{HEADER_BYTES},{range},86400,1,0,0,h{},-,1",
            number * 10,
            sent + HEADER_BYTES,
            object % 3
        )
    };
    (0..requests).map(row).collect()
}

#[test]
fn written_misses_equal_counted_misses_and_feed_a_second_cache() {
    let trace = made(4000);
    for (threads, more, factor) in [
        (1, "", 1),
        (4, r#", "maxCachePieces": 3"#, 1),
        (
            3,
            r#", "replayGeneratorConfig": { "ampFactor": 2, "ampSizeFactor": 2, "replaySerializationMode": "none" }"#,
            2,
        ),
    ] {
        let (directory, file) = replay(&trace, 32, more);
        let result = run(&file, &[&format!("test_config.numThreads={threads}")]);
        let of = |name: &str| count(&result, &format!("/totals/{name}"));
        let misses = rows(&directory.path().join("misses.csv"));
        let (all, whole, partly) =
            (of("objects"), of("counts/object_hits"), of("counts/object_partial_hits"));
        assert_eq!((misses.len() as u64, of("miss_trace/requests")), (all - whole, all - whole));
        // Partly answered requests found the header, which the next response contains again.
        assert_eq!(sum(&misses, 4), of("ingress_bytes") + factor * HEADER_BYTES * partly, "{more}");
        assert!(whole > 500 && partly > 50 && all - whole > 500, "{whole} {partly} of {all}");
        let times: Vec<u64> = misses.iter().map(|row| row[0].parse().unwrap()).collect();
        assert!(times.is_sorted(), "{more}");
        assert_eq!(names(directory.path()), ["misses.csv", "replay.json", "trace.csv"]);

        let second = ["traceFileName=misses.csv", "missTraceFile=second.csv", "replayGeneratorConfig={}"];
        let second = second.map(|change| format!("test_config.{change}"));
        let behind = run(&file, &second.each_ref().map(String::as_str));
        let requested = (count(&behind, "/totals/objects"), count(&behind, "/totals/egress_bytes"));
        assert_eq!(requested, (misses.len() as u64, sum(&misses, 4)), "{more}");
        assert_eq!(behind["totals"]["trace"]["rejected_rows"], 0);
        let left = rows(&directory.path().join("second.csv")).len() as u64;
        assert_eq!(left, requested.0 - count(&behind, "/totals/counts/object_hits"));
    }
}

#[test]
fn miss_trace_is_readable_and_reproducible() {
    let (directory, file) = replay(&made(3000), 8, r#", "numThreads": 8"#);
    let flags = [
        "--device",
        "sim:test",
        "--set",
        "cache_config.nvmCacheSizeMB=32",
        "--set",
        "cache_config.navyRegionSizeMB=1",
    ];
    let mut written = Vec::new();
    for name in ["one.csv", "two.csv"] {
        let name_it = format!("test_config.missTraceFile={name}");
        let result = json(&[&["bench", &file, "--set", &name_it], &flags[..]].concat());
        assert!(count(&result, "/totals/miss_trace/requests") > 500);
        written.push(std::fs::read(directory.path().join(name)).unwrap());
    }
    assert!(written[0] == written[1], "equal for equal seeds");
    let path = directory.path().join("one.csv");
    let requests = rows(&path).len() as u64;
    let info = json(&["trace", "info", path.to_str().unwrap()]);
    assert_eq!((count(&info, "/reading/rows"), &info["reading"]["format"]), (requests, &"cdn".into()));
    let simulated =
        json(&["simulate", path.to_str().unwrap(), "--policy", "lru", "--size", "1GiB", "--warmup", "0"]);
    assert_eq!(count(&simulated, "/rows/0/requests"), requests, "{simulated:#}");
}

/// The warm-up is not measured, but its misses warm up the second cache.
#[test]
fn misses_of_the_warm_up_are_written() {
    let (directory, file) = replay(&made(3000), 8, "");
    let warm = [
        "bench",
        &file,
        "--device",
        "sim:test",
        "--set",
        "cache_config.nvmCacheSizeMB=32",
        "--set",
        "test_config.warmupOps=9000",
    ];
    let result = json(&warm);
    let counted = count(&result, "/totals/objects") - count(&result, "/totals/counts/object_hits");
    let written = rows(&directory.path().join("misses.csv")).len() as u64;
    assert!(result["totals"]["warmup"]["ended"] == true && counted + 300 < written, "{counted} of {written}");
    assert_eq!(count(&result, "/totals/miss_trace/requests"), written);
}

#[test]
fn unwritable_miss_trace_is_refused_before_the_run() {
    let (directory, file) = replay(&made(10), 8, "");
    let (before, trace) = (names(directory.path()), directory.path().join("trace.csv"));
    std::os::unix::fs::symlink("trace.csv", directory.path().join("link.csv")).unwrap();
    std::fs::write(directory.path().join("old.part"), "a trace\n").unwrap();
    let flash = format!(r#"cache_config.nvmCachePaths=["{}"]"#, directory.path().join("flash").display());
    let with_flash = ["--set", &flash, "--set", "cache_config.nvmCacheSizeMB=32"];
    let named = |name: &str| format!("test_config.missTraceFile={name}");
    for (name, text) in [
        ("trace.csv", "missTraceFile: "),
        ("link.csv", "would overwrite an input trace"),
        ("./trace.csv", "would overwrite an input trace"),
        ("nowhere/at/all.csv", "cannot write "),
        (".", "it is a directory"),
        ("/dev/null", "it is not a regular file"),
        ("misses.bz2", "asks for cannot be written"),
    ] {
        refused(&file, &[&["--set", &named(name)], &with_flash[..]].concat(), text);
    }
    refused(&file, &["--validate", "--set", &named("link.csv")], "would overwrite an input trace");
    let part = ["--set", "test_config.traceFileName=old.part", "--set", "test_config.missTraceFile=old"];
    std::fs::copy(&trace, directory.path().join("old.part")).unwrap();
    refused(&file, &part, "would overwrite an input trace");
    refused(&file, &["--set", "test_config.generator=replay"], "only for the generator `piecewise-replay`");
    let checked = flashwright(&["bench", &file, "--validate"]);
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));
    let left = names(directory.path());
    assert_eq!(left, [&["link.csv".to_owned()], &["old.part".to_owned()][..], &before].concat());

    let one = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("[{one}, {one}]")).unwrap();
    refused(&file, &[], "[1].test_config.missTraceFile: is also the file of another instance");
    let apart = "[1].test_config.missTraceFile=second.csv";
    let result = run(&file, &[apart]);
    assert_eq!(result["totals"]["miss_trace"], Value::Null, "each instance has its own");
    assert_eq!(
        names(directory.path())[1..],
        ["misses.csv", "old.part", "replay.json", "second.csv", "trace.csv"]
    );
    refused(
        &file,
        &["--set", "[1].test_config.missTraceFile=x", "--set", "[1].test_config.traceFileName=misses.csv"],
        "instance 0: test_config.missTraceFile: ",
    );
}

#[test]
fn damaged_trace_keeps_the_previous_miss_trace() {
    let (directory, file) = replay(&made(4000), 8, "");
    run(&file, &["test_config.missTraceFile=misses.csv.gz"]);
    let trace = directory.path().join("misses.csv.gz");
    let whole = std::fs::read(&trace).unwrap();
    std::fs::write(&trace, &whole[..whole.len() / 2]).unwrap();
    std::fs::write(directory.path().join("misses.csv"), "those of before").unwrap();
    let output = flashwright(&["bench", &file, "--set", "test_config.traceFileName=misses.csv.gz"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(
        out(&output).contains("No misses were written: the trace was not read to its end"),
        "{}",
        out(&output)
    );
    assert_eq!(std::fs::read(directory.path().join("misses.csv")).unwrap(), b"those of before");
    assert_eq!(names(directory.path()), ["misses.csv", "misses.csv.gz", "replay.json", "trace.csv"]);
}
