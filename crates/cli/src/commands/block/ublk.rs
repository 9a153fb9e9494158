//! `flashwright block ublk`: lists ublk devices, and deletes one without a server.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use block::ublk::{self, DeviceState, DeviceStatus};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::commands::confirm::confirm;
use crate::output::{Common, Finding};
use crate::signals::Changing;

/// The `block ublk` commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the ublk devices of this machine: which are served, and which wait for a server.
    List(ListArguments),
    /// Delete a ublk device without a server; its users get errors.
    Delete(DeleteArguments),
}

/// The command line of `block ublk list`.
#[derive(Debug, Args)]
pub struct ListArguments {
    #[command(flatten)]
    common: Common,
}

/// The command line of `block ublk delete`.
#[derive(Debug, Args)]
pub struct DeleteArguments {
    /// The number N of /dev/ublkbN
    #[arg(value_name = "NUMBER")]
    number: u32,
    /// Delete it even if another program seems to have made it
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs one of the commands.
pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::List(arguments) => arguments.common.conclude("block ublk list", &json!({}), list()),
        Command::Delete(arguments) => {
            let config = json!({ "number": arguments.number, "force": arguments.force });
            arguments.common.conclude("block ublk delete", &config, delete(arguments))
        }
    }
}

fn list() -> Result<Finding, String> {
    let devices = ublk::devices().map_err(|error| error.to_string())?;
    let result = json!({ "world": "real", "devices": devices.iter().map(of_device).collect::<Vec<_>>() });
    Ok(Finding::new(result, text(&devices)))
}

fn of_device(device: &DeviceStatus) -> Value {
    json!({
        "number": device.number,
        "path": device.path().display().to_string(),
        "state": device.state.name(),
        "process": device.process,
        "size_bytes": device.size_bytes,
        "made_by_flashwright": device.is_ours,
        "identity": device.is_ours.then(|| format!("{:016x}", device.identity)),
    })
}

fn text(devices: &[DeviceStatus]) -> String {
    if devices.is_empty() {
        return "there are no ublk devices\n".into();
    }
    let mut text = format!("{:<14} {:<8} {:>10} {:>8}  made by\n", "device", "state", "size", "process");
    for device in devices {
        let size = device.size_bytes.map_or_else(|| "?".into(), |bytes| format!("{} MiB", bytes >> 20));
        let process = device.process.map_or_else(|| "-".into(), |process| process.to_string());
        let (path, state) = (device.path().display().to_string(), device.state.name());
        let maker = if device.is_ours { "flashwright" } else { "another program" };
        let _ = writeln!(text, "{path:<14} {state:<8} {size:>10} {process:>8}  {maker}");
    }
    text
}

fn delete(arguments: &DeleteArguments) -> Result<Finding, String> {
    let changing = Changing::on_signal("the deletion of the device completes first")?;
    let number = arguments.number;
    let devices = ublk::devices().map_err(|error| error.to_string())?;
    let Some(device) = devices.iter().find(|device| device.number == number) else {
        return Err(format!("there is no /dev/ublkb{number}; {}", device_list(&devices)));
    };
    refuse(device, arguments.force)?;
    confirm(
        arguments.yes,
        &format!("{} will be deleted.{}", device.path().display(), lost(device)),
        &changing,
    )?;
    changing.begin()?;
    ublk::delete(number).map_err(|error| error.to_string())?;
    let text = format!("deleted {}\n", device.path().display());
    Ok(Finding::new(json!({ "world": "real", "deleted": of_device(device) }), text))
}

fn device_list(devices: &[DeviceStatus]) -> String {
    let paths: Vec<String> = devices.iter().map(|device| device.path().display().to_string()).collect();
    match paths.is_empty() {
        true => "there are no ublk devices".into(),
        false => format!("there are {}", paths.join(", ")),
    }
}

/// The data loss that the confirmation prompt names.
fn lost(device: &DeviceStatus) -> &'static str {
    match device.state {
        DeviceState::Waiting => {
            " Requests that wait for its server fail, and what its users have not written is lost."
        }
        _ => "",
    }
}

fn refuse(device: &DeviceStatus, force: bool) -> Result<(), String> {
    let path = device.path();
    let path = path.display();
    if device.state == DeviceState::Served {
        let server = device.process.map_or_else(String::new, |process| format!(" by process {process}"));
        return Err(format!(
            "{path} is being served{server}: stop the server first, and unmount the device before that"
        ));
    }
    if !device.is_ours && !force {
        return Err(format!("{path} seems to be another program's; --force deletes it anyway"));
    }
    Ok(())
}

/// Deletes the device at `path`, which waits for a server of a destroyed cache. Returns the text to print.
pub fn delete_orphan(path: &Path) -> Result<String, String> {
    let number = path.to_str().and_then(|path| path.strip_prefix("/dev/ublkb")?.parse().ok());
    let number: u32 = number.ok_or_else(|| format!("{} is not a ublk device", path.display()))?;
    ublk::delete(number).map_err(|error| {
        format!(
            "{error}; delete it with `flashwright block ublk delete {number}`: no server can serve it any more"
        )
    })?;
    Ok(format!("deleted {}, which waited for a server of this cache\n", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(state: DeviceState, is_ours: bool) -> DeviceStatus {
        DeviceStatus { number: 3, state, process: Some(42), size_bytes: Some(1 << 30), is_ours, identity: 7 }
    }

    #[test]
    fn served_or_foreign_device_is_not_deleted() {
        let refused = |state, is_ours, force| refuse(&device(state, is_ours), force).err();
        assert_eq!(refused(DeviceState::Waiting, true, false), None);
        assert_eq!(refused(DeviceState::Stopped, true, false), None);
        assert_eq!(refused(DeviceState::Failing, false, true), None);
        let served = refused(DeviceState::Served, true, true).unwrap();
        assert!(served.starts_with("/dev/ublkb3 is being served by process 42: stop the server"), "{served}");
        let foreign = refused(DeviceState::Waiting, false, false).unwrap();
        assert_eq!(foreign, "/dev/ublkb3 seems to be another program's; --force deletes it anyway");
    }

    #[test]
    fn devices_are_listed_one_per_line() {
        let listed = text(&[device(DeviceState::Waiting, true), device(DeviceState::Served, false)]);
        let words: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1][..2], ["/dev/ublkb3", "waiting"]);
        assert_eq!(words[1].last(), Some(&"flashwright"));
        assert_eq!(words[2][1], "served");
        assert_eq!(text(&[]), "there are no ublk devices\n");
        assert_eq!(of_device(&device(DeviceState::Waiting, true))["identity"], "0000000000000007");
    }
}
