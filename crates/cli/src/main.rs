//! `flashwright`, the command line.

mod arguments;
mod commands;

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
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(arguments::normalise(std::env::args_os()));
    match cli.command {
        Command::Bench(arguments) => commands::bench::run(&arguments),
    }
}
