//! fio jobs on the model drive, in virtual time.
//!
//! [`load`] reads a job file, [`plan::Plan`] places its jobs on the drive, [`run`](run::run) executes them side by side and counts, and
//! [`report`] describes the result.

pub mod curve;
pub mod mixed;
pub mod plan;
pub mod plot;
pub mod replay;
pub mod report;
pub mod run;

use std::path::Path;

use device::names;
pub use workload::fio::JobFile;
use workload::fio::{JobError, keys};

/// Reads and parses a job file. Variables are taken from the environment.
///
/// # Errors
/// A text that names the file, the line and the key, and a similar valid key if there is one.
pub fn load(path: &Path) -> Result<JobFile, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    JobFile::parse(&text, |name| std::env::var(name).ok()).map_err(|error| describe(path, &error))
}

fn describe(path: &Path, error: &JobError) -> String {
    let hint = if error.is_unknown_key { names::hint(&error.key, keys::names()) } else { String::new() };
    let hint = if hint.is_empty() { hint } else { format!("; {}", hint.trim_end()) };
    let comma = if error.line > 0 { ", " } else { ": " };
    format!("{}{comma}{error}{hint}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_key_is_refused_with_file_line_and_nearest_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.fio");
        std::fs::write(&file, "[job]\niodetph=4\n").unwrap();
        let error = load(&file).unwrap_err();
        let expected =
            "x.fio, line 2: iodetph: is not a key that the model supports; did you mean `iodepth`?";
        assert!(error.ends_with(expected), "{error}");
        assert!(load(&folder.path().join("none.fio")).unwrap_err().contains("none.fio: No such file"));
    }
}
