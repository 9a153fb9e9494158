//! Reads the requests of a trace in any format: opens files, detects formats, reads rows, sorts by time.
//!
//! Files are merged by time: blktrace writes one per CPU. Within a file a request up to [`WINDOW`] rows late is sorted; a later one keeps
//! its position, takes the previous request's time, and is counted.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use super::events::EventCounts;
use super::{BlockFormat, Decoder, Device, Event, Events, Found, LineDecoder, RecordDecoder, RowProblem};
use crate::block::BlockRequest;
use crate::trace::framing::mark_bytes;
use crate::trace::{foreign, input};

/// Buffered requests per file, so that late ones can be sorted.
pub const WINDOW: usize = crate::trace::files::WINDOW;
/// Bytes read to detect the format.
const HEAD_BYTES: u64 = 64 << 10;
/// Longest accepted line.
const LONGEST_LINE_BYTES: u64 = 64 << 10;

/// Options for reading a trace.
#[derive(Debug, Clone, Default)]
pub struct BlockTraceOptions {
    /// The format, or `None` to detect it.
    pub format: Option<&'static BlockFormat>,
    /// The device whose requests are used, as named in the trace; required if there are several.
    pub device: Option<String>,
    /// Largest number of invalid rows to skip.
    pub wrong_rows: u64,
    /// The block-layer events that count as requests; `None` uses queue events if there are any.
    pub events: Option<Events>,
}

/// Reading statistics.
#[derive(Debug, Clone, Default)]
pub struct BlockTraceStats {
    /// The formats of the files.
    pub formats: Vec<&'static str>,
    /// Lines or records read.
    pub rows: u64,
    /// Rows that are requests of the selected device.
    pub requests: u64,
    /// Rows that are requests of other devices.
    pub other_devices: u64,
    /// Names of the first few other devices.
    pub other_names: Vec<String>,
    /// Rows that are invalid and were skipped.
    pub wrong_rows: u64,
    /// File, row and reason of the first invalid row.
    pub first_wrong: Option<String>,
    /// Requests too late to be sorted.
    pub late: u64,
    /// Notes about whole files, for example that other events than queue events are used.
    pub notes: Vec<String>,
}

/// Largest number of other devices that are named.
const OTHER_NAMES: usize = 8;

impl BlockTraceStats {
    fn pass_over(&mut self, other: String) {
        self.other_devices += 1;
        if self.other_names.len() < OTHER_NAMES && !self.other_names.contains(&other) {
            self.other_names.push(other);
        }
    }
}

/// An error in opening or reading a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockTraceError {
    /// A file cannot be opened.
    #[error("cannot open the trace {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// No format matches the file.
    #[error("{}: not recognised as a block trace of a format that can be detected ({known}); name its format", path.display())]
    Unrecognised {
        /// The file.
        path: PathBuf,
        /// The detectable formats.
        known: String,
    },
    /// The file must be unpacked or converted first.
    #[error("{}: {hint}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The file type and the command that unpacks it.
        hint: String,
    },
    /// The files are in more than one format.
    #[error("{}: a `{found}` trace after a `{expected}` trace: all files of a trace must be in one format", path.display())]
    MixedFormats {
        /// The file.
        path: PathBuf,
        /// The file's format.
        found: &'static str,
        /// The format of the first file.
        expected: &'static str,
    },
    /// Events were selected for a format that records one event per request.
    #[error("{}: `{}` events cannot be chosen: only blktrace and blkparse recordings have several events of each request, and this is a `{format}` trace", path.display(), events.name())]
    NoEvents {
        /// The file.
        path: PathBuf,
        /// The file's format.
        format: &'static str,
        /// The requested events.
        events: Events,
    },
    /// An invalid row beyond the number that may be skipped.
    #[error("{}: row {row}: {problem}; stopped there", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line or record, from 1.
        row: u64,
        /// The problem.
        problem: RowProblem,
    },
    /// A read error within a file.
    #[error("{}: after row {row}: {source}; stopped there", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The last complete row.
        row: u64,
        /// The error.
        source: io::Error,
    },
    /// Requests of several devices, whose offsets are unrelated.
    #[error("{}: row {row} is of device {second}, earlier rows are of {first}: name the device to replay", path.display())]
    SeveralDevices {
        /// The file.
        path: PathBuf,
        /// The line or record, from 1.
        row: u64,
        /// The first device.
        first: String,
        /// Another device.
        second: String,
    },
}

/// The requests of some files in order of time; the first is at 0.
pub struct BlockTrace {
    files: Vec<TraceFile>,
    options: BlockTraceOptions,
    /// The events that count as requests.
    events: Events,
    stats: BlockTraceStats,
    /// The device of the first request, if none was selected.
    device: Option<Device>,
    first_time_ns: Option<u64>,
    /// The latest time so far, on the trace's clock.
    last_time_ns: u64,
    failed: bool,
}

struct TraceFile {
    path: PathBuf,
    rows: Rows,
    row: u64,
    ended: bool,
    /// Buffered requests, by time and then by row.
    window: BinaryHeap<Buffered>,
}

/// A buffered request. The greatest is the earliest, because a heap pops its greatest element.
#[derive(PartialEq, Eq)]
struct Buffered {
    row: u64,
    event: Event,
}

impl Ord for Buffered {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.event.time_ns, other.row).cmp(&(self.event.time_ns, self.row))
    }
}

impl PartialOrd for Buffered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

enum Rows {
    Lines { input: Box<dyn BufRead + Send>, decoder: Box<dyn LineDecoder>, line: Vec<u8> },
    Records { input: Box<dyn BufRead + Send>, decoder: Box<dyn RecordDecoder> },
}

impl BlockTrace {
    /// Opens the files; `-` is standard input.
    ///
    /// # Errors
    /// If a file cannot be opened or its format is not recognised.
    pub fn open(paths: &[impl AsRef<Path>], options: BlockTraceOptions) -> Result<Self, BlockTraceError> {
        let mut stats = BlockTraceStats::default();
        let (mut files, mut counts) = (Vec::new(), EventCounts::default());
        for path in paths {
            let path = path.as_ref();
            let (file, format, counted) = TraceFile::open(path, options.format)?;
            if let Some(&expected) = stats.formats.first().filter(|expected| **expected != format.name) {
                return Err(BlockTraceError::MixedFormats {
                    path: path.to_owned(),
                    found: format.name,
                    expected,
                });
            }
            match options.events {
                Some(events) if !format.has_events => {
                    return Err(BlockTraceError::NoEvents {
                        path: path.to_owned(),
                        format: format.name,
                        events,
                    });
                }
                _ => counts.merge(counted),
            }
            files.push(file);
            stats.formats.push(format.name);
        }
        let (found, note) = counts.choose();
        let events = options.events.unwrap_or(found);
        stats.notes.extend(note.filter(|_| options.events.is_none()));
        let (device, first_time_ns) = (None, None);
        Ok(Self { files, options, events, stats, device, first_time_ns, last_time_ns: 0, failed: false })
    }

    /// Reading statistics so far.
    #[must_use]
    pub fn stats(&self) -> &BlockTraceStats {
        &self.stats
    }

    fn next_event(&mut self) -> Result<Option<Event>, BlockTraceError> {
        for at in 0..self.files.len() {
            self.fill(at)?;
        }
        let earliest = self.files.iter_mut().filter(|file| !file.window.is_empty());
        let earliest = earliest.min_by_key(|file| file.window.peek().map(|held| held.event.time_ns));
        Ok(earliest.and_then(TraceFile::take_earliest))
    }

    /// Reads from a file until its window is full or the file ends.
    fn fill(&mut self, at: usize) -> Result<(), BlockTraceError> {
        while !self.files[at].ended && self.files[at].window.len() < WINDOW {
            let file = &mut self.files[at];
            let found = match file.next_row() {
                Ok(found) => found,
                Err(source) => {
                    return Err(BlockTraceError::Read { path: file.path.clone(), row: file.row, source });
                }
            };
            let Some(found) = found else {
                file.ended = true;
                return Ok(());
            };
            self.stats.rows += 1;
            match found {
                Ok(found) => {
                    if let Found::Event(event) = self.events.select(found) {
                        self.take_event(at, event)?;
                    }
                }
                Err(problem) => self.pass_over(at, problem)?,
            }
        }
        Ok(())
    }

    fn take_event(&mut self, at: usize, event: Event) -> Result<(), BlockTraceError> {
        if let Some(expected) = &self.options.device {
            let name = event.device.to_string();
            if name != *expected {
                self.stats.pass_over(name);
                return Ok(());
            }
        } else if *self.device.get_or_insert_with(|| event.device.clone()) != event.device {
            let file = &self.files[at];
            return Err(BlockTraceError::SeveralDevices {
                path: file.path.clone(),
                row: file.row,
                first: self.device.as_ref().map(ToString::to_string).unwrap_or_default(),
                second: event.device.to_string(),
            });
        }
        self.stats.requests += 1;
        self.files[at].hold(event);
        Ok(())
    }

    fn pass_over(&mut self, at: usize, problem: RowProblem) -> Result<(), BlockTraceError> {
        let file = &mut self.files[at];
        // After a cut record the file ends; after an unknown one the record boundaries are lost.
        let is_last = matches!(
            problem,
            RowProblem::Cut { .. } | RowProblem::Magic(_) | RowProblem::Header(_) | RowProblem::TimeUnit(_)
        );
        file.ended |= is_last;
        self.stats.wrong_rows += 1;
        if self.stats.wrong_rows > self.options.wrong_rows {
            return Err(BlockTraceError::Row { path: file.path.clone(), row: file.row, problem });
        }
        let rest = if is_last { "; the rest of the file is skipped" } else { "; the row is skipped" };
        let message = || format!("{}: row {}: {problem}{rest}", file.path.display(), file.row);
        self.stats.first_wrong.get_or_insert_with(message);
        Ok(())
    }

    fn request(&mut self, event: &Event) -> BlockRequest {
        let first = *self.first_time_ns.get_or_insert(event.time_ns);
        // On the trace's clock: a request earlier than the very first is late too.
        self.stats.late += u64::from(event.time_ns < self.last_time_ns);
        self.last_time_ns = self.last_time_ns.max(event.time_ns);
        let &Event { kind, first_byte, bytes, .. } = event;
        BlockRequest { time_ns: self.last_time_ns - first, kind, first_byte, bytes }
    }
}

impl Iterator for BlockTrace {
    type Item = Result<BlockRequest, BlockTraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.next_event() {
            Ok(event) => event.map(|event| Ok(self.request(&event))),
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

impl TraceFile {
    fn open(
        path: &Path,
        format: Option<&'static BlockFormat>,
    ) -> Result<(Self, &'static BlockFormat, EventCounts), BlockTraceError> {
        let failed = |source| BlockTraceError::Open { path: path.to_owned(), source };
        let mut input = input::open(path).map_err(failed)?;
        let mut head = Vec::new();
        input.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(failed)?;
        let text = &head[mark_bytes(&head)..];
        let is_text = !matches!(format, Some(BlockFormat { decoder: Decoder::Records(_), .. }));
        if let Some(hint) = foreign::hint(path, &head, is_text) {
            return Err(BlockTraceError::Foreign { path: path.to_owned(), hint });
        }
        let format = format.or_else(|| BlockFormat::of(text)).ok_or_else(|| {
            BlockTraceError::Unrecognised { path: path.to_owned(), known: BlockFormat::names() }
        })?;
        if matches!(format.decoder, Decoder::Lines(_)) {
            head.drain(..mark_bytes(&head));
        }
        let is_whole = (head.len() as u64) < HEAD_BYTES;
        let counts =
            if format.has_events { EventCounts::of(format, &head, is_whole) } else { EventCounts::default() };
        let input = Box::new(BufReader::with_capacity(1 << 20, Cursor::new(head).chain(input)));
        let rows = match format.decoder {
            Decoder::Lines(make) => Rows::Lines { input, decoder: make(), line: Vec::new() },
            Decoder::Records(make) => Rows::Records { input, decoder: make() },
        };
        let file = Self { path: path.to_owned(), rows, row: 0, ended: false, window: BinaryHeap::new() };
        Ok((file, format, counts))
    }

    fn next_row(&mut self) -> io::Result<Option<Result<Found, RowProblem>>> {
        match &mut self.rows {
            Rows::Records { input, decoder } => {
                self.row += 1;
                decoder.record(input.as_mut())
            }
            Rows::Lines { input, decoder, line } => loop {
                line.clear();
                if input.as_mut().take(LONGEST_LINE_BYTES).read_until(b'\n', line)? == 0 {
                    return Ok(None);
                }
                if line.len() as u64 == LONGEST_LINE_BYTES {
                    return Err(io::Error::other("a line is longer than 64 KiB; this is not a text trace"));
                }
                self.row += 1;
                let text = line.trim_ascii_end();
                if !text.is_empty() {
                    return Ok(Some(decoder.line(text)));
                }
            },
        }
    }

    fn hold(&mut self, event: Event) {
        self.window.push(Buffered { row: self.row, event });
    }

    fn take_earliest(&mut self) -> Option<Event> {
        self.window.pop().map(|held| held.event)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::super::BLOCK_FORMATS;
    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(bytes).expect("the file can be written");
        file
    }

    fn read(
        bytes: &[&[u8]],
        options: BlockTraceOptions,
    ) -> (Vec<BlockRequest>, BlockTraceStats, Option<String>) {
        let files: Vec<_> = bytes.iter().map(|bytes| file(bytes)).collect();
        let mut trace = match BlockTrace::open(&files, options) {
            Ok(trace) => trace,
            Err(error) => return (Vec::new(), BlockTraceStats::default(), Some(error.to_string())),
        };
        let (mut requests, mut error) = (Vec::new(), None);
        for request in &mut trace {
            match request {
                Ok(request) => requests.push(request),
                Err(why) => error = Some(why.to_string()),
            }
        }
        (requests, trace.stats().clone(), error)
    }

    fn places(requests: &[BlockRequest]) -> Vec<(u64, u64)> {
        requests.iter().map(|request| (request.time_ns, request.first_byte)).collect()
    }

    #[test]
    fn files_are_merged_and_late_requests_sorted() {
        let first = b"time_ns,op,offset,bytes\n100,R,1,1\n400,R,4,1\n300,R,3,1\n";
        let second = b"time_ns,op,offset,bytes\n200,W,2,1\n500,W,5,1\n";
        let (requests, stats, error) = read(&[first, second], BlockTraceOptions::default());
        assert_eq!(places(&requests), [(0, 1), (100, 2), (200, 3), (300, 4), (400, 5)]);
        assert_eq!((stats.rows, stats.requests, stats.late, error), (7, 5, 0, None));
    }

    /// Catches a regression: such requests are not counted.
    #[test]
    fn request_earlier_than_the_window_is_counted_late() {
        let rows = WINDOW as u64 + 100;
        let mut text = b"time_ns,op,offset,bytes\n".to_vec();
        (0..rows).for_each(|row| text.extend(format!("{},R,{row},1\n", rows - row).bytes()));
        let (requests, stats, error) = read(&[&text], BlockTraceOptions::default());
        assert_eq!((requests.len() as u64, stats.late, error), (rows, 100, None));
        assert_eq!((requests[0].time_ns, requests[0].first_byte), (0, WINDOW as u64 - 1));
    }

    #[test]
    fn invalid_row_is_reported_with_its_position_and_handling() {
        let bytes = b"time_ns,op,offset,bytes\n100,R,1,1\n200,R,x,1\n300,R,3,1\n";
        let (_, _, error) = read(&[bytes], BlockTraceOptions::default());
        let error = error.expect("an invalid row");
        assert!(
            error.ends_with(
                ": row 3: `offset` is `x`, which is not a number, or is out of range; stopped there"
            ),
            "{error}"
        );
        let lenient = BlockTraceOptions { wrong_rows: 1, ..BlockTraceOptions::default() };
        let (requests, stats, error) = read(&[bytes], lenient);
        assert_eq!((requests.len(), stats.wrong_rows, error), (2, 1, None));
        assert!(stats.first_wrong.expect("an invalid row").ends_with("; the row is skipped"));
    }

    #[test]
    fn several_devices_without_selection_is_an_error() {
        let bytes = b"128166372003061629,hm,0,Read,4096,4096,1\n128166372003061639,hm,1,Write,8192,4096,1\n";
        let (_, _, error) = read(&[bytes], BlockTraceOptions::default());
        assert!(error.expect("two disks").contains("row 2 is of device hm_1, earlier rows are of hm_0"));
        let options = BlockTraceOptions { device: Some("hm_1".into()), ..BlockTraceOptions::default() };
        let (requests, stats, error) = read(&[bytes], options);
        assert_eq!((places(&requests), stats.other_devices, error), (vec![(0, 8192)], 1, None));
        assert_eq!(stats.other_names, ["hm_0"]);
    }

    #[test]
    fn devices_differing_after_40_bytes_are_distinct() {
        let folder = "/mnt/benchmarks/databases/mysql/volumes/";
        let iolog = format!("fio version 3 iolog\n1 {folder}a write 0 4096\n2 {folder}b write 0 4096\n");
        let csv = format!("time_us,op,offset,bytes,disk\n1,W,0,4096,{folder}a\n2,W,0,4096,{folder}b\n");
        let msr = format!("10,{folder},a,Write,0,4096,1\n20,{folder},b,Write,0,4096,1\n");
        let systor = format!("1.0,0.1,W,{folder}a,0,4096\n2.0,0.1,W,{folder}b,0,4096\n");
        for (text, separator) in [(iolog, ""), (csv, ""), (msr, "_"), (systor, "")] {
            let (_, _, error) = read(&[text.as_bytes()], BlockTraceOptions::default());
            let message =
                format!("is of device {folder}{separator}b, earlier rows are of {folder}{separator}a");
            assert!(error.expect("two devices").contains(&message), "{text}");
            let device = Some(format!("{folder}{separator}b"));
            let options = BlockTraceOptions { device, ..BlockTraceOptions::default() };
            let (requests, stats, error) = read(&[text.as_bytes()], options);
            assert_eq!((requests.len(), stats.other_devices, error), (1, 1, None), "{text}");
        }
    }

    #[test]
    fn non_trace_file_is_rejected() {
        for nothing in [&b""[..], b"hello\nworld\n", &[0; 100]] {
            let (_, _, error) = read(&[nothing], BlockTraceOptions::default());
            assert!(error.expect("no format").contains("not recognised as a block trace"));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn random_bytes_do_not_panic_a_decoder(
            format in 0..BLOCK_FORMATS.len(),
            noise in prop::collection::vec(any::<u8>(), 0..2000),
        ) {
            let format = Some(&BLOCK_FORMATS[format]);
            let lenient = BlockTraceOptions { format, wrong_rows: u64::MAX, ..BlockTraceOptions::default() };
            read(&[&noise], lenient);
        }

        #[test]
        fn damaged_trace_does_not_panic_a_decoder(
            sample in 0..SAMPLES.len() + 2,
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let (name, mut bytes) = match sample.checked_sub(SAMPLES.len()) {
                None => (SAMPLES[sample].0, SAMPLES[sample].1.to_vec()),
                Some(0) => ("vscsi", VSCSI.repeat(3)),
                Some(_) => ("blktrace", blktrace_records()),
            };
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            let lenient = BlockTraceOptions { format: BlockFormat::named(name), wrong_rows: u64::MAX, ..BlockTraceOptions::default() };
            read(&[&bytes], lenient);
        }
    }

    /// One write.
    const VSCSI: &[u8] =
        b"\xf4\0\0\x80\0\x02\0\0\x01\0\0\0\x2a\0\0\x01\x09\x1a\x8f\x02\0\0\0\0\x22\xcf\x82\xbe\x1f\x05\0\0";

    /// Three queued reads, each followed by data.
    fn blktrace_records() -> Vec<u8> {
        let mut record = [0; 48 + 8];
        record[..4].copy_from_slice(&0x6561_7407_u32.to_le_bytes());
        record[16] = 77;
        record[25] = 0x10;
        record[28..32].copy_from_slice(&0x0011_0001_u32.to_le_bytes());
        record[46] = 8;
        record.repeat(3)
    }

    #[test]
    fn binary_formats_are_detected_by_their_first_bytes() {
        for (name, bytes) in [("vscsi", VSCSI.repeat(3)), ("blktrace", blktrace_records())] {
            let (requests, stats, error) = read(&[&bytes], BlockTraceOptions::default());
            assert_eq!((requests.len(), stats.formats, error), (3, vec![name], None));
        }
        for (name, text) in SAMPLES {
            let (requests, stats, error) = read(&[text], BlockTraceOptions::default());
            assert_eq!((requests.len(), stats.formats, error), (1, vec![name], None));
        }
    }

    const SAMPLES: [(&str, &[u8]); 9] = [
        ("blkparse", b"  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n"),
        (
            "fio-iolog",
            b"fio version 3 iolog\n1 /dev/sdb add\n20 /dev/sdb write 4096 8192\n30 /dev/sdb wait 5 0\n",
        ),
        ("msr", b"128166372003061629,hm,1,Read,7014609920,24576,41286\n"),
        ("systor", b"1455592081.131264,0.000299,W,3,42949672,4096\n"),
        ("alibaba", b"64,W,126703644672,4096,1577808000000626\n"),
        ("tencent", b"1538323200,12910952,128,1,1063\n"),
        ("spc", b"0,20941264,8192,W,0.551706\n"),
        ("cloudphysics-csv", b"version,time,op,size,lbn\n1,33898,2a,512,42932745\n"),
        ("block-csv", b"time_us,flags_hex,sector,bytes\n12,19,270880,16384\n"),
    ];
}
