//! "Increasing the average hit rate from 60% to 80% and cutting the disk operation rate nearly in half"; "our busiest systems
//! got 40% read I/O reduction and 75% write I/O reduction".

use super::super::error::StudyError;
use super::super::{Chart, Line, Outcome, Point, Runner};
use super::{busiest, hits, mean, note, ours, replay, v2, v3};
use crate::block::Summary;

pub(in super::super) fn run(runner: &Runner) -> Result<Outcome, StudyError> {
    let found = replay(runner, &[v2(), v3(), busiest(), ours()])?;
    let [old, new, best, ours] = &found[..] else { unreachable!("one result for each config") };
    let ratios = |after: &[Summary], of: fn(&Summary) -> u64| -> Vec<f64> {
        after.iter().zip(old).map(|(after, before)| of(after) as f64 / of(before) as f64).collect()
    };
    let operations = ratios(new, |it| it.disk.operations());
    let mut points = Vec::new();
    for (number, (old, new)) in old.iter().zip(new).enumerate() {
        let seed = runner.seed + number as u64;
        let (before, after) = (hits(old), hits(new));
        points.push(
            Point::within(format!("hit rate, v2, seed {seed}"), 60.0, before, (55.0, 66.0)).in_unit("%"),
        );
        points.push(
            Point::within(format!("hit rate, v3, seed {seed}"), 80.0, after, (75.0, 85.0)).in_unit("%"),
        );
        points.push(
            Point::within(format!("gained, seed {seed}"), 20.0, after - before, (12.0, 28.0)).in_unit("%"),
        );
        let ratio = operations[number];
        points.push(Point::within(format!("disk operations, seed {seed}"), 0.5, ratio, (0.38, 0.58)));
    }
    let best_of = |of: fn(&Summary) -> u64| mean(ratios(best, of));
    points.extend([
        Point::within("disk operations, mean", 0.5, mean(operations), (0.40, 0.53)),
        Point::within("busiest: disk reads, mean", 0.6, best_of(|it| it.disk.reads), (0.50, 0.60)),
        Point::within("busiest: disk writes, mean", 0.25, best_of(|it| it.disk.writes), (0.15, 0.25)),
        Point::shown("disk's time, v3 over v2, mean", None, mean(ratios(new, |it| it.disk.busy_ns))),
    ]);
    // The article's claims must also hold for our preset.
    let gains = ours.iter().zip(old).map(|(after, before)| hits(after) - hits(before));
    let ours_over_v2 = |of: fn(&Summary) -> u64| ratios(ours, of);
    let most_operations = ours_over_v2(|it| it.disk.operations()).into_iter().fold(0.0, f64::max);
    points.extend([
        Point::within("our preset: gained, least", 20.0, gains.fold(f64::INFINITY, f64::min), (12.0, 28.0))
            .in_unit("%"),
        Point::within("our preset: disk operations, most", 0.5, most_operations, (0.38, 0.58)),
        Point::within(
            "our preset: disk reads, mean",
            0.6,
            mean(ours_over_v2(|it| it.disk.reads)),
            (0.50, 0.60),
        ),
        Point::within(
            "our preset: disk writes, mean",
            0.25,
            mean(ours_over_v2(|it| it.disk.writes)),
            (0.15, 0.25),
        ),
    ]);
    let by_seed = |summaries: &[Summary]| -> Vec<(f64, f64)> {
        summaries.iter().zip(runner.seed..).map(|(it, seed)| (seed as f64, hits(it))).collect()
    };
    let lines = vec![
        Line::marks("v2: FIFO, linear sets, 20 % dirty", by_seed(old)),
        Line::marks("v3: LRU-2Q at 75, hashed, lazy cleaning", by_seed(new)),
        Line::marks("v3, runs of 64 KiB, 80 % dirty", by_seed(best)),
        Line::marks("our preset: permuted runs of 64 KiB, 70 % dirty", by_seed(ours)),
    ];
    let title = "Hit rate, Flashcache 2 and 3".to_owned();
    let charts = vec![Chart { title, x: "seed", y: "hits, %", lines }];
    Ok(Outcome { points, charts, notes: vec![note()] })
}
