//! Writes requests to a new trace.

use std::path::Path;

use serde_json::{Value, json};
use workload::trace::block::{BlockWriter, BlockWritten};
use workload::trace::write::WriteError;

use super::source::{After, BlockTraceError, Source};
use crate::run::stop::Stop;

/// Error of a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The requests cannot be read.
    #[error(transparent)]
    Read(#[from] BlockTraceError),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The recording was stopped.
    #[error("interrupted")]
    Interrupted,
}

/// Writes all requests of `source` to the new file `path`. `advance` receives the number of requests so far.
///
/// # Errors
/// The requests cannot be read, the file cannot be written, or the recording was stopped. The file is removed.
pub fn record(
    source: &mut Source,
    path: &Path,
    stop: &Stop,
    advance: &dyn Fn(u64),
) -> Result<BlockWritten, RecordError> {
    let mut writer = BlockWriter::create(path)?;
    let (mut chunk, mut requests) = (Vec::new(), 0);
    loop {
        let after = source.fill(&mut chunk)?;
        writer.write(&chunk)?;
        requests += chunk.len() as u64;
        advance(requests);
        if stop.is_set() {
            return Err(RecordError::Interrupted);
        }
        if after == After::End {
            return Ok(writer.finish()?);
        }
    }
}

/// The counters of the written trace for the result file.
#[must_use]
pub fn json(written: &BlockWritten) -> Value {
    json!({
        "requests": written.requests,
        "reads": written.reads,
        "writes": written.writes,
        "read_bytes": written.read_bytes,
        "written_bytes": written.written_bytes,
    })
}
