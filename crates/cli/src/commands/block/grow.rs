//! `flashwright block grow`.

use std::process::ExitCode;
use std::sync::Arc;

use block::ublk;
use block::volume::Volume;
use daemon::contents;
use daemon::control;
use daemon::devices::Access;
use daemon::identity_of;
use daemon::named::os_identity;
use device::event_loop::wait_for;
use device::timer::SystemTimer;
use serde_json::{Value, json};

use super::cached::Arguments;
use crate::output::Finding;
use crate::signals::Changing;

/// Runs `block grow`.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.common.conclude("block grow", &arguments.cached.config(), grow(arguments))
}

fn grow(arguments: &Arguments) -> Result<Finding, String> {
    let changing = Changing::on_signal("recording the new size completes first")?;
    arguments.cached.spare(&arguments.common)?;
    if let Some(server) = arguments.cached.server() {
        changing.begin()?;
        return control::ask(&server, "grow", |_| {}).map(finding);
    }
    let devices = &arguments.cached.devices()?;
    let [flash, disk] = devices.open(Access::Write)?;
    contents::refuse_rest(&devices.disk, &*disk)?;
    let refused = |error| devices.refused(&error, &disk);
    let superblock = wait_for(Volume::identify(&flash)).map_err(refused)?;
    if let Ok(Some(path)) = ublk::waiting(identity_of(&superblock)) {
        return Err(format!(
            "{0} waits for a server of this cache and keeps the old size: serve it (--ublk), unmount {0} and stop the server, \
             then grow the disk",
            path.display()
        ));
    }
    changing.begin()?;
    let (timer, os_identity) = (Arc::new(SystemTimer::default()), os_identity(&devices.disk));
    let grown = wait_for(Volume::grow_disk(flash, Arc::clone(&disk), timer, os_identity));
    let (before, now) = grown.map_err(refused)?;
    Ok(finding(json!({ "world": "real", "disk_bytes_before": before, "disk_bytes": now })))
}

fn finding(result: Value) -> Finding {
    let text =
        format!("the disk has {} bytes now; it had {}\n", result["disk_bytes"], result["disk_bytes_before"]);
    Finding::new(result, text)
}
