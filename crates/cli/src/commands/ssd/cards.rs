//! `flashwright ssd cards`: the cards of drives.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use ssd::Card;

use crate::output::{Common, Finding};

/// The command line of `ssd cards`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A card's name, or the path of a TOML file
    card: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config = json!({ "card": arguments.card });
    arguments.common.conclude("ssd cards", &config, cards(arguments))
}

fn cards(arguments: &Arguments) -> Result<Finding, String> {
    let cards = match &arguments.card {
        Some(name) => vec![Card::load(name).map_err(|error| error.to_string())?],
        None => Card::built_in(),
    };
    let mut text = String::new();
    for card in &cards {
        let shape = card.shape(true);
        let handles = card.placement.as_ref().map_or(0, |placement| placement.handles);
        let _ = writeln!(
            text,
            "{:8} {}\n         {} usable, over-provisioning {:.1} %, {} units of {}, pages of {} KiB, {handles} handles, {} DWPD",
            card.name,
            card.title,
            decimal(card.space.usable_bytes),
            shape.op_ratio() * 100.0,
            shape.units,
            binary(card.space.unit_bytes),
            card.space.page_bytes / 1024,
            card.endurance.dwpd,
        );
    }
    if arguments.card.is_some() {
        text.push_str(&sources(&cards[0]));
    }
    Ok(Finding { result: json!({ "cards": cards }), text, failures: Vec::new() })
}

/// Bytes as drives are sold.
fn decimal(bytes: u64) -> String {
    if bytes < 1_000_000_000_000 {
        return format!("{:.0} MB", bytes as f64 / 1e6);
    }
    format!("{:.2} TB", bytes as f64 / 1e12)
}

/// Bytes as drives are built.
fn binary(bytes: u64) -> String {
    if bytes < 1 << 30 {
        return format!("{} KiB", bytes >> 10);
    }
    format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30))
}

/// Each figure of a card with its source.
fn sources(card: &Card) -> String {
    let figures = serde_json::to_value(card).unwrap_or_default();
    let mut text = String::new();
    for (key, source) in &card.sources {
        let value = key.split('.').try_fold(&figures, |at, name| at.get(name));
        let value = value.map_or_else(String::new, ToString::to_string);
        let _ = writeln!(text, "  {key} = {value}\n      {source}");
    }
    text
}
