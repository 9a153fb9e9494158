//! What a cache missed of a CDN trace, as such a trace: what the cache behind it is asked for.
//!
//! The columns are those of CacheBench's `missTraceFile`, which the formats `cdn` here and there read: times in milliseconds,
//! the one operation that there is, and as the range what is left to be fetched. A request without a range is for all of the
//! object that the response has.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Output, PartFile, WriteError};
use crate::Fetch;

const HEADER: &[u8] =
    b"timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL,\
SamplingRate,cache_hit,item_value,RequestHandler,cdn_content_type_id,vip_type\n";
const MILLISECOND_NS: u64 = 1_000_000;
/// Columns that a tenant's name is made of.
const TENANT_COLUMNS: usize = 3;

/// A request that was not answered in full.
#[derive(Debug, Clone, Copy)]
pub struct Miss<'a> {
    /// When it was made, on the trace's own clock.
    pub time_ns: u64,
    /// The object.
    pub key: &'a [u8],
    /// What is missing of it.
    pub fetch: Fetch,
    /// Seconds that it may be kept.
    pub ttl_seconds: u32,
    /// The name of who asked, as it was read; empty where the trace does not tell.
    pub tenant: &'a str,
}

impl Miss<'_> {
    /// Appends its row.
    pub fn encode(&self, line: &mut Vec<u8>) {
        let Fetch { header_bytes, body_bytes, from_bytes, to_bytes } = self.fetch;
        write(line, format_args!("{},", self.time_ns / MILLISECOND_NS));
        line.extend_from_slice(self.key);
        let response_bytes = header_bytes.saturating_add(to_bytes - from_bytes);
        write(line, format_args!(",1,{body_bytes},{response_bytes},{header_bytes},"));
        // Nothing of the body is no range, as all of it is; the response's size tells them apart.
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

fn write(line: &mut Vec<u8>, words: std::fmt::Arguments<'_>) {
    line.write_fmt(words).expect("memory takes every byte");
}

/// Writes a trace of misses. Dropped without [`finish`](Self::finish), it leaves nothing behind.
pub struct MissWriter {
    path: PathBuf,
    part: PartFile,
    out: Output,
}

impl MissWriter {
    /// A new file that will be called `path`.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(path: &Path) -> Result<Self, WriteError> {
        let created = || {
            let (part, file) = PartFile::create(path, PART)?;
            let mut out = Output::new(path, file)?;
            out.write_all(HEADER)?;
            Ok(Self { path: path.to_owned(), part, out })
        };
        created().map_err(|source| WriteError::Io { path: path.to_owned(), source })
    }

    /// The files that a trace called `path` takes the place of, now or at the end.
    #[must_use]
    pub fn replaces(path: &Path) -> [PathBuf; 2] {
        let mut part = path.as_os_str().to_owned();
        part.push(PART);
        [path.to_owned(), part.into()]
    }

    /// Writes rows that are encoded.
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
    use crate::trace::{Cut, Format, Replay, ReplayConfig};

    fn miss(key: &str, (from_bytes, to_bytes): (u64, u64), body_bytes: u64) -> Miss<'_> {
        let fetch = Fetch { header_bytes: 7, body_bytes, from_bytes, to_bytes };
        Miss { time_ns: 1_678_924_800_123_456_789, key: key.as_bytes(), fetch, ttl_seconds: 60, tenant: "" }
    }

    /// Keys of items, bytes asked for of each, and tenants, of one thread that replays the trace.
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
            items.push((key, request.part.unwrap().asked_bytes, tenant.map(|name| name.to_string())));
        }
        assert_eq!(replay.stats().messages, [""; 0]);
        items
    }

    #[test]
    fn what_is_missing_is_what_the_next_cache_is_asked_for() {
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
            assert!(!path.exists(), "not before it is whole");
            writer.finish().unwrap();
            let told: Vec<_> = replayed(&path, 100);
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
            assert_eq!(told, expected, "{name}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4, "and no part of any");
    }

    #[test]
    fn a_trace_that_is_given_up_leaves_nothing() {
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
