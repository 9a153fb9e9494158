//! "LRU-2Q ... mid-point insertion": the effect of a full scan on the hits of other clients. Mid-point insertion is version 3's
//! protection against scans.
//!
//! The servers run for a while, a client reads four times the size of the cache sequentially, and the servers continue with the
//! same requests as without the scan. The hits of the next 100,000 requests are compared.

use block::sets::{SetPolicy, SetsConfig};
use workload::block::BlockKind;

use super::super::error::StudyError;
use super::super::{Outcome, Point, Runner};
use super::{CACHE_BYTES, hits, mean, replay_source, v3};
use crate::block::source::{BlockRequest, Innodb, InnodbConfig};
use crate::block::{Source, Summary};

/// Requests of the servers before the scan.
const WARM_UP: u64 = 2_000_000;
/// Requests after the scan whose hits are counted.
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
    let before = replay_source(runner, &configs, |seed| requests(seed, 0))?;
    let after = replay_source(runner, &configs, |seed| requests(seed, SCAN_REQUESTS))?;
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
    Source::generated(made(seed, WARM_UP, scan_requests).take((warm_up + COUNTED) as usize), warm_up)
}

/// Requests of the servers, with a scan after the first `warm_up`.
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
    fn scan_does_not_change_the_requests_of_servers() {
        let with: Vec<_> = made(1, 300, 50).take(400).collect();
        let without: Vec<_> = made(1, 300, 0).take(350).collect();
        assert_eq!((&with[..300], &with[350..]), (&without[..300], &without[300..]));
        for (number, request) in with[300..350].iter().enumerate() {
            assert_eq!(request.first_byte, number as u64 * SCAN_REQUEST_BYTES);
            assert_eq!(request.time_ns, with[299].time_ns, "timestamps do not decrease");
        }
        assert_eq!(SCAN_REQUESTS * SCAN_REQUEST_BYTES, 4 * CACHE_BYTES);
    }
}
