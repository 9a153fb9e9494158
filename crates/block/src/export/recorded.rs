//! An export that records its requests as a trace, for example to replay them with other cache settings.
//!
//! One line of CSV per request, at the time of its submission: `time_us,op,offset,bytes`. A separate thread writes the file ten
//! times a second, so requests do not wait for it. If the file is too slow, requests are omitted and counted.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use device::{Clock, IoError};
use parking_lot::{Condvar, Mutex};

use super::{Context, Export, Extent, Operation, OperationResult, Reply, Shape};

/// Maximum of requests that wait to be written: 32 MiB.
const MAX_WAITING: usize = 1 << 20;
/// Maximum length in a line. Zeroing and prefetching may be longer than any read or write, which readers of traces reject.
const MAX_LINE_BYTES: u64 = 1 << 30;
const READ: &str = "read";
const WRITE: &str = "write";
/// Interval of writes to the file.
const PAUSE: Duration = Duration::from_millis(100);

/// A recording in progress, until [`stop`](Self::stop).
pub struct Recording {
    shared: Arc<Shared>,
    writer: JoinHandle<io::Result<()>>,
}

/// The result of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Requests made.
    pub requests: u64,
    /// Requests that are missing in the file.
    pub left_out: u64,
}

struct Shared {
    clock: Arc<dyn Clock>,
    /// The clock at the start, and the timestamp that it corresponds to.
    start_ns: u64,
    start_us: u64,
    lines: Mutex<Lines>,
    /// Notified when lines are added or the recording ends.
    changed: Condvar,
}

#[derive(Default)]
struct Lines {
    waiting: Vec<Line>,
    counted: u64,
    left_out: u64,
    ended: bool,
}

struct Line {
    time_us: u64,
    operation: &'static str,
    offset: u64,
    bytes: u64,
}

impl Line {
    fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let Self { time_us, operation, offset, bytes } = *self;
        if ![READ, WRITE].contains(&operation) || bytes <= MAX_LINE_BYTES {
            return writeln!(file, "{time_us},{operation},{offset},{bytes}");
        }
        for part in 0..bytes.div_ceil(MAX_LINE_BYTES) {
            let before = part * MAX_LINE_BYTES;
            let (offset, bytes) = (offset + before, MAX_LINE_BYTES.min(bytes - before));
            writeln!(file, "{time_us},{operation},{offset},{bytes}")?;
        }
        Ok(())
    }
}

impl Recording {
    /// The first line of the file.
    pub const HEADER: &str = "time_us,op,offset,bytes\n";

    /// Starts to append to `file`, which already has the [`HEADER`](Self::HEADER). Timestamps begin at `start_us`, which lets
    /// several recordings share a file. An error of the file ends the recording; `on_error` runs then, after the last write.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        file: impl Write + Send + 'static,
        clock: Arc<dyn Clock>,
        start_us: u64,
        on_error: impl FnOnce(&io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        let start_ns = clock.monotonic_ns();
        let lines = Mutex::new(Lines::default());
        let shared = Arc::new(Shared { clock, start_ns, start_us, lines, changed: Condvar::new() });
        let thread = std::thread::Builder::new().name("block-record".into());
        let writer = thread.spawn({
            let shared = Arc::clone(&shared);
            move || {
                shared.write_all(file).inspect_err(|error| {
                    shared.abort();
                    on_error(error);
                })
            }
        })?;
        Ok(Self { shared, writer })
    }

    /// Wraps `inner` so that its requests are recorded.
    #[must_use]
    pub fn of(&self, inner: Arc<dyn Export>) -> RecordedExport {
        RecordedExport { inner, shared: Arc::clone(&self.shared) }
    }

    /// Writes the remaining lines. Later requests are not recorded.
    ///
    /// # Errors
    /// If the file could not be written, now or earlier.
    pub fn stop(self) -> io::Result<Recorded> {
        self.shared.lines.lock().ended = true;
        self.shared.changed.notify_one();
        self.writer.join().map_err(|_| io::Error::other("the recording's thread panicked"))??;
        let lines = self.shared.lines.lock();
        Ok(Recorded { requests: lines.counted, left_out: lines.left_out })
    }
}

impl Shared {
    fn record(&self, operation: &'static str, offset: u64, bytes: u64) {
        let mut lines = self.lines.lock();
        if lines.ended {
            return;
        }
        lines.counted += 1;
        if lines.waiting.len() >= MAX_WAITING {
            lines.left_out += 1;
            return;
        }
        // Read under the lock, so that timestamps do not decrease.
        let time_us = self.start_us + (self.clock.monotonic_ns() - self.start_ns) / 1000;
        lines.waiting.push(Line { time_us, operation, offset, bytes });
        if lines.waiting.len() == 1 {
            self.changed.notify_one();
        }
    }

    fn write_all(&self, file: impl Write) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 16, file);
        let mut taken = Vec::new();
        let mut is_over = false;
        while !is_over {
            {
                let mut lines = self.lines.lock();
                self.changed.wait_while(&mut lines, |lines| lines.waiting.is_empty() && !lines.ended);
                if !lines.ended {
                    self.changed.wait_while_for(&mut lines, |lines| !lines.ended, PAUSE);
                }
                is_over = lines.ended;
                std::mem::swap(&mut taken, &mut lines.waiting);
            }
            for line in taken.drain(..) {
                line.write(&mut file)?;
            }
            file.flush()?;
        }
        Ok(())
    }

    /// Ends the recording after an error, so that lines do not accumulate in memory.
    fn abort(&self) {
        let mut lines = self.lines.lock();
        lines.ended = true;
        lines.waiting = Vec::new();
    }
}

/// See [`Recording::of`].
pub struct RecordedExport {
    inner: Arc<dyn Export>,
    shared: Arc<Shared>,
}

impl Export for RecordedExport {
    fn shape(&self) -> Shape {
        self.inner.shape()
    }

    fn submit(&self, operation: Operation, reply: Reply) {
        match &operation {
            Operation::Read { offset, len } => self.shared.record(READ, *offset, u64::from(*len)),
            Operation::Write { offset, data, .. } => self.shared.record(WRITE, *offset, data.len() as u64),
            // Usually refused, and then the client writes the zeros.
            Operation::Zero { only_if_fast: true, offset, len, .. } => {
                let (offset, len, shared) = (*offset, *len, Arc::clone(&self.shared));
                let recorded = Reply::new(move |result: OperationResult| {
                    if result.is_ok() {
                        shared.record(WRITE, offset, len);
                    }
                    reply.send(result);
                });
                return self.inner.submit(operation, recorded);
            }
            // For a cache, zeroing is a write.
            Operation::Zero { offset, len, .. } => self.shared.record(WRITE, *offset, *len),
            Operation::Trim { offset, len, .. } => self.shared.record("trim", *offset, *len),
            Operation::Flush => self.shared.record("flush", 0, 0),
            // For a cache, a prefetch is a read.
            Operation::Prefetch { offset, len } => self.shared.record(READ, *offset, *len),
        }
        self.inner.submit(operation, reply);
    }

    fn contexts(&self) -> &[Context] {
        self.inner.contexts()
    }

    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError> {
        self.inner.extents(context, offset, len, most)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use device::{IoBuffer, MemoryDevice, VirtualClock};

    use super::*;
    use crate::export::DeviceExport;

    /// A file whose contents the test can read, and that can be made to fail.
    #[derive(Clone, Default)]
    struct SharedFile(Arc<Mutex<(Vec<u8>, bool)>>);

    impl Write for SharedFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut file = self.0.lock();
            if file.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            file.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn run(export: &dyn Export, operation: Operation) {
        let (sender, receiver) = mpsc::channel();
        export.submit(operation, Reply::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().unwrap();
    }

    #[test]
    fn each_request_is_recorded_with_its_time() {
        let (file, clock) = (SharedFile::default(), Arc::new(VirtualClock::default()));
        let recording = Recording::start(file.clone(), clock.clone(), 1_000_000, |_| ()).unwrap();
        let disk = Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(1 << 20))));
        let export = recording.of(disk);
        run(&export, Operation::Read { offset: 4096, len: 8192 });
        clock.advance_by(2_500);
        let data = IoBuffer::zeroed(4096).into();
        run(&export, Operation::Write { offset: 0, data, durable: true });
        run(&export, Operation::Prefetch { offset: 0, len: 4096 });
        clock.advance_by(1_000_000);
        run(&export, Operation::Trim { offset: 8192, len: 4096, durable: false });
        run(&export, Operation::Flush);
        assert_eq!(recording.stop().unwrap(), Recorded { requests: 5, left_out: 0 });
        run(&export, Operation::Flush);
        let text = String::from_utf8(file.0.lock().0.clone()).unwrap();
        assert_eq!(
            text,
            "1000000,read,4096,8192\n1000002,write,0,4096\n1000002,read,0,4096\n1001002,trim,8192,4096\n1001002,flush,0,0\n"
        );
    }

    /// A single line of that length would be rejected by a replay.
    #[test]
    fn long_zeroing_is_recorded_in_several_lines() {
        let mut lines = Vec::new();
        let zeros = Line { time_us: 7, operation: WRITE, offset: 4096, bytes: (2 << 30) + 512 };
        zeros.write(&mut lines).unwrap();
        Line { operation: "trim", ..zeros }.write(&mut lines).unwrap();
        let whole = 1_u64 << 30;
        let expected = [
            format!("7,write,4096,{whole}"),
            format!("7,write,{},{whole}", 4096 + whole),
            format!("7,write,{},512", 4096 + 2 * whole),
            format!("7,trim,4096,{}", 2 * whole + 512),
        ];
        assert_eq!(String::from_utf8(lines).unwrap().lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn refused_fast_zero_is_not_recorded() {
        let file = SharedFile::default();
        let recording = Recording::start(file.clone(), Arc::new(VirtualClock::default()), 0, |_| ()).unwrap();
        let export = recording.of(Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(1 << 20)))));
        let (sender, receiver) = mpsc::channel();
        for only_if_fast in [true, false] {
            let zero =
                Operation::Zero { offset: 0, len: 4096, may_trim: false, only_if_fast, durable: false };
            let sender = sender.clone();
            export.submit(zero, Reply::new(move |result| sender.send(result.is_ok()).unwrap()));
            assert_eq!(receiver.recv(), Ok(!only_if_fast));
        }
        assert_eq!(recording.stop().unwrap().requests, 1);
        assert_eq!(file.0.lock().0, b"0,write,0,4096\n");
    }

    #[test]
    fn requests_beyond_the_buffer_are_omitted_and_counted() {
        let file = SharedFile::default();
        let recording = Recording::start(file.clone(), Arc::new(VirtualClock::default()), 0, |_| ()).unwrap();
        let slow = file.0.lock();
        recording.shared.record("flush", 0, 0);
        while !recording.shared.lines.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        (0..MAX_WAITING + 5).for_each(|_| recording.shared.record("flush", 0, 0));
        drop(slow);
        let requests = MAX_WAITING as u64 + 6;
        assert_eq!(recording.stop().unwrap(), Recorded { requests, left_out: 5 });
        let written = file.0.lock().0.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(written, MAX_WAITING + 1);
    }

    #[test]
    fn write_error_ends_the_recording_and_requests_continue() {
        let file = SharedFile::default();
        file.0.lock().1 = true;
        let (sender, receiver) = mpsc::channel();
        let recording = Recording::start(file, Arc::new(VirtualClock::default()), 0, move |error| {
            sender.send(error.kind()).unwrap();
        })
        .unwrap();
        let export = recording.of(Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(1 << 20)))));
        run(&export, Operation::Flush);
        assert_eq!(
            receiver.recv(),
            Ok(io::ErrorKind::StorageFull),
            "reported before the recording is stopped"
        );
        while !recording.shared.lines.lock().ended {
            std::thread::yield_now();
        }
        run(&export, Operation::Read { offset: 0, len: 4096 });
        assert!(recording.shared.lines.lock().waiting.is_empty(), "no lines are kept after the end");
        assert_eq!(recording.stop().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
