//! `flashwright block status`.

use std::process::ExitCode;

use block::volume::Volume;
use clap::Args;
use serde_json::{Value, json};

use super::control::{self, Target};
use super::devices::{Access, Opening, spare};
use super::{figures, prometheus, watch};
use crate::output::{Common, Finding, name_of};

/// The command line of `block status`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Flash that is not being served: show its superblock
    #[arg(long, value_name = "PATH", conflicts_with_all = ["socket", "listen", "control", "ublk"])]
    flash: Option<String>,
    /// Print in Prometheus text format
    #[arg(long)]
    prometheus: bool,
    /// Print a line every second until interrupted; --json gets the last status
    #[arg(long, conflicts_with = "prometheus")]
    watch: bool,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    common: Common,
}

/// Runs `block status`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config =
        json!({ "flash": arguments.flash, "control": arguments.target.path().as_deref().map(name_of) });
    arguments.common.conclude("block status", &config, tell(arguments))
}

fn tell(arguments: &Arguments) -> Result<Finding, String> {
    spare(&arguments.common, &arguments.flash)?;
    arguments.target.spare(&arguments.common)?;
    if arguments.watch {
        let path = arguments.target.path().ok_or("--watch: needs the --socket of a server")?;
        let (result, why_ended) = watch::run(&path, &arguments.common)?;
        return Ok(Finding { result, text: String::new(), failures: why_ended.into_iter().collect() });
    }
    let status = match (arguments.target.path(), &arguments.flash) {
        (Some(path), _) => control::ask(&path, "status", |_| {})?,
        (None, Some(flash)) => of_flash(arguments, flash)?,
        (None, None) => return Err("no cache named: give the --socket of its server, or its --flash".into()),
    };
    let text = if arguments.prometheus { prometheus::text(&status) } else { figures::text(&status) };
    Ok(Finding { result: status, text, failures: Vec::new() })
}

fn of_flash(arguments: &Arguments, flash: &str) -> Result<Value, String> {
    let device = arguments.opening.open("--flash", flash, Access::Read)?;
    let superblock =
        pollster::block_on(Volume::identify(&device)).map_err(|error| format!("--flash {flash}: {error}"))?;
    let mut status = figures::of_superblock(&superblock);
    status["world"] = "real".into();
    status["state"] = json!({
        "closed": superblock.clean,
        "capacity_blocks": superblock.layout.slots(),
    });
    Ok(status)
}
