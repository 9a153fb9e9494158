//! Opens the devices named by the flags, and the volume on them.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::export::Tasks;
use block::striped::Member;
use block::volume::{Pairing, Recovery, Volume, VolumeError, VolumeErrorKind};
use clap::Args;
use device::event_loop::wait_for;
use device::file::{OpenOptions, reserve_space, set_length};
use device::names::noun;
use device::timer::SystemTimer;
use device::{Device, DeviceSpec, ErrorKind};

use crate::log_line;
use crate::named::{self, KINDS, Stripes, file_of, files_of, has_kind, os_identity};
use crate::status::figures;

/// The two devices.
#[derive(Clone, Debug, Args)]
pub struct Devices {
    /// Flash: a block device or a file, used whole, or a stripe (stripe:A,B) or a model SSD (sim:CARD:PATH)
    #[arg(long, value_name = "PATH")]
    pub flash: String,
    /// Disk behind the flash: a block device or a file, or a stripe (stripe:A,B) or a model disk (hdd:PATH)
    #[arg(long, value_name = "PATH")]
    pub disk: String,
    /// How to open flash and disk.
    #[command(flatten)]
    pub opening: Opening,
}

/// Options for opening devices.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = None::<&'static str>)]
pub struct Opening {
    /// Use the page cache, for file systems that refuse direct I/O; a power cut can then lose acknowledged data
    #[arg(long)]
    pub buffered: bool,
}

/// Whether to use a disk that seems to be the wrong one.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = None::<&'static str>)]
pub struct DiskOverrides {
    /// Use the disk even if it seems to be another one, or was written without the cache: dirty blocks are written to it nevertheless,
    /// and clean ones are dropped
    #[arg(long)]
    pub force_disk: bool,
}

/// Both devices, opened.
pub struct Opened {
    /// The flash.
    pub flash: Arc<dyn Device>,
    /// Members of a striped flash.
    pub members: Vec<Member>,
    /// The disk behind the flash.
    pub disk: Arc<dyn Device>,
}

/// A volume, the result of opening it, and its devices.
pub struct OpenedVolume {
    /// The volume.
    pub volume: Volume,
    /// The result of opening the volume.
    pub recovery: Recovery,
    /// Its flash.
    pub flash: Arc<dyn Device>,
    /// Its disk.
    pub disk: Arc<dyn Device>,
}

/// Access to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and write.
    Write,
    /// Read only: needs only read permission.
    Read,
}

impl Devices {
    /// The names of flash and disk.
    #[must_use]
    pub fn names(&self) -> [&String; 2] {
        [&self.flash, &self.disk]
    }

    /// Opens flash and disk.
    pub fn open(&self, access: Access) -> Result<[Arc<dyn Device>; 2], String> {
        self.open_all(access, Stripes::Labelled).map(|Opened { flash, disk, .. }| [flash, disk])
    }

    /// Opens flash and disk, and returns also the members of the flash.
    pub fn open_all(&self, access: Access, stripes: Stripes) -> Result<Opened, String> {
        self.open_with([access, access], stripes)
    }

    /// Opens the disk for writing, and the flash for reading if it cannot be written.
    pub fn open_readable_flash(&self) -> Result<Opened, String> {
        self.open_with([Access::Write, Access::Write], Stripes::Labelled)
            .or_else(|why| self.open_with([Access::Read, Access::Write], Stripes::Labelled).map_err(|_| why))
    }

    /// Opens flash and disk with these kinds of access.
    fn open_with(&self, access: [Access; 2], stripes: Stripes) -> Result<Opened, String> {
        let are_several = is_several(&self.flash) || is_several(&self.disk);
        if self.flash != self.disk && are_several && self.share_files() {
            return Err(format!("--flash {} and --disk {} have a device in common", self.flash, self.disk));
        }
        if self.flash == self.disk || self.share_files() {
            let name = if self.flash == self.disk { "" } else { &format!(", which is {},", self.disk) };
            return Err(format!("{}{name} cannot be both the flash and the disk", self.flash));
        }
        let (flash, members) = self.opening.open_all("--flash", &self.flash, access[0], stripes)?;
        let disk = self.opening.open("--disk", &self.disk, access[1])?;
        Ok(Opened { flash, members, disk })
    }

    /// Opens the flash for a cache whose present flash is `other`. Flash, disk and `other` must not share a device.
    pub fn open_flash_apart(
        &self,
        other: &str,
        stripes: Stripes,
    ) -> Result<(Arc<dyn Device>, Vec<Member>), String> {
        let with = |disk: &str| Self { disk: disk.to_owned(), ..self.clone() }.share_files();
        for used in [other, &self.disk] {
            if self.flash == used || with(used) {
                return Err(format!("--to {}: is in use by this cache already, as {used}", self.flash));
            }
        }
        self.opening.open_all("--to", &self.flash, Access::Write, stripes)
    }

    /// Opens flash and disk, and the volume on them.
    pub fn open_volume(&self, taking: DiskOverrides) -> Result<OpenedVolume, String> {
        let [flash, disk] = self.open(Access::Write)?;
        let pairing = Pairing { os_identity: os_identity(&self.disk), is_forced: taking.force_disk };
        let (quick, slow) =
            (Tasks::with_inline_transfers(Arc::clone(&flash)), Tasks::resuming(Arc::clone(&disk)));
        let timer = Arc::new(SystemTimer::default());
        let opened = wait_for(Volume::open_as(quick, slow, timer, pairing));
        let (volume, recovery) = opened.map_err(|error| {
            // A disk of another size is never used.
            let known_bytes = wait_for(Volume::identify(&flash)).map(|superblock| superblock.disk.bytes);
            let size = known_bytes.map(|bytes| disk.geometry().capacity_bytes.cmp(&bytes));
            let hint = match (error.kind(), size) {
                (VolumeErrorKind::WrongDisk, Ok(Ordering::Equal)) if !taking.force_disk => {
                    "; --force-disk accepts it"
                }
                (VolumeErrorKind::WrongDisk, Ok(Ordering::Greater)) => {
                    "; if the disk was made larger, `block grow` records its new size"
                }
                _ => "",
            };
            format!("{}{hint}", self.refused(&error, &disk))
        })?;
        for text in figures::losses(&figures::of_recovery(&recovery)) {
            log_line(format_args!("warning: --flash {}: {text}", self.flash));
        }
        Ok(OpenedVolume { volume, recovery, flash, disk })
    }

    /// The error of opening the volume, with a hint if the devices may be swapped.
    pub fn refused(&self, error: &VolumeError, disk: &Arc<dyn Device>) -> String {
        let hint = if are_swapped(error, disk) {
            "; the disk is the flash of a cache: are they swapped?"
        } else {
            ""
        };
        format!("--flash {} --disk {}: {error}{hint}", self.flash, self.disk)
    }

    fn share_files(&self) -> bool {
        let identities = |text: &str| -> Vec<(u64, u64)> {
            let there = files_of(text).into_iter().flatten().filter_map(|path| std::fs::metadata(path).ok());
            there.map(|there| (there.dev(), there.ino())).collect()
        };
        let of_disk = identities(&self.disk);
        identities(&self.flash).iter().any(|flash| of_disk.contains(flash))
    }
}

fn is_several(text: &str) -> bool {
    files_of(text).is_ok_and(|files| files.len() > 1)
}

/// Whether the disk, instead of the flash, contains a volume.
pub fn are_swapped(error: &VolumeError, disk: &Arc<dyn Device>) -> bool {
    error.kind() == VolumeErrorKind::Foreign && wait_for(Volume::identify(disk)).is_ok()
}

impl Opening {
    /// Opens the device that `text` names. `flag` is for the error.
    pub fn open(&self, flag: &str, text: &str, access: Access) -> Result<Arc<dyn Device>, String> {
        self.open_all(flag, text, access, Stripes::Plain).map(|(device, _)| device)
    }

    /// Opens the flash that `text` names.
    pub fn open_flash(&self, text: &str, access: Access) -> Result<Arc<dyn Device>, String> {
        self.open_all("--flash", text, access, Stripes::Labelled).map(|(device, _)| device)
    }

    fn open_all(
        &self,
        flag: &str,
        text: &str,
        access: Access,
        stripes: Stripes,
    ) -> Result<(Arc<dyn Device>, Vec<Member>), String> {
        text.parse::<DeviceSpec>().map_err(|error| format!("{flag} {text}: {error}"))?;
        check_files(text).map_err(|why| format!("{flag} {text}: {why}"))?;
        let options = OpenOptions {
            buffered: self.buffered,
            read_only: access == Access::Read,
            ..OpenOptions::default()
        };
        named::open(text, &options, stripes).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::Unsupported if !self.buffered => "; --buffered uses the page cache",
                ErrorKind::Busy => {
                    "; if it is being served, reach the server with --socket (status, set, flush, upgrade), or stop the server"
                }
                _ => "",
            };
            format!("{flag}: {error}{hint}")
        })
    }
}

/// Refuses names of directories, and a file named twice.
fn check_files(text: &str) -> Result<(), String> {
    let mut known = HashSet::new();
    for path in files_of(text).into_iter().flatten() {
        let Ok(there) = std::fs::metadata(&path) else { continue };
        if there.is_dir() {
            return Err(format!("{} is a directory; name a block device or a file", path.display()));
        }
        if !known.insert((there.dev(), there.ino())) {
            return Err(format!("{} is named twice", path.display()));
        }
    }
    Ok(())
}

/// Size of the smallest device: one block.
const LEAST_FILE_BYTES: u64 = 512;

/// Files created by a command, which are removed again unless it succeeds.
#[derive(Default)]
pub struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// Creates the files of `text` with `size_bytes` in total, if they do not exist; returns whether it did. Existing files must have the
    /// size.
    pub fn make(&mut self, flag: &str, text: &str, size_bytes: Option<u64>) -> Result<bool, String> {
        let Some(size_bytes) = size_bytes else { return there(flag, text) };
        let paths = files_of(text).map_err(|why| format!("{flag} {size_bytes}: {text}: {why}"))?;
        let part_bytes = size_bytes / paths.len() as u64;
        let mut is_new = true;
        for path in paths {
            let wrong = |why: String| format!("{flag} {size_bytes}: {}: {why}", path.display());
            is_new &= self.make_one(&path, part_bytes).map_err(wrong)?;
        }
        Ok(is_new)
    }

    fn make_one(&mut self, path: &Path, size_bytes: u64) -> Result<bool, String> {
        if let Ok(there) = std::fs::metadata(path) {
            let fits = !there.is_file() || there.len() == size_bytes;
            let why = || format!("already exists, with {} {}", there.len(), noun(there.len(), "byte"));
            return if fits { Ok(false) } else { Err(why()) };
        }
        if size_bytes < LEAST_FILE_BYTES {
            return Err(format!("must be at least {LEAST_FILE_BYTES} bytes, one block"));
        }
        let file = std::fs::File::create_new(path).map_err(|error| error.to_string())?;
        self.0.push(path.into());
        set_length(&file, size_bytes)?;
        Ok(true)
    }

    /// Reserves space for the files of `text`, which were created here. They stay sparse if the file system does not support it.
    pub fn reserve(&self, flag: &str, text: &str) -> Result<(), String> {
        for path in files_of(text).map_err(|why| format!("{flag}: {text}: {why}"))? {
            match reserve_space(&path) {
                Err(error) if error.kind() != ErrorKind::Unsupported => {
                    return Err(format!("{flag}: {error}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds a file that was just created.
    pub fn add(&mut self, path: &Path) {
        self.0.push(path.into());
    }

    /// Keeps the files.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // The cause was already reported; a file that cannot be removed stays.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Checks that the files exist, since no size is given.
fn there(flag: &str, text: &str) -> Result<bool, String> {
    let Ok(paths) = files_of(text) else {
        return text
            .parse::<DeviceSpec>()
            .map(|_| false)
            .map_err(|error| format!("{text}: {error}; {KINDS}"));
    };
    match paths.iter().find(|path| !path.exists()) {
        Some(_) if has_kind(text) && paths.len() == 1 => Err(format!("{text}: does not exist; {KINDS}")),
        Some(path) => Err(format!("{}: does not exist; {flag} SIZE creates it", path.display())),
        None => Ok(false),
    }
}

/// Current size of the regular file that `text` names.
pub fn file_bytes(text: &str) -> Option<u64> {
    let there = std::fs::metadata(file_of(text)?).ok()?;
    there.is_file().then_some(there.len())
}
