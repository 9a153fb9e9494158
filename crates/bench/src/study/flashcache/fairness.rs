//! Several servers share a cache: a server that becomes busy must get its share.
//!
//! Halfway through, the busiest and the idlest of the eight servers swap. After three turnovers of the cache, its hit rate must
//! equal that of a cache that was empty at the swap.

use super::super::error::StudyError;
use super::super::{Outcome, Point, Runner};
use super::{CACHE_BYTES, hits, mean, replay_source, v2, v3};
use crate::block::source::{BlockRequest, Innodb, InnodbConfig};
use crate::block::{Source, Summary};

/// Requests before the swap, between the swap and counting, and counted.
const PART: u64 = 1_000_000;
const BLOCK_BYTES: u64 = 4096;

pub(in super::super) fn run(runner: &Runner) -> Result<Outcome, StudyError> {
    let configs = [v2(), v3()];
    let turned = replay_source(runner, &configs, |seed| requests(seed, true))?;
    let fresh = replay_source(runner, &configs, |seed| requests(seed, false))?;
    let mut points = Vec::new();
    for (place, name) in ["v2", "v3"].into_iter().enumerate() {
        let lost: Vec<f64> = turned[place]
            .iter()
            .zip(&fresh[place])
            .map(|(turned, fresh)| hits(fresh) - hits(turned))
            .collect();
        let most = lost
            .iter()
            .copied()
            .fold(0.0, |most: f64, lost| if lost.abs() > most.abs() { lost } else { most });
        // `turnovers` is of the counted requests. Equally many requests lie between the swap and counting, so the cache turned over
        // about as often before.
        let least = turned[place].iter().map(turnovers).fold(f64::INFINITY, f64::min);
        points.extend([
            Point::shown(
                format!("hits after the turn, {name}, mean"),
                None,
                mean(turned[place].iter().map(hits)),
            )
            .in_unit("%"),
            Point::expected(format!("lost against an empty cache, {name}, at most"), most, (-2.0, 2.0))
                .in_unit("%"),
            Point::expected(format!("turnovers since, {name}, at least"), least, (3.0, 20.0)),
        ]);
    }
    let note = format!(
        "the eight servers of the other studies: {PART} requests, the turn, {PART} more, then the {PART} that count; 768 MiB of \
         cache, five seeds"
    );
    Ok(Outcome { points, charts: Vec::new(), notes: vec![note] })
}

/// Blocks inserted while counting, relative to the size of the cache.
fn turnovers(summary: &Summary) -> f64 {
    let it = &summary.counters;
    let missed = it.reads + it.writes - it.read_hits - it.write_hits;
    missed as f64 / (CACHE_BYTES / BLOCK_BYTES) as f64
}

/// All requests, or those after the swap; the counted ones are the same.
fn requests(seed: u64, with_past: bool) -> Source {
    let past = if with_past { 0 } else { PART };
    let requests = made(seed, PART).skip(past as usize).take((3 * PART - past) as usize);
    Source::generated(requests, 2 * PART - past)
}

fn made(seed: u64, turn_at: u64) -> impl Iterator<Item = BlockRequest> + Send {
    let mut servers = Innodb::new(InnodbConfig::default(), seed);
    let mut number = 0;
    std::iter::from_fn(move || {
        if number == turn_at {
            servers.swap_extremes();
        }
        number += 1;
        servers.next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_changes_only_later_requests() {
        let turned: Vec<_> = made(1, 300).take(600).collect();
        let never: Vec<_> = made(1, 1000).take(600).collect();
        assert_eq!(turned[..300], never[..300]);
        assert_ne!(turned[300..], never[300..]);
    }
}
