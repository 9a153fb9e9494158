//! `flashwright block grow`.

use std::process::ExitCode;
use std::sync::Arc;

use block::ublk;
use block::volume::Volume;
use clap::Args;
use daemon::contents;
use daemon::devices::{Access, Devices};
use daemon::identity_of;
use daemon::named::traces;
use device::timer::SystemTimer;
use serde_json::json;

use super::result_file::spare;
use crate::output::{Common, Finding};
use crate::signals::Changing;

/// The command line of `block grow`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    devices: Devices,
    #[command(flatten)]
    common: Common,
}

/// Runs `block grow`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let Devices { flash, disk, .. } = &arguments.devices;
    let config = json!({ "flash": flash, "disk": disk });
    arguments.common.conclude("block grow", &config, grow(arguments))
}

fn grow(arguments: &Arguments) -> Result<Finding, String> {
    let changing = Changing::on_signal("recording the new size completes first")?;
    let devices = &arguments.devices;
    spare(&arguments.common, devices.names())?;
    let [flash, disk] = devices.open(Access::Write)?;
    contents::refuse_rest(&devices.disk, &*disk)?;
    let refused = |error| devices.refused(&error, &disk);
    let superblock = pollster::block_on(Volume::identify(&flash)).map_err(refused)?;
    if let Ok(Some(path)) = ublk::waiting(identity_of(&superblock)) {
        return Err(format!(
            "{0} waits for a server of this cache and keeps the old size: serve it (--ublk), unmount {0} and stop the server, \
             then grow the disk",
            path.display()
        ));
    }
    changing.begin()?;
    let (timer, traces) = (Arc::new(SystemTimer::default()), traces(&devices.disk));
    let grown = pollster::block_on(Volume::grow_disk(flash, Arc::clone(&disk), timer, traces));
    let (before, now) = grown.map_err(refused)?;
    let text = format!("the disk has {now} bytes now; it had {before}\n");
    let result = json!({ "world": "real", "disk_bytes_before": before, "disk_bytes": now });
    Ok(Finding { result, text, failures: Vec::new() })
}
