//! The file of events: what may be written over, and when it begins.

use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::rows::{COLUMNS, HEADER};

/// A file of events that can be written. Until it is begun, an older one is as it was, and a new one is gone when this is
/// dropped.
pub struct EventFile {
    path: PathBuf,
    file: File,
    is_new: bool,
    /// Where the next row begins, in a file that can be cut.
    end: Option<u64>,
}

impl EventFile {
    /// Opens the file at `path`, which is new, empty, or of events.
    ///
    /// # Errors
    /// Why it cannot be written.
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

    /// Whether both would write the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let number = |file: &File| file.metadata().ok().map(|it| (it.dev(), it.ino(), it.is_file()));
        number(&self.file).is_some_and(|mine| mine.2 && number(&other.file) == Some(mine))
    }

    /// Begins it anew.
    pub(super) fn begin(&mut self) -> std::io::Result<()> {
        self.is_new = false;
        let is_file = self.file.metadata()?.is_file();
        let emptied = if is_file { self.file.set_len(0) } else { Ok(()) };
        emptied.map_err(|error| named(&self.path, &error))?;
        self.end = is_file.then_some(0);
        self.write(HEADER.as_bytes())
    }

    /// Writes rows: all of them or, where a file has no room for all, none, so that none is cut in the middle.
    pub(super) fn write(&mut self, rows: &[u8]) -> std::io::Result<()> {
        let written = self.file.write_all(rows).map_err(|error| named(&self.path, &error));
        match (&written, &mut self.end) {
            (Ok(()), Some(end)) => *end += rows.len() as u64,
            // If it cannot be cut either, the first error says enough.
            (Err(_), Some(end)) => drop(self.file.set_len(*end)),
            (_, None) => {}
        }
        written
    }
}

impl Drop for EventFile {
    fn drop(&mut self) {
        if self.is_new {
            // If it cannot be removed, an empty file is in nobody's way.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether nothing else would be lost: whatever has bytes in it begins as a file of events does, ours or CacheLib's.
///
/// # Errors
/// What is there, or that its folder is not.
pub fn check(path: &Path) -> Result<(), String> {
    let said = |words: &str| Err(format!("{} {words}", path.display()));
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
        Ok(_) => said("is not an event file, and would be overwritten: name another file"),
    }
}

fn named(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("writing {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_a_file_of_events_is_written_over_and_not_before_the_run_begins() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let foreign = [
            ("trace.csv", "key,op,size\n"),
            ("short.csv", "Ts,Event"),
            ("other.csv", "Ts,Event,Result,Kind\n"),
        ];
        for (name, text) in foreign {
            std::fs::write(at(name), text).unwrap();
            let words = EventFile::open(&at(name)).map(drop).unwrap_err();
            assert!(words.ends_with("is not an event file, and would be overwritten: name another file"));
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), text);
        }
        for (name, text) in [
            ("ours.csv", format!("{HEADER}1,FIND,FOUND,k,,,5\n")),
            ("theirs.csv", "ts,event,result,key\n".into()),
            ("empty.csv", String::new()),
        ] {
            std::fs::write(at(name), &text).unwrap();
            drop(EventFile::open(&at(name)).unwrap());
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), text, "it is as it was");
            EventFile::open(&at(name)).unwrap().begin().unwrap();
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), HEADER);
        }
        drop(EventFile::open(&at("new.csv")).unwrap());
        assert!(!at("new.csv").exists(), "a run that does not begin leaves nothing");
        assert!(EventFile::open(folder.path()).map(drop).unwrap_err().ends_with("is not a file"));
        let nowhere = EventFile::open(&at("no/folder.csv")).map(drop).unwrap_err();
        assert!(
            nowhere.contains("folder.csv cannot be written: ") && nowhere.ends_with("no is not a directory"),
            "{nowhere}"
        );
    }

    #[test]
    fn one_file_by_two_names_is_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| EventFile::open(&folder.path().join(name)).unwrap();
        let (one, again, other) = (at("b.csv"), at("./b.csv"), at("c.csv"));
        assert!(one.is_same(&again) && !one.is_same(&other));
    }
}
