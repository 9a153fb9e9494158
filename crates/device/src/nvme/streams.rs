//! Write streams: placement through the block layer, since Linux 6.16.
//!
//! A kernel that does not know the ring entry's `write_stream` ignores it silently, and all writes use the default handle. Only the block
//! device's limit in sysfs shows that it is supported.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::readiness::{self, unanswered, unsupported};
use super::{Drive, Location};
use crate::IoError;

/// Number of write streams of the opened block device.
///
/// # Errors
/// If there are no free streams: the missing requirement, and the steps to meet it.
pub(crate) fn required(device: &File, path: &Path) -> Result<u16, IoError> {
    let number = device.metadata().map_err(|error| unanswered(path, error))?.rdev();
    let Some(location) = Location::by_number(Path::new("/sys"), "block", number) else {
        return Err(unsupported(path, "only NVMe namespaces with Flexible Data Placement (FDP) support it"));
    };
    let streams = location.queue_limit("max_write_streams");
    if let Some(streams @ 2..) = streams {
        return Ok(u16::try_from(streams).unwrap_or(u16::MAX));
    }
    match missing(&location, path) {
        Ok(Some(words)) => Err(unsupported(path, &words)),
        // The drive is ready, so the kernel lacks support.
        Ok(None) => Err(unsupported(path, &kernel_words(&location, streams))),
        Err(error) => Err(unanswered(path, error)),
    }
}

/// The error for a request of placement on a file.
pub(crate) fn none_on_files(path: &Path) -> IoError {
    unsupported(
        path,
        "files do not support it, on any drive; use an NVMe namespace with Flexible Data Placement (FDP), such as \
         /dev/ng0n1 or /dev/nvme0n1",
    )
}

fn missing(location: &Location, path: &Path) -> io::Result<Option<String>> {
    readiness::missing(&Drive::open(path)?, location)
}

fn kernel_words(location: &Location, streams: Option<u64>) -> String {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let otherwise =
        format!("use {} instead, which places data by NVMe passthrough", location.generic_path().display());
    match streams {
        None => {
            format!("write streams on block devices need Linux 6.16, and this is {release}; {otherwise}")
        }
        Some(_) => format!(
            "the drive has placement handles, but this kernel ({release}) exposes none of them; {otherwise}"
        ),
    }
}
