//! Errors of a volume.

use std::fmt;
use std::sync::Arc;

use device::IoError;

/// Kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeErrorKind {
    /// The range is outside the volume or not aligned.
    Invalid,
    /// These devices cannot have the requested configuration.
    Config,
    /// The flash holds something other than a volume.
    Foreign,
    /// The volume has a newer format than this program supports.
    NewerFormat,
    /// The flash holds a volume whose metadata is damaged beyond repair.
    Damaged,
    /// The disk is not the one that belongs to this cache, or it was written without the cache.
    WrongDisk,
    /// The flash failed.
    Flash,
    /// The disk failed.
    Disk,
    /// The volume is closed or closing.
    Closed,
}

/// An error: its kind, a message, and the device's error that caused it. Cheap to clone, because a failed commit is reported to
/// every waiting request.
#[derive(Debug, Clone)]
pub struct VolumeError {
    kind: VolumeErrorKind,
    context: Arc<str>,
    source: Option<Arc<IoError>>,
}

/// Result of an operation on a volume.
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

    /// The error's kind.
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
