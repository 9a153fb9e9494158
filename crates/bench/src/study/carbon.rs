//! Carbon emissions and garbage collection: figure 10 and table 2.

use ssd::model::carbon::Deployment;

use super::error::StudyError;
use super::experiment::{Experiment, Mix, run_both};
use super::{Chart, Line, Outcome, Point, Runner};

/// Figure 10: embodied carbon, and garbage collections for equal host writes, with all of the drive in use.
pub(super) fn fig10(runner: &Runner) -> Result<Outcome, StudyError> {
    let both = run_both(runner, &[Experiment::usual(Mix::KvCache, true)])?;
    let (placed, mixed) = &both[0];
    let kg = |dlwa| Deployment::paper(0.0, dlwa).ssd_kg();
    let fewer = mixed.gc_events / placed.gc_events;
    Ok(Outcome {
        points: vec![
            Point::within("gc events, non-fdp over fdp", 3.6, fewer, (2.88, 4.32)),
            Point::shown("drive, fdp", None, kg(placed.dlwa)).in_unit("kgCO2e"),
            Point::shown("drive, non-fdp", None, kg(mixed.dlwa)).in_unit("kgCO2e"),
            Point::shown("drive, non-fdp over fdp", None, kg(mixed.dlwa) / kg(placed.dlwa)),
        ],
        charts: vec![Chart {
            title: "Embodied carbon of the drive over its write amplification".to_owned(),
            x: "DLWA",
            y: "kgCO2e",
            lines: vec![
                Line::new(
                    "model",
                    (10..=40).map(|tenth| f64::from(tenth) / 10.0).map(|dlwa| (dlwa, kg(dlwa))),
                ),
                Line::marks("measured", [(placed.dlwa, kg(placed.dlwa)), (mixed.dlwa, kg(mixed.dlwa))]),
            ],
        }],
        notes: Vec::new(),
    })
}

/// Table 2: carbon of DRAM and drive with 4, 20 and 42 GB of DRAM, computed from the paper's write amplification.
pub(super) fn table2(_runner: &Runner) -> Result<Outcome, StudyError> {
    // The row of 42 GB corresponds to 43,000 MB in the config.
    let rows = [(4, 4.0, 347.2, 1081.1), (20, 20.0, 372.8, 1106.8), (42, 43.0, 409.6, 1143.6)];
    let mut outcome = Outcome::default();
    for (name, gb, placed, mixed) in rows {
        for (kind, dlwa, paper) in [("fdp", 1.04, placed), ("non-fdp", 3.28, mixed)] {
            let ours = Deployment::paper(gb, dlwa).total_kg();
            let accepted = (paper - 0.1, paper + 0.1);
            outcome.points.push(
                Point::within(format!("{kind}, {name} GB of DRAM"), paper, ours, accepted).in_unit("kgCO2e"),
            );
        }
    }
    let line =
        |name, dlwa| Line::new(name, rows.map(|row| (row.1, Deployment::paper(row.1, dlwa).total_kg())));
    outcome.charts.push(Chart {
        title: "Embodied carbon over DRAM".to_owned(),
        x: "DRAM, GB",
        y: "kgCO2e",
        lines: vec![line("FDP", 1.04), line("non-FDP", 3.28)],
    });
    outcome.notes.push("Computed from the paper's inputs by Theorem 2, without a run.".to_owned());
    Ok(outcome)
}
