//! `flashwright block destroy`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use block::striped::{self, Label, Member};
use block::ublk;
use block::volume::{Pairing, Volume, VolumeErrorKind};
use clap::Args;
use daemon::devices::{Access, Devices, Opened, are_swapped};
use daemon::identity_of;
use daemon::named::{Stripes, os_identity};
use daemon::status::figures;
use device::event_loop::wait_for;
use device::timer::SystemTimer;
use device::{Device, Request, contents};
use serde_json::json;

use super::result_file::spare;
use super::ublk::delete_orphan;
use crate::commands::confirm::confirm;
use crate::output::{Common, Finding, say_error};
use crate::signals::Changing;

/// The command line of `block destroy`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    devices: Devices,
    /// Destroy the cache even if it is damaged, or has, or may have, dirty blocks: they are lost
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs `block destroy`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let Devices { flash, disk, .. } = &arguments.devices;
    let config = json!({ "flash": flash, "disk": disk, "force": arguments.force });
    arguments.common.conclude("block destroy", &config, destroy(arguments))
}

fn destroy(arguments: &Arguments) -> Result<Finding, String> {
    let name = &arguments.devices.flash;
    let changing = Changing::on_signal("the destruction of the cache completes first")?;
    spare(&arguments.common, arguments.devices.names())?;
    // --force also removes a stripe without all its members.
    let stripes = if arguments.force { Stripes::ToBeLabelled } else { Stripes::Labelled };
    let Opened { flash, members, disk } = arguments.devices.open_all(Access::Write, stripes)?;
    let superblock = wait_for(Volume::identify(&flash));
    // The range to overwrite: everything that could be recognised as a volume.
    let until = match (&superblock, arguments.force) {
        (Ok(superblock), _) => superblock.layout.pages_offset(),
        (Err(error), _) if are_swapped(error, &disk) => return Err(arguments.devices.refused(error, &disk)),
        (Err(error), _) if error.kind() == VolumeErrorKind::Foreign && !is_labelled(&flash, &members) => {
            return Err(format!(
                "--flash {name}: there is no cache on it, and nothing to destroy{}",
                what(&flash)
            ));
        }
        (Err(_), true) => flash.geometry().capacity_bytes.min(BLIND_BYTES),
        (Err(error), false) => {
            return Err(format!("--flash {name}: {error}; --force overwrites it anyway"));
        }
    };
    // Without permission to query ublk, the user cannot have created a device.
    let waiting =
        superblock.as_ref().ok().and_then(|superblock| ublk::waiting(identity_of(superblock)).ok().flatten());
    if let (Some(path), false) = (&waiting, arguments.force) {
        return Err(waiting_disk_message(path));
    }
    let dirty_blocks = wait_for(count_dirty(&flash, &disk, &arguments.devices.disk));
    let lost = match (&dirty_blocks, arguments.force) {
        (Ok(0), _) => String::new(),
        (&Ok(dirty), false) => {
            return Err(format!(
                "--flash {name}: {dirty} {} newer here than on the disk; \
                 `flashwright block flush` writes them back, --force discards them",
                if dirty == 1 { "block is" } else { "blocks are" }
            ));
        }
        (Err(error), false) => {
            return Err(format!("--flash {name}: {error}; --force discards what is there"));
        }
        (Ok(1), true) => " A block that is newer than on the disk will be lost.".into(),
        (Ok(dirty), true) => format!(" {dirty} blocks that are newer than on the disk will be lost."),
        (Err(_), true) => " Blocks that are newer than on the disk will be lost.".into(),
    };
    let deleted = waiting.as_ref().map_or_else(String::new, |path| {
        format!(" {} will be deleted, and requests that wait for it fail.", path.display())
    });
    confirm(arguments.yes, &format!("The cache on {name} will be destroyed.{lost}{deleted}"), &changing)?;
    changing.begin()?;
    // The disk's mark is removed first: if the process is killed, the cache remains and can be destroyed again. A disk with the mark of a
    // destroyed cache would be refused permanently.
    let (os_identity, uuid) =
        (os_identity(&arguments.devices.disk), superblock.ok().map(|superblock| superblock.uuid));
    let was_marked = uuid.filter(|&uuid| os_identity.mark() == Some(uuid));
    if let Some(uuid) = was_marked {
        os_identity.remove_mark(uuid);
    }
    let overwritten = wait_for(overwrite(&flash, until)).and_then(|()| striped::unlabel(&members));
    overwritten.map_err(|error| {
        if let Some(uuid) = was_marked {
            os_identity.set_mark(uuid);
        }
        format!("--flash {name}: {error}")
    })?;
    let mut text =
        format!("destroyed the cache on {name}; use {} alone from now on\n", arguments.devices.disk);
    let mut failures = Vec::new();
    match waiting.as_deref().map(delete_orphan) {
        Some(Ok(message)) => text += &message,
        Some(Err(error)) => failures.push(error),
        None => {}
    }
    let result = json!({ "world": "real", "dirty_blocks_lost": dirty_blocks.ok() });
    Ok(Finding { result, text, failures })
}

/// Whether the devices are labelled as a cache's stripe, even without superblocks.
fn is_labelled(flash: &Arc<dyn Device>, members: &[Member]) -> bool {
    let mut devices = members.iter().map(|(_, member)| member).chain([flash]);
    devices.any(|device| matches!(Label::of(&**device), Ok(Some(_))))
}

/// The contents found instead of a cache, if recognised.
fn what(flash: &Arc<dyn Device>) -> String {
    contents::of_device(&**flash).ok().flatten().map_or_else(String::new, |what| format!(": it holds {what}"))
}

/// The message for a ublk device that only a server of this cache can serve.
fn waiting_disk_message(path: &Path) -> String {
    let path = path.display();
    let number = path.to_string().replace("/dev/ublkb", "");
    format!(
        "{path} waits for a server of this cache, and would wait forever: serve it (--ublk {number}), unmount it and stop the \
         server. If it is no longer needed, `flashwright block ublk delete {number}` deletes it, or --force does together with \
         the cache"
    )
}

/// Bytes to overwrite if the extent of the volume's structures is unknown.
const BLIND_BYTES: u64 = 1 << 20;

async fn count_dirty(flash: &Arc<dyn Device>, disk: &Arc<dyn Device>, named: &str) -> Result<u64, String> {
    let pairing = Pairing { os_identity: os_identity(named), is_forced: false };
    let timer = Arc::new(SystemTimer::default());
    let opened = Volume::open_as(Arc::clone(flash), Arc::clone(disk), timer, pairing).await;
    let (volume, recovery) = opened.map_err(|error| error.to_string())?;
    for text in figures::losses(&figures::of_recovery(&recovery)) {
        say_error(format_args!("warning: {text}"));
    }
    let dirty = volume.stats().dirty_blocks;
    volume.close().await.map_err(|error| error.to_string())?;
    Ok(dirty)
}

async fn overwrite(flash: &Arc<dyn Device>, until: u64) -> Result<(), device::IoError> {
    flash.write_zeros(0..until).await?;
    flash.start(Request::Flush).await.map(drop)
}
