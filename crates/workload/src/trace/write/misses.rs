//! Writes the misses of a CDN trace as a CDN trace for the next cache level.
//!
//! The columns are those of CacheBench's `missTraceFile`, which both programs read as format `cdn`: times in milliseconds, a constant
//! operation, and the range to be fetched. A request without a range is for the whole object.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Output, PartFile, WriteError};
use crate::Fetch;

const HEADER: &[u8] =
    b"timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL,\
SamplingRate,cache_hit,item_value,RequestHandler,cdn_content_type_id,vip_type\n";
const MILLISECOND_NS: u64 = 1_000_000;
/// Number of columns of a tenant's name.
const TENANT_COLUMNS: usize = 3;

/// A request that was not fully answered from the cache.
#[derive(Debug, Clone, Copy)]
pub struct Miss<'a> {
    /// Time of the request on the trace's clock.
    pub time_ns: u64,
    /// The object.
    pub key: &'a [u8],
    /// The missing part.
    pub fetch: Fetch,
    /// TTL in seconds.
    pub ttl_seconds: u32,
    /// The client's name as read; empty if the trace has none.
    pub tenant: &'a str,
}

impl Miss<'_> {
    /// Appends the miss as a row of the trace.
    pub fn encode(&self, line: &mut Vec<u8>) {
        let Fetch { header_bytes, body_bytes, from_bytes, to_bytes } = self.fetch;
        write(line, format_args!("{},", self.time_ns / MILLISECOND_NS));
        line.extend_from_slice(self.key);
        let response_bytes = header_bytes.saturating_add(to_bytes - from_bytes);
        write(line, format_args!(",1,{body_bytes},{response_bytes},{header_bytes},"));
        // Both no body and the whole body are written without a range; the response's size distinguishes them.
        let is_range = from_bytes < to_bytes && to_bytes - from_bytes < body_bytes;
        match is_range {
            true => write(line, format_args!("{from_bytes},{}", to_bytes - 1)),
            false => line.extend_from_slice(b"-1,-1"),
        }
        write(line, format_args!(",{},1.0,0,0", self.ttl_seconds));
        let mut names = self.tenant.splitn(TENANT_COLUMNS, '/');
        for _ in 0..TENANT_COLUMNS {
            line.push(b',');
            line.extend_from_slice(names.next().unwrap_or_default().as_bytes());
        }
        line.push(b'\n');
    }
}

fn write(line: &mut Vec<u8>, message: std::fmt::Arguments<'_>) {
    line.write_fmt(message).expect("writing to memory cannot fail");
}

/// Writes a trace of misses. If dropped without [`finish`](Self::finish), it removes the incomplete file.
pub struct MissWriter {
    path: PathBuf,
    part: PartFile,
    out: Output,
}

impl MissWriter {
    /// Creates a file for the trace `path`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<Self, WriteError> {
        let created = || {
            let (part, file) = PartFile::create(path, PART)?;
            let mut out = Output::new(path, file)?;
            out.write_all(HEADER)?;
            Ok(Self { path: path.to_owned(), part, out })
        };
        created().map_err(|source| WriteError::Io { path: path.to_owned(), source })
    }

    /// The files that writing the trace `path` replaces.
    #[must_use]
    pub fn replaces(path: &Path) -> [PathBuf; 2] {
        let mut part = path.as_os_str().to_owned();
        part.push(PART);
        [path.to_owned(), part.into()]
    }

    /// Writes encoded rows.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, rows: &[u8]) -> Result<(), WriteError> {
        self.out.write_all(rows).map_err(|source| WriteError::Io { path: self.path.clone(), source })
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<(), WriteError> {
        let Self { path, part, out } = self;
        let done: io::Result<()> = out.finish().and_then(|()| part.take_name(&path));
        done.map_err(|source| WriteError::Io { path, source })
    }
}

const PART: &str = ".part";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use crate::trace::format::Format;
    use crate::trace::{Cut, Replay, ReplayConfig};

    fn miss(key: &str, (from_bytes, to_bytes): (u64, u64), body_bytes: u64) -> Miss<'_> {
        let fetch = Fetch { header_bytes: 7, body_bytes, from_bytes, to_bytes };
        Miss { time_ns: 1_678_924_800_123_456_789, key: key.as_bytes(), fetch, ttl_seconds: 60, tenant: "" }
    }

    /// The items' keys, their requested bytes and tenants when one thread replays the trace.
    fn replayed(path: &Path, piece_bytes: u64) -> Vec<(String, u64, Option<String>)> {
        let mut config = ReplayConfig::new(vec![path.to_owned()], Format::named("cdn").unwrap());
        config.cut = Cut::Pieces { piece_bytes, most: 100 };
        let replay = Replay::new(config);
        let mut source = replay.sources(1, 0).unwrap().remove(0);
        let mut items = Vec::new();
        while let Some(request) = source.next() {
            assert_eq!((request.time_ns, request.ttl_seconds), (Some(1_678_924_800_123_000_000), Some(60)));
            let tenant = request.tenant.and_then(|tenant| replay.tenants().of(tenant));
            let key = String::from_utf8(request.key.to_vec()).unwrap();
            items.push((key, request.part.unwrap().requested_bytes, tenant.map(|name| name.to_string())));
        }
        assert_eq!(replay.stats().messages, [""; 0]);
        items
    }

    #[test]
    fn replayed_misses_request_the_missing_parts() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["misses.csv", "misses.csv.gz", "misses.csv.zst", "misses.csv.xz"] {
            let path = directory.path().join(name);
            let mut writer = MissWriter::create(&path).unwrap();
            let mut rows = Vec::new();
            let misses = [
                miss("all", (0, 250), 250),
                Miss { tenant: "24/-/4", ..miss("end", (100, 250), 250) },
                Miss { tenant: "web", ..miss("beginning", (0, 1), 250) },
                Miss { tenant: "/7/a/b", ..miss("header", (250, 250), 250) },
                miss("small", (0, 50), 50),
                miss("empty", (0, 0), 0),
            ];
            misses.iter().for_each(|miss| miss.encode(&mut rows));
            writer.write(&rows).unwrap();
            assert!(!path.exists(), "the file has no name before it is complete");
            writer.finish().unwrap();
            let message: Vec<_> = replayed(&path, 100);
            let of = |key: &str, bytes: u64, tenant: Option<&str>| {
                (key.to_owned(), bytes, tenant.map(str::to_owned))
            };
            let (web, four, seven) = (Some("web"), Some("24/-/4"), Some("/7/a/b"));
            let expected = [
                of("all", 0, None),
                of("all|#|header-0", 7, None),
                of("all|#|body-0-0", 100, None),
                of("all|#|body-0-1", 100, None),
                of("all|#|body-0-2", 50, None),
                of("end", 0, four),
                of("end|#|header-0", 7, four),
                of("end|#|body-0-1", 100, four),
                of("end|#|body-0-2", 50, four),
                of("beginning", 0, web),
                of("beginning|#|header-0", 7, web),
                of("beginning|#|body-0-0", 1, web),
                of("header", 0, seven),
                of("header|#|header-0", 7, seven),
                of("small", 57, None),
                of("empty", 7, None),
            ];
            assert_eq!(message, expected, "{name}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4, "and no incomplete file");
    }

    #[test]
    fn unfinished_trace_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("misses.csv");
        std::fs::write(&path, "before").unwrap();
        drop(MissWriter::create(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        let nowhere = directory.path().join("no/way/misses.csv");
        assert!(MissWriter::create(&nowhere).is_err() && MissWriter::create(directory.path()).is_err());
    }
}
