//! `block serve --record`: the file.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use block::export::Recording;
use device::SystemClock;

use super::devices::NewFiles;

/// Begins a recording, which is one of the `new` files then, or goes on with one that an earlier server made.
///
/// # Errors
/// The file cannot be had, or holds something else.
pub fn start(path: &Path, new: &mut NewFiles) -> Result<Recording, String> {
    let failed = |error: std::io::Error| format!("--record {}: {error}", path.display());
    let is_new = !path.exists();
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
    if is_new {
        new.add(path);
    }
    if !go_on(&mut file).map_err(failed)? {
        return Err(format!("--record {}: is not a recording, and is left alone", path.display()));
    }
    Recording::start(file, Arc::new(SystemClock), unix_us()).map_err(failed)
}

/// The recordings of two servers, one after the other, are one: times in it are of the calendar.
#[expect(
    clippy::disallowed_methods,
    reason = "a clock tells whole seconds of the calendar: a second server would begin before the end of the first"
)]
fn unix_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX / 2)
}

/// Gets the file ready for another line; whether it is a recording.
fn go_on(file: &mut File) -> std::io::Result<bool> {
    let mut head = Vec::new();
    file.take(Recording::HEADER.len() as u64).read_to_end(&mut head)?;
    if head.is_empty() {
        file.write_all(Recording::HEADER.as_bytes())?;
        return Ok(true);
    }
    // A killed server may have left half a line.
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    let is_recording = head == Recording::HEADER.as_bytes();
    if is_recording && last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(is_recording)
}
