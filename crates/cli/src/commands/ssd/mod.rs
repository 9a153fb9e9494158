//! `flashwright ssd`: the model drive without a cache, drive cards, logs of drives, and real drives.

mod cards;
mod forecast;
mod info;
mod learn;
mod precondition;
mod real;
mod run;
mod trim;
mod wear;

use std::path::Path;
use std::process::ExitCode;

use bench::drive::log::DriveLog;
use clap::Subcommand;

use crate::output::Common;

/// Commands on drives and models of drives.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the drive cards, or show one with the source of each figure.
    Cards(cards::Arguments),
    /// Run a write pattern on a model drive, without a cache.
    Run(run::Arguments),
    /// Forecast the final write amplification of a test from the log of its beginning.
    Forecast(forecast::Arguments),
    /// Fit a drive card to logs of a drive's write counters.
    Learn(learn::Arguments),
    /// Show a drive's identity, its support for data placement (and missing requirements), and its wear.
    Info(info::Arguments),
    /// Discard everything on a drive.
    Trim(trim::Arguments),
    /// Fill a drive until its write rate, and its write amplification if known, are steady.
    Precondition(precondition::Arguments),
    /// Read a drive's wear counters, once or repeatedly.
    Wear(wear::Arguments),
}

impl Command {
    /// The common flags of a command that a program can call; `None` for the others.
    pub(crate) fn common_of_callable(&mut self) -> Option<&mut Common> {
        match self {
            Self::Cards(arguments) => Some(&mut arguments.common),
            Self::Run(arguments) => Some(&mut arguments.common),
            Self::Forecast(arguments) => Some(&mut arguments.common),
            Self::Learn(arguments) => Some(&mut arguments.common),
            Self::Info(arguments) => Some(&mut arguments.common),
            Self::Trim(_) | Self::Precondition(_) | Self::Wear(_) => None,
        }
    }
}

/// Runs one of the commands.
pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::Cards(arguments) => cards::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Forecast(arguments) => forecast::run(arguments),
        Command::Learn(arguments) => learn::run(arguments),
        Command::Info(arguments) => info::run(arguments),
        Command::Trim(arguments) => trim::run(arguments),
        Command::Precondition(arguments) => precondition::run(arguments),
        Command::Wear(arguments) => wear::run(arguments),
    }
}

/// Reads a log of a drive's write counters, and prints its warnings.
fn read_log(path: &Path, series: Option<&str>, common: &Common) -> Result<DriveLog, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let log = DriveLog::parse(&text, series).map_err(|error| failed(&error))?;
    log.warnings.iter().for_each(|warning| common.warn(failed(warning)));
    Ok(log)
}
