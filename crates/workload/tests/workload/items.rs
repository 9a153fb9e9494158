//! Requests for several cache items: chunks of blocks, pieces of objects.

use std::collections::BTreeMap;

use flashwright_workload::trace::{Amplify, Cut, Format, Order, Replay, ReplayConfig, ReplayStats};
use flashwright_workload::{Part, RequestKind, Source, Workload};

const CHUNKS: Cut = Cut::Chunks { chunk_bytes: 100, block_bytes: 1000 };
const BLOCKS: &str = "op_time,block_id,block_id_size,io_size,io_offset,op_name,op_count,rs_shard_id\n";
const OBJECTS: &str =
    "timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL\n";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    kind: RequestKind,
    key: String,
    bytes: u64,
    time_ns: Option<u64>,
    part: Part,
}

fn drain(source: &mut dyn Source) -> Vec<Seen> {
    let mut seen = Vec::new();
    while let Some(request) = source.next() {
        assert_eq!(request.repeat, 1);
        seen.push(Seen {
            kind: request.kind,
            key: String::from_utf8(request.key.to_vec()).unwrap(),
            bytes: request.value_bytes,
            time_ns: request.time_ns,
            part: *request.part.unwrap(),
        });
    }
    seen
}

fn replay(format: &str, cut: Cut, text: &str, change: impl FnOnce(&mut ReplayConfig)) -> Vec<Vec<Seen>> {
    replay_by(1, format, cut, text, change).0
}

fn replay_by(
    workers: usize,
    format: &str,
    cut: Cut,
    text: &str,
    change: impl FnOnce(&mut ReplayConfig),
) -> (Vec<Vec<Seen>>, ReplayStats) {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("trace.csv");
    std::fs::write(&path, text).unwrap();
    let mut config = ReplayConfig {
        cut,
        time_units_per_second: 1,
        ..ReplayConfig::new(vec![path], Format::named(format).unwrap())
    };
    change(&mut config);
    let replay = Replay::new(config);
    let sources = replay.sources(workers, 0).unwrap();
    let seen = std::thread::scope(|scope| {
        let threads: Vec<_> =
            sources.into_iter().map(|mut source| scope.spawn(move || drain(source.as_mut()))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (seen, replay.stats())
}

/// Key, length and requested bytes of each item.
fn requested(seen: &[Seen]) -> Vec<(&str, u64, u64)> {
    seen.iter().map(|it| (it.key.as_str(), it.bytes, it.part.requested_bytes)).collect()
}

#[test]
fn block_range_is_its_chunks_with_keys_of_the_recorded_length() {
    let text = format!("{BLOCKS}7,ab,8,120,190,getChunkData.X,1,4\n8,ab,0,5,995,putChunk.X,,12\n");
    let seen = replay("storage", CHUNKS, &text, |_| ()).remove(0);
    assert_eq!(
        requested(&seen),
        [("ab00_004-1", 100, 10), ("ab00_004-2", 100, 100), ("ab00_004-3", 100, 10), ("ab_012-9", 100, 5)]
    );
    assert_eq!(
        seen.iter().map(|it| it.kind).collect::<Vec<_>>(),
        [RequestKind::Get, RequestKind::Get, RequestKind::Get, RequestKind::Set]
    );
    assert_eq!(seen[2].time_ns, Some(7_000_000_000));
    let ends: Vec<_> = seen.iter().map(|it| (it.part.is_first, it.part.is_last)).collect();
    assert_eq!(ends, [(true, false), (false, false), (false, true), (true, true)]);
}

#[test]
fn range_beyond_its_block_is_an_invalid_row() {
    let text = format!(
        "{BLOCKS}1,ab,8,1,1000,getChunkData.X,1,4\n1,ab,8,1001,0,getChunkData.X,1,4\n1,ab,8,0,0,getChunkData.X,1,4\n\
         1,ab,8,5,5,deleteChunk,1,4\n1,ab,8,5,5,getChunkData.X,0,4\n1,ab,8,1000,0,getChunkData.X,1,4\n"
    );
    let (seen, stats) = replay_by(1, "storage", CHUNKS, &text, |_| ());
    assert_eq!((seen[0].len(), stats.rows, stats.rejected_rows), (10, 1, 5));
    let reason = |index: usize| stats.messages[index].rsplit(".csv:").next().unwrap();
    assert_eq!(reason(0), "2: the range ends at byte 1001, past the end of the block at 1000");
    assert_eq!(reason(2), "4: the size is 0");
    assert_eq!(reason(3), "5: `deleteChunk` is not a known operation");
}

/// Each repetition starts from the first item: repeating a chunk immediately would make the second a hit.
#[test]
fn count_repeats_the_request_not_its_items() {
    let text = format!("{BLOCKS}1,ab,0,150,0,getChunkData.X,3,4\n");
    let keys = |change: fn(&mut ReplayConfig)| -> Vec<String> {
        replay("storage", CHUNKS, &text, change).remove(0).into_iter().map(|it| it.key).collect()
    };
    assert_eq!(keys(|_| ()), ["ab_004-0", "ab_004-1"].repeat(3));
    assert_eq!(keys(|config| config.ignore_op_count = true), ["ab_004-0", "ab_004-1"]);
    let copies = |config: &mut ReplayConfig| {
        config.ignore_op_count = true;
        config.amplify = Amplify { copies: 2, size_factor: 3, ..Amplify::default() };
    };
    assert_eq!(keys(copies), ["ab_0040000-0", "ab_0040000-1", "ab_0040001-0", "ab_0040001-1"]);
    let amplified = replay("storage", CHUNKS, &text, copies).remove(0);
    assert_eq!((amplified[1].bytes, amplified[1].part.requested_bytes), (300, 150));
}

#[test]
fn object_is_one_item_or_pieces_and_rows_without_response_are_invalid() {
    let pieces = Cut::Pieces { piece_bytes: 100, most: 2 };
    let rows = [
        "1,small,1,99,106,7,-1,-1,60",
        "1,small,1,99,17,7,20,29,60",
        "1,large,1,100,107,7,-1,-1,60",
        "1,large,1,350,107,7,150,249,60",
        "1,large,1,350,27,7,-1,-1,60",
        "1,large,1,350,7,7,-1,-1,60",
        "1,-,1,99,106,7,-1,-1,60",
        "1,k,1,99,0,7,-1,-1,60",
        "1,k,1,99,106,0,-1,-1,60",
        "1,k,1,99,106,7,-1,-1,0",
        "1,k,1,99,6,7,-1,-1,60",
    ];
    let text = format!("{OBJECTS}{}\n", rows.join("\n"));
    let (seen, stats) = replay_by(1, "cdn", pieces, &text, |_| ());
    let front = [("large", 0, 0), ("large|#|header-0", 7, 7)];
    let (first, second) = ("large|#|body-0-0", "large|#|body-0-1");
    let expected: Vec<_> = [("small", 106, 106), ("small", 106, 17)]
        .into_iter()
        .chain(front)
        .chain([(first, 100, 100)])
        .chain(front)
        .chain([(second, 100, 50)])
        .chain(front)
        .chain([(first, 100, 20)])
        .chain(front)
        .collect();
    assert_eq!(requested(&seen[0]), expected);
    let uncached: u64 = seen[0].iter().map(|it| it.part.uncached_bytes).sum();
    assert_eq!(uncached, 50, "requested bytes of the third piece");
    assert!(
        seen[0][2..].iter().all(|it| it.part.fetches_rest_on_miss) && !seen[0][0].part.fetches_rest_on_miss
    );
    assert_eq!((stats.rows, stats.rejected_rows), (6, 5));
}

/// Many requests of three chunks; the key contains the block's number.
fn many_requests() -> String {
    let row = |number: u64| format!("{number},b{},0,250,0,getChunkData.X,1,4\n", number * 7919 % 61);
    std::iter::once(BLOCKS.to_owned()).chain((0..5000).map(row)).collect()
}

/// Catches a regression: consecutive batches go to different workers, in the middle of a request.
#[test]
fn items_of_a_request_reach_one_worker_in_sequence() {
    let text = many_requests();
    for (order, one_thread) in [
        (Order::Strict, false),
        (Order::Any, false),
        (Order::Turns, false),
        (Order::Any, true),
        (Order::Strict, true),
    ] {
        let change = |config: &mut ReplayConfig| {
            (config.order, config.one_thread) = (order, one_thread);
            config.skip_rows = 10;
        };
        let workers = if one_thread { 1 } else { 3 };
        let (seen, stats) = replay_by(workers, "storage", CHUNKS, &text, change);
        assert_eq!(stats.rows, 5000);
        assert_eq!(
            seen.iter().map(Vec::len).sum::<usize>(),
            4990 * 3,
            "{order:?}: skipping counts rows, not items"
        );
        let mut owners = BTreeMap::new();
        for (worker, items) in seen.iter().enumerate() {
            for request in items.chunks(3) {
                let whole: Vec<_> =
                    request.iter().map(|it| (it.part.is_first, it.part.is_last, it.time_ns)).collect();
                let time = request[0].time_ns;
                assert_eq!(
                    whole,
                    [(true, false, time), (false, false, time), (false, true, time)],
                    "{order:?}"
                );
                let owner = *owners.entry(request[0].key.clone()).or_insert(worker);
                assert!(order != Order::Strict || owner == worker, "a block stays with its worker");
            }
        }
    }
}

/// If one thread runs all workers, they share a queue.
#[test]
fn workers_on_one_thread_receive_whole_requests() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("trace.csv");
    std::fs::write(&path, many_requests()).unwrap();
    let replay = Replay::new(ReplayConfig {
        cut: CHUNKS,
        order: Order::Any,
        one_thread: true,
        ..ReplayConfig::new(vec![path], Format::named("storage").unwrap())
    });
    let mut sources = replay.sources(2, 0).unwrap();
    let mut started_ns = [None, None];
    for _ in 0..2000 {
        for (source, started_ns) in sources.iter_mut().zip(&mut started_ns) {
            let request = source.next().unwrap();
            let part = request.part.unwrap();
            assert_eq!(started_ns.is_none(), part.is_first);
            if let Some(time_ns) = *started_ns {
                assert_eq!(request.time_ns, time_ns);
            }
            *started_ns = (!part.is_last).then_some(request.time_ns);
        }
    }
}

/// Catches a regression: the parser checks four billion times whether the worker of one row is still receiving, and the
/// other workers receive nothing.
#[test]
fn huge_repeat_count_delays_neither_other_workers_nor_the_end() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("trace.csv");
    let often = format!("1,a,0,250,0,getChunkData.X,{},4\n", u32::MAX);
    let others: String = (0..60).map(|number| format!("1,b{number},0,250,0,getChunkData.X,1,4\n")).collect();
    std::fs::write(&path, format!("{BLOCKS}{often}{others}")).unwrap();
    let replay = Replay::new(ReplayConfig {
        cut: CHUNKS,
        ..ReplayConfig::new(vec![path], Format::named("storage").unwrap())
    });
    let sources = replay.sources(2, 0).unwrap();
    let firsts: Vec<String> = std::thread::scope(|scope| {
        let first = |mut source: Box<dyn Source>| {
            move || String::from_utf8(source.next().unwrap().key.to_vec()).unwrap()
        };
        let threads: Vec<_> = sources.into_iter().map(|source| scope.spawn(first(source))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(firsts.iter().filter(|key| key.starts_with("a_")).count(), 1, "{firsts:?}");
    assert_eq!(firsts.iter().filter(|key| key.starts_with('b')).count(), 1, "{firsts:?}");
}
