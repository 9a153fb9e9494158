//! `flashwright block check`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use block::volume::{Check, Recovery, Volume, VolumeErrorKind};
use clap::Args;
use daemon::devices::{Access, Devices};
use daemon::named::os_identity;
use daemon::operations;
use daemon::status::figures;
use device::event_loop::wait_for;
use device::names::noun;
use device::timer::SystemTimer;
use serde_json::json;

use super::result_file::spare;
use crate::output::{Common, Finding};

/// The command line of `block check`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    devices: Devices,
    /// Read all cached blocks too, and compare the clean ones with the disk
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
    spare(&arguments.common, arguments.devices.names())?;
    let [flash, disk] = arguments.devices.open(Access::Read)?;
    let stop = arguments.common.stop()?;
    let timer = Arc::new(SystemTimer::default());
    let checking = Volume::check_of(
        flash,
        Arc::clone(&disk),
        timer,
        arguments.full,
        os_identity(&arguments.devices.disk),
    );
    let check = wait_for(operations::unless(&stop.interrupt_flag(), checking));
    let check = check.ok_or("interrupted: the check did not end, and nothing was changed")?;
    let check = check.map_err(|error| arguments.devices.refused(&error, &disk))?;
    let result = json!({
        "world": "real",
        "found": check.found.as_ref().ok().map(figures::of_recovery),
        "refused": check.found.err().map(refused),
        "blocks_read": check.blocks_read,
        "blocks_compared": check.blocks_compared,
        "problems": check.problem_count,
        "problem_texts": check.problems,
    });
    Ok(Finding { text: text(arguments.full, &check), result, failures: failures(&check) })
}

fn text(full: bool, check: &Check) -> String {
    let mut text = String::new();
    match check.found {
        Ok(Recovery { was_clean, blocks, dirty_blocks, .. }) => {
            let how = if was_clean { "closed cleanly" } else { "not closed cleanly: opening it recovers it" };
            let _ = writeln!(text, "{how}; {blocks} {}, {dirty_blocks} of them dirty", noun(blocks, "block"));
            for message in check.found.iter().flat_map(|found| figures::losses(&figures::of_recovery(found)))
            {
                let _ = writeln!(text, "WARNING: {message}");
            }
        }
        Err(VolumeErrorKind::WrongDisk) => {
            text +=
                "the disk is not the cache's, or was written without it: they cannot be served together\n";
        }
        Err(_) => text += "the contents of the cache cannot be determined\n",
    }
    if full && check.found.is_ok() {
        let _ = writeln!(
            text,
            "{} {} read, {} compared with the disk",
            check.blocks_read,
            noun(check.blocks_read, "block"),
            check.blocks_compared
        );
    }
    let lacks_end = check.found.is_ok_and(|found| found.rolled_back_blocks > 0 || found.lost_last_entry);
    let verdict = match (check.is_sound(), lacks_end) {
        (false, _) => "NOT sound",
        (true, true) => "sound but for the end that is missing",
        (true, false) => "sound",
    };
    let _ = writeln!(text, "{verdict}");
    text
}

/// The reason why the cache cannot be opened, as a keyword for scripts.
fn refused(kind: VolumeErrorKind) -> &'static str {
    match kind {
        VolumeErrorKind::WrongDisk => "wrong-disk",
        _ => "damaged",
    }
}

fn failures(check: &Check) -> Vec<String> {
    let unlisted = check.problem_count.saturating_sub(check.problems.len() as u64);
    let more = (unlisted > 0).then(|| format!("and {unlisted} more {}", noun(unlisted, "problem")));
    check.problems.iter().cloned().chain(more).collect()
}
