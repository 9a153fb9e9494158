//! CacheLib's event tracker: writes the events of sampled keys to a CSV file.
//!
//! The thread that causes an event adds a row to a queue; a separate thread writes the rows. If the queue is full, the event is
//! dropped and counted, so that the run never waits. A simulated run drops nothing: if its queue is full, it writes the rows
//! itself, so that the same seed gives the same file.

mod file;
mod rows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use cache::KeyHash;
use cache::event::{Event, EventSink};
use device::Clock;
use parking_lot::{Condvar, Mutex};

use crate::config::plan::{EventsPlan, InstancePlan};
pub use file::EventFile;
use rows::Batch;

/// Rows that a simulated run writes together.
const SIMULATED_ROWS: usize = 1 << 12;

/// Counters of tracked events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Path of the file; `None` for several files.
    pub file: Option<PathBuf>,
    /// Events of the sampled keys; each was written, dropped or lost.
    pub tracked: u64,
    /// Rows in the file.
    pub written: u64,
    /// Events dropped because the queue was full.
    pub dropped: u64,
    /// Rows that could not be written.
    pub lost: u64,
    /// Rows written, by event and result.
    pub by_name: BTreeMap<(&'static str, &'static str), u64>,
    /// The first write error.
    pub failure: Option<String>,
}

impl EventCounts {
    /// Adds the counters of another file.
    pub fn add(&mut self, other: &Self) {
        self.file = None;
        self.tracked += other.tracked;
        self.written += other.written;
        self.dropped += other.dropped;
        self.lost += other.lost;
        other.by_name.iter().for_each(|(name, count)| *self.by_name.entry(*name).or_default() += count);
        self.failure = self.failure.take().or_else(|| other.failure.clone());
    }
}

/// Opens the event files of all plans before the run. Nothing is written yet, and new files are removed if they are dropped.
///
/// # Errors
/// The index of the instance and the reason.
pub fn open_all(plans: &[InstancePlan]) -> Result<Vec<Option<EventFile>>, (usize, String)> {
    let mut files: Vec<Option<EventFile>> = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        let file = plan.cache.events.as_ref().map(|events| check(events, plans).and_then(EventFile::open));
        let file = file.transpose().map_err(|text| (number, text))?;
        let same = |other: &&EventFile| file.as_ref().is_some_and(|file| file.is_same(other));
        if let Some(other) = files.iter().flatten().find(same) {
            let text = format!("{} is also the event file of another instance", other.path().display());
            return Err((number, text));
        }
        files.push(file);
    }
    Ok(files)
}

/// Checks the event files without opening them for writing.
///
/// # Errors
/// The index of the instance and the reason.
pub fn check_all(plans: &[InstancePlan]) -> Result<(), (usize, String)> {
    let files =
        plans.iter().enumerate().filter_map(|(number, plan)| Some((number, plan.cache.events.as_ref()?)));
    for (number, events) in files {
        let checked = check(events, plans).and_then(file::check);
        checked.map_err(|text| (number, text))?;
    }
    Ok(())
}

fn check<'a>(events: &'a EventsPlan, plans: &[InstancePlan]) -> Result<&'a Path, String> {
    let flash = plans.iter().filter_map(|plan| plan.cache.flash.as_ref()).flat_map(|flash| &flash.paths);
    match flash.into_iter().find(|path| **path == events.file) {
        Some(path) => Err(format!("{} is the flash device", path.display())),
        None => Ok(&events.file),
    }
}

/// Records the events of one cache.
pub struct EventTracker {
    recorder: Arc<Recorder>,
    writer: Option<JoinHandle<()>>,
}

/// Clocks for the time columns.
pub struct Clocks {
    /// The cache's clock, which may follow a trace.
    pub shown: Arc<dyn Clock>,
    /// The clock of the run.
    pub world: Arc<dyn Clock>,
}

impl EventTracker {
    /// Creates a tracker for `file`. A simulated run has no writer thread.
    #[must_use]
    pub fn new(file: EventFile, plan: &EventsPlan, clocks: Clocks, simulated: bool) -> Self {
        let out = Mutex::new(Out { counts: EventCounts::default(), file, text: Vec::new() });
        let most_rows = if simulated { SIMULATED_ROWS } else { plan.queue };
        let (one_in, queue, came) = (plan.one_in, Mutex::default(), Condvar::new());
        let recorder = Recorder { one_in, most_rows, simulated, clocks, queue, came, out };
        Self { recorder: Arc::new(recorder), writer: None }
    }

    /// The sink to which the cache sends events.
    #[must_use]
    pub fn sink(&self) -> Arc<dyn EventSink> {
        Arc::clone(&self.recorder) as Arc<dyn EventSink>
    }

    /// Starts the file and the writer thread at the start of the run.
    ///
    /// # Errors
    /// The file cannot be written, or the thread cannot be started.
    pub fn begin(&mut self) -> std::io::Result<()> {
        let recorder = &self.recorder;
        recorder.out.lock().file.begin()?;
        recorder.queue.lock().started_ns = recorder.clocks.world.monotonic_ns();
        if !recorder.simulated {
            let (recorder, thread) = (Arc::clone(recorder), std::thread::Builder::new());
            self.writer = Some(thread.name("events".to_owned()).spawn(move || recorder.write_out())?);
        }
        Ok(())
    }

    /// Writes the remaining rows at the end of the run. Later events are ignored.
    #[must_use]
    pub fn finish(mut self) -> EventCounts {
        self.end();
        let (queue, out) = (self.recorder.queue.lock(), self.recorder.out.lock());
        let (tracked, dropped) = (queue.tracked, queue.dropped);
        EventCounts { file: Some(out.file.path().to_owned()), tracked, dropped, ..out.counts.clone() }
    }

    fn end(&mut self) {
        self.recorder.close();
        if let Some(writer) = self.writer.take() {
            // A panic of the thread was already printed.
            let _ = writer.join();
        }
        let rest = std::mem::take(&mut self.recorder.queue.lock().waiting);
        self.recorder.out.lock().write(&rest);
    }
}

impl Drop for EventTracker {
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.end();
        }
    }
}

/// Queue between the cache and the writer.
struct Recorder {
    one_in: u64,
    most_rows: usize,
    simulated: bool,
    clocks: Clocks,
    queue: Mutex<Queue>,
    came: Condvar,
    /// Lock order: queue, then out.
    out: Mutex<Out>,
}

#[derive(Default)]
struct Queue {
    waiting: Batch,
    started_ns: u64,
    tracked: u64,
    dropped: u64,
    closed: bool,
}

impl EventSink for Recorder {
    fn wants(&self, hash: KeyHash) -> bool {
        hash.one_in(self.one_in)
    }

    fn on_event(&self, event: &Event<'_>) {
        let mut queue = self.queue.lock();
        if queue.closed {
            return;
        }
        queue.tracked += 1;
        if queue.waiting.len() >= self.most_rows {
            if !self.simulated {
                queue.dropped += 1;
                return;
            }
            self.out.lock().write(&queue.waiting);
            queue.waiting.clear();
        }
        // The time is read under the lock, so that rows are in order of time.
        let Clocks { shown, world } = &self.clocks;
        let run_ns = world.monotonic_ns().saturating_sub(queue.started_ns);
        let was_empty = queue.waiting.len() == 0;
        queue.waiting.push(shown.unix_seconds(), run_ns, event);
        drop(queue);
        if was_empty && !self.simulated {
            self.came.notify_one();
        }
    }
}

impl Recorder {
    /// Writes rows until the queue is closed.
    fn write_out(&self) {
        let mut batch = Batch::default();
        loop {
            batch.clear();
            let mut queue = self.queue.lock();
            while queue.waiting.len() == 0 {
                if queue.closed {
                    return;
                }
                self.came.wait(&mut queue);
            }
            std::mem::swap(&mut queue.waiting, &mut batch);
            drop(queue);
            self.out.lock().write(&batch);
        }
    }

    /// Closes the queue.
    fn close(&self) {
        self.queue.lock().closed = true;
        self.came.notify_one();
    }
}

/// The output file with its counters.
struct Out {
    file: EventFile,
    counts: EventCounts,
    text: Vec<u8>,
}

impl Out {
    /// Writes a batch. A write error does not end the run: the rows are counted as lost and the error is reported at the end.
    fn write(&mut self, batch: &Batch) {
        let (rows, counts) = (batch.len() as u64, &mut self.counts);
        if rows > 0 && counts.failure.is_none() {
            self.text.clear();
            batch.render(&mut self.text);
            match self.file.write(&self.text) {
                Ok(()) => {
                    counts.written += rows;
                    batch.names().for_each(|name| *counts.by_name.entry(name).or_default() += 1);
                    return;
                }
                Err(error) => counts.failure = Some(error.to_string()),
            }
        }
        counts.lost += rows;
    }
}

#[cfg(test)]
mod tests {
    use cache::{Cache, InsertOptions};
    use device::VirtualClock;

    use super::*;

    fn tracker(file: &Path, queue: usize, simulated: bool) -> EventTracker {
        let clock = Arc::new(VirtualClock::default());
        let clocks = Clocks { shown: clock.clone(), world: clock };
        let plan = EventsPlan { file: file.to_owned(), one_in: 1, queue };
        EventTracker::new(EventFile::open(file).unwrap(), &plan, clocks, simulated)
    }

    fn insert(tracker: &EventTracker, keys: u32) {
        let cache = Cache::builder().events(tracker.sink()).open().unwrap();
        for number in 0..keys {
            cache.insert_blocking(&number.to_le_bytes(), b"value", InsertOptions::default());
        }
    }

    /// The writer starts with the run, so the queue fills before.
    #[test]
    fn events_beyond_a_full_queue_are_dropped_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut tracker = tracker(&folder.path().join("events.csv"), 10, false);
        insert(&tracker, 25);
        tracker.begin().unwrap();
        let EventCounts { tracked, written, dropped, lost, by_name, .. } = tracker.finish();
        assert_eq!((tracked, written, dropped, lost), (25, 10, 15, 0));
        assert_eq!(by_name, BTreeMap::from([(("INSERT_OR_REPLACE", "INSERTED"), 10)]));
        let text = std::fs::read(folder.path().join("events.csv")).unwrap();
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 11);
    }

    #[test]
    fn simulated_run_writes_full_queue_and_drops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut tracker = tracker(&folder.path().join("events.csv"), 1, true);
        tracker.begin().unwrap();
        insert(&tracker, 10_000);
        let counts = tracker.finish();
        assert_eq!((counts.tracked, counts.written, counts.dropped), (10_000, 10_000, 0));
    }

    #[test]
    fn full_disk_loses_rows_and_reports_failure() {
        for simulated in [false, true] {
            let mut tracker = tracker(Path::new("/dev/full"), 10_000, simulated);
            insert(&tracker, 7);
            let begun = tracker.begin().unwrap_err();
            assert_eq!(begun.kind(), std::io::ErrorKind::StorageFull);
            let counts = tracker.finish();
            assert_eq!((counts.tracked, counts.written, counts.lost), (7, 0, 7));
            assert!(counts.failure.unwrap().starts_with("writing /dev/full: "));
        }
    }

    #[test]
    fn events_after_finish_are_not_tracked() {
        let folder = tempfile::tempdir().unwrap();
        let mut tracker = tracker(&folder.path().join("events.csv"), 10, false);
        tracker.begin().unwrap();
        let sink = tracker.sink();
        assert_eq!(tracker.finish().tracked, 0);
        let cache = Cache::builder().events(sink).open().unwrap();
        assert!(cache.get_blocking(b"key").is_none());
        assert_eq!(std::fs::read_to_string(folder.path().join("events.csv")).unwrap(), rows::HEADER);
    }
}
