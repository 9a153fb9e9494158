//! oracle-general records: each contains the number of the object's next access, which is known only later.
//!
//! The records are first written without it, then read from the end: the last number seen of each object is the next access of the record
//! before. So memory use depends on the number of distinct objects, not on the trace's length.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use hashbrown::HashMap;

use super::{Output, WriteError, Written};
use crate::trace::access::{Access, AccessKind};
use crate::trace::oracle_general::{NEVER, RECORD_BYTES, Record};

const CHUNK_RECORDS: u64 = 1 << 15;
const SECOND_NS: u64 = 1_000_000_000;
const FORM: &str = "oracle-general";

/// Records without their links.
pub(super) struct Spool {
    file: BufWriter<File>,
    records: u64,
    seconds_taken_off: u64,
}

impl Spool {
    pub(super) fn new(file: File) -> Self {
        Self { file: BufWriter::new(file), records: 0, seconds_taken_off: 0 }
    }

    /// Appends an access other than a delete.
    pub(super) fn push(
        &mut self,
        access: &Access,
        written: &mut Written,
    ) -> Result<io::Result<()>, WriteError> {
        let seconds = access.time_ns / SECOND_NS;
        if self.records == 0 && u32::try_from(seconds).is_err() {
            self.seconds_taken_off = seconds;
        }
        let number = self.records + 1;
        let narrow = |what, value| {
            u32::try_from(value).map_err(|_| WriteError::TooLarge { number, what, value, form: FORM })
        };
        let record = Record {
            time_seconds: narrow("time", seconds - self.seconds_taken_off)?,
            object: access.key,
            size_bytes: narrow("size", access.size_bytes)?,
            next_access: NEVER,
        };
        written.accesses += 1;
        written.sets_as_gets += u64::from(access.kind == AccessKind::Set);
        written.ttls_left_out += u64::from(access.ttl_seconds.is_some());
        written.times_cut += u64::from(!access.time_ns.is_multiple_of(SECOND_NS));
        written.seconds_taken_off = self.seconds_taken_off;
        self.records = number;
        Ok(self.file.write_all(&record.encode()))
    }

    /// Sets the links. The result is in place, or compressed into `compressed`.
    pub(super) fn finish(self, compressed: Option<(&Path, File)>) -> io::Result<()> {
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        link(&mut file, self.records)?;
        let Some((path, to)) = compressed else { return file.sync_all() };
        let mut out = Output::new(path, to)?;
        file.seek(SeekFrom::Start(0))?;
        io::copy(&mut io::BufReader::with_capacity(1 << 20, file), &mut out)?;
        out.finish()
    }
}

fn link(file: &mut File, records: u64) -> io::Result<()> {
    let mut next: HashMap<u64, i64> = HashMap::new();
    let mut chunk = Vec::new();
    let mut end = records;
    while end > 0 {
        let start = end.saturating_sub(CHUNK_RECORDS);
        let at = SeekFrom::Start(start * RECORD_BYTES as u64);
        chunk.resize((end - start) as usize * RECORD_BYTES, 0);
        file.seek(at)?;
        file.read_exact(&mut chunk)?;
        let (records, _) = chunk.as_chunks_mut::<RECORD_BYTES>();
        for (index, bytes) in records.iter_mut().enumerate().rev() {
            let mut record = Record::decode(bytes);
            let number = start as i64 + index as i64 + 1;
            record.next_access = next.insert(record.object, number).unwrap_or(NEVER);
            *bytes = record.encode();
        }
        file.seek(at)?;
        file.write_all(&chunk)?;
        end = start;
    }
    Ok(())
}
