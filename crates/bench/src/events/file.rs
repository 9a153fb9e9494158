//! The event file: which files may be overwritten, and when writing starts.

use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::rows::{COLUMNS, HEADER};

/// An event file open for writing. Until `begin`, an existing file is unchanged, and a new one is removed when this is dropped.
pub struct EventFile {
    path: PathBuf,
    file: File,
    is_new: bool,
    /// Offset of the next row, in a file that can be truncated.
    end: Option<u64>,
}

impl EventFile {
    /// Opens the file at `path`, which is new, empty, or an event file.
    ///
    /// # Errors
    /// The reason why it cannot be written.
    pub fn open(path: &Path) -> Result<Self, String> {
        let is_new = std::fs::symlink_metadata(path).is_err();
        check(path)?;
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| named(path, &error).to_string())?;
        Ok(Self { path: path.to_owned(), file, is_new, end: None })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether both are the same file.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let number = |file: &File| file.metadata().ok().map(|it| (it.dev(), it.ino(), it.is_file()));
        number(&self.file).is_some_and(|mine| mine.2 && number(&other.file) == Some(mine))
    }

    /// Truncates the file and writes the header.
    pub(super) fn begin(&mut self) -> std::io::Result<()> {
        self.is_new = false;
        let is_file = self.file.metadata()?.is_file();
        let emptied = if is_file { self.file.set_len(0) } else { Ok(()) };
        emptied.map_err(|error| named(&self.path, &error))?;
        self.end = is_file.then_some(0);
        self.write(HEADER.as_bytes())
    }

    /// Writes all rows, or none if the disk is full, so that no row is incomplete.
    pub(super) fn write(&mut self, rows: &[u8]) -> std::io::Result<()> {
        let written = self.file.write_all(rows).map_err(|error| named(&self.path, &error));
        match (&written, &mut self.end) {
            (Ok(()), Some(end)) => *end += rows.len() as u64,
            // If truncating fails as well, the first error is reported.
            (Err(_), Some(end)) => drop(self.file.set_len(*end)),
            (_, None) => {}
        }
        written
    }
}

impl Drop for EventFile {
    fn drop(&mut self) {
        if self.is_new {
            // A failure leaves only an empty file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Checks that no other file would be overwritten: the content must start like an event file of this program or CacheLib.
///
/// # Errors
/// The reason: another kind of file, or a missing directory.
pub fn check(path: &Path) -> Result<(), String> {
    let said = |text: &str| Err(format!("{} {text}", path.display()));
    let Ok(found) = std::fs::metadata(path) else {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        return match folder.filter(|folder| !folder.is_dir()) {
            Some(folder) => said(&format!("cannot be written: {} is not a directory", folder.display())),
            None => Ok(()),
        };
    };
    if found.file_type().is_char_device() {
        return Ok(());
    }
    if !found.is_file() {
        return said("is not a file");
    }
    let mut first = Vec::new();
    let most = COLUMNS.len() as u64;
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut first));
    match read {
        Err(error) => said(&format!("cannot be read: {error}")),
        Ok(_) if first.is_empty() || first.eq_ignore_ascii_case(COLUMNS.as_bytes()) => Ok(()),
        Ok(_) => said("is not an event file and would be overwritten; use another file"),
    }
}

fn named(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("writing {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_file_overwrites_only_event_files_and_only_at_begin() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let foreign = [
            ("trace.csv", "key,op,size\n"),
            ("short.csv", "Ts,Event"),
            ("other.csv", "Ts,Event,Result,Kind\n"),
        ];
        for (name, text) in foreign {
            std::fs::write(at(name), text).unwrap();
            let message = EventFile::open(&at(name)).map(drop).unwrap_err();
            assert!(message.ends_with("is not an event file and would be overwritten; use another file"));
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), text);
        }
        for (name, text) in [
            ("ours.csv", format!("{HEADER}1,FIND,FOUND,k,,,5\n")),
            ("theirs.csv", "ts,event,result,key\n".into()),
            ("empty.csv", String::new()),
        ] {
            std::fs::write(at(name), &text).unwrap();
            drop(EventFile::open(&at(name)).unwrap());
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), text, "the file is unchanged until begin");
            EventFile::open(&at(name)).unwrap().begin().unwrap();
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), HEADER);
        }
        drop(EventFile::open(&at("new.csv")).unwrap());
        assert!(!at("new.csv").exists(), "a new file is removed if the run does not begin");
        assert!(EventFile::open(folder.path()).map(drop).unwrap_err().ends_with("is not a file"));
        let nowhere = EventFile::open(&at("no/folder.csv")).map(drop).unwrap_err();
        assert!(
            nowhere.contains("folder.csv cannot be written: ") && nowhere.ends_with("no is not a directory"),
            "{nowhere}"
        );
    }

    #[test]
    fn event_file_is_same_for_two_paths_to_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| EventFile::open(&folder.path().join(name)).unwrap();
        let (one, again, other) = (at("b.csv"), at("./b.csv"), at("c.csv"));
        assert!(one.is_same(&again) && !one.is_same(&other));
    }
}
