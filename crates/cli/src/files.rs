//! What a command reads and writes: nothing that it reads, or that it has written, is written over.

use std::path::{Path, PathBuf};

use bench::file_id::is_same;

use crate::output::check_writable;

/// The files of a command, told before it begins.
#[derive(Default)]
pub struct Files {
    /// What they are to the user, and where.
    kept: Vec<(&'static str, PathBuf)>,
    written: Vec<PathBuf>,
}

impl Files {
    /// Those of a command that reads `inputs`.
    pub fn reading(inputs: &[PathBuf]) -> Self {
        Self::default().keeping("input", inputs.iter().cloned())
    }

    /// Others that it does not write over.
    pub fn keeping(mut self, what: &'static str, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.kept.extend(paths.into_iter().map(|path| (what, path)));
        self
    }

    /// What it writes, as far as it was asked to.
    pub fn writing<'a>(mut self, outputs: impl IntoIterator<Item = Option<&'a Path>>) -> Self {
        self.written.extend(outputs.into_iter().flatten().map(Path::to_owned));
        self
    }

    /// Refuses an output that would be written over something else, by whatever paths.
    pub fn keep_apart(&self) -> Result<(), String> {
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

    /// The same, and whether each output can be written: asked before a run of hours ends with one that cannot.
    pub fn check(&self) -> Result<(), String> {
        self.keep_apart()?;
        self.written.iter().try_for_each(|path| check_writable(path).map_err(|error| error.to_string()))
    }
}
