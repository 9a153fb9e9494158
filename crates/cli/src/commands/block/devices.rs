//! From the flags to two devices and the volume on them.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use block::export::Tasks;
use block::volume::{Recovery, Volume};
use clap::Args;
use device::file::OpenOptions;
use device::open::parse_size;
use device::timer::SystemTimer;
use device::{Device, DeviceSpec, ErrorKind};

/// Which devices.
#[derive(Debug, Args)]
pub struct Devices {
    /// The flash: a block device or a file, used whole
    #[arg(long, value_name = "PATH")]
    pub flash: String,
    /// The disk behind it: a block device or a file
    #[arg(long, value_name = "PATH")]
    pub disk: String,
    #[command(flatten)]
    pub opening: Opening,
}

/// How devices are opened.
#[derive(Clone, Debug, Args)]
pub struct Opening {
    /// Go through the page cache, where direct I/O is refused; a power cut may then cost more than is promised
    #[arg(long)]
    pub buffered: bool,
}

impl Devices {
    /// Opens both.
    pub fn open(&self) -> Result<[Arc<dyn Device>; 2], String> {
        if self.flash == self.disk {
            return Err(format!("{} cannot be the flash and the disk at once", self.flash));
        }
        Ok([self.opening.open("--flash", &self.flash)?, self.opening.open("--disk", &self.disk)?])
    }

    /// Opens both, and the volume on them.
    pub fn open_volume(&self) -> Result<(Volume, Recovery), String> {
        let [flash, disk] = self.open()?;
        let (flash, disk) = (Tasks::staying_with(flash), Tasks::going_on(disk));
        let opened = Volume::open(flash, disk, Arc::new(SystemTimer::default()));
        pollster::block_on(opened)
            .map_err(|error| format!("--flash {} --disk {}: {error}", self.flash, self.disk))
    }
}

impl Opening {
    /// Opens what `text` names. `flag` is for the error.
    pub fn open(&self, flag: &str, text: &str) -> Result<Arc<dyn Device>, String> {
        let spec: DeviceSpec = text.parse().map_err(|error| format!("{flag} {text}: {error}"))?;
        let options = OpenOptions { buffered: self.buffered, ..OpenOptions::default() };
        spec.open(&options).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::Unsupported if !self.buffered => "; --buffered goes through the page cache",
                _ => "",
            };
            format!("{flag}: {error}{hint}")
        })
    }
}

/// Makes the file `path` with `size_text` bytes if there is none. What is there already must be as large.
pub fn make_file(flag: &str, path: &str, size_text: Option<&str>) -> Result<(), String> {
    let Some(size_text) = size_text else { return Ok(()) };
    let wrong = |why: String| format!("{flag} {size_text}: {path}: {why}");
    let size = parse_size(size_text).map_err(|error| wrong(error.to_string()))?;
    let path = PathBuf::from(path);
    if let Ok(there) = std::fs::metadata(&path) {
        let fits = !there.is_file() || there.len() == size;
        return if fits {
            Ok(())
        } else {
            Err(wrong(format!("is there already, with {} bytes", there.len())))
        };
    }
    let made = std::fs::File::create_new(&path).and_then(|file| file.set_len(size));
    made.map_err(|error| wrong(error.to_string()))
}

/// Asks before something is lost, unless `yes` was said already.
pub fn confirm(yes: bool, question: &str) -> Result<(), String> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(format!("{question} Say --yes to go on without being asked"));
    }
    let mut asked = std::io::stderr();
    let _ = write!(asked, "{question} Go on? [y/N] ");
    let mut answer = String::new();
    let heard = std::io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" if heard.is_ok() => Ok(()),
        _ => Err("not done".into()),
    }
}
