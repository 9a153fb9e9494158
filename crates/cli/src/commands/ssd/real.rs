//! Shared by the commands on real drives: consent to destroy data, and results.

use std::path::Path;

use bench::drive::{self, text};
use bench::run::stop::Stop;
use clap::Args;
use serde_json::{Value, json};

use crate::commands::confirm::confirm;
use crate::files::Files;
use crate::output::{Common, Finding};
use crate::signals::Changing;

/// Refuses output files that are the device or cannot be written, before the device is changed.
pub(super) fn spare<'a>(
    path: &Path,
    outputs: impl IntoIterator<Item = Option<&'a Path>>,
) -> Result<(), String> {
    Files::default().keeping("device", [path.to_owned()]).writing(outputs).check()
}

/// Flags with which a user consents to the loss of a device's data.
#[derive(Debug, Args)]
pub(super) struct ConfirmFlags {
    /// Do not ask before destroying data
    #[arg(long)]
    yes: bool,
    /// Destroy the drive's contents even if they are a file system, a partition table or a block cache
    #[arg(long)]
    force: bool,
}

/// Checks that the result can be written, opens the device exclusively, asks the user, and runs `action`.
pub(super) fn destroy(
    path: &Path,
    flags: &ConfirmFlags,
    common: &Common,
    action: impl FnOnce(&dyn drive::Device, &Stop) -> Result<Finding, String>,
) -> Result<Finding, String> {
    spare(path, [common.result_file()])?;
    let device = drive::open_whole(path).map_err(|error| error.to_string())?;
    if let Some(held) =
        drive::foreign(path, &*device).map_err(|error| error.to_string())?.filter(|_| !flags.force)
    {
        return Err(format!("{} holds {held}; --force destroys it", path.display()));
    }
    let capacity = text::bytes(device.geometry().capacity_bytes.into());
    let question = format!("{}: {capacity}. Everything on it will be lost.", path.display());
    confirm(flags.yes, &question, &Changing::default())?;
    let stop = common.stop()?;
    action(&*device, &stop)
}

/// The configuration in the result file.
pub(super) fn config(device: &Path) -> Value {
    json!({ "device": device.display().to_string() })
}

/// A result of a real drive.
pub(super) fn finding(mut result: Value, text: String) -> Finding {
    result["world"] = "real".into();
    Finding::new(result, text)
}
