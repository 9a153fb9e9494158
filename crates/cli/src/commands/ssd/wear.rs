//! `flashwright ssd wear`: a drive's wear counters, once or over time.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::drive::wear::{CSV_HEADER, Sample, Watched};
use bench::drive::{json, text};
use bench::run::stop::Stop;
use clap::Args;

use super::real::{config, finding, spare};
use crate::output::{Common, Finding};
use crate::quantity;
use crate::signals::stop_on_signals;

/// The command line of `ssd wear`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// NVMe namespace (/dev/ng0n1 or /dev/nvme0n1)
    device: PathBuf,
    /// Read the counters at this interval (10s, 5m) until interrupted
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    every: Option<Duration>,
    /// Stop after N samples
    #[arg(long, value_name = "N", requires = "every")]
    count: Option<u64>,
    /// Write the samples to FILE as CSV, as they are taken
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let found = watch(arguments).map_err(|error| error.to_string());
    arguments.common.conclude("ssd wear", &config(&arguments.device), found)
}

fn watch(arguments: &Arguments) -> Result<Finding, Box<dyn std::error::Error>> {
    spare(&arguments.device, [arguments.csv.as_deref(), arguments.common.result_file()])?;
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
    arguments: &'a Arguments,
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
