//! Serves the disk as a file by FUSE.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::fuse::{self, Mounted, Unmounted};
use clap::Args;
use serde_json::{Value, json};

use super::{ACCESS, FrontEnd, Monitor, ServedDisk, control};
use crate::log_line;

pub const USAGE: &str = "--fuse DIRECTORY (a file)";

/// Sector size of a loop device unless `losetup` is given another.
const LOOP_SECTOR_BYTES: u32 = 512;

/// The flags of `block serve` for FUSE.
#[derive(Debug, Args)]
pub struct FuseFlags {
    /// Mount a FUSE file system here, whose one file is the disk
    #[arg(long, help_heading = ACCESS, value_name = "DIRECTORY")]
    fuse: Option<PathBuf>,
}

impl FuseFlags {
    pub fn front_end(&self, name: &str) -> Result<Option<Box<dyn FrontEnd>>, String> {
        let file_system = |directory: &PathBuf| {
            let (directory, name) = (directory.clone(), name.to_owned());
            Box::new(FileSystem { directory, name, mounted: None, session: Arc::default() }) as _
        };
        Ok(self.fuse.as_ref().map(file_system))
    }

    pub fn add_to(&self, config: &mut Value) {
        config["fuse"] = self.fuse.as_deref().map(|path| path.display().to_string()).into();
    }
}

/// A server with only a FUSE file is selected by its control socket.
#[derive(Debug, Args)]
pub struct FuseTarget {}

impl FuseTarget {
    #[expect(clippy::unused_self, reason = "each front end has this method")]
    pub fn control_path(&self) -> Option<PathBuf> {
        None
    }
}

struct FileSystem {
    directory: PathBuf,
    /// Name of the file.
    name: String,
    mounted: Option<Mounted>,
    session: Arc<Session>,
}

/// The state of a FUSE session, for the status.
#[derive(Default)]
struct Session {
    has_failed: AtomicBool,
}

impl Monitor for Session {
    fn add_to(&self, status: &mut Value) {
        status["fuse"] = json!({ "failed": self.has_failed.load(Ordering::Relaxed) });
    }
}

impl FileSystem {
    fn refused(&self, why: &str) -> String {
        format!("--fuse {}: {why}", self.directory.display())
    }

    /// Unmounts what a killed server has left, and refuses a directory whose files would be hidden.
    fn clear_directory(&self) -> Result<(), String> {
        let (path, place) = (&self.directory, self.directory.display());
        if fuse::clear_disconnected(path)
            .map_err(|error| self.refused(&format!("cannot clear a killed server's mount: {error}")))?
        {
            // Not on standard output, where scripts wait for the ready line.
            log_line(format_args!("note: --fuse {place}: unmounted what a killed server had left"));
        }
        let mut inside = std::fs::read_dir(path).map_err(|error| match error.kind() {
            ErrorKind::NotADirectory => self.refused("is not a directory"),
            _ if fuse::is_disconnected(path) => self.refused(&format!(
                "{error}; the mount of another program that was killed is there: run fusermount3 -u {place}"
            )),
            _ => self.refused(&error.to_string()),
        })?;
        // For example another server's file, or the socket of this one.
        if let Some(Ok(hidden)) = inside.next() {
            let name = hidden.file_name();
            let why = format!("is not empty: {} would become unreachable", name.display());
            return Err(self.refused(&why));
        }
        Ok(())
    }
}

impl FrontEnd for FileSystem {
    fn start(&mut self, disk: &ServedDisk) -> Result<(), String> {
        self.clear_directory()?;
        let place = self.directory.display().to_string();
        let session = Arc::clone(&self.session);
        let on_failure = Box::new(move || {
            session.has_failed.store(true, Ordering::Relaxed);
            log_line(format_args!(
                "error: --fuse {place}: the FUSE session failed; {place} is unmounted, and programs that have the file open get \
                 errors from now on: restart the server to mount it again"
            ));
        });
        let mounted = Mounted::at(&self.directory, &self.name, disk.export.clone(), on_failure);
        self.mounted = Some(mounted.map_err(|error| self.refused(&error.to_string()))?);
        let sector_bytes = disk.export.shape().sector_bytes;
        if sector_bytes > LOOP_SECTOR_BYTES {
            let place = self.directory.display();
            log_line(format_args!(
                "note: --fuse {place}: the disk has sectors of {sector_bytes} bytes: use losetup --sector-size {sector_bytes} on its file"
            ));
        }
        Ok(())
    }

    fn address(&self) -> String {
        self.directory.join(&self.name).display().to_string()
    }

    fn ready_address(&self) -> Option<String> {
        None
    }

    fn control_path(&self) -> PathBuf {
        control::beside(&self.directory)
    }

    fn monitor(&self) -> Option<Arc<dyn Monitor>> {
        Some(Arc::clone(&self.session) as _)
    }

    fn stop(&mut self, _say: &dyn Fn(&str)) -> Result<(), String> {
        let Some(mounted) = self.mounted.take() else { return Ok(()) };
        let left = mounted.unmount().map_err(|error| format!("--fuse: cannot unmount: {error}"))?;
        if left == Unmounted::InUse {
            let place = self.directory.display();
            log_line(format_args!(
                "warning: --fuse {place}: the file was open; {place} is unmounted, and programs that have the file open get errors from now on"
            ));
        }
        Ok(())
    }
}
