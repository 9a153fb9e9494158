//! `flashwright block flush`.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::control::{self, Target};
use super::devices::{Devices, Opening};
use crate::output::{Common, Finding};

/// The command line of `block flush`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// The flash of a cache that is not served
    #[arg(long, value_name = "PATH", requires = "disk", conflicts_with_all = ["socket", "listen", "control"])]
    flash: Option<String>,
    /// Its disk
    #[arg(long, value_name = "PATH", requires = "flash")]
    disk: Option<String>,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    common: Common,
}

/// Runs `block flush`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config =
        json!({ "flash": arguments.flash, "disk": arguments.disk, "control": arguments.target.path() });
    arguments.common.conclude("block flush", &config, flush(arguments))
}

fn flush(arguments: &Arguments) -> Result<Finding, String> {
    let tell = |progress: &Value| arguments.common.say(&words(progress));
    let mut told = match (arguments.target.path(), &arguments.flash, &arguments.disk) {
        (Some(path), ..) => control::ask(&path, "flush", tell)?,
        (None, Some(flash), Some(disk)) => {
            let opening = Opening { buffered: arguments.opening.buffered };
            let devices = Devices { flash: flash.clone(), disk: disk.clone(), opening };
            let (volume, _) = devices.open_volume()?;
            let told = control::flush(&volume, tell);
            let closed = pollster::block_on(volume.close()).map_err(|error| error.to_string());
            told.and_then(|told| closed.map(|()| told))?
        }
        _ => return Err("which cache? Give the --socket of its server, or its --flash and --disk".into()),
    };
    told["world"] = "real".into();
    let count = |name: &str| told[name].as_u64().unwrap_or(0);
    let (before, left) = (count("dirty_blocks_before"), count("dirty_blocks"));
    let seconds = told["seconds"].as_f64().unwrap_or(0.0);
    let text =
        format!("{before} dirty blocks went to the disk in {seconds:.1} s; {left} became dirty meanwhile\n");
    Ok(Finding { result: told, text, failures: Vec::new() })
}

fn words(progress: &Value) -> String {
    let left = progress["dirty_blocks"].as_u64().unwrap_or(0);
    match progress["seconds_left"].as_f64() {
        Some(seconds) => format!("{left} dirty blocks left, about {seconds:.0} s"),
        None => format!("{left} dirty blocks left"),
    }
}
