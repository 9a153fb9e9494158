//! Errors of studies.

use crate::session::SessionError;

/// File with the write counters of all series.
pub const SERIES_FILE: &str = "warp_series.csv";
/// File with the capacity of each series' drive.
pub const META_FILE: &str = "warp_series_meta.csv";

/// Error of a study.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The cache cannot be opened or run.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
    /// A plot or result cannot be made.
    #[error("{0}")]
    Output(String),
    /// The given trace cannot be read.
    #[error(transparent)]
    Trace(#[from] crate::trace::Error),
    /// The given trace can be read only once.
    #[error("a study reads its trace several times, and standard input can be read only once: give a file")]
    ReadOnce,
    /// The given trace has no requests.
    #[error("{files}: the trace has no requests")]
    EmptyTrace {
        /// Files of the trace.
        files: String,
    },
    /// A trace was given to a study with its own workload.
    #[error("takes no trace: its workload is part of the experiment")]
    TakesNoTrace,
    /// A study that compares with logs was given none.
    #[error(
        "needs --logs DIRECTORY, with {SERIES_FILE} (series,host_bytes,media_bytes) and {META_FILE} (series,…,capacity_bytes,…)"
    )]
    NeedsLogs,
}
