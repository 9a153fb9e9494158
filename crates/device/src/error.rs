//! Errors of devices.

use std::fmt;

/// Error kinds that callers distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request breaks the contract: alignment, length, range.
    Invalid,
    /// The medium or the path to it failed.
    Medium,
    /// No space behind a sparse file.
    NoSpace,
    /// The device does not support the operation (trim, direct I/O, placement).
    Unsupported,
    /// The device is in use or mounted.
    Busy,
    /// Opening failed because of path, permission or size.
    Open,
    /// The device is being shut down.
    Closed,
}

/// A failed request or opening: a kind to match on, a message, the system's error as source.
#[derive(Debug)]
pub struct IoError {
    kind: ErrorKind,
    context: String,
    source: Option<std::io::Error>,
}

impl IoError {
    /// An error of `kind`; `context` names the operation and its object.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// As [`new`](Self::new), with the system's error as source.
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
