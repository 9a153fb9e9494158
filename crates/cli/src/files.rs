//! Checks that no output of a command overwrites its inputs or another output.

use std::path::{Path, PathBuf};

use bench::file_id::is_same;

use crate::output::check_writable;

/// The files of a command, collected before it starts.
#[derive(Default)]
pub struct Files {
    /// Files to keep, with their role for the message.
    kept: Vec<(&'static str, PathBuf)>,
    written: Vec<PathBuf>,
}

impl Files {
    /// Starts with the inputs, which are kept.
    pub fn reading(inputs: &[PathBuf]) -> Self {
        Self::default().keeping("input", inputs.iter().cloned())
    }

    /// Adds other files to keep.
    pub fn keeping(mut self, what: &'static str, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.kept.extend(paths.into_iter().map(|path| (what, path)));
        self
    }

    /// Adds the requested outputs.
    pub fn writing<'a>(mut self, outputs: impl IntoIterator<Item = Option<&'a Path>>) -> Self {
        self.written.extend(outputs.into_iter().flatten().map(Path::to_owned));
        self
    }

    /// Refuses an output that would overwrite another file of the command, also by another path.
    pub fn check_distinct(&self) -> Result<(), String> {
        for (number, output) in self.written.iter().enumerate() {
            let others = self.written[..number].iter().map(|path| ("output", path));
            let mut others = self.kept.iter().map(|(what, path)| (*what, path)).chain(others);
            if let Some((what, other)) = others.find(|(_, other)| is_same(other, output)) {
                let (output, other) = (output.display(), other.display());
                return Err(format!("{output}: would overwrite the {what} {other}"));
            }
        }
        Ok(())
    }

    /// Refuses an output that would overwrite another file of the command, or cannot be written, before a run of hours.
    pub fn check(&self) -> Result<(), String> {
        self.check_distinct()?;
        self.written.iter().try_for_each(|path| check_writable(path))
    }
}
