//! The file of `block serve --record`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use block::export::Recording;
use device::SystemClock;

use crate::devices::NewFiles;
use crate::log_line;

/// Longest line of a recording: three numbers and a word.
const LONGEST_LINE_BYTES: u64 = 128;

/// A recording in progress, and the error that ended it.
pub struct Recorder {
    pub recording: Recording,
    pub failure: Failure,
}

/// The message of the error that ended a recording, once there is one.
pub type Failure = Arc<OnceLock<String>>;

/// Opens a recording: creates the file, which is added to `new`, or appends to an earlier recording.
///
/// # Errors
/// The file cannot be opened, or is not a recording.
pub fn start(path: &Path, new: &mut NewFiles) -> Result<Recorder, String> {
    let failed = |error: std::io::Error| format!("--record {}: {error}", path.display());
    let is_new = !path.exists();
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
    if is_new {
        new.add(path);
    }
    if !prepare_append(&mut file).map_err(failed)? {
        return Err(format!("--record {}: is not a recording, and is left alone", path.display()));
    }
    let failure = Failure::default();
    let on_error = {
        let (failure, path) = (Arc::clone(&failure), path.to_path_buf());
        move |error: &std::io::Error| report(&failure, &path, error)
    };
    let recording = Recording::start(file, Arc::new(SystemClock), unix_us(), on_error).map_err(failed)?;
    Ok(Recorder { recording, failure })
}

/// Reports a failed write immediately and removes an incomplete last row.
fn report(failure: &Failure, path: &Path, error: &std::io::Error) {
    let message =
        format!("--record {}: {error}; the recording ends, and requests are still served", path.display());
    let _ = failure.set(message.clone());
    log_line(message);
    let opened = OpenOptions::new().read(true).write(true).open(path);
    if let Err(error) = opened.and_then(|mut file| drop_half_line(&mut file)) {
        log_line(format!("--record {}: the last row may be incomplete: {error}", path.display()));
    }
}

/// Wall-clock time, so that recordings of consecutive servers can be concatenated.
#[expect(
    clippy::disallowed_methods,
    reason = "a clock tells whole seconds of the calendar: a second server would begin before the end of the first"
)]
fn unix_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX / 2)
}

/// Prepares the file for appending; returns whether it is a recording.
fn prepare_append(file: &mut File) -> std::io::Result<bool> {
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

/// Removes an incomplete last line of a killed server, which could be invalid or parse as a shorter request.
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

    /// The file's contents after a server has appended to it.
    fn after_append(text: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.csv");
        std::fs::write(&path, text).unwrap();
        let mut file = OpenOptions::new().read(true).append(true).open(&path).unwrap();
        let is_recording = prepare_append(&mut file).unwrap();
        file.write_all(b"2,flush,0,0\n").unwrap();
        is_recording.then(|| std::fs::read_to_string(&path).unwrap())
    }

    /// Catches a regression: a full disk leaves an incomplete row, and the error is reported only when the server ends.
    #[test]
    fn failed_write_is_kept_for_status_and_its_cut_row_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.csv");
        let whole = format!("{}1,read,0,512\n", Recording::HEADER);
        std::fs::write(&path, format!("{whole}2,write,0,40")).unwrap();
        let failure = Failure::default();
        report(&failure, &path, &std::io::ErrorKind::StorageFull.into());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        let message = failure.get().unwrap();
        assert!(message.contains("requests.csv: ") && message.contains("the recording ends"), "{message}");
    }

    /// Catches a regression: the incomplete line becomes a row, for example of 40 bytes instead of 4096.
    #[test]
    fn incomplete_last_line_is_removed() {
        let begun = format!("{}1,read,0,512\n", Recording::HEADER);
        let long = format!("{}{}", Recording::HEADER, "1,read,0,512\n".repeat(100));
        for whole in [Recording::HEADER, &begun, &long] {
            for half in ["", "1,write,0,40", "1,wri", "1"] {
                assert_eq!(after_append(&format!("{whole}{half}")), Some(format!("{whole}2,flush,0,0\n")));
            }
        }
        assert_eq!(after_append("").unwrap(), format!("{}2,flush,0,0\n", Recording::HEADER));
        assert_eq!(after_append("time_us,op,offset,bytes"), None);
        assert_eq!(after_append("something else"), None);
    }
}
