//! Replays of traces through the public interface.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use flashwright_workload::generate::Table;
use flashwright_workload::trace::{Amplify, FORMATS, Format, Order, Replay, ReplayConfig, SuffixRule};
use flashwright_workload::{AHEAD, RequestKind, Source, Workload, WorkloadError};
use tempfile::TempDir;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Seen {
    kind: RequestKind,
    key: String,
    value_bytes: u64,
    repeat: u32,
    ttl_seconds: Option<u32>,
    time_ns: Option<u64>,
}

fn drain(source: &mut dyn Source) -> Vec<Seen> {
    drain_at_most(usize::MAX, source)
}

fn drain_at_most(most: usize, source: &mut dyn Source) -> Vec<Seen> {
    let mut seen = Vec::new();
    while seen.len() < most {
        let Some(request) = source.next() else { break };
        seen.push(Seen {
            kind: request.kind,
            key: String::from_utf8(request.key.to_vec()).unwrap(),
            value_bytes: request.value_bytes,
            repeat: request.repeat,
            ttl_seconds: request.ttl_seconds,
            time_ns: request.time_ns,
        });
    }
    seen
}

/// The requests of each of `workers` workers, each on its own thread.
fn drain_all(replay: &Replay, workers: usize) -> Vec<Vec<Seen>> {
    drain_at_most_all(usize::MAX, replay, workers)
}

/// As [`drain_all`], for workers that end after `most` requests.
fn drain_at_most_all(most: usize, replay: &Replay, workers: usize) -> Vec<Vec<Seen>> {
    let sources = replay.sources(workers, 0).unwrap();
    let drain = |mut source: Box<dyn Source>| move || drain_at_most(most, source.as_mut());
    std::thread::scope(|scope| {
        let threads: Vec<_> = sources.into_iter().map(|source| scope.spawn(drain(source))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn kvcache() -> &'static Format {
    Format::named("kvcache").unwrap()
}

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// `rows` rows for `keys` keys; the size is the row's number.
fn numbered_rows(rows: u64, keys: u64) -> String {
    let row = |number: u64| format!("key{:x},GET,{number}\n", number.wrapping_mul(0x9e37_79b9) % keys);
    std::iter::once("key,op,size\n".to_owned()).chain((0..rows).map(row)).collect()
}

fn replay_of(text: &str, change: impl FnOnce(&mut ReplayConfig)) -> (TempDir, Replay) {
    let folder = TempDir::new().unwrap();
    let mut config = ReplayConfig::new(vec![write(&folder, "trace.csv", text.as_bytes())], kvcache());
    change(&mut config);
    (folder, Replay::new(config))
}

#[test]
fn each_row_is_returned_once_and_keys_stay_with_their_worker() {
    let (_folder, replay) = replay_of(&numbered_rows(50_000, 997), |_| ());
    let by_worker = drain_all(&replay, 5);
    let mut all: Vec<u64> = by_worker.iter().flatten().map(|seen| seen.value_bytes).collect();
    all.sort_unstable();
    assert_eq!(all, (0..50_000).collect::<Vec<_>>());
    let mut owner = BTreeMap::new();
    for (worker, seen) in by_worker.iter().enumerate() {
        assert!(
            seen.windows(2).all(|pair| pair[0].value_bytes < pair[1].value_bytes),
            "rows of a worker are in the trace's order"
        );
        for request in seen {
            assert_eq!(*owner.entry(&request.key).or_insert(worker), worker);
        }
        assert!(seen.len() > 5000, "rows are evenly distributed: {}", seen.len());
    }
    assert_eq!(replay.stats().rows, 50_000);
}

/// At the end of a batch the upcoming key is unknown instead of waiting for the next batch.
#[test]
fn upcoming_key_is_correct_if_known() {
    let (_folder, replay) = replay_of(&numbered_rows(20_000, 500), |_| ());
    let mut source = replay.sources(1, 0).unwrap().remove(0);
    let (mut upcoming, mut keys) = (vec![None; AHEAD], Vec::new());
    loop {
        upcoming.push(source.upcoming().map(<[u8]>::to_vec));
        let Some(request) = source.next() else { break };
        keys.push(Some(request.key.to_vec()));
    }
    let known = upcoming.iter().flatten().count();
    assert!((19_000..20_000).contains(&known), "{known}");
    for (upcoming, key) in upcoming.iter().zip(&keys) {
        assert!(upcoming.is_none() || upcoming == key);
    }
}

#[test]
fn order_any_returns_each_row_once() {
    let (_folder, replay) = replay_of(&numbered_rows(50_000, 997), |config| config.order = Order::Any);
    let by_worker = drain_all(&replay, 3);
    let mut all: Vec<u64> = by_worker.iter().flatten().map(|seen| seen.value_bytes).collect();
    all.sort_unstable();
    assert_eq!(all, (0..50_000).collect::<Vec<_>>());
}

/// Catches a regression: the thread waits for one queue while the parser waits for space in another, full one.
#[test]
fn one_thread_can_run_workers_in_any_sequence() {
    let text = numbered_rows(50_000, 997);
    let (_folder, threads) = replay_of(&text, |_| ());
    let (_folder, one) = replay_of(&text, |config| config.one_thread = true);
    let mut sources = one.sources(5, 0).unwrap();
    let in_turn: Vec<Vec<Seen>> = sources.iter_mut().map(|source| drain(source.as_mut())).collect();
    assert_eq!(in_turn, drain_all(&threads, 5), "one worker after the other");
    drop(sources);

    let (_folder, anyone) = replay_of(&text, |config| {
        (config.one_thread, config.order) = (true, Order::Any);
    });
    let mut sources = anyone.sources(2, 0).unwrap();
    for (worker, first) in [(1, 0), (0, 1024)] {
        let number = sources[worker].next().unwrap().value_bytes;
        assert_eq!(number, first, "the first caller receives the first rows");
    }
    let rest: usize = sources.iter_mut().map(|source| drain(source.as_mut()).len()).sum();
    assert_eq!(rest, 49_998);
    drop(anyone.sources(2, 0).unwrap());
}

#[test]
fn files_of_different_compressions_are_read_in_sequence() {
    let folder = TempDir::new().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"size,key,op\n3,c,SET\n").unwrap();
    let files = vec![
        write(&folder, "one", b"key,op,size\na,GET,1\nb,GET,2\n"),
        write(&folder, "two", &gzip.finish().unwrap()),
        write(&folder, "three", &zstd::encode_all(&b"key,op,op_count,size\nd,DELETE,7,4\n"[..], 1).unwrap()),
        write(&folder, "four", b"e,GET,8,5"),
    ];
    let replay = Replay::new(ReplayConfig::new(files, kvcache()));
    let seen = drain(replay.sources(1, 0).unwrap()[0].as_mut());
    let order: Vec<_> = seen.iter().map(|seen| (seen.key.as_str(), seen.value_bytes, seen.repeat)).collect();
    assert_eq!(order, [("a", 1, 1), ("b", 2, 1), ("c", 3, 1), ("d", 4, 7), ("e", 5, 8)]);
    assert_eq!(replay.stats().rejected_rows, 0);
}

#[test]
fn invalid_rows_are_counted_and_the_first_reported() {
    let mut text = "key,op,size\na,GET,1\nb,SEND,1\n".to_owned();
    text.push_str(&"c,GET,many\n".repeat(20));
    let (_folder, replay) = replay_of(&text, |_| ());
    assert_eq!(drain_all(&replay, 2).concat().len(), 1);
    let stats = replay.stats();
    assert_eq!((stats.rows, stats.rejected_rows, stats.messages.len()), (1, 21, 8));
    assert!(
        stats.messages[0].ends_with("trace.csv:3: `SEND` is not a known operation"),
        "{}",
        stats.messages[0]
    );
    assert!(stats.messages[1].contains("trace.csv:4: column `size` is `many`"), "{}", stats.messages[1]);
    assert_eq!(stats.failure, None);
}

#[test]
fn cut_file_is_reported_as_a_failure() {
    let folder = TempDir::new().unwrap();
    let packed = zstd::encode_all(numbered_rows(100_000, 50).as_bytes(), 1).unwrap();
    let cut = write(&folder, "cut.zst", &packed[..packed.len() / 2]);
    let replay = Replay::new(ReplayConfig::new(vec![cut], kvcache()));
    let rows = drain_all(&replay, 1)[0].len();
    assert!(rows < 100_000);
    let failure = replay.stats().failure.expect("it broke off");
    assert!(failure.contains("cut.zst: after row "), "{failure}");
}

#[test]
fn missing_file_is_reported_before_the_run() {
    let config = ReplayConfig::new(vec![PathBuf::from("/nonexistent/trace.csv")], kvcache());
    let error = Replay::new(config).sources(1, 0).err().expect("no such file");
    assert!(
        matches!(&error, WorkloadError::Open { path, .. } if path == Path::new("/nonexistent/trace.csv"))
    );
    assert!(error.to_string().contains("/nonexistent/trace.csv"), "{error}");
}

#[test]
fn amplified_copies_have_distinct_keys() {
    let text = "key,op,size\n0123456789abcdefghi1,GET,10\n0123456789abcdefghi2,GET,20\n";
    let copies = |rule| {
        let (_folder, replay) =
            replay_of(text, |config| config.amplify = Amplify { copies: 3, size_factor: 5, rule });
        let seen = drain_all(&replay, 2).concat();
        assert_eq!(seen.len(), 6);
        assert_eq!(seen.iter().map(|seen| seen.value_bytes).sum::<u64>(), 3 * 5 * 30);
        seen.into_iter().map(|seen| seen.key).collect::<HashSet<_>>().len()
    };
    assert_eq!(copies(SuffixRule::Append), 6);
    assert_eq!(
        copies(SuffixRule::Truncate),
        3,
        "CacheBench merges keys that differ in their last four bytes"
    );
}

#[test]
fn skip_and_repeat_counts_are_applied() {
    let text = "key,op,size,op_count\na,GET,1,3\na,GET,2,3\na,GET,3,3\na,GET,4,3\n";
    let seen = |change: fn(&mut ReplayConfig)| -> Vec<(u64, u32)> {
        let (_folder, replay) = replay_of(text, change);
        drain_all(&replay, 1)[0].iter().map(|seen| (seen.value_bytes, seen.repeat)).collect()
    };
    assert_eq!(seen(|config| config.skip_rows = 2), [(3, 3), (4, 3)]);
    assert_eq!(seen(|config| config.ignore_op_count = true), [(1, 1), (2, 1), (3, 1), (4, 1)]);
    assert_eq!(seen(|config| config.skip_rows = 99), []);
}

/// Catches a regression: replays ignore the configured TTLs.
#[test]
fn configured_ttl_applies_to_rows_without_one() {
    let mut text = "key,op,size,ttl\nown,SET,1,7\n".to_owned();
    (0..300).for_each(|number| text += &format!("key{},SET,1,0\n", number % 100));
    let table = Table { range: vec![60.0, 600.0], weights: vec![1.0, 3.0] };
    for copies in [1, 2] {
        let (_folder, replay) = replay_of(&text, |config| {
            config.ttl_seconds = Some(table.sizes().unwrap());
            config.amplify.copies = copies;
        });
        let mut by_key: BTreeMap<String, HashSet<Option<u32>>> = BTreeMap::new();
        let seen = drain_all(&replay, 2).concat();
        for it in seen {
            by_key.entry(it.key).or_default().insert(it.ttl_seconds);
        }
        assert!(by_key.values().all(|ttls| ttls.len() == 1), "a key has one TTL");
        let (own, others): (Vec<_>, Vec<_>) = by_key.into_iter().partition(|(key, _)| key.starts_with("own"));
        assert!(own.iter().all(|(_, ttls)| ttls.contains(&Some(7))), "{own:?}");
        let short = others.iter().filter(|(_, ttls)| ttls.contains(&Some(60))).count();
        let long = others.iter().filter(|(_, ttls)| ttls.contains(&Some(600))).count();
        assert_eq!(short + long, 100 * copies as usize);
        assert!((10..=40).contains(&(short / copies as usize)), "{short} of {copies} hundred");
    }
}

#[test]
fn repeated_trace_continues_its_times() {
    let text = "key,op,size,op_time\na,GET,1,1000\nb,GET,2,4000\n";
    let (_folder, replay) = replay_of(text, |config| config.repeat = true);
    let seen = drain_at_most_all(5, &replay, 1).remove(0);
    let times: Vec<u64> = seen.iter().map(|seen| seen.time_ns.unwrap() / 1_000_000).collect();
    assert_eq!(times, [1000, 4000, 4000, 7000, 7000]);
}

#[test]
fn repeated_trace_without_rows_ends() {
    for text in ["", "key,op,size\n", "key,op,size\nx,SEND,1\n", "key,op,size\nx,HEAD,1\n"] {
        let (_folder, replay) = replay_of(text, |config| config.repeat = true);
        assert!(drain_all(&replay, 2).concat().is_empty());
    }
}

/// Catches a regression: a worker with rare rows receives none until a thousand of them are read; by then the queue of
/// the other worker is full.
#[test]
fn timed_worker_receives_rows_while_another_waits() {
    let row = |number: u64| {
        let key = if number.is_multiple_of(100) { "seldom" } else { "often" };
        format!("{key},GET,{number},{number}\n")
    };
    let head = std::iter::once("key,op,size,op_time\n".to_owned());
    let text: String = head.chain((0..40_000).map(row)).collect();
    let (_folder, replay) = replay_of(&text, |config| config.timed = true);
    let mut sources = replay.sources(2, 0).unwrap();
    let mut of_key = |key: &[u8]| {
        let found = (0..sources.len()).find(|worker| sources[*worker].next().unwrap().key == key);
        sources.remove(found.unwrap())
    };
    // Each key is requested once; then one worker waits for its due time while the other continues.
    let (mut seldom, often) = (of_key(b"seldom"), of_key(b"often"));
    let (seen, all_seen) = std::sync::mpsc::channel();
    let rows = std::thread::scope(|scope| {
        scope.spawn(move || seen.send((1..80).filter(|_| seldom.next().is_some()).count()));
        let rows = all_seen.recv_timeout(std::time::Duration::from_secs(60));
        drop(often);
        rows
    });
    assert_eq!(rows, Ok(79));
}

#[test]
fn order_turns_gives_consecutive_rows_to_different_workers() {
    let (_folder, replay) = replay_of(&numbered_rows(30_000, 7), |config| config.order = Order::Turns);
    for (worker, seen) in drain_all(&replay, 3).iter().enumerate() {
        let rows: Vec<u64> = seen.iter().map(|it| it.value_bytes).collect();
        assert_eq!(rows, (worker as u64..30_000).step_by(3).collect::<Vec<_>>());
    }
}

#[test]
fn timed_replay_requires_timestamps_and_returns_the_first() {
    let (_folder, replay) = replay_of("key,op,size\na,GET,1\n", |config| config.timed = true);
    assert!(replay.check_files().unwrap_err().to_string().ends_with("its requests have no timestamps"));
    let text = "key,op,size,op_time\na,GET,1,5000\nb,GET,1,7000\nc,GET,1,8000\n";
    let (_folder, replay) = replay_of(text, |config| (config.timed, config.skip_rows) = (true, 1));
    replay.check_files().unwrap();
    assert_eq!(replay.first_time_ns(), None);
    assert_eq!(drain_all(&replay, 1)[0].len(), 2);
    assert_eq!(replay.first_time_ns(), Some(7_000_000_000));
}

#[test]
fn check_files_rejects_empty_and_all_invalid_traces() {
    for (text, ending) in [
        ("", Some("the trace has no requests, not even one row")),
        ("key,op,size\n", Some("the trace has no requests, not even one row")),
        ("key,op,size\na,JUMP,1\n", Some("its columns are read as key,op,size")),
        ("key,op,size\na,JUMP,1\na,GET,1\n", None),
        ("key,op,size\na,GET,1\n", None),
    ] {
        let (_folder, replay) = replay_of(text, |_| ());
        let error = replay.check_files().err().map(|error| error.to_string());
        assert_eq!(error.is_some(), ending.is_some(), "{text:?}: {error:?}");
        assert!(error.unwrap_or_default().ends_with(ending.unwrap_or_default()), "{text:?}");
    }
}

#[test]
fn workers_that_end_early_do_not_block_others() {
    for (order, timed) in
        [(Order::Strict, false), (Order::Any, false), (Order::Strict, true), (Order::Turns, true)]
    {
        let (_folder, replay) = replay_of(&numbered_rows(100_000, 997), |config| {
            config.repeat = true;
            config.timed = timed;
            config.order = order;
        });
        let mut sources = replay.sources(4, 0).unwrap();
        let mut last = sources.pop().unwrap();
        drop(sources);
        for _ in 0..50_000 {
            assert!(last.next().is_some());
        }
        // Dropping the last source ends the parser in the middle of an endless trace.
        drop(last);
    }
}

/// Catches a regression: a row counts as its pages, so that too few rows are skipped and too many reported.
#[test]
fn row_for_several_pages_counts_once() {
    let folder = TempDir::new().unwrap();
    for (format, text, left) in [
        ("arc", "0 3 0 1\n10 2 0 2\n20 2 0 3\n", vec!["20", "21"]),
        (
            "mooncake",
            r#"{"timestamp": 1, "hash_ids": [1, 2]}
{"timestamp": 2, "hash_ids": []}
{"timestamp": 3, "hash_ids": [3]}
{"timestamp": 4, "hash_ids": [4, 5, 6]}
"#,
            vec!["4", "5", "6"],
        ),
    ] {
        let path = write(&folder, format, text.as_bytes());
        let mut config = ReplayConfig::new(vec![path], Format::named(format).unwrap());
        config.skip_rows = 2;
        let replay = Replay::new(config);
        let keys: Vec<_> = drain_all(&replay, 1).remove(0).into_iter().map(|it| it.key).collect();
        assert_eq!((keys.iter().map(String::as_str).collect(), replay.stats().rows), (left, 3), "{format}");
    }
}

#[test]
fn dropping_unused_sources_ends_a_skipping_parser() {
    let (_folder, replay) = replay_of(&numbered_rows(1000, 10), |config| {
        config.repeat = true;
        config.skip_rows = u64::MAX;
    });
    drop(replay.sources(2, 0).unwrap());
}

#[test]
fn format_is_found_by_name() {
    for format in FORMATS {
        assert_eq!(Format::named(format.name).unwrap().about, format.about);
    }
    assert!(Format::named("kvcash").is_none());
}

#[test]
fn sample_traces_match_their_manifest() {
    let Some(folder) = shared() else {
        println!("skipped: the sample traces are missing");
        return;
    };
    let folder = folder.join("cachelib_test_configs/trace_replay/kvcache");
    let files = ["kv_traces_1.csv", "kv_traces_2.csv"].map(|name| folder.join(name));
    let operations = |file: &PathBuf| -> BTreeMap<String, usize> {
        let text = std::fs::read_to_string(file).unwrap();
        let mut counts = BTreeMap::new();
        for line in text.lines().skip(1) {
            *counts.entry(line.split(',').nth(3).unwrap().to_owned()).or_insert(0) += 1;
        }
        counts
    };
    let mut counts = operations(&files[0]);
    operations(&files[1]).into_iter().for_each(|(op, count)| *counts.entry(op).or_insert(0) += count);
    let expected = [("DELETE", 3), ("GET", 106), ("GET_LEASE", 66), ("SET", 16), ("SET_LEASE", 7)];
    assert_eq!(counts, expected.map(|(op, count)| (op.to_owned(), count)).into());

    let replay = Replay::new(ReplayConfig {
        time_units_per_second: 1,
        ..ReplayConfig::new(files.to_vec(), kvcache())
    });
    let seen = drain_all(&replay, 3).concat();
    let count = |kind| seen.iter().filter(|seen| seen.kind == kind).count();
    assert_eq!([RequestKind::Get, RequestKind::Set, RequestKind::Delete].map(count), [172, 23, 3]);
    assert_eq!(replay.stats().rejected_rows, 0);
    assert!(seen.iter().all(|seen| seen.time_ns.is_some_and(|time| time > 603_000_000_000_000_000)));
    assert!(seen.iter().any(|seen| seen.ttl_seconds == Some(7200)));
    let first = "82131353f9ddc8c6".to_owned() + &"0".repeat(32);
    assert!(seen.iter().any(|seen| seen.key == first && seen.value_bytes == 87));
}

/// The folder of shared inputs, if it exists: `FLASHWRIGHT_SHARED`, or `shared` beside a parent folder.
fn shared() -> Option<PathBuf> {
    let named = std::env::var_os("FLASHWRIGHT_SHARED").map(PathBuf::from);
    let beside = || {
        let parents = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        parents
            .map(|parent| parent.join("shared"))
            .find(|folder| folder.join("cachelib_test_configs").is_dir())
    };
    named.or_else(beside)
}

/// A completely skipped pass returns no row. Catches a regression: it is treated as the last pass.
#[test]
fn repeated_trace_continues_after_a_skipped_pass() {
    for skipped in 0..6 {
        let (_folder, replay) = replay_of("key,op,size\na,GET,1\nb,GET,1\n", |config| {
            (config.repeat, config.skip_rows) = (true, skipped);
        });
        let keys: Vec<_> = drain_at_most_all(3, &replay, 1).remove(0).into_iter().map(|it| it.key).collect();
        let expected = if skipped % 2 == 0 { ["a", "b", "a"] } else { ["b", "a", "b"] };
        assert_eq!(keys, expected, "{skipped} rows skipped");
    }
}

/// A repeated trace has no key for some workers. Catches a regression: these wait forever while the parser rereads the
/// trace; with one thread for all workers, the others never make their requests.
#[test]
fn worker_without_keys_ends_with_the_others() {
    for one_thread in [false, true] {
        let (_folder, replay) = replay_of("key,op,size\nonly,GET,1\nother,GET,1\n", |config| {
            (config.repeat, config.one_thread) = (true, one_thread);
        });
        let drained = if one_thread {
            let sources = replay.sources(7, 0).unwrap();
            sources.into_iter().map(|mut source| drain_at_most(3000, source.as_mut())).collect()
        } else {
            drain_at_most_all(3000, &replay, 7)
        };
        let mut requests: Vec<usize> = drained.iter().map(Vec::len).collect();
        requests.sort_unstable();
        assert_eq!(requests, [0, 0, 0, 0, 0, 3000, 3000]);
    }
}
