//! `flashwright ssd cards`: lists the drive cards.

use std::fmt::Write as _;
use std::process::ExitCode;

use bench::report::numbers::drive_writes;
use clap::Args;
use serde_json::{Value, json};
use ssd::Card;
use ssd::card::RatedFor;

use crate::output::{Common, Finding};

/// The command line of `ssd cards`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Card name, or the path of a TOML file
    card: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
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
            "{:8} {}\n         {} usable, over-provisioning {:.1} %, {} reclaim units of {}, mapping pages of {}\n         {handles} placement handles, rated for {} (DWPD) over {} years{}",
            card.name,
            card.title,
            decimal(card.space.usable_bytes as f64),
            shape.op_ratio() * 100.0,
            shape.units,
            binary(card.space.unit_bytes),
            binary(card.space.page_bytes.into()),
            drive_writes(card.endurance.dwpd),
            card.endurance.warranty_years,
            workload(card),
        );
    }
    if arguments.card.is_some() {
        text.push_str(&sources(&cards[0]));
    }
    Ok(Finding::new(json!({ "cards": cards }), text))
}

/// The workload of the endurance rating, if the card gives it.
fn workload(card: &Card) -> String {
    match (card.endurance.rated_for, card.endurance.rated_dlwa) {
        (Some(RatedFor::Jesd219), Some(dlwa)) => {
            format!(", under JESD219's enterprise workload at a write amplification of {dlwa}")
        }
        (Some(RatedFor::MappingUnit), Some(dlwa)) => {
            format!(", under random writes of one mapping unit at a write amplification of {dlwa}")
        }
        (Some(RatedFor::Media), _) => ", in bytes written to the medium".into(),
        _ => String::new(),
    }
}

/// Bytes in decimal units.
fn decimal(bytes: f64) -> String {
    let (unit, factor) = match bytes {
        large if large >= 1e12 => ("TB", 1e12),
        middle if middle >= 1e9 => ("GB", 1e9),
        _ => ("MB", 1e6),
    };
    format!("{} {unit}", short(bytes / factor))
}

/// Bytes in binary units.
fn binary(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let place = (bytes.checked_ilog2().unwrap_or(0) as usize / 10).min(units.len() - 1);
    format!("{} {}", short(bytes as f64 / (1_u64 << (10 * place)) as f64), units[place])
}

/// Two decimals at most.
fn short(value: f64) -> String {
    ((value * 100.0).round() / 100.0).to_string()
}

/// Each figure of a card with its unit and its source.
fn sources(card: &Card) -> String {
    let figures = serde_json::to_value(card).unwrap_or_default();
    let mut text = String::new();
    for (key, source) in &card.sources {
        let value = key.split('.').try_fold(&figures, |at, name| at.get(name));
        let (unit, value) =
            (value.map_or_else(String::new, |value| unit(key, value)), value.unwrap_or(&Value::Null));
        let _ = writeln!(text, "  {key} = {value}{unit}\n      {source}");
    }
    text
}

/// The unit of a figure, and a large value also in a larger unit.
fn unit(key: &str, value: &Value) -> String {
    let of_key = match key {
        "cost.kgco2e_per_gb" => "kg CO2e per GB of flash",
        "cost.usd_per_gb" => "US dollars per usable GB",
        "ceilings.random_read_iops" => "reads per second",
        "ceilings.random_write_iops" => "writes per second",
        "endurance.dwpd" => "drive writes per day",
        "endurance.rated_dlwa" => "media bytes per host byte",
        "endurance.warranty_years" => "years",
        "nand.channels" => "channels",
        "nand.dies" => "dies in all",
        "nand.pages_at_once" => "pages per plane",
        "nand.planes" => "planes per die",
        "nand.rated_erases" => "erases per block",
        "placement.handles" => "reclaim-unit handles",
        "placement.namespaces" => "namespaces at most",
        "space.groups" => "reclaim group(s)",
        "space.reserve_units" => "reclaim units",
        _ => "",
    };
    match value.as_u64() {
        Some(bytes) if key.ends_with("_bytes_per_second") => {
            format!(" bytes/s ({}/s)", decimal(bytes as f64))
        }
        Some(bytes) if key == "space.usable_bytes" => format!(" bytes ({})", decimal(bytes as f64)),
        Some(bytes) if key.ends_with("_bytes") => format!(" bytes ({})", binary(bytes)),
        Some(ns) if key.ends_with("_ns") => format!(" ns ({} µs)", short(ns as f64 / 1e3)),
        _ if of_key.is_empty() => String::new(),
        _ => format!(" {of_key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number has a unit; texts, such as the kind of the cells, have none.
    #[test]
    fn every_number_of_every_card_has_a_unit() {
        for card in Card::built_in() {
            let text = sources(&card);
            for line in text.lines().filter(|line| line.contains(" = ")) {
                let (_, value) = line.split_once(" = ").unwrap_or_default();
                assert!(value.starts_with('"') || value.contains(' '), "{}: {line}", card.name);
            }
        }
    }

    #[test]
    fn sizes_and_times_are_also_printed_in_larger_units() {
        for (key, value, text) in [
            ("space.unit_bytes", 6 << 30, " bytes (6 GiB)"),
            ("nand.block_bytes", 48 << 20, " bytes (48 MiB)"),
            ("space.block_bytes", 512, " bytes (512 bytes)"),
            ("space.usable_bytes", 107_862_000_000_u64, " bytes (107.86 GB)"),
            ("controller.host_bytes_per_second", 12_000_000_000, " bytes/s (12 GB/s)"),
            ("nand.program_ns", 1_200_000, " ns (1200 µs)"),
            ("placement.handles", 8, " reclaim-unit handles"),
        ] {
            assert_eq!(unit(key, &json!(value)), text, "{key}");
        }
    }
}
