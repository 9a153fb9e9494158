//! `flashwright block create`.

use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::sync::Arc;

use block::sets::{Mode, Preset};
use block::striped::{self, Labelled};
use block::volume::superblock::{FORMAT_VERSION, OLDEST_FORMAT};
use block::volume::{Superblock, Volume, VolumeConfig, VolumeError, VolumeErrorKind};
use clap::Args;
use daemon::contents;
use daemon::devices::{Access, Devices, NewFiles, Opened};
use daemon::named::{Stripes, is_memory, os_identity};
use daemon::sectors;
use daemon::settings::{self, Given};
use device::Device;
use device::event_loop::wait_for;
use device::size::parse_size;
use serde_json::{Value, json};

use super::result_file::spare;
use super::shape::Shape;
use crate::commands::confirm::confirm;
use crate::output::{Common, Finding};
use crate::signals::Changing;

/// Heading of the flags for the cache's behaviour.
const SETTINGS: &str = "Settings";

/// The command line of `block create`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    devices: Devices,
    /// Write mode: write-back, write-through, write-around or write-only [default: write-back]
    #[arg(long, help_heading = SETTINGS)]
    mode: Option<String>,
    /// Replacement policy within a set: fifo, lru or lru2q [default: the preset's]
    #[arg(long, help_heading = SETTINGS)]
    policy: Option<String>,
    /// Settings to start from: v2 or v3, the defaults of Flashcache 2 and 3
    #[arg(long, help_heading = SETTINGS, default_value = "v3")]
    preset: String,
    #[command(flatten)]
    shape: Shape,
    /// Keep a checksum of every cached block in memory and verify it on every read
    #[arg(long, help_heading = SETTINGS)]
    checksums: bool,
    /// Write dirty blocks back in flush order, so that the disk alone is consistent, if not up to date
    #[arg(long, help_heading = SETTINGS)]
    ordered: bool,
    /// Sector size that clients see, a power of two from 512 [default: the logical block size of the disk; 512 for a file]
    #[arg(long, value_name = "SIZE", help_heading = SETTINGS, value_parser = sectors::sector_size)]
    sector_size: Option<u32>,
    /// On-flash format; older versions open only 1
    #[arg(long, value_name = "N", default_value_t = FORMAT_VERSION)]
    format: u32,
    /// Other settings; `block set` lists them
    #[arg(long = "set", help_heading = SETTINGS, value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Create the flash as a file of this size if it does not exist, with its space reserved
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = None::<&'static str>)]
    flash_size: Option<u64>,
    /// Create the disk as a sparse file of this size if it does not exist
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = None::<&'static str>)]
    disk_size: Option<u64>,
    /// Overwrite the flash even if it holds a cache, dirty or not, or other known data; and use a disk that belongs to another cache
    #[arg(long, help_heading = None::<&'static str>)]
    force: bool,
    /// Do not ask for confirmation
    #[arg(long, help_heading = None::<&'static str>)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs `block create`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config = json!({ "flash": arguments.devices.flash, "disk": arguments.devices.disk });
    arguments.common.conclude("block create", &config, create(arguments))
}

fn create(arguments: &Arguments) -> Result<Finding, String> {
    let mut config = volume_config(arguments)?;
    let devices = &arguments.devices;
    spare(&arguments.common, devices.names())?;
    if is_memory(&devices.flash) {
        return Err(format!(
            "--flash {}: is memory of this process, so the cache would be lost when the command ends; name a block device or a file",
            devices.flash
        ));
    }
    let changing = Changing::on_signal("the creation of the cache completes first")?;
    let mut files = NewFiles::default();
    let is_blank = files.make("--flash-size", &devices.flash, arguments.flash_size)?;
    files.make("--disk-size", &devices.disk, arguments.disk_size)?;
    config.disk_label = label(&devices.disk);
    let Opened { flash, members, disk } = devices.open_all(Access::Write, Stripes::ToBeLabelled)?;
    let there = wait_for(Volume::identify(&flash));
    refuse_another(arguments, there.as_ref())?;
    if !arguments.force {
        contents::refuse_known((&devices.flash, &flash), (&devices.disk, &disk))?;
        for (name, member) in &members {
            contents::refuse_contents(name, member)?;
        }
        contents::refuse_marked(
            &devices.disk,
            "destroy that one first, or use --force if it no longer exists",
        )?;
    }
    contents::refuse_rest(&devices.disk, &*disk)?;
    let sector_bytes = arguments.sector_size.unwrap_or_else(|| sectors::of_disk(&devices.disk, &*disk));
    sectors::check_size(&devices.disk, &*disk, sector_bytes)?;
    config.sector_bytes = Some(sector_bytes);
    let refused = |error: VolumeError| format!("--flash {} --disk {}: {error}", devices.flash, devices.disk);
    wait_for(Volume::check_config(&flash, &disk, &config)).map_err(refused)?;
    let size = flash.geometry().capacity_bytes;
    // A new file has no contents to lose.
    confirm(
        arguments.yes || is_blank,
        &format!("Everything on {} ({size} bytes) will be lost.", devices.flash),
        &changing,
    )?;
    changing.begin()?;
    let uuid = random_uuid();
    let os_identity = os_identity(&devices.disk);
    let labelled =
        striped::label(&members, uuid).map_err(|error| format!("--flash {}: {error}", devices.flash))?;
    let made = wait_for(Volume::create_for(&flash, &disk, &config, uuid, &os_identity));
    let made = made.map_err(|error| refused(error) + &take_back(labelled, &flash, uuid))?;
    // Only now, because creating a volume trims its flash. Reserved space prevents acknowledged writes from finding the file system full.
    if is_blank {
        files.reserve("--flash-size", &devices.flash).inspect_err(|_| os_identity.remove_mark(uuid))?;
    }
    files.keep();
    Ok(Finding::new(result_json(&made), text(arguments, &made)))
}

/// Removes the labels of a cache whose creation failed; returns what to add to the error. If a superblock was written, there is a cache,
/// and its labels stay.
fn take_back(labelled: Labelled, flash: &Arc<dyn Device>, uuid: u128) -> String {
    let there = wait_for(Volume::identify(flash));
    let is_there = there.is_ok_and(|there| there.uuid == uuid);
    let failed = if is_there { None } else { labelled.restore().err() };
    failed.map_or_else(String::new, |error| format!("; the labels of its members stay: {error}"))
}

fn refuse_another(arguments: &Arguments, there: Result<&Superblock, &VolumeError>) -> Result<(), String> {
    let flash = &arguments.devices.flash;
    match there {
        _ if arguments.force => Ok(()),
        Ok(there) => Err(format!(
            "--flash {flash}: already holds the cache {:032x}, perhaps with data that the disk does not have; \
             run `block destroy` first, or overwrite it with --force",
            there.uuid
        )),
        Err(error) => match error.kind() {
            VolumeErrorKind::Foreign => Ok(()),
            kind @ (VolumeErrorKind::NewerFormat | VolumeErrorKind::Damaged) => Err(format!(
                "--flash {flash}: holds a cache that cannot be read ({kind:?}); --force overwrites it"
            )),
            _ => Err(format!("--flash {flash}: {error}; there may be a cache: --force overwrites it")),
        },
    }
}

fn volume_config(arguments: &Arguments) -> Result<VolumeConfig, String> {
    let preset = match arguments.preset.as_str() {
        "v2" => Preset::V2,
        "v3" => Preset::V3,
        other => return Err(format!("--preset: {}", settings::one_of(other, "preset", &["v2", "v3"]))),
    };
    let base = VolumeConfig::preset(preset);
    let mut tuning = base.tuning;
    tuning.mode = Mode::WriteBack;
    let mut given = Given::to(&mut tuning);
    for (flag, name, value) in
        [("--mode", "mode", &arguments.mode), ("--policy", "policy", &arguments.policy)]
    {
        value.iter().try_for_each(|value| given.apply_flag(flag, name, value))?;
    }
    arguments.settings.iter().try_for_each(|setting| given.apply("--set ", setting))?;
    let formats = OLDEST_FORMAT..=FORMAT_VERSION;
    if !formats.contains(&arguments.format) {
        let text = format!("this version writes formats {OLDEST_FORMAT} to {FORMAT_VERSION}");
        return Err(format!("--format {}: {text}", arguments.format));
    }
    let shape = &arguments.shape;
    let placement = shape.placement(base.placement)?;
    shape.check_on_flash(placement)?;
    Ok(VolumeConfig {
        block_bytes: shape.block_size,
        ways: shape.associativity,
        placement,
        tuning,
        checksums: arguments.checksums,
        ordered: arguments.ordered,
        format: arguments.format,
        ..base
    })
}

/// The disk's name for messages: the end of it if it is long.
fn label(disk: &str) -> String {
    let most = block::volume::superblock::LABEL_BYTES;
    let absolute =
        std::fs::canonicalize(disk).map_or_else(|_| disk.into(), |path| path.display().to_string());
    let start = (absolute.len().saturating_sub(most)..).find(|&at| absolute.is_char_boundary(at));
    absolute[start.unwrap_or(absolute.len())..].into()
}

/// A random UUID, from the system's randomness that seeds hash maps.
fn random_uuid() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}

fn result_json(made: &Superblock) -> Value {
    json!({
        "world": "real",
        "uuid": format!("{:032x}", made.uuid),
        "block_bytes": made.layout.block_bytes,
        "ways": made.layout.ways,
        "sets": made.layout.sets,
        "capacity_blocks": made.layout.slots(),
        "mode": settings::mode_name(made.tuning.mode),
        "sector_bytes": made.disk.sector_bytes,
    })
}

fn text(arguments: &Arguments, made: &Superblock) -> String {
    let Devices { flash, disk, .. } = &arguments.devices;
    let layout = &made.layout;
    let cached = u64::from(layout.slots()) * u64::from(layout.block_bytes);
    let mut text = String::new();
    let _ = writeln!(text, "created the cache {:032x} on {flash} for {disk}", made.uuid);
    let _ = writeln!(
        text,
        "{} of {} bytes hold cached blocks: {} sets of {} blocks of {} bytes, {}",
        cached,
        layout.end(),
        layout.sets,
        layout.ways,
        layout.block_bytes,
        settings::mode_name(made.tuning.mode),
    );
    let _ = writeln!(text, "serve it: flashwright block serve --flash {flash} --disk {disk} --socket PATH");
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use device::MemoryDevice;
    use device::wrap::{FaultDevice, Faults};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn unreadable_flash_may_contain_a_cache() {
        let check = |flash: Arc<dyn Device>, more: &[&str]| {
            let text = [&["create", "--flash", "f", "--disk", "d", "--yes"], more].concat();
            let there = wait_for(Volume::identify(&flash));
            refuse_another(&Line::parse_from(text).arguments, there.as_ref())
        };
        let blank = || Arc::new(MemoryDevice::new(1 << 20));
        let unread = || {
            let faults = Faults { failed_reads: 1.0, ..Faults::default() };
            Arc::new(FaultDevice::new(blank(), 1, faults))
        };
        assert_eq!(check(blank(), &[]), Ok(()));
        let refused = check(unread(), &[]).unwrap_err();
        assert!(refused.contains("there may be a cache"), "{refused}");
        assert_eq!(check(unread(), &["--force"]), Ok(()));
    }
}
