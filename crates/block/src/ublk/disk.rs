//! A ublk device: created, or taken over from a server that ended; served; and removed, or left for the next server.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{ErrorKind, IoError};
use rustix::event::{Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::control::{Control, FEATURES};
use super::queue::{DeviceShared, Running};
use super::request::Limits;
use super::uapi::{DeviceInfo, Parameters, SECTOR_BYTES, state};
use crate::export::{Export, Shape};

/// Options of a disk.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number `N` of `/dev/ublkbN`.
    pub number: u32,
    /// Identity of the served storage. A server can take over a device only if its identity is equal.
    pub identity: u64,
    /// Number of queues, each with a thread, at most one per processor. One before Linux 6.16, so that recovery is always possible.
    pub queues: u16,
    /// Requests in flight per queue; more wait in the kernel.
    pub depth: u16,
    /// Maximum length of a request with data. Together with the number of requests it limits the memory needed.
    pub max_io_bytes: u32,
}

impl Options {
    /// Defaults for disk `number`: four queues of 128 requests of up to 512 KiB, which need at most 256 MiB.
    #[must_use]
    pub fn new(number: u32, identity: u64) -> Self {
        Self { number, identity, queues: 4, depth: 128, max_io_bytes: 512 << 10 }
    }
}

/// State of a disk after [`Disk::stop`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOutcome {
    /// The disk was removed.
    Removed,
    /// The disk is mounted or opened exclusively. It remains, and its requests wait for the next server.
    Waiting,
}

/// The driver, which has the required features.
pub struct Driver(Control);

impl Driver {
    /// Opens the driver. From then on, memory allocations of this thread, and of threads that it starts, do not wait for writeback to
    /// disks: they could wait for the disk that this process serves. So call this before starting threads.
    ///
    /// # Errors
    /// * [`Unsupported`](ErrorKind::Unsupported): no driver, or one that is too old;
    /// * [`Open`](ErrorKind::Open): no permission.
    pub fn open() -> Result<Self, IoError> {
        let control = Control::open()?;
        rustix::process::configure_io_flusher_behavior(true).map_err(|errno| {
            let message = "ublk needs root (CAP_SYS_RESOURCE, to be trusted with writing disks)";
            IoError::with_source(ErrorKind::Open, message, errno.into())
        })?;
        Ok(Self(control))
    }
}

/// A served disk. Dropping it stops it, as [`stop`](Self::stop) does.
pub struct Disk {
    control: Control,
    number: u32,
    was_taken_over: bool,
    queues: Vec<Running>,
}

/// Attempts before giving up, longer than the kernel takes to notice the end of a server.
const MAX_ATTEMPTS: u32 = 200;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Maximum length of requests without data. Zeros may have to be written, so they are shorter.
const MAX_DISCARD_BYTES: u64 = 1 << 30;
const MAX_ZEROES_BYTES: u64 = 32 << 20;

/// Larger blocks are only reported as the preferred size: software expects sectors of at most a page.
const MAX_PHYSICAL_BLOCK_BYTES: u32 = 4096;

impl Disk {
    /// Serves `export` as a disk. A device left by a server with the same identity, killed or not, is taken over, and its
    /// unanswered requests are repeated.
    ///
    /// # Errors
    /// * [`Busy`](ErrorKind::Busy): the number is in use by another device, or another number has the same identity;
    /// * [`Open`](ErrorKind::Open): no permission, or the driver refuses;
    /// * [`Invalid`](ErrorKind::Invalid): the size is not a whole number of sectors.
    pub fn serve(driver: Driver, export: Arc<dyn Export>, options: &Options) -> Result<Self, IoError> {
        let shape = export.shape();
        let parameters = parameters(&shape, options)?;
        let Driver(mut control) = driver;
        let found = find(&mut control, options)?;
        let was_taken_over = found.is_some();
        let info = match found {
            Some(info) => take_over(&mut control, info, &parameters)?,
            None => {
                if let Some(other) = of_identity(&mut control, options.identity) {
                    let message =
                        "belongs to the same disk and may hold unwritten data: serve with that number";
                    return Err(busy(other, message));
                }
                let queues = if control.can_recover_many_queues() { options.queues } else { 1 };
                control.add(&wanted(options, queues))?
            }
        };
        let mut disk = Self { control, number: info.number, was_taken_over, queues: Vec::new() };
        if let Err(error) = disk.begin(export, &info, &parameters) {
            disk.leave();
            // A device to be taken over keeps waiting; a new one is deleted. Only the first error is reported.
            if !was_taken_over {
                let _ = disk.control.delete(disk.number);
            }
            return Err(error);
        }
        Ok(disk)
    }

    /// Path of the block device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        block_path(self.number)
    }

    /// Whether the device existed and was taken over.
    #[must_use]
    pub fn was_taken_over(&self) -> bool {
        self.was_taken_over
    }

    /// Answers the requests in flight and stops. The disk is removed, unless it is mounted or opened exclusively: then it remains for
    /// the next server.
    ///
    /// # Errors
    /// If data in the kernel's page cache could not be written, or the driver refuses.
    pub fn stop(mut self) -> Result<StopOutcome, IoError> {
        self.end()
    }

    fn begin(
        &mut self,
        export: Arc<dyn Export>,
        info: &DeviceInfo,
        parameters: &Parameters,
    ) -> Result<(), IoError> {
        if !self.was_taken_over {
            self.control.set_parameters(self.number, parameters)?;
        }
        let limits = Limits {
            size_bytes: parameters.size_bytes,
            block_bytes: parameters.logical_block_bytes,
            max_io_bytes: info.max_io_bytes,
            read_only: parameters.read_only,
        };
        let path = PathBuf::from(format!("/dev/ublkc{}", self.number));
        let failed = |error| IoError::with_source(ErrorKind::Open, path.display().to_string(), error);
        let device = Arc::new(open_when_closed(&path).map_err(failed)?);
        let shared = Arc::new(DeviceShared { device, export, limits, depth: info.depth });
        for queue in 0..info.queues {
            self.queues.push(Running::start(&shared, queue).map_err(failed)?);
        }
        if self.was_taken_over {
            self.control.end_recovery(self.number)
        } else {
            self.control.start(self.number)
        }
    }

    fn end(&mut self) -> Result<StopOutcome, IoError> {
        if self.queues.is_empty() {
            return Ok(StopOutcome::Removed);
        }
        let open_exclusively = match open_exclusively(&self.path()) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                self.leave();
                return Ok(StopOutcome::Waiting);
            }
            // For example, the device was already removed; the rest still has to be.
            open_exclusively => open_exclusively.ok(),
        };
        // Synced while it is served: stopping discards the kernel's unwritten data.
        let written = open_exclusively.as_ref().map_or(Ok(()), File::sync_all);
        let stopped = self.control.stop(self.number);
        drop(open_exclusively);
        if stopped.is_err() {
            self.leave();
        }
        self.queues.drain(..).for_each(Running::join);
        stopped.and_then(|()| self.control.delete(self.number))?;
        let lost = format!("{}: data written to it was lost", self.path().display());
        written.map_err(|error| IoError::with_source(ErrorKind::Medium, lost, error))?;
        Ok(StopOutcome::Removed)
    }

    fn leave(&mut self) {
        self.queues.iter().for_each(Running::leave);
        self.queues.drain(..).for_each(Running::join);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

pub(super) fn block_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

fn parameters(shape: &Shape, options: &Options) -> Result<Parameters, IoError> {
    let logical_block_bytes = shape.sector_bytes.max(SECTOR_BYTES as u32);
    if !shape.size_bytes.is_multiple_of(logical_block_bytes.into()) || shape.size_bytes == 0 {
        let size_bytes = shape.size_bytes;
        let message = format!(
            "a disk of {size_bytes} bytes is not a whole number of sectors of {logical_block_bytes} bytes"
        );
        return Err(IoError::new(ErrorKind::Invalid, message));
    }
    let preferred_bytes = shape.preferred_bytes.max(logical_block_bytes);
    Ok(Parameters {
        size_bytes: shape.size_bytes,
        max_io_bytes: options.max_io_bytes,
        logical_block_bytes,
        physical_block_bytes: preferred_bytes.min(MAX_PHYSICAL_BLOCK_BYTES).max(logical_block_bytes),
        preferred_bytes,
        read_only: shape.read_only,
        max_discard_bytes: MAX_DISCARD_BYTES,
        max_zeroes_bytes: MAX_ZEROES_BYTES,
    })
}

fn wanted(options: &Options, queues: u16) -> DeviceInfo {
    DeviceInfo {
        queues,
        depth: options.depth,
        state: state::DEAD,
        max_io_bytes: options.max_io_bytes,
        number: options.number,
        process: 0,
        features: FEATURES,
        mark: options.identity,
    }
}

/// The device to take over; `None` if there is no device with this number.
fn find(control: &mut Control, options: &Options) -> Result<Option<DeviceInfo>, IoError> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(info) = control.info(options.number)? else { return Ok(None) };
        if info.mark != options.identity || info.features & FEATURES != FEATURES {
            return Err(busy(options.number, "already exists and belongs to another disk"));
        }
        match info.state {
            state::QUIESCED => return Ok(Some(info)),
            // Never started or being removed, and possibly still open.
            state::DEAD => control.delete(options.number)?,
            // The kernel has not noticed the end of its server yet.
            _ => {}
        }
        pause();
    }
    Err(busy(options.number, "still exists: it is open or being served"))
}

/// The device of a disk that waits for its next server, if there is one. The disk must not be written by others: it would get two
/// diverging users.
///
/// # Errors
/// [`Open`](ErrorKind::Open): no permission, or the driver refuses. Without the driver there is no device.
pub fn waiting(identity: u64) -> Result<Option<PathBuf>, IoError> {
    if numbers().is_empty() {
        return Ok(None);
    }
    Ok(of_identity(&mut Control::open()?, identity).map(block_path))
}

/// The number of a started device of this program with that identity.
fn of_identity(control: &mut Control, identity: u64) -> Option<u32> {
    let is_it = |info: DeviceInfo| {
        info.mark == identity && info.features & FEATURES == FEATURES && info.state != state::DEAD
    };
    // Devices that cannot be queried belong to other programs.
    numbers().into_iter().find(|number| control.info(*number).ok().flatten().is_some_and(is_it))
}

/// The numbers of all devices of the driver.
pub(super) fn numbers() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/sys/class/ublk-char") else { return Vec::new() };
    let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    entries.flatten().filter_map(name).filter_map(|name| name.strip_prefix("ublkc")?.parse().ok()).collect()
}

fn take_over(
    control: &mut Control,
    info: DeviceInfo,
    parameters: &Parameters,
) -> Result<DeviceInfo, IoError> {
    let actual = control.size_and_sectors(info.number)?;
    if let Some(why) = why_not_taken_over(actual, (parameters.size_bytes, parameters.logical_block_bytes)) {
        return Err(busy(info.number, &why));
    }
    for _ in 0..MAX_ATTEMPTS {
        if control.start_recovery(info.number)? {
            return Ok(info);
        }
        pause();
    }
    Err(busy(info.number, "is still held by the server that ended"))
}

/// Why a device with this size and these sectors cannot be taken over for a disk with `wanted`; users of the device rely on
/// both.
fn why_not_taken_over(actual: (u64, u32), wanted: (u64, u32)) -> Option<String> {
    let ((made_bytes, made_sectors), (wanted_bytes, wanted_sectors)) = (actual, wanted);
    if made_bytes != wanted_bytes {
        return Some(format!("waits for the server of a disk of {made_bytes} bytes, not {wanted_bytes}"));
    }
    (made_sectors != wanted_sectors).then(|| {
        format!(
            "waits for the server of a disk with sectors of {made_sectors} bytes, not {wanted_sectors}: \
             --sector-size {made_sectors} takes it over"
        )
    })
}

pub(super) fn busy(number: u32, why: &str) -> IoError {
    IoError::new(ErrorKind::Busy, format!("{} {why}", block_path(number).display()))
}

/// Opens a character device, waiting until the previous server has closed it.
fn open_when_closed(path: &Path) -> io::Result<File> {
    let open = || File::options().read(true).write(true).open(path);
    for _ in 0..MAX_ATTEMPTS {
        match open() {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => pause(),
            opened => return opened,
        }
    }
    open()
}

fn pause() {
    // A poll without descriptors is a sleep, which may be interrupted.
    let _ = poll(&mut [], Some(&PAUSE));
}

/// Opens the disk exclusively, so that it cannot be mounted. Fails as busy if it is mounted or opened exclusively.
fn open_exclusively(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits().cast_signed()).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(size_bytes: u64, sector_bytes: u32, preferred_bytes: u32) -> Shape {
        Shape { size_bytes, block_bytes: 1, sector_bytes, preferred_bytes, read_only: false }
    }

    #[test]
    fn sectors_are_at_least_512_bytes_and_physical_blocks_at_most_a_page() {
        let options = Options::new(0, 1);
        let blocks = |sector_bytes, preferred_bytes| {
            let parameters_of = parameters(&shape(1 << 20, sector_bytes, preferred_bytes), &options).unwrap();
            [
                parameters_of.logical_block_bytes,
                parameters_of.physical_block_bytes,
                parameters_of.preferred_bytes,
            ]
        };
        assert_eq!(blocks(1, 4096), [512, 4096, 4096]);
        assert_eq!(blocks(512, 512), [512, 512, 512]);
        assert_eq!(blocks(1, 65_536), [512, 4096, 65_536]);
        assert_eq!(blocks(4096, 4096), [4096, 4096, 4096]);
    }

    #[test]
    fn size_that_is_not_a_multiple_of_sectors_is_refused() {
        for size_bytes in [0, 511, 513] {
            let refused = parameters(&shape(size_bytes, 1, 4096), &Options::new(0, 1)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn device_with_other_sectors_is_not_taken_over() {
        assert_eq!(why_not_taken_over((1 << 20, 4096), (1 << 20, 4096)), None);
        let other_size = why_not_taken_over((1 << 20, 512), (2 << 20, 512)).unwrap();
        assert!(other_size.contains("1048576 bytes, not 2097152"), "{other_size}");
        let other_sectors = why_not_taken_over((1 << 20, 512), (1 << 20, 4096)).unwrap();
        assert!(other_sectors.contains("--sector-size 512"), "{other_sectors}");
    }
}
