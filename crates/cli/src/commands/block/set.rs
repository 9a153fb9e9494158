//! `flashwright block set`.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::control::{self, Target};
use super::devices::{Devices, Opening};
use super::knobs::KNOBS;
use crate::output::{Common, Finding};

/// The command line of `block set`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Settings; without any, all are listed
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
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

/// Runs `block set`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config = json!({ "settings": arguments.settings, "flash": arguments.flash, "control": arguments.target.path() });
    arguments.common.conclude("block set", &config, set(arguments))
}

fn set(arguments: &Arguments) -> Result<Finding, String> {
    if arguments.settings.is_empty() {
        return Ok(Finding { result: json!({}), text: list(), failures: Vec::new() });
    }
    let told = match (arguments.target.path(), &arguments.flash, &arguments.disk) {
        (Some(path), ..) => control::ask(&path, &format!("set {}", arguments.settings.join(" ")), |_| {})?,
        (None, Some(flash), Some(disk)) => {
            let opening = Opening { buffered: arguments.opening.buffered };
            offline(arguments, &Devices { flash: flash.clone(), disk: disk.clone(), opening })?
        }
        _ => return Err("which cache? Give the --socket of its server, or its --flash and --disk".into()),
    };
    let mut text = String::new();
    for (name, value) in told["tuning"].as_object().into_iter().flatten() {
        let _ = writeln!(text, "{name}={}", value.as_str().unwrap_or_default());
    }
    Ok(Finding { result: told, text, failures: Vec::new() })
}

fn offline(arguments: &Arguments, devices: &Devices) -> Result<Value, String> {
    let (volume, _) = devices.open_volume()?;
    let told = control::set(&volume, arguments.settings.iter().map(String::as_str));
    let closed = pollster::block_on(volume.close()).map_err(|error| error.to_string());
    told.and_then(|told| closed.map(|()| told))
}

fn list() -> String {
    let mut text = String::new();
    for knob in KNOBS {
        let _ = writeln!(text, "{:<24} {}", knob.name, knob.about);
    }
    text
}
