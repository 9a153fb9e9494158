//! `flashwright`, the command line.

mod arguments;
mod commands;
mod examples;
mod files;
mod output;
mod quantity;
mod signals;
mod trace_flags;

use std::process::ExitCode;

use clap::error::ErrorKind;
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
    #[command(after_long_help = examples::BENCH)]
    Bench(commands::bench::Arguments),
    /// Compare finished runs: what differs, and whether it is more than noise.
    #[command(after_long_help = examples::COMPARE)]
    Compare(commands::compare::Arguments),
    /// Render finished runs as one self-contained HTML page.
    #[command(after_long_help = examples::REPORT)]
    Report(commands::report::Arguments),
    /// Test whether a drive, or the model of one, suits a flash cache: trim, fill, three workloads at rising rates, one verdict.
    #[command(after_long_help = examples::EVALUATE)]
    Evaluate(commands::evaluate::Arguments),
    /// Simulate hit ratios of policies and cache sizes over a trace, without engine or device.
    Simulate(commands::simulate::Arguments),
    /// Predict from a trace alone what a cache on a drive would do: hit ratio, writes, lifetime, carbon, cost.
    #[command(after_long_help = examples::PREDICT)]
    Predict(commands::predict::Arguments),
    /// Reproduce published figures, the paper's values beside ours.
    #[command(after_long_help = examples::STUDY)]
    Study(commands::study::Arguments),
    /// Inspect and prepare real drives; run model drives.
    #[command(subcommand, after_long_help = examples::SSD)]
    Ssd(commands::ssd::Command),
    /// Inspect, convert and generate traces.
    #[command(subcommand, after_long_help = examples::TRACE)]
    Trace(commands::trace::Command),
    /// Cache a disk on flash: a write-back block cache, served over NBD, ublk or FUSE.
    #[command(subcommand, after_long_help = examples::BLOCK)]
    Block(commands::block::Command),
    /// Serve a cache on flash to memcached's clients.
    #[command(after_long_help = examples::SERVE)]
    Serve(commands::serve::Arguments),
    /// Compute closed forms: write amplification, carbon, lifetime.
    #[command(subcommand, after_long_help = examples::MODEL)]
    Model(commands::model::Command),
}

fn main() -> ExitCode {
    for warning in arguments::dash_warnings(std::env::args_os()) {
        output::say_error(format_args!("warning: {warning}"));
    }
    let cli = match Cli::try_parse_from(arguments::normalise(std::env::args_os())) {
        Ok(cli) => cli,
        Err(answer) => return not_run(&answer),
    };
    match cli.command {
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Compare(arguments) => commands::compare::run(&arguments),
        Command::Report(arguments) => commands::report::run(&arguments),
        Command::Evaluate(arguments) => commands::evaluate::run(&arguments),
        Command::Simulate(arguments) => commands::simulate::run(&arguments),
        Command::Predict(arguments) => commands::predict::run(&arguments),
        Command::Study(arguments) => commands::study::run(&arguments),
        Command::Ssd(command) => commands::ssd::run(&command),
        Command::Trace(command) => commands::trace::run(&command),
        Command::Block(command) => commands::block::run(&command),
        Command::Serve(arguments) => commands::serve::run(arguments),
        Command::Model(command) => commands::model::run(&command),
    }
}

/// Prints help, or a usage error as one line like all errors.
fn not_run(answer: &clap::Error) -> ExitCode {
    let help = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    if help.contains(&answer.kind()) {
        answer.exit();
    }
    output::usage_error(&one_line(&answer.to_string()))
}

/// Clap's message without its usage, which `--help` shows.
fn one_line(words: &str) -> String {
    let words = words.strip_prefix("error: ").unwrap_or(words);
    let message = words.split("\n\nUsage:").next().unwrap_or(words);
    let message = message.split("\n\nFor more information").next().unwrap_or(message);
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ").replace(" tip: ", "; ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bench::trace::Target;
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_has_examples_that_parse() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let help =
                command.get_after_long_help().unwrap_or_else(|| panic!("{name} has no examples")).to_string();
            let lines: Vec<&str> =
                help.lines().filter_map(|line| line.trim().strip_prefix("flashwright ")).collect();
            assert!(!lines.is_empty(), "{name}");
            for line in lines {
                let typed = std::iter::once("flashwright").chain(line.split_whitespace()).map(Into::into);
                let parsed = Cli::try_parse_from(arguments::normalise(typed));
                assert!(parsed.is_ok() && line.starts_with(name), "{line}: {parsed:?}");
            }
        }
    }

    #[test]
    fn binary_trace_example_writes_a_binary_trace() {
        let mut lines =
            examples::TRACE.lines().filter_map(|line| line.trim().strip_prefix("flashwright trace convert "));
        let out = lines.next().and_then(|line| line.split_whitespace().last()).expect("there is an example");
        assert_eq!(Target::of_name(Path::new(out)), Some(Target::Binary));
    }

    #[test]
    fn usage_error_is_one_line() {
        let error = |typed: &str| {
            let answer = Cli::try_parse_from(typed.split(' ')).expect_err(typed);
            one_line(&answer.to_string())
        };
        assert_eq!(
            error("flashwright ssd run pm9d3 --scale 2/3"),
            "invalid value '2/3' for '--scale <1/N>': \"2/3\" is not a scale: write 1/64"
        );
        assert_eq!(
            error("flashwright ssd run"),
            "the following required arguments were not provided: <CARD>"
        );
        assert_eq!(
            error("flashwright model life"),
            "unrecognized subcommand 'life'; a similar subcommand exists: 'lifetime'"
        );
    }
}
