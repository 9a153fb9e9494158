//! "For more on our workload for which flashcache+mysql are important see" `LinkBench`: the social graph workload instead of
//! eight servers with a backup, on the same volume, buffer pool and cache. The article has no figure for it, so no range is
//! accepted; the access distribution is flat, so a cache of 1/16 of the volume gains little.

use super::super::error::StudyError;
use super::super::{Outcome, Point, Runner};
use super::{busiest, hits, mean, mean_of, replay_source, v2, v3};
use crate::block::source::{LinkBench, LinkBenchConfig};
use crate::block::{Source, Summary};

const REQUESTS: u64 = 3_500_000;
const WARM_UP: u64 = REQUESTS / 3;

pub(in super::super) fn run(runner: &Runner) -> Result<Outcome, StudyError> {
    let found = replay_source(runner, &[v2(), v3(), busiest()], |seed| {
        let servers = LinkBench::new(LinkBenchConfig::default(), seed);
        Source::generated(servers.take(REQUESTS as usize), WARM_UP)
    })?;
    let [old, new, best] = &found[..] else { unreachable!("one result for each config") };
    let operations = |after: &[Summary]| -> Vec<f64> {
        let pairs = after.iter().zip(old);
        pairs.map(|(after, old)| after.disk.operations() as f64 / old.disk.operations() as f64).collect()
    };
    let most = operations(new).into_iter().fold(0.0, f64::max);
    let points = vec![
        Point::shown("hit rate, v2, mean", None, mean_of(old, hits)).in_unit("%"),
        Point::shown("hit rate, v3, mean", None, mean_of(new, hits)).in_unit("%"),
        Point::shown("disk operations, v3 over v2, most", None, most),
        Point::shown("the same, mean", None, mean(operations(new))),
        Point::shown("runs of 64 KiB, 80 % dirty, over v2, mean", None, mean(operations(best))),
    ];
    let note = format!(
        "LinkBench's operations on 12 million nodes in 12 GiB, buffer pool of 64 MiB, {REQUESTS} requests of which the first third \
         warms up, 768 MiB of cache"
    );
    Ok(Outcome { points, charts: Vec::new(), notes: vec![note] })
}
