//! What commands on a drive in the machine share: who may destroy what is on it, and results that are of no model.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use bench::drive::{self, text};
use bench::run::stop::Stop;
use clap::Args;
use serde_json::{Value, json};

use crate::files::Files;
use crate::output::{Common, Finding};
use crate::signals::stop_on_signals;

/// Refuses files that would be written over the device, or cannot be: asked before anything is done to it.
pub(super) fn spare<'a>(
    path: &Path,
    outputs: impl IntoIterator<Item = Option<&'a Path>>,
) -> Result<(), String> {
    Files::default().keeping("device", [path.to_owned()]).writing(outputs).check()
}

/// What a user says of the data on a device, before it is lost.
#[derive(Debug, Args)]
pub(super) struct Consent {
    /// Do not ask before destroying data
    #[arg(long)]
    yes: bool,
    /// Destroy whatever the drive holds: a file system, a partition table, a block cache
    #[arg(long)]
    force: bool,
}

/// Opens the device, which nobody else may have, asks the user, and does it, if its result can be kept.
pub(super) fn destroy(
    path: &Path,
    consent: &Consent,
    common: &Common,
    action: impl FnOnce(&dyn drive::Device, &Stop) -> Result<Finding, String>,
) -> Result<Finding, String> {
    spare(path, [common.result_file()])?;
    let device = drive::open_whole(path).map_err(|error| error.to_string())?;
    if let Some(held) =
        drive::foreign(path, &*device).map_err(|error| error.to_string())?.filter(|_| !consent.force)
    {
        return Err(format!("{} holds {held}; --force destroys it", path.display()));
    }
    let capacity = text::bytes(device.geometry().capacity_bytes.into());
    if !consent.yes {
        ask(&format!("{}: {capacity}. Everything on it will be lost.", path.display()))?;
    }
    let stop = Stop::default();
    stop_on_signals(&stop).map_err(|error| error.to_string())?;
    action(&*device, &stop)
}

/// Has the user say that what is there may be lost.
pub(crate) fn ask(warning: &str) -> Result<(), String> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(format!("{warning} Standard input is not a terminal: confirm with --yes"));
    }
    let _ = write!(std::io::stderr(), "{warning} Type yes to continue: ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = input.lock().read_line(&mut answer);
    if read.is_ok() && answer.trim() == "yes" {
        Ok(())
    } else {
        Err("not confirmed: nothing was done".into())
    }
}

/// What was asked for, as the result file has it.
pub(super) fn config(device: &Path) -> Value {
    json!({ "device": device.display().to_string() })
}

/// What was found in the real world, and not in a model's.
pub(super) fn finding(mut result: Value, text: String) -> Finding {
    result["world"] = "real".into();
    Finding { result, text, failures: Vec::new() }
}
