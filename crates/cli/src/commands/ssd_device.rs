//! `flashwright ssd info|trim|precondition|wear`: a drive that is in the machine.

use std::fs::File;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::bar::{Bar, Unit};
use bench::drive::precondition::{self, Options};
use bench::drive::wear::{CSV_HEADER, Sample, Watched};
use bench::drive::{self, json, text};
use bench::run::stop::Stop;
use clap::Args;
use serde_json::{Value, json};

use crate::output::{Common, Finding};
use crate::quantity;
use crate::signals::stop_on_signals;

/// The command line of `ssd info`.
#[derive(Debug, Args)]
pub struct InfoArguments {
    /// NVMe namespace (/dev/ng0n1 or /dev/nvme0n1), block device or file
    device: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// The command line of `ssd trim`.
#[derive(Debug, Args)]
pub struct TrimArguments {
    /// What is to forget everything
    device: PathBuf,
    /// Do not ask whether the data may be lost
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

/// The command line of `ssd precondition`.
#[derive(Debug, Args)]
pub struct PreconditionArguments {
    /// What is to be overwritten
    device: PathBuf,
    /// Bytes of a random write
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = drive::parse_size)]
    write_size: u64,
    /// Writes under way at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    depth: usize,
    /// Give up after random writes of so many times the capacity
    #[arg(long, value_name = "N", default_value = "4", value_parser = quantity::positive)]
    max_passes: f64,
    /// Do not ask whether the data may be lost
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

/// The command line of `ssd wear`.
#[derive(Debug, Args)]
pub struct WearArguments {
    /// NVMe namespace (/dev/ng0n1 or /dev/nvme0n1)
    device: PathBuf,
    /// Read the counters again and again, this far apart (10s, 5m), until interrupted
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    every: Option<Duration>,
    /// End after so many samples
    #[arg(long, value_name = "N", requires = "every")]
    count: Option<u64>,
    /// Write the samples to FILE as they come
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Runs `ssd info`.
pub fn info(arguments: &InfoArguments) -> ExitCode {
    let found = drive::info::info(&arguments.device).map_err(|error| error.to_string());
    let found = found.map(|info| finding(json::info(&info), text::info(&info)));
    arguments.common.conclude("ssd info", &config(&arguments.device), found)
}

/// Runs `ssd trim`.
pub fn trim(arguments: &TrimArguments) -> ExitCode {
    let found = destroy(&arguments.device, arguments.yes, |device, stop| {
        let bar = Bar::new(Unit::Bytes, arguments.common.quiet);
        let capacity = device.geometry().capacity_bytes;
        let trimmed = drive::trim(device, |done_bytes| {
            bar.set(done_bytes, capacity, "trimmed");
            !stop.is_set()
        });
        bar.finish();
        let trimmed = trimmed.map_err(|error| error.to_string())?;
        let words = format!("{}: {} trimmed\n", arguments.device.display(), text::bytes(trimmed.into()));
        Ok(finding(json!({ "trimmed_bytes": trimmed }), words))
    });
    arguments.common.conclude("ssd trim", &config(&arguments.device), found)
}

/// Runs `ssd precondition`.
pub fn precondition(arguments: &PreconditionArguments) -> ExitCode {
    let options = Options {
        write_bytes: arguments.write_size,
        depth: arguments.depth,
        max_passes: arguments.max_passes,
        seed: arguments.common.seed,
    };
    let fill = || {
        destroy(&arguments.device, arguments.yes, |device, stop| {
            let bar = Bar::new(Unit::Bytes, arguments.common.quiet);
            let mut told = 0;
            let outcome = precondition::run(device, drive::clock(), &options, &mut |done, most, rounds| {
                bar.set(done, most, "of at most");
                for (number, round) in rounds.iter().enumerate().skip(told) {
                    bar.line(&text::round(number + 1, round));
                }
                told = rounds.len();
                !stop.is_set()
            });
            bar.finish();
            let outcome = outcome.map_err(|error| error.to_string())?;
            let words = format!("{}: {}\n", arguments.device.display(), text::outcome(&outcome));
            let failures = (!outcome.steady).then(|| "the drive did not become steady".to_owned());
            let failures = failures.into_iter().collect();
            Ok(Finding { failures, ..finding(json::outcome(&outcome), words) })
        })
    };
    let found = arguments.common.check_result_file().map_err(|error| error.to_string()).and_then(|()| fill());
    let config = json!({
        "device": arguments.device.display().to_string(),
        "write_bytes": options.write_bytes,
        "depth": options.depth,
        "max_passes": options.max_passes,
    });
    arguments.common.conclude("ssd precondition", &config, found)
}

/// Runs `ssd wear`.
pub fn wear(arguments: &WearArguments) -> ExitCode {
    let found = watch(arguments).map_err(|error| error.to_string());
    arguments.common.conclude("ssd wear", &config(&arguments.device), found)
}

fn watch(arguments: &WearArguments) -> Result<Finding, Box<dyn std::error::Error>> {
    let stop = Stop::default();
    stop_on_signals(&stop)?;
    let mut watched = Watched::open(&arguments.device)?;
    let mut csv = arguments.csv.as_deref().map(csv_file).transpose()?;
    let mut shown = Shown { arguments, header: false };
    let (mut samples, mut failure) = (Vec::new(), None);
    let count = if arguments.every.is_some() { arguments.count.unwrap_or(u64::MAX) } else { 1 };
    watched.watch(arguments.every.unwrap_or_default(), count, &stop, |sample| {
        let written = csv.as_mut().map_or(Ok(()), |file| writeln!(file, "{}", sample.csv_line()));
        failure = written.err();
        shown.show(&sample);
        // A result file holds them all; without one they need no memory.
        if arguments.common.wants_json() {
            samples.push(sample);
        }
        failure.is_none()
    });
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(finding(json::samples(&samples), String::new())),
    }
}

fn csv_file(path: &Path) -> std::io::Result<File> {
    let named =
        |error: std::io::Error| std::io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut file = File::create(path).map_err(named)?;
    writeln!(file, "{CSV_HEADER}").map_err(named)?;
    Ok(file)
}

/// Samples as they come, for people.
struct Shown<'a> {
    arguments: &'a WearArguments,
    header: bool,
}

impl Shown<'_> {
    fn show(&mut self, sample: &Sample) {
        let common = &self.arguments.common;
        if !self.header {
            let unknown = sample.wear.untold.iter();
            unknown.for_each(|(what, why)| common.say(&format_args!("unknown: {what}: {why}")));
            self.header = true;
        }
        common.say(&text::sample(sample));
    }
}

/// Opens the device, which nobody else may have, asks the user, and does it.
fn destroy(
    path: &Path,
    yes: bool,
    action: impl FnOnce(&dyn drive::Device, &Stop) -> Result<Finding, String>,
) -> Result<Finding, String> {
    let device = drive::open_whole(path).map_err(|error| error.to_string())?;
    let capacity = text::bytes(device.geometry().capacity_bytes.into());
    if !yes {
        ask(&format!("{}: {capacity}. Everything on it will be lost.", path.display()))?;
    }
    let stop = Stop::default();
    stop_on_signals(&stop).map_err(|error| error.to_string())?;
    action(&*device, &stop)
}

fn ask(warning: &str) -> Result<(), String> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(format!("{warning} Nobody is here to be asked: --yes says that this is meant"));
    }
    let _ = write!(std::io::stderr(), "{warning} Type yes to go on: ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = input.lock().read_line(&mut answer);
    if read.is_ok() && answer.trim() == "yes" { Ok(()) } else { Err("nothing was done".into()) }
}

fn config(device: &Path) -> Value {
    json!({ "device": device.display().to_string() })
}

/// What was found in the real world, and not in a model's.
fn finding(mut result: Value, text: String) -> Finding {
    result["world"] = "real".into();
    Finding { result, text, failures: Vec::new() }
}
