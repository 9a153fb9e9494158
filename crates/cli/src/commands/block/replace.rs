//! `flashwright block replace-flash`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use block::striped;
use block::volume::{Volume, VolumeErrorKind};
use clap::Args;
use daemon::control;
use daemon::devices::{Devices, NewFiles, Opened};
use daemon::named::{Stripes, is_memory, os_identity};
use daemon::online_changes::{of_replaced, refuse_contents, retire};
use daemon::status::figures;
use device::event_loop::wait_for;
use device::names::noun;
use device::size::parse_size;
use device::timer::SystemTimer;
use serde_json::Value;

use super::cached::Cached;
use crate::commands::confirm::confirm;
use crate::output::{Common, Finding, say_error};
use crate::signals::Changing;

/// The command line of `block replace-flash`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    cached: Cached,
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
    let mut config = arguments.cached.config();
    config["to"] = arguments.to.clone().into();
    arguments.common.conclude("block replace-flash", &config, replace(arguments))
}

fn replace(arguments: &Arguments) -> Result<Finding, String> {
    let to = &arguments.to;
    if is_memory(to) {
        return Err(format!(
            "--to {to}: is memory of this process, so the cache would be lost when the command ends"
        ));
    }
    arguments.cached.spare(&arguments.common)?;
    let changing = Changing::on_signal(
        "the replacement of the flash completes first; kill -9 leaves the cache on the old flash",
    )?;
    let mut files = NewFiles::default();
    let is_blank = files.make("--to-size", to, arguments.to_size)?;
    if let Some(server) = arguments.cached.server() {
        return replace_served(arguments, &server, files, is_blank, &changing);
    }
    let devices = &arguments.cached.devices()?;
    let new_devices = Devices { flash: to.clone(), ..devices.clone() };
    let Opened { flash: old, members: old_members, disk } = devices.open_readable_flash()?;
    let refused = |error| devices.refused(&error, &disk);
    let known = wait_for(Volume::identify(&old)).map_err(refused)?;
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
    let (timer, os_identity) = (Arc::new(SystemTimer::default()), os_identity(&devices.disk));
    let disk_again = Arc::clone(&disk);
    let moving =
        Volume::replace_flash(&old, &new, disk_again, timer, os_identity, None, arguments.accept_loss);
    let replaced = wait_for(moving).map_err(|error| {
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
    for message in figures::losses(&figures::of_recovery(&replaced.recovery)) {
        say_error(format_args!("warning: --flash {}: {message}", devices.flash));
    }
    let retired = wait_for(retire(&old)).and_then(|()| striped::unlabel(&old_members));
    let mut result = of_replaced(&known, &replaced);
    result["old_flash_overwritten"] = retired.is_ok().into();
    if let Err(error) = retired {
        say_error(format_args!(
            "warning: --flash {0}: its superblock cannot be overwritten ({error}): never serve {0} with this disk again",
            devices.flash
        ));
    }
    let mut text = text(to, &result);
    let _ = writeln!(
        text,
        "serve it: flashwright block serve --flash {to} --disk {} --socket PATH",
        devices.disk
    );
    Ok(Finding::new(result, text))
}

/// Requests from the server at `server` that it moves its cache to another flash.
fn replace_served(
    arguments: &Arguments,
    server: &Path,
    files: NewFiles,
    is_blank: bool,
    changing: &Changing,
) -> Result<Finding, String> {
    let to = &arguments.to;
    if arguments.accept_loss {
        return Err("--accept-loss: stop the server first; a served cache keeps its old flash instead".into());
    }
    // The server's directory may be another one.
    let absolute = std::fs::canonicalize(to).map_or_else(|_| to.clone(), |path| path.display().to_string());
    confirm(arguments.yes || is_blank, &format!("Everything on {to} will be lost."), changing)?;
    changing.begin()?;
    let force = if arguments.force { "force " } else { "" };
    let result = control::ask(server, &format!("replace-flash {force}to {absolute}"), |_| {})?;
    files.keep();
    if result["old_flash_overwritten"] == false {
        say_error(
            "warning: the superblock of the old flash cannot be overwritten: never serve it with this disk again",
        );
    }
    let text = text(to, &result);
    Ok(Finding::new(result, text))
}

/// The result as text.
fn text(to: &str, result: &Value) -> String {
    let count = |name: &str| result[name].as_u64().unwrap_or(0);
    let (blocks, left_out, lost) = (count("blocks"), count("left_out_blocks"), count("lost_blocks"));
    let mut text = format!(
        "moved the cache to {to}: {blocks} {}, {} of them dirty\n",
        noun(blocks, "block"),
        count("dirty_blocks")
    );
    if left_out > 0 {
        let _ = writeln!(text, "left out {left_out} clean {}, which the disk has", noun(left_out, "block"));
    }
    if lost > 0 {
        let _ = writeln!(text, "LOST {lost} dirty {} that could not be read", noun(lost, "block"));
    }
    let (before, now) = (count("capacity_blocks_before"), count("capacity_blocks"));
    let _ = writeln!(text, "it can hold {now} blocks now; it could hold {before}");
    if let Some(seconds) = result["paused_seconds"].as_f64() {
        let _ = writeln!(
            text,
            "requests waited {seconds:.1} s; name the new flash in the server's configuration too"
        );
    }
    text
}
