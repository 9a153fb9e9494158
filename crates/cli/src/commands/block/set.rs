//! `flashwright block set`.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use daemon::control;
use daemon::operations;
use daemon::settings::RULES;
use daemon::settings::only_served;
use daemon::settings::{self, SETTINGS, shown};
use serde_json::{Value, json};

use super::cached::Cached;
use crate::output::{Common, Finding};

/// The command line of `block set`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Settings to change, or the actions zero_stats=1, do_sync=1, stop_sync=1 of a server; without any, list all settings, with their
    /// values in the selected cache
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
    arguments.cached.spare(&arguments.common)?;
    if arguments.settings.is_empty() {
        return Ok(list(arguments.cached.settings()?));
    }
    let mut answer = arguments.cached.reach(
        |path| control::ask(path, &format!("set {}", arguments.settings.join(" ")), |_| {}),
        |volume| {
            arguments.settings.iter().find_map(|it| only_served(it)).map_or(Ok(()), Err)?;
            operations::set(volume, arguments.settings.iter().map(String::as_str))
        },
    )?;
    answer["world"] = "real".into();
    let mut text = String::new();
    for (name, value) in ["tuning", "rules"].iter().filter_map(|part| answer[part].as_object()).flatten() {
        if let Some(value) = shown(value) {
            let _ = writeln!(text, "{name}={value}");
        }
    }
    Ok(Finding::new(answer, text))
}

/// All settings, with their values if a cache is selected.
fn list(settings: Option<Value>) -> Finding {
    let mut text = String::new();
    let tuning = SETTINGS.iter().map(|setting| ("tuning", setting.name, setting.about));
    for (part, name, about) in tuning.chain(RULES.iter().map(|rule| ("rules", rule.name, rule.about))) {
        let value = settings.as_ref().map(|parts| shown(&parts[part][name]).unwrap_or_else(|| "-".into()));
        let value = value.map_or_else(String::new, |value| format!("{value:<14} "));
        let _ = writeln!(text, "{name:<24} {value}{about}");
    }
    let mut result = json!({ "world": "real", "settings": settings::described() });
    match settings {
        Some(parts) => {
            for (name, part) in parts.as_object().into_iter().flatten() {
                result[name] = part.clone();
            }
        }
        None => text += "with --socket, --ublk or --flash and --disk: their values in that cache\n",
    }
    Finding::new(result, text)
}
