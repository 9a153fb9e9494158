//! What can go wrong with a volume.

use std::fmt;
use std::sync::Arc;

use device::IoError;

/// The kinds a caller tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeErrorKind {
    /// The request breaks the rules: range, alignment.
    Invalid,
    /// The configuration cannot be had on these devices.
    Config,
    /// The flash holds something else than a volume; it is named.
    Foreign,
    /// A volume of a newer format than this program knows.
    NewerFormat,
    /// The flash was a volume once, and what says so is damaged beyond use.
    Damaged,
    /// The disk is not the one this cache belongs to, or was written without it.
    WrongDisk,
    /// The flash failed.
    Flash,
    /// The disk failed.
    Disk,
    /// The volume is closed or closing.
    Closed,
}

/// A failed request or opening: a kind to match on, words to read, the device's error behind it. Cheap to clone: a
/// failed commit is told to everyone who waited for it.
#[derive(Debug, Clone)]
pub struct VolumeError {
    kind: VolumeErrorKind,
    context: Arc<str>,
    source: Option<Arc<IoError>>,
}

/// What an operation on a volume comes to.
pub type Result<T> = std::result::Result<T, VolumeError>;

impl VolumeError {
    pub(crate) fn new(kind: VolumeErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into().into(), source: None }
    }

    pub(crate) fn flash(context: &str, source: IoError) -> Self {
        Self { kind: VolumeErrorKind::Flash, context: context.into(), source: Some(Arc::new(source)) }
    }

    pub(crate) fn disk(context: &str, source: IoError) -> Self {
        Self { kind: VolumeErrorKind::Disk, context: context.into(), source: Some(Arc::new(source)) }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> VolumeErrorKind {
        self.kind
    }
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.context),
            None => f.write_str(&self.context),
        }
    }
}

impl std::error::Error for VolumeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
