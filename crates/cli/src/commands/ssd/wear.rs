//! `flashwright ssd wear`: a drive's wear counters, once or over time.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::drive::wear::{CSV_HEADER, Sample, Watched};
use bench::drive::{json, text};
use bench::picture::Format;
use clap::Args;
use serde_json::json;

use super::read_log;
use super::real::{config, finding, spare};
use crate::files::Files;
use crate::output::{Common, Finding, name_of, write_plot};
use crate::quantity;

/// The command line of `ssd wear`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// NVMe namespace (/dev/ng0n1 or /dev/nvme0n1)
    #[arg(required_unless_present = "log", conflicts_with = "log")]
    device: Option<PathBuf>,
    /// Read a log of a drive's counters instead of a drive: nvme fdp stats, nvme smart-log with nvme ocp smart-add-log (text or JSON,
    /// appended), or CSV
    #[arg(long, value_name = "FILE", conflicts_with_all = ["every", "csv"])]
    log: Option<PathBuf>,
    /// log: series of a CSV that has several
    #[arg(long, value_name = "NAME", requires = "log")]
    series: Option<String>,
    /// log: plot its write amplification over host writes to FILE (.svg or .png)
    #[arg(long, value_name = "FILE", requires = "log")]
    plot: Option<PathBuf>,
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
    if let Some(log) = &arguments.log {
        let config = json!({ "log": name_of(log), "series": arguments.series });
        return arguments.common.conclude("ssd wear", &config, of_log(log, arguments));
    }
    let Some(device) = &arguments.device else { unreachable!("required without a log") };
    let found = watch(device, arguments).map_err(|error| error.to_string());
    arguments.common.conclude("ssd wear", &config(device), found)
}

/// Write amplification of a log, and its plot.
fn of_log(path: &Path, arguments: &Arguments) -> Result<Finding, String> {
    let outputs = [arguments.common.result_file(), arguments.plot.as_deref()];
    Files::reading(arguments.log.as_slice()).writing(outputs).check()?;
    if let Some(file) = &arguments.plot {
        Format::of(file).map_err(|error| format!("--plot: {error}"))?;
    }
    let log = read_log(path, arguments.series.as_deref(), &arguments.common)?;
    if let Some(file) = &arguments.plot {
        let title = arguments.series.clone().unwrap_or_else(|| name_of(path));
        write_plot(file, log.svg(&title).map_err(|error| error.to_string())?)?;
    }
    let end = log.host_bytes() as f64;
    let [all, half, tenth] = [0.0, 0.5, 0.9].map(|from| log.dlwa_between(from * end, end));
    let samples =
        log.samples.iter().map(|it| json!({ "host_bytes": it.host_bytes, "media_bytes": it.media_bytes }));
    let result = json!({
        "host_bytes": log.host_bytes(),
        "dlwa": all,
        "dlwa_last_half": half,
        "dlwa_last_tenth": tenth,
        "samples": samples.collect::<Vec<_>>(),
    });
    let text = format!(
        "host writes          {:.3} TB\nwrite amplification  {all:.3}, last half {half:.3}, last tenth {tenth:.3}\n",
        end / 1e12
    );
    Ok(Finding::new(result, text))
}

fn watch(device: &Path, arguments: &Arguments) -> Result<Finding, Box<dyn std::error::Error>> {
    spare(device, [arguments.csv.as_deref(), arguments.common.result_file()])?;
    let stop = arguments.common.stop()?;
    let mut watched = Watched::open(device)?;
    let mut csv = arguments.csv.as_deref().map(csv_file).transpose()?;
    let mut shown = Shown { arguments, header: false };
    let (mut samples, mut failure) = (Vec::new(), None);
    let count = if arguments.every.is_some() { arguments.count.unwrap_or(u64::MAX) } else { 1 };
    watched.watch(arguments.every.unwrap_or_default(), count, &stop, |sample| {
        let written = csv.as_mut().map_or(Ok(()), |file| writeln!(file, "{}", sample.csv_line()));
        failure = written.err();
        shown.show(&sample);
        // Only a JSON result needs the samples after they are shown.
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

/// Prints samples as text when they are taken.
struct Shown<'a> {
    arguments: &'a Arguments,
    header: bool,
}

impl Shown<'_> {
    fn show(&mut self, sample: &Sample) {
        let common = &self.arguments.common;
        if !self.header {
            let unknown = sample.wear.unreported.iter();
            unknown.for_each(|(what, why)| common.say(&format_args!("unknown: {what}: {why}")));
            self.header = true;
        }
        common.say(&text::sample(sample));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn log_gives_write_amplification_of_its_parts_and_a_plot() {
        let directory = std::env::temp_dir().join(format!("flashwright-wear-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let [log, plot] = ["log.csv", "plot.svg"].map(|name| directory.join(name));
        std::fs::write(&log, "host_bytes,media_bytes\n0,0\n500,500\n900,900\n1000,1200\n").unwrap();
        let [typed_log, typed_plot] = [&log, &plot].map(|path| path.to_str().unwrap());
        let typed = Typed::try_parse_from(["wear", "--log", typed_log, "--plot", typed_plot]).unwrap();
        let result = of_log(&log, &typed.arguments).ok().unwrap().result;
        assert_eq!((&result["dlwa"], &result["dlwa_last_tenth"]), (&json!(1.2), &json!(3.0)));
        assert_eq!(result["dlwa_last_half"], json!(1.4));
        assert!(std::fs::read_to_string(&plot).unwrap().contains("between samples"));
        std::fs::remove_dir_all(directory).unwrap();
        assert!(Typed::try_parse_from(["wear"]).is_err(), "neither a drive nor a log");
        assert!(Typed::try_parse_from(["wear", "/dev/ng0n1", "--log", "x"]).is_err(), "both");
    }
}
