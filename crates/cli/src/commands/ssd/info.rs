//! `flashwright ssd info`: identity, placement and wear of a real drive.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::drive::{self, json, text};
use clap::Args;

use super::real::{config, finding, spare};
use crate::output::Common;

/// The command line of `ssd info`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// NVMe namespace (/dev/ng0n1 or /dev/nvme0n1), block device or file
    device: PathBuf,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let spared = spare(&arguments.device, [arguments.common.result_file()]);
    let found = spared.and_then(|()| drive::info::info(&arguments.device).map_err(|error| error.to_string()));
    let found = found.map(|info| finding(json::info(&info), text::info(&info)));
    arguments.common.conclude("ssd info", &config(&arguments.device), found)
}
