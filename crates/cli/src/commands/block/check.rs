//! `flashwright block check`.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::devices::Devices;
use super::figures;
use crate::output::{Common, Finding};

/// The command line of `block check`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    devices: Devices,
    /// Read all cached blocks too, and compare clean ones with the disk
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs `block check`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let Devices { flash, disk, .. } = &arguments.devices;
    let config = json!({ "flash": flash, "disk": disk, "full": arguments.full });
    arguments.common.conclude("block check", &config, check(arguments))
}

fn check(arguments: &Arguments) -> Result<Finding, String> {
    let (volume, recovery) = arguments.devices.open_volume()?;
    let result = figures::of_volume(&volume, &recovery);
    pollster::block_on(volume.close()).map_err(|error| error.to_string())?;
    Ok(Finding { text: figures::text(&result), result, failures: Vec::new() })
}
