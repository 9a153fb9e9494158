//! Compares the model with logs of real and emulated drives: the series of "Characterizing and Emulating FDP SSDs with WARP", FAST '26.
//!
//! A folder has the logs, as `warp_series.csv` and `warp_series_meta.csv`. The [name](setup) of a series gives its drive and its
//! workload, which runs as a fio job file on the model until the host has written as much as in the log. The study compares the write
//! amplification of the last tenth of the host's writes.

mod setup;

use std::path::Path;

use parking_lot::Mutex;
use ssd::Card;
use workload::fio::JobFile;

use self::setup::Setup;
use super::error::{META_FILE, SERIES_FILE};
use super::{Chart, Line, Outcome, Point, Runner, StudyError};
use crate::drive::log::{DriveLog, LogSample};
use crate::jobs::replay::Replay;

/// A logged series.
pub struct Series {
    /// Its name, a path that names the drive and the workload.
    pub name: String,
    /// Capacity of the drive.
    pub capacity_bytes: u64,
    /// The counters.
    pub log: DriveLog,
}

impl Series {
    /// Reads all series of a folder.
    ///
    /// # Errors
    /// The file that cannot be read, and the reason.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>, String> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let (meta, text) = (read(META_FILE)?, read(SERIES_FILE)?);
        let header: Vec<&str> = meta.lines().next().unwrap_or("").split(',').collect();
        let column = |name: &str| {
            let at = header.iter().position(|it| *it == name);
            at.ok_or_else(|| format!("{META_FILE}: the first line has no column `{name}`"))
        };
        let (name, capacity) = (column("series")?, column("capacity_bytes")?);
        let mut all = Vec::new();
        for (number, line) in meta.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
            let cells: Vec<&str> = line.split(',').collect();
            let bytes = cells.get(capacity).and_then(|cell| cell.parse().ok()).filter(|&bytes| bytes > 0);
            let (Some(name), Some(capacity_bytes)) = (cells.get(name), bytes) else {
                return Err(format!("{META_FILE}, line {}: no series with a capacity in bytes", number + 1));
            };
            let log = DriveLog::parse(&text, Some(name))
                .map_err(|error| format!("{SERIES_FILE}, series {name}: {error}"))?;
            all.push(Self { name: (*name).to_owned(), capacity_bytes, log });
        }
        Ok(all)
    }

    /// Write amplification between two shares of the host's writes.
    #[must_use]
    pub fn dlwa(&self, from: f64, to: f64) -> f64 {
        let end = self.log.host_bytes() as f64;
        self.log.dlwa_between(from * end, to * end)
    }

    /// Whether the last two tenths of the host's writes agree within 5 %.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        (self.dlwa(0.8, 0.9) / self.dlwa(0.9, 1.0) - 1.0).abs() <= 0.05
    }

    /// The workload of the series as a job file, if its name gives one.
    #[must_use]
    pub fn job(&self) -> Option<JobFile> {
        Setup::of(self).map(|setup| setup.file)
    }

    /// The drive of the series, if its name gives one.
    #[must_use]
    pub fn card(&self) -> Option<Card> {
        Setup::of(self).map(|setup| setup.card)
    }

    fn host_capacities(&self) -> f64 {
        self.log.host_bytes() as f64 / self.capacity_bytes as f64
    }
}

/// Write amplification over host writes in capacities, between each two samples.
fn curve(log: &DriveLog, capacity_bytes: u64) -> Vec<(f64, f64)> {
    let pairs = log.samples.windows(2).filter(|pair| pair[1].host_bytes > pair[0].host_bytes);
    let point = |pair: &[LogSample]| {
        let host = pair[1].host_bytes - pair[0].host_bytes;
        let dlwa = (pair[1].media_bytes - pair[0].media_bytes) as f64 / host as f64;
        (pair[1].host_bytes as f64 / capacity_bytes as f64, dlwa)
    };
    pairs.map(point).collect()
}

/// The model's result for a series.
pub struct Modelled {
    /// Write amplification of the last tenth of the host's writes.
    pub last_tenth: f64,
    /// Write amplification over host writes in capacities.
    pub curve: Vec<(f64, f64)>,
    /// Largest accepted relative difference from the log.
    pub tolerance: f64,
    /// The setup in words, if part of it comes from the log.
    pub remark: Option<String>,
}

/// Runs the workload of a series on the model; `None` if its name gives no drive or workload.
///
/// # Errors
/// The run failed or was stopped.
pub fn model(
    series: &Series,
    runner: &Runner,
    advance: &dyn Fn(f64),
) -> Result<Option<Modelled>, StudyError> {
    let Some(setup) = Setup::of(series) else { return Ok(None) };
    let invalid = |error: String| StudyError::Output(format!("{}: {error}", series.name));
    let capacities = series.host_capacities();
    let replay =
        Replay { card: &setup.card, file: &setup.file, scale: setup.scale, capacities, seed: runner.seed };
    let replayed = replay.run(&runner.stop, advance).map_err(invalid)?.ok_or(StudyError::Interrupted)?;
    let end = capacities.min(replayed.capacities());
    Ok(Some(Modelled {
        last_tenth: replayed.dlwa(0.9 * end, end),
        curve: curve(&replayed.log, replayed.capacity_bytes),
        tolerance: setup.tolerance,
        remark: setup.remark,
    }))
}

/// Compares every series of the folder with the model.
pub(super) fn run(runner: &Runner) -> Result<Outcome, StudyError> {
    let folder = runner.logs.as_ref().ok_or(StudyError::NeedsLogs)?;
    let all = Series::read_all(folder).map_err(StudyError::Output)?;
    let done: Vec<Mutex<Option<Modelled>>> = all.iter().map(|_| Mutex::new(None)).collect();
    runner.each(all.len(), |number, advance| {
        *done[number].lock() = model(&all[number], runner, advance)?;
        Ok(())
    })?;
    let mut outcome = Outcome::default();
    for (series, modelled) in all.iter().zip(done) {
        match modelled.into_inner() {
            Some(modelled) => add(&mut outcome, series, modelled),
            None => {
                let note = format!("{}: its name gives no modelled drive and workload", series.name);
                outcome.notes.push(note);
            }
        }
    }
    Ok(outcome)
}

fn add(outcome: &mut Outcome, series: &Series, modelled: Modelled) {
    let logged = series.dlwa(0.9, 1.0);
    let name = format!("{}, last tenth", series.name);
    outcome.points.push(if series.is_steady() {
        let band = (logged * (1.0 - modelled.tolerance), logged * (1.0 + modelled.tolerance));
        Point::within(name, logged, modelled.last_tenth, band)
    } else {
        Point::shown(name, Some(logged), modelled.last_tenth)
    });
    outcome.notes.extend(modelled.remark.map(|remark| format!("{}: {remark}", series.name)));
    outcome.charts.push(Chart {
        title: series.name.clone(),
        x: "host writes, drive capacities",
        y: "DLWA",
        lines: vec![
            Line::new("log", curve(&series.log, series.capacity_bytes)),
            Line::new("model", modelled.curve),
        ],
    });
}
