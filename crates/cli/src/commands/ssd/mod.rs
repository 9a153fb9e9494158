//! `flashwright ssd`: the model drive alone, the cards of drives, and the drives that are in the machine.

mod cards;
mod info;
mod precondition;
mod real;
mod run;
mod trim;
mod wear;

use std::process::ExitCode;

pub(crate) use real::ask;

use clap::Subcommand;

/// What to do with a drive.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the drive cards, or one card with the source of each figure.
    Cards(cards::Arguments),
    /// Run a pattern of writes on the model of a drive, without a cache.
    Run(run::Arguments),
    /// Tell what a drive is, whether it places data (and what is missing), and how worn it is.
    Info(info::Arguments),
    /// Let a drive forget everything on it.
    Trim(trim::Arguments),
    /// Fill a drive until its write rate, and its write amplification where known, are steady.
    Precondition(precondition::Arguments),
    /// Read a drive's wear counters, once or over time.
    Wear(wear::Arguments),
}

/// Runs one of the commands.
pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::Cards(arguments) => cards::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Info(arguments) => info::run(arguments),
        Command::Trim(arguments) => trim::run(arguments),
        Command::Precondition(arguments) => precondition::run(arguments),
        Command::Wear(arguments) => wear::run(arguments),
    }
}
