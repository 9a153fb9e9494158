//! From the flags to two devices and the volume on them.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use bench::report::text::noun;
use block::export::Tasks;
use block::striped::Member;
use block::volume::{Pairing, Recovery, Volume, VolumeError, VolumeErrorKind};
use clap::Args;
use device::file::{OpenOptions, reserve_space, set_length};
use device::timer::SystemTimer;
use device::{Device, DeviceSpec, ErrorKind};

use super::figures;
use super::named::{self, KINDS, Stripes, file_of, files_of, has_kind, traces};
use crate::files::Files;
use crate::output::{Common, say_error};
use crate::signals::{Changing, INTERRUPTED};

/// Which devices.
#[derive(Clone, Debug, Args)]
pub struct Devices {
    /// Flash: a block device or a file, used whole, or a stripe (stripe:A,B) or a model SSD (sim:CARD:PATH)
    #[arg(long, value_name = "PATH")]
    pub flash: String,
    /// Disk behind the flash: a block device or a file, or a stripe (stripe:A,B) or a model disk (hdd:PATH)
    #[arg(long, value_name = "PATH")]
    pub disk: String,
    #[command(flatten)]
    pub opening: Opening,
}

/// How devices are opened.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = None::<&'static str>)]
pub struct Opening {
    /// Use the page cache, for file systems that refuse direct I/O; a power cut may then lose more than promised
    #[arg(long)]
    pub buffered: bool,
}

/// Whether a disk is taken that seems to be a wrong one.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = None::<&'static str>)]
pub struct Taking {
    /// Use the disk even if it is not the cache's own as far as can be told, or was written without it: dirty blocks go there
    /// all the same, clean ones leave the cache
    #[arg(long)]
    pub force_disk: bool,
}

/// Both devices.
pub struct Opened {
    pub flash: Arc<dyn Device>,
    /// Of flash that is a stripe.
    pub members: Vec<Member>,
    pub disk: Arc<dyn Device>,
}

/// A volume, how it was found, and the devices it is on.
pub struct OpenedVolume {
    pub volume: Volume,
    pub recovery: Recovery,
    pub flash: Arc<dyn Device>,
    pub disk: Arc<dyn Device>,
}

/// What is done with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is read and written.
    Write,
    /// It is only read: the permission to read is enough.
    Read,
}

impl Devices {
    /// Refuses a result that would be written over one of them, or nowhere.
    pub fn spare(&self, common: &Common) -> Result<(), String> {
        spare(common, [&self.flash, &self.disk])
    }

    /// Opens both.
    pub fn open(&self, access: Access) -> Result<[Arc<dyn Device>; 2], String> {
        self.open_all(access, Stripes::Labelled).map(|Opened { flash, disk, .. }| [flash, disk])
    }

    /// Opens both, and what the flash is made of.
    pub fn open_all(&self, access: Access, stripes: Stripes) -> Result<Opened, String> {
        self.open_with([access, access], stripes)
    }

    /// Opens both: the disk for writing, and the flash for reading if it cannot be written.
    pub fn open_readable_flash(&self) -> Result<Opened, String> {
        self.open_with([Access::Write, Access::Write], Stripes::Labelled)
            .or_else(|why| self.open_with([Access::Read, Access::Write], Stripes::Labelled).map_err(|_| why))
    }

    /// Opens both, the flash and the disk with this access.
    fn open_with(&self, access: [Access; 2], stripes: Stripes) -> Result<Opened, String> {
        let are_several = is_several(&self.flash) || is_several(&self.disk);
        if self.flash != self.disk && are_several && self.share_a_file() {
            return Err(format!("--flash {} and --disk {} have a device in common", self.flash, self.disk));
        }
        if self.flash == self.disk || self.share_a_file() {
            let name = if self.flash == self.disk { "" } else { &format!(", which is {},", self.disk) };
            return Err(format!("{}{name} cannot be both the flash and the disk", self.flash));
        }
        let (flash, members) = self.opening.open_all("--flash", &self.flash, access[0], stripes)?;
        let disk = self.opening.open("--disk", &self.disk, access[1])?;
        Ok(Opened { flash, members, disk })
    }

    /// Opens the flash for a cache whose present flash is `other`, which must not share a device with it, nor may the disk.
    pub fn open_flash_apart(
        &self,
        other: &str,
        stripes: Stripes,
    ) -> Result<(Arc<dyn Device>, Vec<Member>), String> {
        let with = |disk: &str| Self { disk: disk.to_owned(), ..self.clone() }.share_a_file();
        for used in [other, &self.disk] {
            if self.flash == used || with(used) {
                return Err(format!("--to {}: is in use by this cache already, as {used}", self.flash));
            }
        }
        self.opening.open_all("--to", &self.flash, Access::Write, stripes)
    }

    /// Opens both, and the volume on them.
    pub fn open_volume(&self, taking: Taking) -> Result<OpenedVolume, String> {
        let [flash, disk] = self.open(Access::Write)?;
        let pairing = Pairing { os_identity: traces(&self.disk), is_forced: taking.force_disk };
        let (quick, slow) =
            (Tasks::with_inline_transfers(Arc::clone(&flash)), Tasks::resuming(Arc::clone(&disk)));
        let timer = Arc::new(SystemTimer::default());
        let opened = pollster::block_on(Volume::open_as(quick, slow, timer, pairing));
        let (volume, recovery) = opened.map_err(|error| {
            // One of another size is never taken.
            let known_bytes =
                pollster::block_on(Volume::identify(&flash)).map(|superblock| superblock.disk.bytes);
            let size = known_bytes.map(|bytes| disk.geometry().capacity_bytes.cmp(&bytes));
            let hint = match (error.kind(), size) {
                (VolumeErrorKind::WrongDisk, Ok(Ordering::Equal)) if !taking.force_disk => {
                    "; --force-disk takes it all the same"
                }
                (VolumeErrorKind::WrongDisk, Ok(Ordering::Greater)) => {
                    "; if the disk was made larger, `block grow` records its new size"
                }
                _ => "",
            };
            format!("{}{hint}", self.refused(&error, &disk))
        })?;
        for words in figures::losses(&figures::of_recovery(&recovery)) {
            say_error(format_args!("warning: --flash {}: {words}", self.flash));
        }
        Ok(OpenedVolume { volume, recovery, flash, disk })
    }

    /// Why there is no volume on them; it may be that they were named the wrong way round.
    pub fn refused(&self, error: &VolumeError, disk: &Arc<dyn Device>) -> String {
        let hint = if are_swapped(error, disk) {
            "; the disk is the flash of a cache: are they swapped?"
        } else {
            ""
        };
        format!("--flash {} --disk {}: {error}{hint}", self.flash, self.disk)
    }

    fn share_a_file(&self) -> bool {
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

/// Whether there is no volume on the flash, and one on the disk.
pub fn are_swapped(error: &VolumeError, disk: &Arc<dyn Device>) -> bool {
    error.kind() == VolumeErrorKind::Foreign && pollster::block_on(Volume::identify(disk)).is_ok()
}

impl Opening {
    /// Opens the disk or other device that `text` names. `flag` is for the error.
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

/// Refuses what is no device, and what would be one twice.
fn check_files(text: &str) -> Result<(), String> {
    let mut known = HashSet::new();
    for path in files_of(text).into_iter().flatten() {
        let Ok(there) = std::fs::metadata(&path) else { continue };
        if there.is_dir() {
            return Err(format!("{} is a directory; name a file in it, or a block device", path.display()));
        }
        if !known.insert((there.dev(), there.ino())) {
            return Err(format!("{} is named twice", path.display()));
        }
    }
    Ok(())
}

/// A device has a block at least, and none is smaller.
const LEAST_FILE_BYTES: u64 = 512;

/// Files that a command made. They go again unless what they were made for comes about.
#[derive(Default)]
pub struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// Makes the files of `text`, with `size_bytes` in all, if there are none; whether there was none. What is there already must be
    /// as large as it would be made.
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

    /// Reserves the space of the files of `text`, which were made here. Where the file system reserves none they stay sparse.
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

    /// `path` was made a moment ago.
    pub fn add(&mut self, path: &Path) {
        self.0.push(path.into());
    }

    /// They stay.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // What is wrong has been told already; the rest of it stays.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What no size was told of must be there.
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

/// How large the regular file is now that `text` names.
pub fn file_bytes(text: &str) -> Option<u64> {
    let there = std::fs::metadata(file_of(text)?).ok()?;
    there.is_file().then_some(there.len())
}

/// Refuses a result file that is one of these devices, or that cannot be written: asked before anything is done to them.
pub fn spare<'a>(common: &Common, devices: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    let paths = devices.into_iter().filter_map(|text| files_of(text).ok()).flatten();
    Files::default().keeping("device", paths).writing([common.result_file()]).check()
}

/// How often is looked whether a signal has come.
const LOOK: Duration = Duration::from_millis(50);

/// Asks before something is lost, unless `yes` was said already.
pub fn confirm(yes: bool, question: &str, changing: &Changing) -> Result<(), String> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(format!("{question} Standard input is not a terminal: confirm with --yes"));
    }
    let mut asked = std::io::stderr();
    let _ = write!(asked, "{question} Continue? [y/N] ");
    // A signal does not end the read of an answer.
    let (sender, heard) = channel();
    let listen = move || {
        let mut answer = String::new();
        let heard = std::io::stdin().lock().read_line(&mut answer);
        sender.send(heard.map(|_| answer))
    };
    std::thread::Builder::new().name("answer".into()).spawn(listen).map_err(|error| error.to_string())?;
    loop {
        match heard.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) if changing.is_interrupted() => return Err(INTERRUPTED.into()),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Ok(answer)) if matches!(answer.trim(), "y" | "Y" | "yes") => return Ok(()),
            _ => return Err("not confirmed: nothing was done".into()),
        }
    }
}
