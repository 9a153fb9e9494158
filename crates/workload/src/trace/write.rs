//! Writes accesses to a trace file.
//!
//! Until the file is complete its name has the ending `.part`. The ending of the final name selects the compression: `.gz`, `.zst`, `.xz`,
//! or none.
//!
//! Properties that a format cannot store are counted in [`Written`]; values that it would store wrongly are an error.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::TenantNames;
use super::access::{Access, AccessKind};
use super::binary::{Encoder, MOST_OBJECTS};
use super::parquet::ParquetFile;
use super::rows::{Object, Row};
use crate::{Request, RequestKind, Tenant};

mod link;
mod misses;
mod text;

use link::Spool;
pub use misses::{Miss, MissWriter};

/// The formats that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// CSV with the header `ts,key,op,size`, and optionally `ttl` and `tenant`.
    Plain {
        /// Whether to write TTLs.
        ttl: bool,
        /// Whether to write tenants.
        tenant: bool,
    },
    /// `time id size`, separated by spaces.
    Webcachesim,
    /// libCacheSim's binary records, each with the number of the next access to its object.
    OracleGeneral,
    /// A Parquet file with the columns `time_ns`, `key`, `op`, `size`, `ttl` and `tenant`.
    Parquet,
    /// Flashwright's own: complete rows, including the bytes of keys.
    Binary,
}

/// Whether an ending is a word such as `lcs` or `bin`, and not part of a date or number.
fn is_format_ending(ending: &str) -> bool {
    ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && ending.bytes().any(|byte| byte.is_ascii_alphabetic())
}

impl Target {
    /// Plain without optional columns.
    pub const PLAIN: Self = Self::Plain { ttl: false, tenant: false };
    /// The names of the formats that can be written.
    pub const NAMES: [&'static str; 5] = ["plain", "oracle-general", "webcachesim", "binary", "parquet"];

    /// Endings of text files.
    const TEXT_ENDINGS: [&'static str; 3] = ["csv", "txt", "plain"];

    /// The format indicated by a file name's ending; plain if there is none. `None` for a format that cannot be written or is unknown: text
    /// in such a file would be misread.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let compressed = COMPRESSED.iter().find_map(|ending| name.strip_suffix(ending));
        let name = compressed.unwrap_or(&name);
        let ends_like =
            |format: &super::Format| format.extensions.iter().any(|it| name.ends_with(&format!(".{it}")));
        match () {
            () if ends_like(&super::oracle_general::FORMAT) => Some(Self::OracleGeneral),
            () if ends_like(&super::webcachesim::FORMAT) => Some(Self::Webcachesim),
            () if ends_like(&super::binary::FORMAT) => Some(Self::Binary),
            () if ends_like(&super::parquet::FORMAT) => Some(Self::Parquet),
            () => match name.rsplit_once('.') {
                // The writer itself rejects endings of other compressors.
                Some((stem, ending))
                    if !stem.is_empty()
                        && !UNSUPPORTED_COMPRESSIONS.contains(&ending)
                        && is_format_ending(ending) =>
                {
                    Self::TEXT_ENDINGS.contains(&ending).then_some(Self::PLAIN)
                }
                _ => Some(Self::PLAIN),
            },
        }
    }

    /// The format called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "plain" => Some(Self::PLAIN),
            "oracle-general" => Some(Self::OracleGeneral),
            "webcachesim" => Some(Self::Webcachesim),
            "binary" => Some(Self::Binary),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

const COMPRESSED: [&str; 3] = [".gz", ".zst", ".xz"];

/// Counts of written accesses, and of properties that the format could not store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Accesses in the file.
    pub accesses: u64,
    /// Deletes skipped because the format has none.
    pub deletes_left_out: u64,
    /// Sets written as gets because the format has no operations.
    pub sets_as_gets: u64,
    /// Accesses whose TTL was not written.
    pub ttls_left_out: u64,
    /// Accesses whose tenant was not written, or is [`Tenant::OTHERS`].
    pub tenants_left_out: u64,
    /// Times truncated to whole seconds.
    pub times_cut: u64,
    /// Seconds subtracted from every time, because the trace's clock does not fit.
    pub seconds_taken_off: u64,
}

/// An error in writing a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// An access does not fit into the format.
    #[error("access {number}: {what} {value} does not fit into the 32 bits of {form}")]
    TooLarge {
        /// Number of the access, from 1.
        number: u64,
        /// The property that does not fit.
        what: &'static str,
        /// The property's value.
        value: u64,
        /// The format.
        form: &'static str,
    },
    /// A key longer than the format supports.
    #[error("request {number}: the key has {bytes} bytes, more than a binary trace can store")]
    LongKey {
        /// Number of the request, from 1, counting repetitions.
        number: u64,
        /// Length of the key.
        bytes: usize,
    },
    /// Complete rows cannot be written in a format of accesses.
    #[error("only binary traces store complete requests")]
    OnlyAccesses,
}

/// Writes a trace. If dropped without [`finish`](Self::finish), it removes the incomplete file.
pub struct Writer {
    path: PathBuf,
    part: PartFile,
    sink: Sink,
    written: Written,
    tenants: TenantNames,
    /// The tenants' names seen so far.
    names: Vec<Arc<str>>,
}

enum Sink {
    Text { form: text::TextFormat, out: Output, line: Vec<u8> },
    Linked { spool: Spool, compressed: Option<(PartFile, File)> },
    Parquet(Box<ParquetFile>),
    Binary { encoder: Box<Encoder>, out: Output, bytes: Vec<u8> },
}

impl Writer {
    /// Creates a file for the trace `path`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path, target: Target) -> Result<Self, WriteError> {
        let failed = |source| WriteError::Io { path: path.to_owned(), source };
        let (part, file) = PartFile::create(path, ".part").map_err(failed)?;
        let text = |form: text::TextFormat, file| {
            let mut out = Output::new(path, file).map_err(failed)?;
            out.write_all(form.header()).map_err(failed)?;
            Ok(Sink::Text { form, out, line: Vec::new() })
        };
        let sink = match target {
            Target::Plain { ttl, tenant } => text(text::TextFormat::Plain { ttl, tenant }, file)?,
            Target::Webcachesim => text(text::TextFormat::Webcachesim, file)?,
            // Compressed data cannot be read backwards.
            Target::OracleGeneral if Output::is_compressed(path) => {
                let (links, spooled) = PartFile::create(path, ".links.part").map_err(failed)?;
                Sink::Linked { spool: Spool::new(spooled), compressed: Some((links, file)) }
            }
            Target::OracleGeneral => Sink::Linked { spool: Spool::new(file), compressed: None },
            Target::Parquet if Output::is_compressed(path) => {
                let what = "a Parquet file is compressed by columns: leave out the ending of the compression";
                return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, what)));
            }
            Target::Parquet => Sink::Parquet(Box::new(ParquetFile::create(file).map_err(failed)?)),
            Target::Binary => {
                let out = Output::new(path, file).map_err(failed)?;
                Sink::Binary { encoder: Box::default(), out, bytes: Vec::new() }
            }
        };
        let (written, tenants, names) = (Written::default(), TenantNames::default(), Vec::new());
        Ok(Self { path: path.to_owned(), part, sink, written, tenants, names })
    }

    /// Sets the tenants' names, which are shared with the reader.
    #[must_use]
    pub fn with_tenants(self, tenants: TenantNames) -> Self {
        Self { tenants, ..self }
    }

    /// Writes the next accesses.
    ///
    /// # Errors
    /// The file cannot be written, or an access does not fit into the form.
    pub fn write(&mut self, accesses: &[Access]) -> Result<(), WriteError> {
        self.look_up(accesses);
        for access in accesses {
            let failed = |source| WriteError::Io { path: self.path.clone(), source };
            match &mut self.sink {
                Sink::Text { form, out, line } => {
                    line.clear();
                    if form.encode(access, &self.names, line, &mut self.written) {
                        out.write_all(line).map_err(failed)?;
                        self.written.accesses += 1;
                    }
                }
                Sink::Linked { spool, .. } => {
                    if access.kind == AccessKind::Delete {
                        self.written.deletes_left_out += 1;
                        continue;
                    }
                    self.written.tenants_left_out += u64::from(access.tenant.is_some());
                    spool.push(access, &mut self.written)?.map_err(failed)?;
                }
                Sink::Parquet(out) => {
                    let name = access.tenant.and_then(|it| self.names.get(it.index().checked_sub(1)?));
                    self.written.tenants_left_out += u64::from(access.tenant.is_some() && name.is_none());
                    out.push(access, name.map(AsRef::as_ref)).map_err(failed)?;
                    self.written.accesses += 1;
                }
                Sink::Binary { .. } => self.write_row(&row_of(access), &[])?,
            }
        }
        Ok(())
    }

    /// Copies the names only if there are new ones, because there can be many.
    fn look_up(&mut self, accesses: &[Access]) {
        let newest = accesses.iter().filter_map(|access| access.tenant).max();
        if newest.is_some_and(|tenant| tenant.index() > self.names.len()) {
            self.names = self.tenants.all();
        }
    }

    /// Writes a request with all its properties.
    ///
    /// # Errors
    /// The file cannot be written, is not a binary trace, or cannot store the key.
    pub fn write_request(&mut self, request: &Request<'_>) -> Result<(), WriteError> {
        let row = Row {
            ttl_seconds: request.ttl_seconds,
            time_ns: request.time_ns,
            repeat: request.repeat,
            tenant: request.tenant,
            ..Row::new(request.kind, Object::Named(0..0), request.value_bytes)
        };
        self.write_row(&row, request.key)
    }

    /// Writes a row; `name` is the name of a named object.
    pub(super) fn write_row(&mut self, row: &Row, name: &[u8]) -> Result<(), WriteError> {
        if let Object::Numbered { count, .. } = row.object
            && count > MOST_OBJECTS
        {
            return self.write_in_parts(row);
        }
        let Sink::Binary { encoder, out, bytes } = &mut self.sink else {
            return Err(WriteError::OnlyAccesses);
        };
        let count = match row.object {
            Object::Named(_) => 1,
            Object::Numbered { count, .. } => count,
            Object::Items(_) => unreachable!("ranges are not split here"),
        };
        let accesses = count.saturating_mul(row.repeat.into());
        if row.tenant == Some(Tenant::OTHERS) {
            self.written.tenants_left_out += accesses;
        }
        if !encoder.push(row, name, &self.tenants, bytes) {
            return Err(WriteError::LongKey { number: self.written.accesses + 1, bytes: name.len() });
        }
        self.written.accesses += accesses;
        if bytes.is_empty() {
            return Ok(());
        }
        let done = out.write_all(bytes);
        bytes.clear();
        done.map_err(|source| WriteError::Io { path: self.path.clone(), source })
    }

    /// Divides a row with more objects than the format supports per row, such as the discard of a large disk.
    fn write_in_parts(&mut self, row: &Row) -> Result<(), WriteError> {
        let Object::Numbered { volume, first, count } = row.object else {
            unreachable!("only numbered objects are many")
        };
        for _ in 0..row.repeat {
            let mut done = 0;
            while done < count {
                let part = MOST_OBJECTS.min(count - done);
                let object = Object::Numbered { volume, first: first.wrapping_add(done), count: part };
                self.write_row(&Row { object, repeat: 1, ..row.clone() }, &[])?;
                done += part;
            }
        }
        Ok(())
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<Written, WriteError> {
        let Self { path, part, sink, written, .. } = self;
        let done = match sink {
            Sink::Text { out, .. } => out.finish(),
            Sink::Parquet(out) => out.finish(),
            Sink::Linked { spool, compressed: None } => spool.finish(None),
            Sink::Linked { spool, compressed: Some((_links, file)) } => spool.finish(Some((&path, file))),
            Sink::Binary { encoder, mut out, mut bytes } => {
                encoder.finish(&mut bytes);
                out.write_all(&bytes).and_then(|()| out.finish())
            }
        };
        match done.and_then(|()| part.take_name(&path)) {
            Ok(()) => Ok(written),
            Err(source) => Err(WriteError::Io { path, source }),
        }
    }
}

fn row_of(access: &Access) -> Row {
    let Access { time_ns, key, size_bytes, ttl_seconds, tenant, kind } = *access;
    let kind = match kind {
        AccessKind::Get => RequestKind::Get,
        AccessKind::Set => RequestKind::Set,
        AccessKind::Delete => RequestKind::Delete,
    };
    Row { ttl_seconds, time_ns: Some(time_ns), tenant, ..Row::new(kind, Object::number(key), size_bytes) }
}

/// The incomplete file.
pub(super) struct PartFile {
    path: PathBuf,
    named: bool,
}

/// Endings of compressions that cannot be written.
const UNSUPPORTED_COMPRESSIONS: [&str; 6] = ["bz2", "lz4", "zip", "7z", "br", "lzma"];

impl PartFile {
    pub(super) fn create(path: &Path, ending: &str) -> io::Result<(Self, File)> {
        if path == Path::new("-") {
            let what = "traces cannot be written to standard output: name a file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let requested = path.extension().unwrap_or_default().to_ascii_lowercase();
        if UNSUPPORTED_COMPRESSIONS.iter().any(|it| requested == *it) {
            let what = "the compression that its name asks for cannot be written; .gz, .zst and .xz can";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // A device or a pipe would be replaced by the new file, and a directory would only fail at the end.
        if let Ok(there) = std::fs::metadata(path)
            && !there.is_file()
        {
            let what = if there.is_dir() { "it is a directory" } else { "it is not a regular file" };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        let part = PathBuf::from(name);
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&part)?;
        Ok((Self { path: part, named: false }, file))
    }

    pub(super) fn take_name(mut self, path: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, path)?;
        self.named = true;
        Ok(())
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.named {
            // A file that cannot be removed stays.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A file, compressed according to its name.
pub(super) enum Output {
    Plain(BufWriter<File>),
    Gzip(Box<flate2::write::GzEncoder<BufWriter<File>>>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
    Xz(Box<liblzma::write::XzEncoder<BufWriter<File>>>),
}

const BUFFER_BYTES: usize = 1 << 20;
const ZSTD_LEVEL: i32 = 3;
const XZ_LEVEL: u32 = 6;

impl Output {
    pub(super) fn new(path: &Path, file: File) -> io::Result<Self> {
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase()).unwrap_or_default();
        Ok(match ending.to_str() {
            Some("gz") => {
                Self::Gzip(Box::new(flate2::write::GzEncoder::new(file, flate2::Compression::default())))
            }
            Some("zst") => Self::Zstd(zstd::Encoder::new(file, ZSTD_LEVEL)?),
            Some("xz") => Self::Xz(Box::new(liblzma::write::XzEncoder::new(file, XZ_LEVEL))),
            _ => Self::Plain(file),
        })
    }

    fn is_compressed(path: &Path) -> bool {
        path.extension()
            .is_some_and(|ending| ["gz", "zst", "xz"].iter().any(|it| ending.eq_ignore_ascii_case(it)))
    }

    pub(super) fn finish(self) -> io::Result<()> {
        let mut file = match self {
            Self::Plain(file) => file,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
            Self::Xz(encoder) => encoder.finish()?,
        };
        file.flush()?;
        // The rename must not become durable before the contents.
        file.get_ref().sync_all()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
            Self::Xz(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
            Self::Xz(encoder) => encoder.flush(),
        }
    }
}
