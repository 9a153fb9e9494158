//! `block serve --record`: the file.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use block::export::Recording;
use device::SystemClock;

use super::devices::NewFiles;

/// More than a line has: three numbers and a word.
const LONGEST_LINE_BYTES: u64 = 128;

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
    let is_recording = head == Recording::HEADER.as_bytes();
    if is_recording {
        drop_half_line(file)?;
    }
    Ok(is_recording)
}

/// A killed server may have left half a line: a wrong row, or one that looks right and asks for less.
fn drop_half_line(file: &mut File) -> std::io::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    let last = length.saturating_sub(LONGEST_LINE_BYTES);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(last))?;
    file.read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(length, |end| last + end as u64 + 1);
    if whole < length { file.set_len(whole) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the file holds once a server goes on with it.
    fn gone_on(text: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.csv");
        std::fs::write(&path, text).unwrap();
        let mut file = OpenOptions::new().read(true).append(true).open(&path).unwrap();
        let goes_on = go_on(&mut file).unwrap();
        file.write_all(b"2,flush,0,0\n").unwrap();
        goes_on.then(|| std::fs::read_to_string(&path).unwrap())
    }

    /// It became a row of its own: a wrong one, or one of 40 bytes instead of 4096.
    #[test]
    fn half_a_line_that_a_killed_server_left_was_kept_as_a_line() {
        let begun = format!("{}1,read,0,512\n", Recording::HEADER);
        let long = format!("{}{}", Recording::HEADER, "1,read,0,512\n".repeat(100));
        for whole in [Recording::HEADER, &begun, &long] {
            for half in ["", "1,write,0,40", "1,wri", "1"] {
                assert_eq!(gone_on(&format!("{whole}{half}")), Some(format!("{whole}2,flush,0,0\n")));
            }
        }
        assert_eq!(gone_on("").unwrap(), format!("{}2,flush,0,0\n", Recording::HEADER));
        assert_eq!(gone_on("time_us,op,offset,bytes"), None);
        assert_eq!(gone_on("something else"), None);
    }
}
