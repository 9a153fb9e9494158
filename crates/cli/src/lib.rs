//! The command line `flashwright`: [`run`] is the program, [`Call`] runs one of its commands for a program in the same process.

mod arguments;
mod call;
mod choice;
mod commands;
mod examples;
mod files;
mod flags_file;
mod metrics;
mod output;
mod quantity;
mod service_manager;
mod signals;
mod trace_flags;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

pub use call::Call;
use output::Common;

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
    /// Run a command over all combinations of values, resumably and on all cores.
    #[command(after_long_help = examples::SWEEP)]
    Sweep(commands::sweep::Arguments),
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
    /// Write man pages and shell completions to a directory, for packages.
    #[command(hide = true, after_long_help = examples::PACKAGE_FILES)]
    PackageFiles(commands::package_files::Arguments),
}

/// The version of the program, which every result names.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs the program with these arguments, beginning with its name. Results go to standard output. Returns the exit code.
pub fn run(typed: impl IntoIterator<Item = OsString>) -> ExitCode {
    let typed: Vec<OsString> = typed.into_iter().collect();
    for warning in arguments::dash_warnings(typed.iter().cloned()) {
        output::say_error(format_args!("warning: {warning}"));
    }
    let typed = arguments::normalise(typed.into_iter());
    let typed = match flags_file::expand(Cli::command(), typed) {
        Ok(typed) => typed,
        Err(error) => return output::usage_error(&error),
    };
    match Cli::try_parse_from(typed) {
        Ok(cli) => run_command(cli.command),
        Err(answer) => not_run(&answer),
    }
}

/// As [`run`], with the exit code as a number.
#[must_use]
pub fn run_to_code(typed: impl IntoIterator<Item = OsString>) -> u8 {
    let code = run(typed);
    (0..=u8::MAX).find(|number| ExitCode::from(*number) == code).unwrap_or(output::FAILED)
}

/// Runs the command of a call, which keeps the result.
fn run_call(call: &Call) -> Result<(), String> {
    let parsed = Cli::try_parse_from(arguments::normalise(call.arguments()));
    let mut command = parsed.map_err(|answer| one_line(&answer.to_string()))?.command;
    let Some(common) = command.common_of_callable() else {
        return Err("this command acts on the machine and returns no result: run it in a shell".to_owned());
    };
    common.set_call(call.clone());
    run_command(command);
    Ok(())
}

/// Checks that a command line can be parsed.
fn check_arguments(typed: Vec<OsString>) -> Result<(), String> {
    let parsed = Cli::try_parse_from(arguments::normalise(typed.into_iter()));
    parsed.map(drop).map_err(|answer| one_line(&answer.to_string()))
}

impl Command {
    /// The common flags of a command that a program can call; `None` for the others.
    fn common_of_callable(&mut self) -> Option<&mut Common> {
        match self {
            Self::Bench(arguments) => Some(&mut arguments.common),
            Self::Compare(arguments) => Some(&mut arguments.common),
            Self::Evaluate(arguments) => Some(&mut arguments.common),
            Self::Simulate(arguments) => Some(&mut arguments.common),
            Self::Predict(arguments) => Some(&mut arguments.common),
            Self::Study(arguments) => Some(&mut arguments.common),
            Self::Sweep(arguments) => Some(&mut arguments.common),
            Self::Ssd(command) => command.common_of_callable(),
            Self::Trace(command) => command.common_of_callable(),
            Self::Report(_) | Self::Block(_) | Self::Serve(_) | Self::Model(_) | Self::PackageFiles(_) => {
                None
            }
        }
    }
}

fn run_command(command: Command) -> ExitCode {
    match command {
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Compare(arguments) => commands::compare::run(&arguments),
        Command::Report(arguments) => commands::report::run(&arguments),
        Command::Evaluate(arguments) => commands::evaluate::run(&arguments),
        Command::Simulate(arguments) => commands::simulate::run(&arguments),
        Command::Predict(arguments) => commands::predict::run(&arguments),
        Command::Study(arguments) => commands::study::run(&arguments),
        Command::Sweep(arguments) => commands::sweep::run(&arguments),
        Command::Ssd(command) => commands::ssd::run(&command),
        Command::Trace(command) => commands::trace::run(&command),
        Command::Block(command) => commands::block::run(&command),
        Command::Serve(arguments) => commands::serve::run(arguments),
        Command::Model(command) => commands::model::run(&command),
        Command::PackageFiles(arguments) => commands::package_files::run(&arguments, Cli::command()),
    }
}

/// Prints the requested help, or the error in the arguments as one line.
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

/// Clap's message on one line, without the usage text, which `--help` shows.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let said = text.split("\n\nUsage:").next().unwrap_or(text);
    let said = said.split("\n\nFor more information").next().unwrap_or(said);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ").replace(" tip: ", "; ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use bench::trace::Target;

    #[test]
    fn each_command_has_examples_and_all_of_them_can_be_typed() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let help = command.get_after_long_help().unwrap_or_else(|| panic!("{name} has none")).to_string();
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
    fn help_example_converts_to_the_binary_format() {
        let mut lines =
            examples::TRACE.lines().filter_map(|line| line.trim().strip_prefix("flashwright trace convert "));
        let out = lines.next().and_then(|line| line.split_whitespace().last()).expect("there is one");
        assert_eq!(Target::of_name(Path::new(out)), Some(Target::Binary));
    }

    #[test]
    fn wrong_command_line_is_reported_in_one_line() {
        let error_of = |typed: &str| {
            let answer = Cli::try_parse_from(typed.split(' ')).expect_err(typed);
            one_line(&answer.to_string())
        };
        assert_eq!(
            error_of("flashwright ssd run pm9d3 --scale 2/3"),
            "invalid value '2/3' for '--scale <1/N>': \"2/3\" is not a scale: write 1/64"
        );
        assert_eq!(
            error_of("flashwright ssd run"),
            "the following required arguments were not provided: <CARD>"
        );
        assert_eq!(
            error_of("flashwright model life"),
            "unrecognized subcommand 'life'; a similar subcommand exists: 'lifetime'"
        );
    }
}
