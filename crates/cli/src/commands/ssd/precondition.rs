//! `flashwright ssd precondition`: a drive in its steady state.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::bar::{Bar, Unit};
use bench::drive::precondition::{self, Options};
use bench::drive::{self, json, text};
use clap::Args;
use device::Engine;
use serde_json::json;

use super::real::{ConfirmFlags, destroy, finding};
use crate::output::{Common, Finding};
use crate::quantity;

/// The command line of `ssd precondition`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// NVMe namespace, block device or file to overwrite
    device: PathBuf,
    /// Size of each random write
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = device::size::parse_size)]
    write_size: u64,
    /// Writes in flight, at most 4096
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// Give up after random writes of N times the capacity
    #[arg(long, value_name = "N", default_value = "4", value_parser = quantity::positive)]
    max_passes: f64,
    #[command(flatten)]
    confirm: ConfirmFlags,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let options = Options {
        write_bytes: arguments.write_size,
        depth: arguments.depth as usize,
        max_passes: arguments.max_passes,
        seed: arguments.common.seed(),
    };
    let fill = || {
        destroy(&arguments.device, &arguments.confirm, &arguments.common, |device, stop| {
            if let Some(message) = device.engine().and_then(Engine::warning) {
                arguments.common.warn(format_args!("{}: {message}", arguments.device.display()));
            }
            let bar = Bar::new(Unit::Bytes, arguments.common.quiet);
            let mut printed = 0;
            let outcome = precondition::run(device, drive::clock(), &options, &mut |done, most, rounds| {
                bar.set(done, most, "of at most");
                for (number, round) in rounds.iter().enumerate().skip(printed) {
                    bar.line(&text::round(number + 1, round));
                }
                printed = rounds.len();
                !stop.is_set()
            });
            bar.finish();
            let outcome = outcome.map_err(|error| error.to_string())?;
            let text = format!("{}: {}\n", arguments.device.display(), text::outcome(&outcome));
            let failures = (!outcome.steady).then(|| "the drive did not reach a steady state".to_owned());
            let failures = failures.into_iter().collect();
            Ok(Finding { failures, ..finding(json::outcome(&outcome), text) })
        })
    };
    let config = json!({
        "device": arguments.device.display().to_string(),
        "write_bytes": options.write_bytes,
        "depth": options.depth,
        "max_passes": options.max_passes,
    });
    arguments.common.conclude("ssd precondition", &config, fill())
}
