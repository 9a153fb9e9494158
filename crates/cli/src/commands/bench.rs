//! `flashwright bench`: run a CacheBench config.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::config::cachebench::{load, load_text};
use bench::config::{Config, ConfigError, DeviceSpec, Loaded, Override};
use clap::Args;

/// The config that runs when none is named.
const EXAMPLE: &str = include_str!("../../../../examples/hybrid.json");
const EXAMPLE_NAME: &str = "examples/hybrid.json";

const PASSED: u8 = 0;
const USAGE: u8 = 2;

/// The command line of `bench`. Flags may be written with one dash or two, with `-` or `_`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// CacheBench config; without one a built-in example runs
    config: Option<PathBuf>,
    /// The config, as CacheBench's own flag
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    json_test_config: Option<PathBuf>,
    /// Write the result as JSON to FILE, or to standard output for `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of everything random; recorded in the result
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
    /// Check the config and stop
    #[arg(long)]
    validate: bool,
    /// Override a key, such as cache_config.cacheSizeMB=64 or [1].test_config.numOps=1000
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Override>,
    /// Put flash here instead: `memory:`, `file:PATH`, `PATH`
    #[arg(long, value_name = "SPEC")]
    device: Option<DeviceSpec>,
    /// Stop after so many seconds with a full report; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    timeout_seconds: u64,
    /// Seconds between progress lines; 0 is none
    #[arg(long, value_name = "N", default_value_t = 60)]
    progress: u64,
    /// Append detailed figures of each interval to FILE
    #[arg(long, value_name = "FILE")]
    progress_stats_file: Option<PathBuf>,
    /// Time every operation, not one in sixteen, and print percentiles of finds and allocations
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, require_equals = true)]
    report_api_latency: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    match load_config(arguments) {
        Ok(Loaded::Part(kind, warnings)) => validated_part(arguments, kind, &warnings),
        Ok(Loaded::Config(config)) => {
            warn(&config, arguments);
            if arguments.validate { validated(&config, arguments) } else { execute(&config, arguments) }
        }
        Err(error) => usage_error(&error),
    }
}

fn load_config(arguments: &Arguments) -> Result<Loaded, ConfigError> {
    let mut overrides = arguments.set.clone();
    overrides.extend(arguments.device.clone().map(Override::Device));
    match arguments.config.as_ref().or(arguments.json_test_config.as_ref()) {
        Some(file) => load(file, &overrides),
        None => load_text(Path::new(EXAMPLE_NAME), EXAMPLE, &overrides),
    }
}

fn execute(_config: &Config, _arguments: &Arguments) -> ExitCode {
    ExitCode::from(USAGE)
}

fn warn(config: &Config, arguments: &Arguments) {
    if arguments.quiet {
        return;
    }
    for warning in &config.warnings {
        say_error(format_args!("warning: {}: {warning}", config.file.display()));
    }
}

fn validated(config: &Config, arguments: &Arguments) -> ExitCode {
    if !arguments.quiet {
        for feature in &config.later {
            say(format_args!("{}: {}: a run needs {}, which is not here yet", config.file.display(), feature.at, feature.words));
        }
        let instances = config.instances.len();
        say(format_args!("{}: valid, {instances} instance(s), {} warning(s)", config.file.display(), config.warnings.len()));
    }
    ExitCode::from(PASSED)
}

/// A popularity or size file: it can be checked, not run.
fn validated_part(arguments: &Arguments, kind: &str, warnings: &[bench::config::knob::Remark]) -> ExitCode {
    let file = arguments.config.as_ref().or(arguments.json_test_config.as_ref());
    let file = file.map_or_else(String::new, |file| file.display().to_string());
    if !arguments.validate {
        say_error(format_args!("{file}: this is a {kind}; a config names it, it cannot run by itself"));
        return ExitCode::from(USAGE);
    }
    if !arguments.quiet {
        for warning in warnings {
            say_error(format_args!("warning: {file}: {warning}"));
        }
        say(format_args!("{file}: valid, a {kind}"));
    }
    ExitCode::from(PASSED)
}

fn usage_error(error: &dyn std::error::Error) -> ExitCode {
    for line in error.to_string().lines() {
        say_error(format_args!("error: {line}"));
    }
    ExitCode::from(USAGE)
}

/// A closed pipe is nobody's error.
fn say(words: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{words}");
}

fn say_error(words: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{words}");
}
