//! `flashwright model`: closed forms, with formula, source and inputs.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use ssd::Card;
use ssd::model::carbon::Deployment;
use ssd::model::dlwa;
use ssd::model::lifetime::{Endurance, dwpd_bytes_per_second};

use crate::output::{Common, Finding};
use crate::quantity;

/// The closed forms.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Device write amplification of a cache that separates small objects from large ones.
    Dlwa(DlwaArguments),
    /// Embodied carbon of drives and DRAM.
    Carbon(CarbonArguments),
    /// Lifetime of a drive in years, or the write rate that a lifetime allows.
    Lifetime(LifetimeArguments),
}

/// The command line of `model dlwa`.
#[derive(Debug, Args)]
pub struct DlwaArguments {
    /// Small-object cache, as a share of the usable capacity; 100% is uniform writes over the whole drive
    #[arg(long, value_name = "SHARE", value_parser = quantity::share)]
    soc: f64,
    /// Over-provisioning of the whole drive, (P - S) / S
    #[arg(long, value_name = "SHARE", value_parser = quantity::share)]
    op: f64,
    /// Model greedy victims in units of N pages, instead of infinitely large units
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pages_per_block: Option<u32>,
    #[command(flatten)]
    common: Common,
}

/// The command line of `model carbon`.
#[derive(Debug, Args)]
pub struct CarbonArguments {
    /// Device-level write amplification
    #[arg(long, value_name = "X", value_parser = quantity::amplification)]
    dlwa: f64,
    /// DRAM capacity in GB of 10^9 bytes
    #[arg(long, value_name = "GB", value_parser = quantity::amount, default_value = "0")]
    dram_gb: f64,
    /// Drive card, for its physical capacity and the carbon of its flash, as in `predict`
    #[arg(long, value_name = "CARD", conflicts_with = "drive_gb")]
    drive: Option<String>,
    /// Physical capacity of the drive in GB of 10^9 bytes [default: 2048, the paper's; its drive has 2048 GiB, which are 2199 GB]
    #[arg(long, value_name = "GB", value_parser = quantity::positive)]
    drive_gb: Option<f64>,
    /// Years that the system is in service
    #[arg(long, value_name = "YEARS", value_parser = quantity::positive, default_value = "5")]
    system_years: f64,
    /// Lifetime of a drive in years at a write amplification of 1
    #[arg(long, value_name = "YEARS", value_parser = quantity::positive, default_value = "5")]
    drive_years: f64,
    /// Embodied carbon of SSD, in kg CO2e per GB [default: the card's, or 0.16]
    #[arg(long, value_name = "KG", value_parser = quantity::amount)]
    ssd_kg_per_gb: Option<f64>,
    /// Embodied carbon of DRAM, in kg CO2e per GB
    #[arg(long, value_name = "KG", value_parser = quantity::amount, default_value_t = Deployment::DRAM_KG_PER_GB)]
    dram_kg_per_gb: f64,
    #[command(flatten)]
    common: Common,
}

/// The command line of `model lifetime`.
#[derive(Debug, Args)]
pub struct LifetimeArguments {
    /// Drive card, for its capacity, DWPD and warranty
    #[arg(long, value_name = "CARD", conflicts_with_all = ["capacity_gb", "dwpd", "tbw"])]
    drive: Option<String>,
    /// Usable capacity in GB, for --dwpd
    #[arg(long, value_name = "GB", value_parser = quantity::positive, requires = "dwpd")]
    capacity_gb: Option<f64>,
    /// Rated endurance in drive writes per day
    #[arg(long, value_name = "X", value_parser = quantity::positive, requires = "capacity_gb", conflicts_with = "tbw")]
    dwpd: Option<f64>,
    /// Years that --dwpd holds for [default: 5]
    #[arg(long, value_name = "YEARS", value_parser = quantity::positive, conflicts_with_all = ["drive", "tbw"])]
    warranty_years: Option<f64>,
    /// Rated endurance in terabytes written
    #[arg(long, value_name = "TB", value_parser = quantity::positive)]
    tbw: Option<f64>,
    /// Write amplification that the rating assumes [default: the card's, otherwise 1]
    #[arg(long, value_name = "X", value_parser = quantity::amplification)]
    rated_dlwa: Option<f64>,
    /// Host writes in MB/s (1 MB is 1000000 bytes)
    #[arg(long, value_name = "MB", value_parser = quantity::positive)]
    host_mb_per_second: Option<f64>,
    /// Lifetime to reach in years; the result is the write rate that allows it
    #[arg(long, value_name = "YEARS", value_parser = quantity::positive, conflicts_with = "host_mb_per_second")]
    years: Option<f64>,
    /// Device-level write amplification
    #[arg(long, value_name = "X", value_parser = quantity::amplification, default_value = "1")]
    dlwa: f64,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::Dlwa(arguments) => conclude(&arguments.common, "model dlwa", dlwa(arguments)),
        Command::Carbon(arguments) => conclude(&arguments.common, "model carbon", carbon(arguments)),
        Command::Lifetime(arguments) => conclude(&arguments.common, "model lifetime", lifetime(arguments)),
    }
}

/// The result of a closed form.
struct Answer {
    inputs: Value,
    formula: &'static str,
    source: &'static str,
    result: Value,
}

fn conclude(common: &Common, command: &str, answer: Result<Answer, String>) -> ExitCode {
    let inputs = answer.as_ref().map_or(Value::Null, |answer| answer.inputs.clone());
    let found = answer.and_then(countable).map(|Answer { inputs, formula, source, result }| {
        let text = format!("{}formula  {formula}\nsource   {source}\n{}", lines(&result), lines(&inputs));
        let result = json!({ "inputs": inputs, "formula": formula, "source": source, "result": result });
        Finding::new(result, text)
    });
    common.conclude(command, &inputs, found)
}

/// Refuses infinities, which JSON cannot represent.
fn countable(answer: Answer) -> Result<Answer, String> {
    let empty = Map::new();
    match answer.result.as_object().unwrap_or(&empty).iter().find(|(_, value)| value.is_null()) {
        Some((name, _)) => Err(format!("{name} overflows with these inputs")),
        None => Ok(answer),
    }
}

fn lines(values: &Value) -> String {
    let empty = Map::new();
    let known = values.as_object().unwrap_or(&empty).iter().filter(|(_, value)| !value.is_null());
    known.map(|(name, value)| format!("{name:24} {}\n", word(value))).collect()
}

/// A number as text with significant digits only. JSON has all digits.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().and_then(|number| format!("{number:.5e}").parse::<f64>().ok());
            match rounded {
                // Small numbers have exponents, because leading zeros are hard to read.
                Some(tiny) if tiny != 0.0 && tiny.abs() < 1e-6 => format!("{tiny:e}"),
                Some(rounded) => rounded.to_string(),
                None => number.to_string(),
            }
        }
        other => other.to_string(),
    }
}

fn dlwa(arguments: &DlwaArguments) -> Result<Answer, String> {
    if arguments.soc <= 0.0 || arguments.soc > 1.0 {
        return Err("--soc: must be above 0% and at most 100%".into());
    }
    let (written, physical) = (arguments.soc, arguments.soc + arguments.op);
    let (answer, formula, source) = match arguments.pages_per_block {
        None => (
            dlwa::theorem_1(written, physical),
            "delta = -(S/P) W(-(P/S) e^(-P/S)), DLWA = 1 / (1 - delta), S = soc, P = soc + op",
            "Allison et al., EuroSys '25, Theorem 1; Desnoyers, SYSTOR '12",
        ),
        Some(pages) => (
            dlwa::greedy(written, physical, pages),
            "X0 = 1/2 - (Np/a) W(-b e^(-b)), b = (1 + 1/(2 Np)) a, DLWA = Np / (Np - (X0 - 1)), a = (soc + op) / soc",
            "Desnoyers, SYSTOR '12: greedy, finite units",
        ),
    };
    let answer = answer.map_err(|reason| format!("--op: {reason}"))?;
    if let (Some(pages), true) = (arguments.pages_per_block, answer.dlwa < 1.0) {
        return Err(format!(
            "--pages-per-block: the model needs larger units: with {pages} pages its write amplification is below 1"
        ));
    }
    Ok(Answer {
        inputs: json!({ "soc": arguments.soc, "op": arguments.op, "pages_per_block": arguments.pages_per_block }),
        formula,
        source,
        result: json!({ "dlwa": answer.dlwa, "delta": answer.delta }),
    })
}

fn carbon(arguments: &CarbonArguments) -> Result<Answer, String> {
    let card =
        arguments.drive.as_ref().map(|name| Card::load(name).map_err(|error| format!("--drive: {error}")));
    let card = card.transpose()?;
    let of_card = card.as_ref().map(|card| card.space.raw_bytes as f64 / 1e9);
    let paper = Deployment::paper(arguments.dram_gb, arguments.dlwa);
    let deployment = Deployment {
        drive_gb: of_card.or(arguments.drive_gb).unwrap_or(paper.drive_gb),
        system_years: arguments.system_years,
        drive_years: arguments.drive_years,
        ssd_kg_per_gb: arguments
            .ssd_kg_per_gb
            .or(card.map(|card| card.cost.kgco2e_per_gb))
            .unwrap_or(paper.ssd_kg_per_gb),
        dram_kg_per_gb: arguments.dram_kg_per_gb,
        ..paper
    };
    let papers = of_card.or(arguments.drive_gb).is_none();
    Ok(Answer {
        inputs: json!({
            "dlwa": deployment.dlwa,
            "drive": arguments.drive,
            "drive_gb": deployment.drive_gb,
            "dram_gb": deployment.dram_gb,
            "system_years": deployment.system_years,
            "drive_years": deployment.drive_years,
            "ssd_kg_per_gb": deployment.ssd_kg_per_gb,
            "dram_kg_per_gb": deployment.dram_kg_per_gb,
            "gb": if papers {
                "10^9 bytes; the paper uses 2048 for a drive of 2048 GiB; --drive pm9d3 uses its full 2199 GB, as predict does"
            } else {
                "10^9 bytes"
            },
        }),
        formula: "DLWA x capacity x T / L x C_SSD + DRAM x C_DRAM",
        source: "Allison et al., EuroSys '25, Theorem 2 and Table 2",
        result: json!({
            "kgco2e": deployment.total_kg(),
            "kgco2e_ssd": deployment.ssd_kg(),
            "kgco2e_dram": deployment.dram_kg(),
        }),
    })
}

/// For errors: the ways to give a rating, and the alternative inputs.
const RATINGS: &str = "the rated endurance (--drive CARD, --tbw TB, or --capacity-gb GB with --dwpd X)";
const QUESTIONS: &str =
    "the host write rate (--host-mb-per-second MB) or the lifetime to reach (--years YEARS)";

fn lifetime(arguments: &LifetimeArguments) -> Result<Answer, String> {
    let asks = arguments.years.is_some() || arguments.host_mb_per_second.is_some();
    let endurance = match (endurance(arguments)?, asks) {
        (Some(endurance), true) => endurance,
        (Some(_), false) => return Err(format!("missing: {QUESTIONS}")),
        (None, true) => return Err(format!("missing: {RATINGS}")),
        (None, false) => return Err(format!("missing: {RATINGS}; and {QUESTIONS}")),
    };
    let result = match (arguments.years, arguments.host_mb_per_second) {
        (Some(years), _) => {
            json!({ "host_mb_per_second": endurance.host_bytes_per_second(years, arguments.dlwa) / 1e6 })
        }
        (None, Some(mb)) => json!({
            "years": endurance.years(mb * 1e6, arguments.dlwa),
            "nand_mb_per_second": mb * arguments.dlwa,
        }),
        (None, None) => unreachable!("the caller requires one of them"),
    };
    Ok(Answer {
        inputs: json!({
            "drive": arguments.drive,
            "rated_host_tb": endurance.host_bytes / 1e12,
            "rated_dlwa": endurance.rated_dlwa,
            "rated_mb_per_second": arguments.capacity_gb.zip(arguments.dwpd)
                .map(|(gb, dwpd)| dwpd_bytes_per_second(gb * 1e9, dwpd) / 1e6),
            "host_mb_per_second": arguments.host_mb_per_second,
            "years": arguments.years,
            "dlwa": arguments.dlwa,
        }),
        formula: "years = rated bytes x rated DLWA / (host bytes per second x DLWA) / 86400 / 365; rated bytes = capacity x DWPD x 365 x warranty years",
        source: "JEDEC JESD218/219: DWPD and TBW",
        result,
    })
}

/// The rated endurance, if given.
fn endurance(arguments: &LifetimeArguments) -> Result<Option<Endurance>, String> {
    let rated = arguments.rated_dlwa.unwrap_or(1.0);
    if let Some(tbw) = arguments.tbw {
        return Ok(Some(Endurance::from_tbw(tbw, rated)));
    }
    if let Some(name) = &arguments.drive {
        let card = Card::load(name).map_err(|error| error.to_string())?;
        let (bytes, rating) = (card.space.usable_bytes as f64, &card.endurance);
        let rated = arguments.rated_dlwa.unwrap_or(rating.dlwa());
        return Ok(Some(Endurance::from_dwpd(bytes, rating.dwpd, rating.warranty_years, rated)));
    }
    let years = arguments.warranty_years.unwrap_or(5.0);
    let by_days = arguments.capacity_gb.zip(arguments.dwpd);
    Ok(by_days.map(|(gb, dwpd)| Endurance::from_dwpd(gb * 1e9, dwpd, years, rated)))
}
