//! "If the oldest entry is dirty, cache would schedule a background eviction of that entry": compares a threshold of dirty
//! blocks per set with cleaning the next victims, and measures the gain of cleaning neighbours together.

use block::sets::SetsConfig;

use super::super::error::StudyError;
use super::super::{Chart, Line, Outcome, Point, Runner};
use super::{hits, mean_of, note, replay, v3};
use crate::block::Summary;

const DIRTY_PERCENTS: [u8; 6] = [10, 20, 40, 60, 80, 95];

fn with(dirty_percent: u8, lazy_depth: u32) -> SetsConfig {
    let mut config = v3();
    config.tuning.dirty_percent = dirty_percent;
    config.tuning.lazy_depth = lazy_depth;
    config
}

fn alone(mut config: SetsConfig) -> SetsConfig {
    config.tuning.clean_run_blocks = 1;
    config
}

pub(in super::super) fn run(runner: &Runner) -> Result<Outcome, StudyError> {
    let both = DIRTY_PERCENTS.map(|percent| [with(percent, 0), with(percent, 1)]);
    let mut configs: Vec<SetsConfig> = both.into_iter().flatten().collect();
    configs.push(alone(v3()));
    let found = replay(runner, &configs)?;
    let of = |percent: u8, lazy: usize| -> &[Summary] {
        let place = DIRTY_PERCENTS.iter().position(|&it| it == percent).expect("one of the percentages");
        &found[place * 2 + lazy]
    };
    let unmerged = &found[DIRTY_PERCENTS.len() * 2];
    let writes = |summaries: &[Summary]| mean_of(summaries, |it| it.disk.writes as f64);
    let hit = |summaries: &[Summary]| mean_of(summaries, hits);
    let best = DIRTY_PERCENTS.iter().map(|&percent| hit(of(percent, 0))).fold(0.0, f64::max);
    let points = vec![
        Point::expected(
            "disk writes, 80 % dirty over 20 %",
            writes(of(80, 0)) / writes(of(20, 0)),
            (0.2, 0.6),
        ),
        Point::shown("disk writes, 60 % and lazy over 20 %", None, writes(of(60, 1)) / writes(of(20, 0))),
        Point::shown("hits, 20 %", None, hit(of(20, 0))).in_unit("%"),
        Point::shown("hits, 60 % and lazy", None, hit(of(60, 1))).in_unit("%"),
        Point::expected("hits lost at 95 % against the best", best - hit(of(95, 0)), (0.2, 15.0))
            .in_unit("%"),
        Point::expected("hits lost at 60 % and lazy", best - hit(of(60, 1)), (-2.0, 0.5)).in_unit("%"),
        Point::expected(
            "writes without neighbours over with",
            writes(unmerged) / writes(of(60, 1)),
            (2.0, 12.0),
        ),
    ];
    let line = |name: &str, lazy: usize, value: &dyn Fn(&[Summary]) -> f64| {
        Line::new(name, DIRTY_PERCENTS.map(|percent| (f64::from(percent), value(of(percent, lazy)))))
    };
    let charts = vec![
        Chart {
            title: "Disk writes over the dirty threshold".to_owned(),
            x: "dirty blocks allowed, % of a set",
            y: "operations, mean of the seeds",
            lines: vec![
                line("threshold alone", 0, &writes),
                line("threshold and next to be evicted", 1, &writes),
            ],
        },
        Chart {
            title: "Hit rate over the dirty threshold".to_owned(),
            x: "dirty blocks allowed, % of a set",
            y: "hits, %",
            lines: vec![line("threshold alone", 0, &hit), line("threshold and next to be evicted", 1, &hit)],
        },
    ];
    Ok(Outcome { points, charts, notes: vec![note()] })
}
