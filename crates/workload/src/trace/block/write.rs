//! Writes block device requests to a CSV file that [`plain`](super::plain) reads back exactly.
//!
//! The file gets its name when it is complete. It is compressed if the name ends in `.gz`, `.zst` or `.xz`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::block::{BlockKind, BlockRequest};
use crate::trace::write::{Output, PartFile, WriteError};

const HEADER: &[u8] = b"time_ns,op,offset,bytes\n";

/// Writes a block trace. If dropped without [`finish`](Self::finish), it removes the incomplete file.
pub struct BlockWriter {
    path: PathBuf,
    part: PartFile,
    out: Output,
    line: Vec<u8>,
    written: BlockWritten,
}

/// Counts of a written trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockWritten {
    /// All requests.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl BlockWriter {
    /// Creates a file for the trace `path`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<Self, WriteError> {
        let failed = |source| WriteError::Io { path: path.to_owned(), source };
        let (part, file) = PartFile::create(path, ".part").map_err(failed)?;
        let mut out = Output::new(path, file).map_err(failed)?;
        out.write_all(HEADER).map_err(failed)?;
        Ok(Self { path: path.to_owned(), part, out, line: Vec::new(), written: BlockWritten::default() })
    }

    /// Writes the next requests.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, requests: &[BlockRequest]) -> Result<(), WriteError> {
        for request in requests {
            let BlockRequest { time_ns, kind, first_byte, bytes } = *request;
            self.line.clear();
            let result = writeln!(self.line, "{time_ns},{},{first_byte},{bytes}", letter(kind));
            result.expect("writing to memory cannot fail");
            let written = self.out.write_all(&self.line);
            written.map_err(|source| WriteError::Io { path: self.path.clone(), source })?;
            self.written.count(request);
        }
        Ok(())
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<BlockWritten, WriteError> {
        let Self { path, part, out, written, .. } = self;
        match out.finish().and_then(|()| part.take_name(&path)) {
            Ok(()) => Ok(written),
            Err(source) => Err(WriteError::Io { path, source }),
        }
    }
}

impl BlockWritten {
    fn count(&mut self, request: &BlockRequest) {
        self.requests += 1;
        match request.kind {
            BlockKind::Read => {
                self.reads += 1;
                self.read_bytes += request.bytes;
            }
            BlockKind::Write => {
                self.writes += 1;
                self.written_bytes += request.bytes;
            }
            BlockKind::Discard | BlockKind::Flush => {}
        }
    }
}

fn letter(kind: BlockKind) -> char {
    match kind {
        BlockKind::Read => 'R',
        BlockKind::Write => 'W',
        BlockKind::Discard => 'D',
        BlockKind::Flush => 'F',
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::generate::innodb::{Innodb, InnodbConfig};
    use crate::trace::block::{BlockTrace, BlockTraceOptions};

    #[test]
    fn written_trace_reads_back_plain_and_compressed() {
        let directory = tempfile::tempdir().unwrap();
        let mut requests: Vec<BlockRequest> = Innodb::new(InnodbConfig::default(), 3).take(2000).collect();
        let last = requests[1999].time_ns;
        requests.push(BlockRequest {
            time_ns: last + 1,
            kind: BlockKind::Discard,
            first_byte: 512,
            bytes: 4096,
        });
        requests.push(BlockRequest { time_ns: last + 2, kind: BlockKind::Flush, first_byte: 0, bytes: 0 });
        for name in ["trace.csv", "trace.csv.zst"] {
            let path = directory.path().join(name);
            let mut writer = BlockWriter::create(&path).unwrap();
            writer.write(&requests).unwrap();
            assert!(!path.exists(), "it is incomplete");
            let written = writer.finish().unwrap();
            let mut trace = BlockTrace::open(&[path], BlockTraceOptions::default()).unwrap();
            let read: Vec<BlockRequest> = trace.by_ref().map(Result::unwrap).collect();
            assert_eq!(read.len(), requests.len());
            let start_ns = requests[0].time_ns - read[0].time_ns;
            for (read, requested) in read.iter().zip(&requests) {
                assert_eq!(BlockRequest { time_ns: read.time_ns + start_ns, ..*read }, *requested);
            }
            assert_eq!(written.requests, trace.stats().requests);
            assert_eq!(written.reads + written.writes + 2, written.requests);
        }
    }

    #[test]
    fn unfinished_writer_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        drop(BlockWriter::create(&directory.path().join("trace.csv")).unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
