//! `flashwright trace generate`: traces of synthetic workloads.

mod innodb;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use bench::run::stop::Stop;
use bench::trace::{self, Accesses, Ageing, Cdn, CdnConfig, Target, ZipfAccesses, ZipfConfig};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::trace::{target, target_for, written_message};
use crate::files::Files;
use crate::output::{Common, Finding, name_of, usage_error};
use crate::quantity;

/// The workloads.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Requests to a photo CDN: albums appear, are most popular while young, and are forgotten.
    Cdn(CdnArguments),
    /// Independent requests whose popularity follows Zipf's law.
    Zipf(ZipfArguments),
    /// Block I/O of eight MySQL servers on one volume.
    Innodb(innodb::Arguments),
}

/// Output of the trace.
#[derive(Debug, Args)]
struct Writing {
    /// Output file, compressed if it ends in .gz, .zst or .xz
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Format to write: plain, oracle-general, webcachesim or binary [default: by FILE's extension (.oracleGeneral, .tr, .fwt), else plain]
    #[arg(long, value_name = "FORMAT", value_parser = target)]
    to: Option<Target>,
    #[command(flatten)]
    common: Common,
}

/// The command line of `trace generate cdn`.
#[derive(Debug, Args)]
pub struct CdnArguments {
    /// Number of accesses
    #[arg(long, value_name = "N", default_value_t = CdnConfig::default().requests, value_parser = quantity::count::<u64>)]
    requests: u64,
    /// Photos that appear during the trace [default: three tenths of the accesses, as calibrated]
    #[arg(long, value_name = "N", value_parser = quantity::count::<u64>)]
    objects: Option<u64>,
    /// Days that the trace covers
    #[arg(long, value_name = "DAYS", default_value_t = CdnConfig::default().span_seconds / 86_400, value_parser = clap::value_parser!(u64).range(1..))]
    days: u64,
    /// Zipf exponent of album popularity
    #[arg(long, value_name = "X", default_value_t = CdnConfig::default().zipf_exponent, value_parser = exponent)]
    zipf_exponent: f64,
    /// Length of the flat head of the popularity curve, as a share of the albums
    #[arg(long, value_name = "SHARE", default_value_t = CdnConfig::default().zipf_shift, value_parser = quantity::part)]
    zipf_shift: f64,
    /// Album age at which interest begins to fall, as a share of the trace's duration
    #[arg(long, value_name = "SHARE", default_value_t = Ageing::PHOTOS.scale, value_parser = spans)]
    ageing_scale: f64,
    /// Exponent of the fall: the larger, the steeper
    #[arg(long, value_name = "X", default_value_t = Ageing::PHOTOS.exponent, value_parser = fall)]
    ageing_exponent: f64,
    /// Album age at which requests end, as a share of the trace's duration
    #[arg(long, value_name = "SHARE", default_value_t = Ageing::PHOTOS.end, value_parser = end)]
    ageing_end: f64,
    /// Mean photos per album, which are requested together; 1 puts every photo in its own
    #[arg(long, value_name = "N", default_value_t = CdnConfig::default().album_objects, value_parser = album)]
    album: f64,
    #[command(flatten)]
    writing: Writing,
}

/// The command line of `trace generate zipf`.
#[derive(Debug, Args)]
pub struct ZipfArguments {
    /// Number of accesses
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = quantity::count::<u64>)]
    requests: u64,
    /// Number of different objects
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = quantity::count::<u64>)]
    objects: u64,
    /// Zipf exponent: the object of rank r is requested in proportion to r^-X; 0 is uniform
    #[arg(long, value_name = "X", default_value_t = 0.99, value_parser = quantity::amount)]
    exponent: f64,
    /// Size of every object
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = object_size)]
    size: u64,
    #[command(flatten)]
    writing: Writing,
}

/// Runs the command.
pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::Cdn(arguments) => {
            let config = arguments.config();
            let seed = arguments.writing.common.seed();
            let make = |stop: &Stop| -> Option<Box<dyn Accesses>> {
                Some(Box::new(Cdn::cancellable(&config, seed, &mut || !stop.is_set())?))
            };
            conclude("cdn", &arguments.writing, make, config.requests, &cdn_json(&config))
        }
        Command::Innodb(arguments) => innodb::run(arguments),
        Command::Zipf(arguments) => {
            let ZipfArguments { requests, objects, exponent, size, ref writing } = *arguments;
            let config = ZipfConfig { requests, objects, exponent, size_bytes: size };
            let settings =
                json!({ "requests": requests, "objects": objects, "exponent": exponent, "size_bytes": size });
            match ZipfAccesses::new(config, writing.common.seed()) {
                Ok(workload) => conclude("zipf", writing, |_| Some(Box::new(workload)), requests, &settings),
                Err(error) => usage_error(&format!("--exponent: {error}")),
            }
        }
    }
}

impl CdnArguments {
    fn config(&self) -> CdnConfig {
        let calibrated = CdnConfig::default();
        let objects_share = calibrated.objects as f64 / calibrated.requests as f64;
        CdnConfig {
            requests: self.requests,
            objects: self.objects.unwrap_or(((self.requests as f64 * objects_share) as u64).max(1)),
            span_seconds: self.days.saturating_mul(86_400),
            zipf_exponent: self.zipf_exponent,
            zipf_shift: self.zipf_shift,
            ageing: Ageing { scale: self.ageing_scale, exponent: self.ageing_exponent, end: self.ageing_end },
            album_objects: self.album,
            ..calibrated
        }
    }
}

/// With a larger exponent, all popularity or age is in one album or moment, in floating-point arithmetic.
fn exponent(text: &str) -> Result<f64, String> {
    quantity::within(text, 0.0, 10.0)
}

/// An age in spans of the trace. Limited, because albums born that long before the trace are generated too.
fn spans(text: &str) -> Result<f64, String> {
    quantity::within(text, 0.0, 1000.0)
}

/// With a smaller exponent or an earlier end, albums are requested so rarely that the next visit is never found.
fn fall(text: &str) -> Result<f64, String> {
    at_least(text, 0.01, exponent(text)?)
}

fn end(text: &str) -> Result<f64, String> {
    at_least(text, 0.001, spans(text)?)
}

fn at_least(text: &str, least: f64, value: f64) -> Result<f64, String> {
    if value < least { Err(format!("{text} is less than {least}")) } else { Ok(value) }
}

fn album(text: &str) -> Result<f64, String> {
    match quantity::within(text, 0.0, 1e6)? {
        photos if photos < 1.0 => Err(format!("an album needs at least one photo on average, not {text}")),
        photos => Ok(photos),
    }
}

fn object_size(text: &str) -> Result<u64, String> {
    /// Largest object size that trace readers accept: 16 TiB.
    const MOST_BYTES: u64 = 1 << 44;
    match quantity::bytes(text)? {
        0 => Err("an object has at least one byte".to_owned()),
        bytes if bytes > MOST_BYTES => Err(format!("an object has at most 16 TiB, not {text}")),
        bytes => Ok(bytes),
    }
}

fn cdn_json(config: &CdnConfig) -> Value {
    let variants = config.variants.iter().map(|variant| {
        json!({ "share": variant.share, "median_bytes": variant.median_bytes, "sigma": variant.sigma })
    });
    json!({
        "requests": config.requests,
        "objects": config.objects,
        "span_seconds": config.span_seconds,
        "zipf_exponent": config.zipf_exponent,
        "zipf_shift": config.zipf_shift,
        "ageing_scale": config.ageing.scale,
        "ageing_exponent": config.ageing.exponent,
        "ageing_end": config.ageing.end,
        "album_objects": config.album_objects,
        "variants": variants.collect::<Vec<_>>(),
        "daily_swing": config.daily_swing,
    })
}

/// `make` creates the workload, which can take long too, until interrupted.
fn conclude(
    name: &str,
    writing: &Writing,
    make: impl FnOnce(&Stop) -> Option<Box<dyn Accesses>>,
    requests: u64,
    config: &Value,
) -> ExitCode {
    let found = write(writing, make, requests);
    writing.common.conclude(&format!("trace generate {name}"), config, found)
}

fn write(
    writing: &Writing,
    make: impl FnOnce(&Stop) -> Option<Box<dyn Accesses>>,
    requests: u64,
) -> Result<Finding, String> {
    let outputs = [Some(writing.output.as_path()), writing.common.result_file()];
    Files::default().writing(outputs).check_distinct()?;
    writing.common.check_result_file()?;
    let (stop, quiet) = (writing.common.stop()?, writing.common.quiet);
    let target = target_for(writing.to, &writing.output)?;
    let mut workload = make(&stop).ok_or_else(|| trace::Error::Interrupted.to_string())?;
    let written = trace::write(&mut *workload, Some(requests), &writing.output, target, &stop, quiet);
    let (written, _) = written.map_err(|error| error.to_string())?;
    let mut text = written_message(&writing.output, written.accesses);
    for loss in trace::losses(&written) {
        let _ = writeln!(text, "note: {loss}");
    }
    let result = json!({ "output": name_of(&writing.output), "written": trace::written_json(&written) });
    Ok(Finding::new(result, text))
}
