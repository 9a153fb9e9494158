//! `flashwright block replace-flash`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use block::striped::{self, Member};
use block::volume::layout::SUPERBLOCKS_BYTES;
use block::volume::{Replaced, Superblock, Volume, VolumeErrorKind};
use clap::Args;
use daemon::contents;
use daemon::devices::{Devices, NewFiles, Opened};
use daemon::named::{Stripes, is_memory, traces};
use daemon::status::figures;
use device::names::noun;
use device::size::parse_size;
use device::timer::SystemTimer;
use device::{Device, IoBuffer, Request};
use serde_json::json;

use super::confirm::confirm;
use super::result_file::spare;
use crate::output::{Common, Finding, say_error};
use crate::signals::Changing;

/// The command line of `block replace-flash`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    devices: Devices,
    /// The new flash: a block device or a file, used whole, or a stripe or a model SSD
    #[arg(long, value_name = "PATH")]
    to: String,
    /// Create the new flash as a file of this size
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    to_size: Option<u64>,
    /// Leave out dirty blocks that the old flash cannot read: they are lost
    #[arg(long)]
    accept_loss: bool,
    /// Overwrite the contents of the new flash
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs `block replace-flash`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let Devices { flash, disk, .. } = &arguments.devices;
    let config = json!({ "flash": flash, "to": arguments.to, "disk": disk });
    arguments.common.conclude("block replace-flash", &config, replace(arguments))
}

fn replace(arguments: &Arguments) -> Result<Finding, String> {
    let (devices, to) = (&arguments.devices, &arguments.to);
    if is_memory(to) {
        return Err(format!(
            "--to {to}: is memory of this process, so the cache would be lost when the command ends"
        ));
    }
    let new_devices = Devices { flash: to.clone(), ..devices.clone() };
    spare(&arguments.common, devices.names())?;
    let changing = Changing::on_signal(
        "the replacement of the flash completes first; kill -9 leaves the cache on the old flash",
    )?;
    let mut files = NewFiles::default();
    let is_blank = files.make("--to-size", to, arguments.to_size)?;
    let Opened { flash: old, members: old_members, disk } = devices.open_readable_flash()?;
    let refused = |error| devices.refused(&error, &disk);
    let known = pollster::block_on(Volume::identify(&old)).map_err(refused)?;
    let (new, members) = new_devices.open_flash_apart(&devices.flash, Stripes::ToBeLabelled)?;
    if !arguments.force {
        refuse_contents(to, &new, &members)?;
    }
    let size = new.geometry().capacity_bytes;
    confirm(
        arguments.yes || is_blank,
        &format!("Everything on {to} ({size} bytes) will be lost."),
        &changing,
    )?;
    changing.begin()?;
    let labelled = striped::label(&members, known.uuid).map_err(|error| format!("--to {to}: {error}"))?;
    let (timer, traces) = (Arc::new(SystemTimer::default()), traces(&devices.disk));
    let moving = Volume::replace_flash(&old, &new, Arc::clone(&disk), timer, traces, arguments.accept_loss);
    let replaced = pollster::block_on(moving).map_err(|error| {
        let hint = if error.kind() == VolumeErrorKind::Flash && !arguments.accept_loss {
            "; --accept-loss leaves such blocks out"
        } else {
            ""
        };
        let labels = labelled.restore().err();
        let labels = labels.map_or_else(String::new, |error| format!("; the labels of --to stay: {error}"));
        format!(
            "--flash {} --to {to}: {error}; the cache stays on the old flash{hint}{labels}",
            devices.flash
        )
    })?;
    files.keep();
    for words in figures::losses(&figures::of_recovery(&replaced.recovery)) {
        say_error(format_args!("warning: --flash {}: {words}", devices.flash));
    }
    let retired = pollster::block_on(retire(&old)).and_then(|()| striped::unlabel(&old_members));
    let mut result = result_json(&known, &replaced);
    result["old_flash_overwritten"] = retired.is_ok().into();
    if let Err(error) = retired {
        say_error(format_args!(
            "warning: --flash {0}: its superblock cannot be overwritten ({error}): never serve {0} with this disk again",
            devices.flash
        ));
    }
    Ok(Finding { result, text: words(arguments, &known, &replaced), failures: Vec::new() })
}

fn refuse_contents(to: &str, new: &Arc<dyn Device>, members: &[Member]) -> Result<(), String> {
    if let Ok(there) = pollster::block_on(Volume::identify(new)) {
        return Err(format!("--to {to}: already holds the cache {:032x}; --force overwrites it", there.uuid));
    }
    let refused = |why: String| why.replacen("--flash", "--to", 1);
    contents::refuse_contents(to, new).map_err(refused)?;
    members.iter().try_for_each(|(name, member)| contents::refuse_contents(name, member).map_err(refused))
}

/// Overwrites the old flash's superblock.
async fn retire(old: &Arc<dyn Device>) -> Result<(), device::IoError> {
    old.write(0, IoBuffer::zeroed(SUPERBLOCKS_BYTES as usize)).await?;
    old.start(Request::Flush).await.map(drop)
}

fn result_json(known: &Superblock, replaced: &Replaced) -> serde_json::Value {
    json!({
        "world": "real",
        "uuid": format!("{:032x}", known.uuid),
        "capacity_blocks_before": known.layout.slots(),
        "capacity_blocks": replaced.superblock.layout.slots(),
        "blocks": replaced.blocks,
        "dirty_blocks": replaced.dirty_blocks,
        "left_out_blocks": replaced.left_out_blocks,
        "lost_blocks": replaced.lost_blocks,
    })
}

fn words(arguments: &Arguments, known: &Superblock, replaced: &Replaced) -> String {
    let Replaced { blocks, dirty_blocks, left_out_blocks, lost_blocks, .. } = *replaced;
    let mut text = format!(
        "moved the cache to {}: {blocks} {}, {dirty_blocks} of them dirty\n",
        arguments.to,
        noun(blocks, "block")
    );
    if left_out_blocks > 0 {
        let _ = writeln!(
            text,
            "left out {left_out_blocks} clean {}, which the disk has",
            noun(left_out_blocks, "block")
        );
    }
    if lost_blocks > 0 {
        let _ =
            writeln!(text, "LOST {lost_blocks} dirty {} that could not be read", noun(lost_blocks, "block"));
    }
    let (before, now) = (known.layout.slots(), replaced.superblock.layout.slots());
    let _ = writeln!(text, "it can hold {now} blocks now; it could hold {before}");
    let _ = writeln!(
        text,
        "serve it: flashwright block serve --flash {} --disk {} --socket PATH",
        arguments.to, arguments.devices.disk
    );
    text
}
