//! `flashwright block set`.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::cached::Cached;
use super::control;
use super::knobs::{KNOBS, shown};
use crate::output::{Common, Finding};

/// The command line of `block set`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Settings to change; without any, list them all
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    cached: Cached,
    #[command(flatten)]
    common: Common,
}

/// Runs `block set`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let mut config = arguments.cached.config();
    config["settings"] = arguments.settings.clone().into();
    arguments.common.conclude("block set", &config, set(arguments))
}

fn set(arguments: &Arguments) -> Result<Finding, String> {
    if arguments.settings.is_empty() {
        return Ok(Finding { result: json!({}), text: list(), failures: Vec::new() });
    }
    let told = arguments.cached.reach(
        |path| control::ask(path, &format!("set {}", arguments.settings.join(" ")), |_| {}),
        |volume| control::set(volume, arguments.settings.iter().map(String::as_str)),
    )?;
    let mut text = String::new();
    for (name, value) in told["tuning"].as_object().into_iter().flatten() {
        if let Some(value) = shown(value) {
            let _ = writeln!(text, "{name}={value}");
        }
    }
    Ok(Finding { result: told, text, failures: Vec::new() })
}

fn list() -> String {
    let mut text = String::new();
    for knob in KNOBS {
        let _ = writeln!(text, "{:<24} {}", knob.name, knob.about);
    }
    text
}
