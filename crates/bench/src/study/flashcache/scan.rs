//! "LRU-2Q ... mid-point insertion": what one program that reads everything once does to the cache of those that do not.
//! Mid-point insertion is what the article's version 3 has against scans.
//!
//! Hot servers ask for a while, somebody reads four times the cache from end to end, and the servers go on with the very
//! requests that they would have made without. Hits of the first hundred thousand of these are compared.

use block::sets::{SetPolicy, SetsConfig};
use workload::block::BlockKind;

use super::super::experiment::StudyError;
use super::super::{Outcome, Point, Runner};
use super::{CACHE_BYTES, hits, mean, replay_made, v3};
use crate::block::source::{BlockRequest, Innodb, InnodbConfig};
use crate::block::{Source, Summary};

/// Requests of the servers before the scan.
const WARM_UP: u64 = 2_000_000;
/// Requests after it, of which hits are counted.
const COUNTED: u64 = 100_000;
const SCAN_REQUEST_BYTES: u64 = 256 << 10;
const SCAN_REQUESTS: u64 = 4 * CACHE_BYTES / SCAN_REQUEST_BYTES;

pub(in super::super) fn run(runner: &Runner) -> Result<Outcome, StudyError> {
    let of = |policy: SetPolicy, bypass_bytes: u64| -> SetsConfig {
        let mut config = v3();
        config.tuning.policy = policy;
        config.tuning.read_bypass_bytes = bypass_bytes;
        config.tuning.write_bypass_bytes = bypass_bytes;
        config
    };
    let two_queues = SetPolicy::Lru2q { hot_percent: 75, promote_hits: 2 };
    let configs =
        [of(two_queues, 0), of(SetPolicy::Lru, 0), of(SetPolicy::Fifo, 0), of(SetPolicy::Lru, 1 << 20)];
    let before = replay_made(runner, &configs, |seed| requests(seed, 0))?;
    let after = replay_made(runner, &configs, |seed| requests(seed, SCAN_REQUESTS))?;
    let kept = |place: usize| -> Vec<f64> {
        let pairs = after[place].iter().zip(&before[place]);
        pairs.map(|(after, before): (&Summary, &Summary)| hits(after) / hits(before)).collect()
    };
    let [two_queues, lru, fifo, bypass] = [0, 1, 2, 3].map(kept);
    let least = two_queues.iter().copied().fold(f64::INFINITY, f64::min);
    let ahead = two_queues.iter().zip(&lru).map(|(ours, lru)| ours - lru).fold(f64::INFINITY, f64::min);
    let points = vec![
        Point::shown("hits without a scan, LRU-2Q", None, mean(before[0].iter().map(hits))).in_unit("%"),
        Point::shown("hits without a scan, LRU", None, mean(before[1].iter().map(hits))).in_unit("%"),
        Point::expected("hits after over without, LRU-2Q, least", least, (0.97, 1.05)),
        Point::shown("the same, mean", None, mean(two_queues)),
        Point::shown("hits after over without, LRU, mean", None, mean(lru)),
        Point::shown("hits after over without, FIFO, mean", None, mean(fifo)),
        Point::expected("LRU-2Q ahead of LRU, least", ahead, (0.01, 0.5)),
        Point::shown("LRU with a bypass at 1 MiB, mean", None, mean(bypass)),
    ];
    let note = format!(
        "the eight servers of the other studies without backup and drift, {WARM_UP} requests, then {SCAN_REQUESTS} of 256 KiB through \
         the volume once, then the {COUNTED} that count"
    );
    Ok(Outcome { points, charts: Vec::new(), notes: vec![note] })
}

fn requests(seed: u64, scan_requests: u64) -> Source {
    let warm_up = WARM_UP + scan_requests;
    Source::made_up(made(seed, WARM_UP, scan_requests).take((warm_up + COUNTED) as usize), warm_up)
}

/// Requests of the servers, of which all but the first `warm_up` come after the scan.
fn made(seed: u64, warm_up: u64, scan_requests: u64) -> impl Iterator<Item = BlockRequest> + Send {
    let steady =
        InnodbConfig { backup_pages_per_operation: 0.0, operations_per_drift: 0, ..InnodbConfig::default() };
    let mut servers = Innodb::new(steady, seed);
    let (mut number, mut now_ns) = (0u64, 0);
    std::iter::from_fn(move || {
        let in_scan = number.checked_sub(warm_up).filter(|&scanned| scanned < scan_requests);
        number += 1;
        match in_scan {
            Some(scanned) => Some(scan(scanned, now_ns)),
            None => servers.next().inspect(|request| now_ns = request.time_ns),
        }
    })
}

fn scan(number: u64, time_ns: u64) -> BlockRequest {
    BlockRequest {
        time_ns,
        kind: BlockKind::Read,
        first_byte: number * SCAN_REQUEST_BYTES,
        bytes: SCAN_REQUEST_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_scan_comes_what_would_have_come_without() {
        let with: Vec<_> = made(1, 300, 50).take(400).collect();
        let without: Vec<_> = made(1, 300, 0).take(350).collect();
        assert_eq!((&with[..300], &with[350..]), (&without[..300], &without[300..]));
        for (number, request) in with[300..350].iter().enumerate() {
            assert_eq!(request.first_byte, number as u64 * SCAN_REQUEST_BYTES);
            assert_eq!(request.time_ns, with[299].time_ns, "time does not go back");
        }
        assert_eq!(SCAN_REQUESTS * SCAN_REQUEST_BYTES, 4 * CACHE_BYTES);
    }
}
