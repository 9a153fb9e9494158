//! Replays whose requests are for several cache items: CDN objects in pieces, block ranges in chunks.

use std::fmt::Write;

use serde_json::Value;

use super::super::out;
use super::{config, err, flashwright};

/// A config that replays `trace.csv`, with the trace beside it.
fn replay(generator: &str, more: &str, trace: &str) -> (tempfile::TempDir, String) {
    let text = format!(
        r#"{{ "cache_config": {{ "cacheSizeMB": 256 }},
          "test_config": {{ "generator": "{generator}", "numOps": 1000000, "numThreads": 3, "traceFileName": "trace.csv" {more} }} }}"#
    );
    let (directory, file) = config("replay.json", &text);
    std::fs::write(directory.path().join("trace.csv"), trace).unwrap();
    (directory, file)
}

fn run(file: &str, flags: &[&str]) -> Value {
    let output = flashwright(&[&["bench", file, "--json", "-"], flags].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    serde_json::from_str(&out(&output)).unwrap()
}

/// Gets, sets and request counts: all, full hits, partial hits; bytes requested, found and fetched.
fn printed(result: &Value) -> [u64; 8] {
    [
        "gets",
        "sets",
        "objects",
        "counts/object_hits",
        "counts/object_partial_hits",
        "egress_bytes",
        "counts/egress_bytes_found",
        "ingress_bytes",
    ]
    .map(|name| {
        let value = result.pointer(&format!("/totals/{name}")).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("{name}: {result:#}"))
    })
}

const KIB: u64 = 1024;

fn blocks(rows: &[&str]) -> String {
    let head = "op_time,block_id,block_id_size,io_size,io_offset,user_name,user_namespace,op_name,op_count,host_name,rs_shard_id";
    format!("{head}\n{}\n", rows.join("\n"))
}

#[test]
fn missing_chunks_are_set_and_rows_beyond_their_block_reported() {
    let trace = blocks(&[
        "1,a,9,131073,0,1,2,getChunkData.Permanent,1,1,0",
        "2,a,9,262144,131072,1,2,getChunkData.Permanent,2,1,0",
        "3,b,9,1,16777215,1,2,putChunk.Permanent,1,1,0",
        "4,b,9,1,16777216,1,2,getChunkData.Permanent,1,1,0",
        "5,b,9,1,16777215,1,2,getChunkData.Permanent,1,1,0",
        "6,b,9,1,1,1,2,renameChunk,1,1,0",
    ]);
    let (_directory, file) = replay("block-replay", "", &trace);
    let chunk = 128 * KIB;
    for flags in [&[][..], &["--set", "test_config.replayGeneratorConfig.replaySerializationMode=none"]] {
        // In order `Any` all rows are in one batch and so on one thread.
        let result = run(&file, flags);
        let (requested_items, found) = (chunk + 1 + 2 * 2 * chunk + 1, chunk + 2 * chunk + 1);
        assert_eq!(printed(&result), [7, 4, 4, 2, 1, requested_items, found, 3 * chunk]);
        assert_eq!(result["totals"]["object_hit_ratio"], 0.5);
        let trace = &result["totals"]["trace"];
        assert_eq!((&trace["rows"], &trace["rejected_rows"]), (&4.into(), &2.into()));
        let reason = trace["messages"][0].as_str().unwrap();
        assert!(
            reason.ends_with(
                "trace.csv:5: the range ends at byte 16777217, past the end of the block at 16777216"
            ),
            "{reason}"
        );
    }
    let output = flashwright(&["bench", &file]);
    let lines = [
        "== BlockChunkReplayGenerator Stats ==",
        "Total Processed Samples: 0.000006 million (parse error: 2)",
    ];
    assert!(lines.iter().all(|line| out(&output).contains(line)), "{}", out(&output));
    let smaller = ["--set", "test_config.replayGeneratorConfig.chunkSizeKB=64"];
    assert_eq!(
        printed(&run(&file, &smaller))[..2],
        [3 + 4 + 4 + 1, 3 + 3 + 1],
        "in chunks of half the length"
    );
}

fn objects(rows: &[&str]) -> String {
    let head = "timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL,SamplingRate,cache_hit,item_value";
    let rows: Vec<_> = rows.iter().map(|row| format!("{row},3600,1,0,0")).collect();
    format!("{head}\n{}\n", rows.join("\n"))
}

/// The second request finds the object's marker and header, and misses the first piece; the second piece is not looked up although it is
/// cached.
#[test]
fn request_after_the_first_missing_piece_only_sets() {
    let trace = objects(&[
        "1,large,1,150000,50100,100,100000,149999",
        "2,large,1,150000,150100,100,-1,-1",
        "3,large,1,150000,150100,100,-1,-1",
        "4,small,1,1000,1100,100,-1,-1",
        "5,small,1,1000,110,100,990,5000",
    ]);
    let (_directory, file) = replay("piecewise-replay", "", &trace);
    let result = run(&file, &[]);
    let piece = 65_536;
    let gets = 1 + 3 + 5 + 1 + 1;
    // The first request sets its item, the header and the marker; the second its three pieces.
    let sets = 4 + 3 + 1;
    let fetched = (100 + 150_000 - piece) + 150_000 + 1100;
    let requested_items = 50_100 + 150_100 + 150_100 + 1100 + 110;
    assert_eq!(printed(&result), [gets, sets, 5, 2, 1, requested_items, 100 + 150_100 + 110, fetched]);
    let most = run(&file, &["--set", "test_config.maxCachePieces=1"]);
    let [_, _, objects, whole, partly, asked_again, found, fetched] = printed(&most);
    assert_eq!(
        (objects, whole, partly, asked_again),
        (5, 1, 2, requested_items),
        "the large object is never a full hit"
    );
    assert_eq!(found, 100 + (100 + piece) + 110);
    assert_eq!(fetched, (100 + 50_000) + 150_000 + (150_000 - piece) + 1100);
}

#[test]
fn extract_latency_finds_the_bandwidth_line() {
    let (_directory, file) = replay("piecewise-replay", "", &objects(&["1,small,1,1000,1100,100,-1,-1"]));
    let text = out(&flashwright(&["bench", &file]));
    let line = text.lines().find(|line| line.contains("egressBytesPerSec")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let label = words.iter().position(|word| *word == "egressBytesPerSec").unwrap();
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    assert!(is_number(words[label + 2]) && is_number(words[label + 5]), "{line}");
    assert!(text.contains("== PieceWiseReplayGenerator Stats ==") && text.contains("objectGet"), "{text}");
}

/// Hits of the simulator with a policy that never has to evict.
fn simulated_hits(trace: &std::path::Path, flags: &[&str]) -> u64 {
    let flags = [
        &["simulate", trace.to_str().unwrap(), "--policy", "lru", "--size", "100GiB", "--warmup", "0"],
        flags,
    ];
    let result = super::json(&flags.concat());
    result["rows"][0]["hits"].as_u64().unwrap_or_else(|| panic!("{result:#}"))
}

/// Without evictions every cache hits all repeated requests.
#[test]
fn replay_hits_equal_simulator_hits() {
    let mut rows = String::new();
    for row in 0..400_u64 {
        let (block, start) = (row * 7919 % 23, row * 104_729 % (15 << 20));
        writeln!(
            rows,
            "{row},b{block},40,{},{start},1,2,getChunkData.X,{},1,{}",
            row * 97 % 300_000 + 1,
            row % 3 + 1,
            row % 2
        )
        .unwrap();
    }
    let trace = blocks(&[rows.trim_end()]);
    let (directory, file) = replay("block-replay", "", &trace);
    let result = run(&file, &[]);
    let hits = result["totals"]["gets"].as_u64().unwrap()
        - result["totals"]["counts"]["get_misses"].as_u64().unwrap();
    assert_eq!(result["totals"]["evictions_dram"], 0);
    assert_eq!(hits, simulated_hits(&directory.path().join("trace.csv"), &[]));

    let whole = |row: u64| {
        let (key, bytes) =
            (row * 7919 % 131, [900, 65_536, 65_535, 300_000][(row * 7919 % 131 % 4) as usize]);
        format!("{row},{key},1,{bytes},{},100,-1,-1", bytes + 100)
    };
    let rows: Vec<String> = (0..1000).map(whole).collect();
    let trace = objects(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    let (directory, file) = replay("piecewise-replay", "", &trace);
    let result = run(&file, &[]);
    assert_eq!(printed(&result)[3], simulated_hits(&directory.path().join("trace.csv"), &[]));
}

/// Expired items are missed at the same requests and get the same new TTLs.
#[test]
fn virtual_time_replay_expires_like_the_simulator() {
    let mut rows = "op_time,key,key_size,op,op_count,size,cache_hits,ttl\n".to_owned();
    for row in 0..2000_u64 {
        // A set of a cached object counts as a hit in the simulator only: the trace has none.
        for op in if row % 7 == 0 { &["DELETE", "SET"][..] } else { &["GET"] } {
            let ttl = [0, 2, 15, 60][(row * row % 9 % 4) as usize];
            writeln!(rows, "{},key{:05},8,{op},1,100,1,{ttl}", row / 3, row * 7919 % 61).unwrap();
        }
    }
    let more = r#", "enableLookaside": true, "traceSpeed": 1, "timestampFactor": 1"#;
    let (directory, file) = replay("replay", more, &rows);
    let result = run(&file, &["--device", "sim:test", "--set", "test_config.numThreads=1"]);
    let counts = &result["totals"]["counts"];
    let hits = result["totals"]["gets"].as_u64().unwrap() - counts["get_misses"].as_u64().unwrap();
    assert_eq!(result["totals"]["evictions_dram"], 0);
    let trace = directory.path().join("trace.csv");
    let flags = ["--time-units", "1"];
    let ignored = simulated_hits(&trace, &[&flags[..], &["--ignore-ttl"]].concat());
    assert_eq!(hits, simulated_hits(&trace, &flags));
    assert!(hits + 100 < ignored, "{hits} of {ignored}");
}

/// Flash is small so that many items are evicted; the requests do not depend on that.
#[test]
fn multi_item_requests_are_reproducible_in_virtual_time() {
    let rows: Vec<String> = (0..300_u64)
        .map(|row| format!("{},{},1,{},{},100,-1,-1", row * 1000, row * row % 97, 200_000, 200_100))
        .collect();
    let trace = objects(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    let (_directory, file) = replay("piecewise-replay", "", &trace);
    let flags = [
        "--device",
        "sim:test",
        "--set",
        "cache_config.cacheSizeMB=8",
        "--set",
        "cache_config.nvmCacheSizeMB=32",
    ];
    let flags =
        [&flags[..], &["--set", "cache_config.navyRegionSizeMB=1", "--set", "test_config.traceLoops=2"]]
            .concat();
    for more in ["", "traceSpeed=10", "replayGeneratorConfig.replaySerializationMode=none"] {
        let more = format!("test_config.{}", if more.is_empty() { "touchValue=true" } else { more });
        let flags = [&flags[..], &["--set", &more, "--set", "test_config.replayGeneratorConfig.ampFactor=2"]]
            .concat();
        let (one, other) = (run(&file, &flags), run(&file, &flags));
        assert_eq!(one["totals"], other["totals"], "{more}");
        let counted = printed(&one);
        assert_eq!((counted[2], counted[5]), (1200, 1200 * 200_100), "{more}");
        assert!(counted[3] < 1000 && one["totals"]["evictions_dram"].as_u64() > Some(0), "{counted:?}");
        if more.contains("traceSpeed") {
            // Two passes of 299 s, in milliseconds, at ten times the speed.
            let seconds = one["totals"]["seconds"].as_f64().unwrap();
            assert!((seconds - 59.8).abs() < 1.0, "{seconds}");
        }
    }
}
