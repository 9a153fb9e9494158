//! Two caches on one drive: figure 11.

use super::error::StudyError;
use super::experiment::{Experiment, Mix, run_both};
use super::{Chart, Line, Outcome, Point, Runner};

/// Figure 11: two caches with half of the drive each and no over-provisioning by the host.
pub(super) fn fig11(runner: &Runner) -> Result<Outcome, StudyError> {
    let two = Experiment { tenants: 2, ..Experiment::usual(Mix::KvCache, true) };
    let both = run_both(runner, &[two])?;
    let (placed, mixed) = &both[0];
    Ok(Outcome {
        points: vec![
            Point::within("dlwa, fdp, two tenants", 1.0, placed.dlwa, (1.001, 1.1)),
            Point::within("dlwa, non-fdp, two tenants", 3.5, mixed.dlwa, (3.15, 3.85)),
        ],
        charts: vec![Chart {
            title: "Two caches on one drive".to_owned(),
            x: "host writes, drive capacities",
            y: "DLWA",
            lines: vec![Line::new("FDP", placed.curve.clone()), Line::new("non-FDP", mixed.curve.clone())],
        }],
        notes: Vec::new(),
    })
}
