//! What can go wrong with a device.

use std::fmt;

/// The kinds a caller tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request breaks the contract: alignment, length, range.
    Invalid,
    /// The medium or the path to it failed.
    Medium,
    /// No room behind a sparse file.
    NoSpace,
    /// The device does not do that (trim, direct I/O, placement).
    Unsupported,
    /// Somebody else owns the device, or it is mounted.
    Busy,
    /// Path, permission or size: opening failed.
    Open,
    /// The device is being shut down.
    Closed,
}

/// A failed request or opening: a kind to match on, words to read, the system's error behind it.
#[derive(Debug)]
pub struct IoError {
    kind: ErrorKind,
    context: String,
    source: Option<std::io::Error>,
}

impl IoError {
    /// An error of `kind`; `context` says what was being done, to what.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// The same, with the system's error behind it.
    pub fn with_source(kind: ErrorKind, context: impl Into<String>, source: std::io::Error) -> Self {
        Self { kind, context: context.into(), source: Some(source) }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.context),
            None => f.write_str(&self.context),
        }
    }
}

impl std::error::Error for IoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
