//! Converts block traces to object accesses: one per page that a request touches.
//!
//! The decoders in this folder serve both block replays and simulators.
//!
//! Reads become gets, writes become sets, discards become deletes of the pages that they cover completely; flushes are skipped. Pages of
//! different devices are different objects.

use std::io::{self, BufRead};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Device, Event, Events, Found, LineDecoder, RecordDecoder, RowProblem};
use crate::RequestKind;
use crate::block::BlockKind;
use crate::trace::columns::RowError;
use crate::trace::framing::Framing;
use crate::trace::rows::{Extent, ReaderOptions, Row, RowReader, Rows};

/// A decoder and its options. Each file begins with a new decoder.
struct Decoding<D> {
    make: fn() -> D,
    decoder: D,
    page_bytes: Option<u64>,
    events: Events,
}

impl<D> Decoding<D> {
    fn new(make: fn() -> D, options: &ReaderOptions) -> Self {
        Self { make, decoder: make(), page_bytes: options.page_bytes, events: options.events }
    }

    fn begin_file(&mut self) {
        self.decoder = (self.make)();
    }

    fn take(&self, found: Found, rows: &mut Rows) {
        push(self.events.select(found), self.page_bytes, rows);
    }
}

pub(super) struct Lines<D>(Decoding<D>);

impl<D: LineDecoder + 'static> Lines<D> {
    pub(super) fn reader(make: fn() -> D, options: &ReaderOptions) -> Box<dyn RowReader> {
        Box::new(Self(Decoding::new(make, options)))
    }
}

impl<D: LineDecoder> RowReader for Lines<D> {
    fn framing(&mut self, _head: &[u8]) -> Result<Framing, RowError> {
        self.0.begin_file();
        Ok(Framing::Lines)
    }

    fn accept_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
        Ok(self.0.decoder.accept_header(line)?)
    }

    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let found = self.0.decoder.line(line)?;
        self.0.take(found, rows);
        Ok(())
    }
}

pub(super) struct Records<D>(Decoding<D>);

impl<D: RecordDecoder + 'static> Records<D> {
    pub(super) fn reader(make: fn() -> D, options: &ReaderOptions) -> Box<dyn RowReader> {
        Box::new(Self(Decoding::new(make, options)))
    }
}

impl<D: RecordDecoder> RowReader for Records<D> {
    fn framing(&mut self, _head: &[u8]) -> Result<Framing, RowError> {
        self.0.begin_file();
        Ok(Framing::Streamed)
    }

    fn accept_header(&mut self, head: &[u8]) -> Result<bool, RowError> {
        Ok(self.0.decoder.is_marked(head))
    }

    fn read(&mut self, mut record: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        // Reading from memory cannot fail.
        self.read_from(&mut record, rows).ok().flatten().unwrap_or(Ok(()))
    }

    fn read_from(
        &mut self,
        input: &mut dyn BufRead,
        rows: &mut Rows,
    ) -> io::Result<Option<Result<(), RowError>>> {
        Ok(match self.0.decoder.record(input)? {
            None => None,
            Some(Err(problem)) => Some(Err(problem.into())),
            Some(Ok(found)) => {
                self.0.take(found, rows);
                Some(Ok(()))
            }
        })
    }
}

fn push(found: Found, page_bytes: Option<u64>, rows: &mut Rows) {
    let Found::Event(Event { time_ns, kind, first_byte, bytes, device }) = found else { return };
    let kind = match kind {
        BlockKind::Read => RequestKind::Get,
        BlockKind::Write => RequestKind::Set,
        BlockKind::Discard => RequestKind::Delete,
        BlockKind::Flush => return,
    };
    let volume = match device {
        Device::Only => 0,
        Device::Numbered(major, minor) => xxh3_64_with_seed(&major.to_le_bytes(), minor.into()),
        Device::Named(name) => xxh3_64(name.as_bytes()),
    };
    let extent = Extent { volume, start_bytes: first_byte, bytes };
    let (object, size) = match page_bytes.filter(|_| kind == RequestKind::Delete) {
        // A page that is partly discarded keeps its other data.
        Some(page) => match extent.whole_pages(page) {
            Some(pages) => (pages, page),
            None => return,
        },
        None => extent.cut(page_bytes),
    };
    rows.push(Row { time_ns: Some(time_ns), ..Row::new(kind, object, size) });
}

impl From<RowProblem> for RowError {
    fn from(problem: RowProblem) -> Self {
        Self::Block(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::super::formats::{CSV, MSR, VSCSI};
    use super::*;
    use crate::trace::format::Format;
    use crate::trace::rows::{Object, only};

    fn read(format: &Format, page_bytes: Option<u64>, record: &[u8]) -> Result<Row, RowError> {
        let mut reader = (format.reader)(&ReaderOptions { page_bytes, ..ReaderOptions::default() });
        Ok(only(reader.as_mut(), record)?.0)
    }

    #[test]
    fn request_becomes_its_pages_or_one_object() {
        let line = b"128166372003061629,hm,1,Read,383496000,8192,1331";
        let row = read(&MSR, Some(4096), line).unwrap();
        assert!(matches!(row.object, Object::Numbered { first: 93_626, count: 3, .. }), "{:?}", row.object);
        assert_eq!((row.kind, row.value_bytes), (RequestKind::Get, 4096));
        assert_eq!(row.time_ns, Some(12_816_637_200_306_162_900));
        let row = read(&MSR, None, line).unwrap();
        assert!(matches!(row.object, Object::Numbered { first: 383_496_000, count: 1, .. }));
        assert_eq!(row.value_bytes, 8192);
    }

    #[test]
    fn partly_discarded_pages_are_kept() {
        let reader = |page_bytes| (CSV.reader)(&ReaderOptions { page_bytes, ..ReaderOptions::default() });
        let requested = |page_bytes, (offset, bytes): (u64, u64)| {
            let (mut reader, mut rows) = (reader(page_bytes), Rows::default());
            assert!(reader.accept_header(b"time_us,op,offset,bytes").unwrap());
            reader.read(format!("1,D,{offset},{bytes}").as_bytes(), &mut rows).unwrap();
            (0..rows.len()).map(|row| (rows.row(row).kind, rows.row(row).object.clone())).collect::<Vec<_>>()
        };
        let deleted =
            |first, count| vec![(RequestKind::Delete, Object::Numbered { volume: 0, first, count })];
        assert_eq!(requested(Some(4096), (512, 3 * 4096)), deleted(1, 2));
        assert_eq!(requested(Some(4096), (4096, 4096)), deleted(1, 1));
        assert_eq!(requested(Some(4096), (4096, 4095)), []);
        assert_eq!(requested(Some(4096), (512, 4096)), []);
        assert_eq!(requested(None, (512, 4096)), deleted(512, 1));
    }

    #[test]
    fn disks_of_different_hosts_are_different_volumes() {
        let rows = [&b"1,hm,1,Read,0,1,1"[..], b"1,hm,0,Read,0,1,1", b"1,mh,1,Read,0,1,1"];
        let objects = rows.map(|line| read(&MSR, Some(512), line).unwrap().object);
        assert!(objects[0] != objects[1] && objects[0] != objects[2] && objects[1] != objects[2]);
    }

    #[test]
    fn binary_record_is_a_request_or_cut_off() {
        let write = b"\xf4\0\0\x80\0\x02\0\0\x01\0\0\0\x2a\0\0\x01\x09\x1a\x8f\x02\0\0\0\0\x22\xcf\x82\xbe\x1f\x05\0\0";
        let row = read(&VSCSI, None, write).unwrap();
        assert_eq!((row.kind, row.object), (RequestKind::Set, Object::number(42_932_745 * 512)));
        assert_eq!((row.value_bytes, row.time_ns), (512, Some(5_633_898_368_802_000)));
        let message = read(&VSCSI, None, &write[..20]).unwrap_err().to_string();
        assert_eq!(message, "the record is cut off after 20 of 32 bytes");
    }

    #[test]
    fn invalid_row_has_the_message_of_the_replay() {
        let message = read(&MSR, None, b"1,hm,1,Steal,0,1,1").unwrap_err().to_string();
        assert_eq!(message, "`Steal` is not a known operation");
    }
}
