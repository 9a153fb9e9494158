//! `flashwright sweep`: a command over all combinations of values. A cell that has a result is not run again.

mod memory;
mod plan;
mod results;
mod shards;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bench::bar::{Bar, Unit};
use bench::run::stop::Stop;
use clap::Args;
use serde_json::{Value, json};

use crate::call::Call;
use crate::output::{Common, Finding, check_writable, name_of, write_rows};
use crate::quantity;
use memory::Gauge;
use plan::{Cell, Plan};
use results::{Keyed, Results};

/// Time until an interrupt reaches the cells in progress.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// The command line of `sweep`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Plan, a TOML file: the command (simulate, predict, bench, study, ssd run), flags in [fixed], lists of values in [axes]
    plan: PathBuf,
    /// Directory for the results; cells that have a result there are not run again
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// Print the cells and stop
    #[arg(long, conflicts_with_all = ["cell", "combine"])]
    dry_run: bool,
    /// Run this cell only, numbered from 0, and do not combine the results
    #[arg(long, value_name = "N", value_parser = quantity::number::<usize>)]
    cell: Option<usize>,
    /// Run nothing: combine the results that are there
    #[arg(long, conflicts_with = "cell")]
    combine: bool,
    /// Cells in progress at a time, at most [default: one per core]
    #[arg(long, value_name = "N", value_parser = quantity::count::<u32>)]
    jobs: Option<u32>,
    /// Memory for all cells in progress; the first cell runs alone and is measured [default: 80% of the available memory]
    #[arg(long, value_name = "BYTES", value_parser = quantity::bytes)]
    memory: Option<u64>,
    /// Run the cells on a Ray cluster (only in the `flashwright` of the Python module)
    #[arg(long, value_name = "ray[:ADDRESS]")]
    engine: Option<String>,
    /// Write the rows of all finished cells to FILE as Parquet, too
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cell", "dry_run"])]
    parquet: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config =
        json!({ "plan": name_of(&arguments.plan), "out": name_of(&arguments.out), "cell": arguments.cell });
    arguments.common.warn_of_seed("each cell has the seed of the plan: set `seed` in its [fixed] or [axes]");
    arguments.common.conclude("sweep", &config, swept(arguments))
}

fn swept(arguments: &Arguments) -> Result<Finding, String> {
    if let Some(engine) = &arguments.engine {
        return Err(format!(
            "--engine {engine}: only the `flashwright` of the Python module runs cells on Ray; install it by `pip install './python[ray]'`"
        ));
    }
    let plan = Plan::read(&arguments.plan)?;
    let count = plan.count();
    if let Some(number) = arguments.cell.filter(|number| *number >= count) {
        return Err(format!("--cell {number}: the plan has {count} cells, numbered from 0"));
    }
    // A cell alone does not check the others: a sweep of N calls would check N * N.
    let numbers = arguments.cell.map_or(0..count, |number| number..number + 1);
    let cells = numbers.map(|number| plan.cell(number)).collect::<Result<Vec<_>, _>>()?;
    for cell in &cells {
        crate::check_arguments(cell.arguments()).map_err(|error| format!("cell {}: {error}", cell.number))?;
    }
    let cells = results::keyed(&plan, cells)?;
    arguments.common.check_result_file()?;
    arguments.parquet.iter().try_for_each(|file| check_writable(file))?;
    let results = Results::open(&arguments.out)?;
    if arguments.dry_run {
        return Ok(listed(&cells, &results));
    }
    let wanted = if arguments.combine { 0..0 } else { 0..cells.len() };
    let pending: Vec<usize> = wanted.clone().filter(|place| !results.is_done(&cells[*place].key)).collect();
    let stop = arguments.common.stop()?;
    let run = Run {
        cells: &cells,
        results: &results,
        stop: &stop,
        common: &arguments.common,
        bar: Bar::new(Unit::Steps, arguments.common.quiet),
        total: pending.len(),
        done: AtomicUsize::new(0),
        memory: OnceLock::new(),
        running: Mutex::default(),
        failures: Mutex::default(),
    };
    run.all(&pending, arguments);
    run.bar.finish();
    let mut failures = run.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort();
    let mut failures: Vec<String> = failures.into_iter().map(|(_, message)| message).collect();
    let (done, had, failed) = (run.done.into_inner(), wanted.len() - pending.len(), failures.len());
    if stop.is_set() {
        failures.push("interrupted: run the command again to continue".to_owned());
    }
    let memory = run.memory.get();
    let mut result = json!({ "cells": count, "ran": done, "had_results": had, "cell_memory_bytes": memory });
    let mut text = format!("{done} cells ran, {had} had results, {failed} failed\n");
    if arguments.cell.is_none() {
        let (file, rows) = results.combine(&plan, &cells)?;
        result["results"] = name_of(&file).into();
        result["rows"] = rows.len().into();
        if let Some(parquet) = &arguments.parquet {
            result["parquet"] = name_of(parquet).into();
            write_rows(parquet, &rows)?;
        }
        text += &format!("{}: {} rows\n", file.display(), rows.len());
    }
    Ok(Finding { result, text, failures })
}

/// The cells, whether each has a result, and an estimate of the time.
fn listed(cells: &[Keyed], results: &Results) -> Finding {
    let line = |keyed: &Keyed| {
        let words: Vec<String> =
            keyed.cell.arguments().iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        let state = if results.is_done(&keyed.key) { "done   " } else { "pending" };
        format!("{:>6} {state} {}\n", keyed.cell.number, words.join(" "))
    };
    let mut text: String = cells.iter().map(line).collect();
    let pending = cells.iter().filter(|keyed| !results.is_done(&keyed.key)).count();
    let seconds = results.mean_seconds(cells).map(|mean| mean * pending as f64);
    let estimate = seconds.map_or_else(String::new, |seconds| {
        format!(", about {seconds:.0} seconds of one core by the cells that are done")
    });
    text += &format!("{} cells, {pending} to run{estimate}\n", cells.len());
    let each = cells.iter().map(
        |keyed| json!({ "key": keyed.key, "axes": keyed.cell.values, "done": results.is_done(&keyed.key) }),
    );
    let result =
        json!({ "cells": each.collect::<Vec<Value>>(), "pending": pending, "estimated_seconds": seconds });
    Finding::new(result, text)
}

/// A sweep in progress.
struct Run<'a> {
    cells: &'a [Keyed],
    results: &'a Results,
    stop: &'a Stop,
    common: &'a Common,
    bar: Bar,
    total: usize,
    done: AtomicUsize,
    /// Memory of the first cell.
    memory: OnceLock<u64>,
    /// The calls in progress.
    running: Mutex<Vec<Call>>,
    /// Number of the cell, and the message.
    failures: Mutex<Vec<(usize, String)>>,
}

impl Run<'_> {
    /// Runs the first cell alone, to measure its memory, and the others beside each other.
    fn all(&self, pending: &[usize], arguments: &Arguments) {
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = std::thread::Builder::new().name("interrupts".to_owned());
            let watching = watcher.spawn_scoped(scope, || self.pass_interrupts(&has_ended));
            self.first_and_others(pending, arguments);
            has_ended.store(true, Ordering::Relaxed);
            if let Ok(watching) = watching {
                watching.thread().unpark();
            }
        });
    }

    /// Interrupts the calls in progress when the sweep is interrupted. Each call has its own flag, because its command may set it for
    /// other reasons.
    fn pass_interrupts(&self, has_ended: &AtomicBool) {
        while !has_ended.load(Ordering::Relaxed) {
            std::thread::park_timeout(WATCH_INTERVAL);
            if self.stop.is_set() {
                self.running.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Call::interrupt);
            }
        }
    }

    fn first_and_others(&self, pending: &[usize], arguments: &Arguments) {
        let Some((first, others)) = pending.split_first() else { return };
        let gauge = Gauge::start();
        self.one(*first);
        let cell_bytes = *self.memory.get_or_init(|| gauge.peak_bytes());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = arguments.jobs.map_or(cores, |jobs| jobs as usize);
        let jobs = memory::jobs_within(arguments.memory, cell_bytes).min(most).min(others.len().max(1));
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(place) = others.get(next.fetch_add(1, Ordering::Relaxed)) {
                if self.stop.is_set() {
                    return;
                }
                self.one(*place);
            }
        };
        std::thread::scope(|scope| {
            for number in 1..jobs {
                let named = std::thread::Builder::new().name(format!("cells-{number}"));
                // If the thread cannot be started, the other threads run its cells.
                let _ = named.spawn_scoped(scope, work);
            }
            work();
        });
    }

    #[expect(clippy::disallowed_methods, reason = "the duration of a cell is only printed")]
    fn one(&self, place: usize) {
        let keyed = &self.cells[place];
        let started = Instant::now();
        let call = match self.results.figures_flag(keyed) {
            Ok(figures) => Call::new(keyed.cell.arguments().into_iter().chain(figures)),
            Err(error) => return self.fail(&keyed.cell, &error),
        };
        self.running.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call.run()));
        self.running.lock().unwrap_or_else(PoisonError::into_inner).retain(|running| !running.is(&call));
        let result =
            ran.unwrap_or_else(|_| Err("the command panicked, which is a fault of flashwright".to_owned()));
        if self.stop.is_set() {
            // The result is of a part of the trace, or of none.
            return;
        }
        let stored =
            result.and_then(|result| self.results.store(keyed, &result, started.elapsed().as_secs_f64()));
        if let Err(error) = stored {
            self.fail(&keyed.cell, &error);
        } else {
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            self.common.set_progress(done as u64, Some(self.total as u64));
            self.bar.set(done as u64, self.total as u64, format!("{done} of {} cells  ", self.total));
        }
    }

    fn fail(&self, cell: &Cell, error: &str) {
        let number = cell.number;
        let values = Value::Object(cell.values.clone());
        let message = format!("cell {number} {values}: {error}");
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push((number, message));
    }
}
