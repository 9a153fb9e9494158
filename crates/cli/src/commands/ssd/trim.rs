//! `flashwright ssd trim`: a drive forgets everything on it.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::bar::{Bar, Unit};
use bench::drive::{self, text};
use clap::Args;
use serde_json::json;

use super::real::{ConfirmFlags, config, destroy, finding};
use crate::output::Common;

/// The command line of `ssd trim`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// NVMe namespace, block device or file to discard
    device: PathBuf,
    #[command(flatten)]
    confirm: ConfirmFlags,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let found = destroy(&arguments.device, &arguments.confirm, &arguments.common, |device, stop| {
        let bar = Bar::new(Unit::Bytes, arguments.common.quiet);
        let capacity = device.geometry().capacity_bytes;
        let trimmed = drive::trim(device, |done_bytes| {
            bar.set(done_bytes, capacity, "trimmed");
            !stop.is_set()
        });
        bar.finish();
        let trimmed = trimmed.map_err(|error| error.to_string())?;
        let text = format!("{}: {} trimmed\n", arguments.device.display(), text::bytes(trimmed.into()));
        Ok(finding(json!({ "trimmed_bytes": trimmed }), text))
    });
    arguments.common.conclude("ssd trim", &config(&arguments.device), found)
}
