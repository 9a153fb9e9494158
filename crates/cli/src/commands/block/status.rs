//! `flashwright block status`.

use std::process::ExitCode;

use block::volume::Volume;
use clap::Args;
use daemon::control::{self};
use daemon::devices::{Access, Opening};
use daemon::named::{files_of, os_identity};
use daemon::status::{figures, prometheus};
use daemon::{SERVER, Target};
use device::event_loop::wait_for;
use serde_json::{Value, json};

use super::result_file::{spare, spare_server};
use super::watch;
use crate::output::{Common, Finding, name_of, say_error};

/// The command line of `block status`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Flash that is not being served: show its superblock
    #[arg(long, value_name = "PATH", conflicts_with = SERVER)]
    flash: Option<String>,
    /// Disk that is not being served: show which cache it belongs to; with --flash, whether to that one
    #[arg(long, value_name = "PATH", conflicts_with_all = [SERVER, "prometheus"])]
    disk: Option<String>,
    /// Print in Prometheus text format
    #[arg(long)]
    prometheus: bool,
    /// Print alert rules for Prometheus, on the metrics of --prometheus
    #[arg(long, exclusive = true)]
    alert_rules: bool,
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
    arguments.common.conclude("block status", &config, progress(arguments))
}

fn progress(arguments: &Arguments) -> Result<Finding, String> {
    if arguments.alert_rules {
        let (result, text) = (json!({ "world": "real" }), prometheus::ALERT_RULES.to_owned());
        return Ok(Finding::new(result, text));
    }
    spare(&arguments.common, arguments.flash.iter().chain(&arguments.disk))?;
    spare_server(&arguments.common, &arguments.target)?;
    if arguments.watch {
        let path = arguments.target.path().ok_or("--watch: needs the --socket of a server")?;
        let (result, why_ended) = watch::run(&path, &arguments.common)?;
        return Ok(Finding { result, text: String::new(), failures: why_ended.into_iter().collect() });
    }
    let mut status = match (arguments.target.path(), &arguments.flash) {
        (Some(path), _) => control::ask(&path, "status", |_| {})?,
        (None, Some(flash)) => of_flash(arguments, flash)?,
        (None, None) if arguments.disk.is_some() => json!({ "world": "real" }),
        (None, None) => return Err("no cache named: give the --socket of its server, or its --flash".into()),
    };
    if let Some(disk) = &arguments.disk {
        let (figures, message, failures) = of_disk(disk, status["volume"]["uuid"].as_str())?;
        status["disk"] = figures;
        let text = if arguments.flash.is_some() { figures::text(&status) + &message } else { message };
        return Ok(Finding { result: status, text, failures });
    }
    let text = if arguments.prometheus { prometheus::text(&status) } else { figures::text(&status) };
    Ok(Finding::new(status, text))
}

/// The cache that the disk belongs to, as JSON and text, and the error if it is not the cache with UUID `uuid`.
fn of_disk(disk: &str, uuid: Option<&str>) -> Result<(Value, String, Vec<String>), String> {
    for path in files_of(disk).map_err(|why| format!("--disk {disk}: {why}"))? {
        std::fs::metadata(path).map_err(|error| format!("--disk {disk}: {error}"))?;
    }
    let os_identity = os_identity(disk);
    let mark = os_identity.mark().map(|mark| format!("{mark:032x}"));
    let text = match &mark {
        Some(mark) => format!("{disk} belongs to the cache {mark}\n"),
        None if os_identity.is_file() => format!("{disk} has no mark of a cache\n"),
        None => {
            format!("{disk} is not a file and has no mark, so it is unknown whether it belongs to a cache\n")
        }
    };
    let is_others = mark.is_some() && uuid.is_some() && mark.as_deref() != uuid;
    let failure = || {
        let (mark, uuid) = (mark.as_deref().unwrap_or_default(), uuid.unwrap_or_default());
        format!("--disk {disk}: belongs to the cache {mark}, the flash to the cache {uuid}")
    };
    let failures = is_others.then(failure).into_iter().collect();
    Ok((json!({ "cache": mark }), text, failures))
}

fn of_flash(arguments: &Arguments, flash: &str) -> Result<Value, String> {
    let device = arguments.opening.open_flash(flash, Access::Read)?;
    let failed = |error| format!("--flash {flash}: {error}");
    let superblock = wait_for(Volume::identify(&device)).map_err(failed)?;
    let mut status = figures::of_superblock(&superblock);
    status["world"] = "real".into();
    status["state"] = json!({
        "closed": superblock.clean,
        "capacity_blocks": superblock.layout.slots(),
        "held_blocks": null,
        "dirty_blocks": null,
    });
    match wait_for(Volume::survey(&device)) {
        Ok((_, recovery)) => {
            status["state"]["held_blocks"] = recovery.blocks.into();
            status["state"]["dirty_blocks"] = recovery.dirty_blocks.into();
            status["recovery"] = figures::of_recovery(&recovery);
        }
        // The superblock's figures are useful without the counts.
        Err(error) => say_error(format_args!("warning: --flash {flash}: blocks cannot be counted: {error}")),
    }
    Ok(status)
}
