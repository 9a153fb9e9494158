//! From the flags to two devices and the volume on them.

use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use block::export::Tasks;
use block::volume::{Pairing, Recovery, Traces, Volume, VolumeError, VolumeErrorKind};
use clap::Args;
use device::file::{OpenOptions, reserve_space, set_length};
use device::timer::SystemTimer;
use device::{Device, DeviceSpec, ErrorKind, IoError};

use crate::files::Files;
use crate::output::Common;
use crate::signals::{Changing, INTERRUPTED};

/// Which devices.
#[derive(Debug, Args)]
pub struct Devices {
    /// Flash: a block device or a file, used whole
    #[arg(long, value_name = "PATH")]
    pub flash: String,
    /// Disk behind the flash: a block device or a file
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
        if self.flash == self.disk || self.are_one_file() {
            let name = if self.flash == self.disk { "" } else { &format!(", which is {},", self.disk) };
            return Err(format!("{}{name} cannot be both the flash and the disk", self.flash));
        }
        let open = |flag, text| self.opening.open(flag, text, access);
        Ok([open("--flash", &self.flash)?, open("--disk", &self.disk)?])
    }

    /// Opens both, and the volume on them.
    pub fn open_volume(&self, taking: Taking) -> Result<(Volume, Recovery), String> {
        let [flash, disk] = self.open(Access::Write)?;
        let pairing = Pairing { traces: traces(&self.disk), is_forced: taking.force_disk };
        let (flash, disk) = (Tasks::staying_with(flash), Tasks::going_on(disk));
        let timer = Arc::new(SystemTimer::default());
        let opened = Volume::open_as(flash, Arc::clone(&disk), timer, pairing);
        pollster::block_on(opened).map_err(|error| {
            let is_forceable = error.kind() == VolumeErrorKind::WrongDisk && !taking.force_disk;
            let hint = if is_forceable { "; --force-disk takes it all the same" } else { "" };
            format!("{}{hint}", self.refused(&error, &disk))
        })
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

    fn are_one_file(&self) -> bool {
        let identity = |text: &str| {
            let there = std::fs::metadata(file_of(text).ok()?).ok()?;
            Some((there.dev(), there.ino()))
        };
        identity(&self.flash).is_some_and(|flash| identity(&self.disk) == Some(flash))
    }
}

/// Whether there is no volume on the flash, and one on the disk.
pub fn are_swapped(error: &VolumeError, disk: &Arc<dyn Device>) -> bool {
    error.kind() == VolumeErrorKind::Foreign && pollster::block_on(Volume::identify(disk)).is_ok()
}

impl Opening {
    /// Opens what `text` names. `flag` is for the error.
    pub fn open(&self, flag: &str, text: &str, access: Access) -> Result<Arc<dyn Device>, String> {
        let spec: DeviceSpec = text.parse().map_err(|error| format!("{flag} {text}: {error}"))?;
        let options = OpenOptions {
            buffered: self.buffered,
            read_only: access == Access::Read,
            ..OpenOptions::default()
        };
        spec.open(&options).map_err(|error| {
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

/// A device has a block at least, and none is smaller.
const LEAST_FILE_BYTES: u64 = 512;

/// Files that a command made. They go again unless what they were made for comes about.
#[derive(Default)]
pub struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// Makes the file `text` with `size_bytes` if there is none; whether it did. What is there already must be as large.
    pub fn make(&mut self, flag: &str, text: &str, size_bytes: Option<u64>) -> Result<bool, String> {
        let Some(size_bytes) = size_bytes else { return there(flag, text) };
        let wrong = |why: String| format!("{flag} {size_bytes}: {text}: {why}");
        let path = file_of(text).map_err(wrong)?;
        if let Ok(there) = std::fs::metadata(&path) {
            let fits = !there.is_file() || there.len() == size_bytes;
            let why = || wrong(format!("already exists, with {} bytes", there.len()));
            return if fits { Ok(false) } else { Err(why()) };
        }
        if size_bytes < LEAST_FILE_BYTES {
            return Err(wrong(format!("must be at least {LEAST_FILE_BYTES} bytes, one block")));
        }
        let file = std::fs::File::create_new(&path).map_err(|error| wrong(error.to_string()))?;
        self.0.push(path);
        set_length(&file, size_bytes).map_err(wrong)?;
        Ok(true)
    }

    /// Reserves the space of the file `text`, which was made here. Where the file system reserves none it stays sparse.
    pub fn reserve(&self, flag: &str, text: &str) -> Result<(), String> {
        let path = file_of(text).map_err(|why| format!("{flag}: {text}: {why}"))?;
        match reserve_space(&path) {
            Err(error) if error.kind() != ErrorKind::Unsupported => Err(format!("{flag}: {error}")),
            _ => Ok(()),
        }
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
    match file_of(text) {
        Ok(path) if !path.exists() && has_kind(text) => Err(format!("{text}: does not exist; {KINDS}")),
        Ok(path) if !path.exists() => Err(format!("{text}: does not exist; {flag} SIZE creates it")),
        _ => Ok(false),
    }
}

/// What names of devices there are.
const KINDS: &str = "a device is named by PATH (a block device or a file), file:PATH, memory:SIZE, or hdd: and one of these, for a \
                     model disk with its bytes";

/// Whether a name begins like that of a kind of device, of which there is none here: `sim:test`.
fn has_kind(text: &str) -> bool {
    let bare = text.trim_start_matches("hdd:").trim_start_matches("file:");
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    bare.split_once(':').is_some_and(|(kind, _)| is_word(kind))
}

/// Whether what the device holds ends with this process.
pub fn is_memory(text: &str) -> bool {
    let mut spec = text.parse::<DeviceSpec>();
    while let Ok(DeviceSpec::Spindle(inner)) = spec {
        spec = Ok(*inner);
    }
    matches!(spec, Ok(DeviceSpec::Memory(_)))
}

/// How large the regular file is now that `text` names.
pub fn file_bytes(text: &str) -> Option<u64> {
    let there = std::fs::metadata(file_of(text).ok()?).ok()?;
    there.is_file().then_some(there.len())
}

/// Refuses a result file that is one of these devices, or that cannot be written: asked before anything is done to them.
pub fn spare<'a>(common: &Common, devices: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    let paths = devices.into_iter().filter_map(|text| file_of(text).ok());
    Files::default().keeping("device", paths).writing([common.result_file()]).check()
}

/// The file that the name of a device is about.
pub fn file_of(text: &str) -> Result<PathBuf, String> {
    let mut spec: DeviceSpec = text.parse().map_err(|error: IoError| error.to_string())?;
    while let DeviceSpec::Spindle(inner) = spec {
        spec = *inner;
    }
    match spec {
        DeviceSpec::File(path) | DeviceSpec::Path(path) => Ok(path),
        _ => Err("is not a file".into()),
    }
}

/// What the system knows of the disk that `text` names.
pub fn traces(text: &str) -> Traces {
    file_of(text).map_or_else(|_| Traces::default(), |path| Traces::of(&path))
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
