//! "The cache is effective until the insertion point is at the 85th percentile or greater, when the cache stops working";
//! "we are currently running Flashcache with the mid-point set to the 75th percentile".

use block::sets::{SetPolicy, SetsConfig};

use super::super::error::StudyError;
use super::super::{Chart, Line, Outcome, Point, Runner};
use super::{hits, mean, mean_of, note, replay, v3};
use crate::block::Summary;

const INSERTION_POINTS: [u8; 13] = [0, 10, 25, 40, 50, 60, 65, 70, 75, 80, 85, 90, 95];

fn at(insertion_point: u8) -> SetsConfig {
    let mut config = v3();
    config.tuning.policy = SetPolicy::Lru2q { hot_percent: insertion_point, promote_hits: 2 };
    config
}

pub(in super::super) fn run(runner: &Runner) -> Result<Outcome, StudyError> {
    let found = replay(runner, &INSERTION_POINTS.map(at))?;
    let by_point = |of: &dyn Fn(&[Summary]) -> f64| -> Vec<(f64, f64)> {
        INSERTION_POINTS.iter().zip(&found).map(|(&point, it)| (f64::from(point), of(it))).collect()
    };
    let curve = by_point(&|summaries| mean_of(summaries, hits));
    let hit = |point: u8| curve[place(point)].1;
    let best = curve.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).expect("there are points");
    let gained = |number: usize| hits(&found[place(75)][number]) - hits(&found[0][number]);
    let seeds = found[0].len();
    let least_gained = (0..seeds).map(gained).fold(f64::INFINITY, f64::min);
    let points = vec![
        Point::within("best insertion point", 75.0, best.0, (65.0, 85.0)).in_unit("%"),
        Point::expected("hits at the best, mean", best.1, (75.0, 80.0)).in_unit("%"),
        Point::expected("lost at 75 against the best", best.1 - hit(75), (0.0, 0.5)).in_unit("%"),
        Point::expected("lost at 85 against the best", best.1 - hit(85), (0.0, 1.0)).in_unit("%"),
        Point::expected("lost at 95 against 75", hit(75) - hit(95), (0.5, 6.0)).in_unit("%"),
        Point::expected("gained at 75 against LRU, least", least_gained, (2.0, 10.0)).in_unit("%"),
        Point::shown("gained at 75 against LRU, mean", None, mean((0..seeds).map(gained))).in_unit("%"),
    ];
    let reads = by_point(&|summaries| mean_of(summaries, |it| it.counters.read_hit_percent()));
    let chart = Chart {
        title: "Hit rate over the insertion point".to_owned(),
        x: "insertion point, percentile from the front",
        y: "hits, %",
        lines: vec![Line::new("all, mean of the seeds", curve.iter().copied()), Line::new("reads", reads)],
    };
    Ok(Outcome { points, charts: vec![chart], notes: vec![note()] })
}

fn place(insertion_point: u8) -> usize {
    INSERTION_POINTS.iter().position(|&point| point == insertion_point).expect("one of the points")
}
