//! `flashwright`, the command line.

mod arguments;
mod commands;
mod output;
mod quantity;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Flash caching with the wear measured.
#[derive(Debug, Parser)]
#[command(name = "flashwright", version, about = "Flash caching with the wear measured", long_about = None, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a CacheBench config against the cache and print the verdict.
    Bench(commands::bench::Arguments),
    /// Published figures as commands: the paper's value beside ours.
    Study(commands::study::Arguments),
    /// The model SSD: run it alone, list its cards.
    #[command(subcommand)]
    Ssd(commands::ssd::Command),
    /// Closed forms: write amplification, carbon, years of life.
    #[command(subcommand)]
    Model(commands::model::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(arguments::normalise(std::env::args_os()));
    match cli.command {
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Study(arguments) => commands::study::run(&arguments),
        Command::Ssd(command) => commands::ssd::run(&command),
        Command::Model(command) => commands::model::run(&command),
    }
}
