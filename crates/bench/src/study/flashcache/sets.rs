//! "Before this change, 50% of the cache accounted for 80% of the disk operations. After this change, 50% of the cache
//! accounted for 50% of the disk operations."
//!
//! The busier half of random values is always above 50 %: with a hundred runs per set, some sets get more by chance, even if
//! all blocks are equally hot (the control). A permutation gives every set the same number of runs, so that only the heat
//! differs.

use block::sets::{Placement, SetsConfig};

use super::super::error::StudyError;
use super::super::{Outcome, Point, Runner};
use super::{busiest, mean_of, note, placed, replay, replay_workload, v2, v3};
use crate::block::Summary;
use crate::block::heat::distribution;
use crate::block::source::InnodbConfig;

const HASHED_256K: Placement = Placement::Hashed { run_bytes: 256 << 10 };
const HASHED_64K: Placement = Placement::Hashed { run_bytes: 64 << 10 };
const PERMUTED_256K: Placement = Placement::Permuted { run_bytes: 256 << 10 };
const PERMUTED_64K: Placement = Placement::Permuted { run_bytes: 64 << 10 };

pub(in super::super) fn run(runner: &Runner) -> Result<Outcome, StudyError> {
    let configs: [SetsConfig; 6] = [
        v2(),
        v3(),
        placed(v3(), HASHED_64K),
        placed(v3(), PERMUTED_256K),
        placed(v3(), PERMUTED_64K),
        placed(v2(), HASHED_256K),
    ];
    let found = replay(runner, &configs)?;
    let [linear, hashed, hashed_64, permuted, permuted_64, fifo_hashed] = &found[..] else {
        unreachable!("one result for each config")
    };
    let mut points = Vec::new();
    for number in 0..linear.len() {
        let seed = runner.seed + number as u64;
        let mut point = |name: &str, paper: f64, ours: f64, low: f64, high: f64| {
            points.push(Point::within(format!("{name}, seed {seed}"), paper, ours, (low, high)).in_unit("%"));
        };
        let of = |summaries: &[Summary]| busier(&summaries[number]);
        point("busier half, linear", 80.0, of(linear), 75.0, 90.0);
        point("hashed 256K", 50.0, of(hashed), 50.0, 63.0);
        point("hashed 64K", 50.0, of(hashed_64), 50.0, 58.0);
        point("permuted 256K", 50.0, of(permuted), 50.0, of(hashed));
        point("permuted 64K", 50.0, of(permuted_64), 50.0, of(hashed_64));
    }
    points.push(
        Point::shown("hashed 256K with all else of v2, mean", None, mean_of(fifo_hashed, busier))
            .in_unit("%"),
    );
    points.extend(control(runner)?);
    let named = [
        ("linear (v2)", linear),
        ("hashed, 256 KiB", hashed),
        ("permuted, 256 KiB", permuted),
        ("permuted, 64 KiB", permuted_64),
    ];
    let chart = distribution(named.map(|(name, summaries)| (name, &summaries[0])));
    let balance = "50 % is not reached: sorting sets by their work always gives a busier half, and hashing distributes \
                   runs by chance. The permutation distributes them evenly";
    Ok(Outcome { points, charts: vec![chart], notes: vec![note(), balance.to_owned()] })
}

/// Control with equally hot pages, which shows the effect of the placement alone.
fn control(runner: &Runner) -> Result<Vec<Point>, StudyError> {
    let even = InnodbConfig {
        fill: 1.0,
        page_skew: 0.0,
        instance_skew: 0.0,
        table_skew: 0.0,
        backup_pages_per_operation: 0.0,
        operations_per_drift: 0,
        ..InnodbConfig::default()
    };
    let configs = [placed(busiest(), HASHED_256K), busiest(), placed(busiest(), PERMUTED_64K)];
    let found = replay_workload(runner, even, &configs)?;
    let [hashed, hashed_64, permuted_64] = &found[..] else { unreachable!("one result for each config") };
    let mean = |summaries: &[Summary]| mean_of(summaries, busier);
    Ok(vec![
        Point::shown("even heat: hashed 256K, mean", None, mean(hashed)).in_unit("%"),
        Point::shown("even heat: hashed 64K, mean", None, mean(hashed_64)).in_unit("%"),
        Point::expected("even heat: permuted 64K, mean", mean(permuted_64), (50.0, 54.0)).in_unit("%"),
    ])
}

fn busier(summary: &Summary) -> f64 {
    summary.busier_half * 100.0
}
