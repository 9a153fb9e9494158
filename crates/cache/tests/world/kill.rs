//! A process that uses a cache on a file is killed while it opens, serves or closes the cache, fifty times over the
//! same file. The next cache on the file must not find any replaced or removed item.
//!
//! The killed process is this test binary. It records each write in a second file, before the write begins and after it
//! is acknowledged. A kill does not affect these records.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::file::OpenOptions as FileOptions;
use device::timer::{SystemTimer, Timer};
use device::{Clock, Device, ErrorKind, FileDevice};
use flashwright_cache::{Cache, InsertOptions};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::setup::{KIB, MIB, cache_config, flash, key, seeds, value, version_of};

const ROUNDS: u64 = 50;
const KEYS: u64 = 600;
const WRITERS: u64 = 2;
/// The child opens the cache, serves this many requests per writer, closes, and starts over.
const REQUESTS_PER_RUN: u64 = 1500;
/// The child prints a byte after this many requests, and when it opens and closes.
const REQUESTS_PER_SIGNAL: u64 = 25;
const DIRECTORY_VARIABLE: &str = "FLASHWRIGHT_TEST_CHILD_DIRECTORY";
const SEED_VARIABLE: &str = "FLASHWRIGHT_TEST_CHILD_SEED";

/// For each key: the version begun, the version acknowledged, and whether the latter was a removal.
struct Notes(File);

#[derive(Debug, Clone, Copy)]
struct Note {
    begun: u64,
    acknowledged: u64,
    removed: bool,
}

impl Notes {
    const BYTES: u64 = 24;

    fn open(directory: &Path) -> Self {
        let path = directory.join("notes");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.expect("the directory is writable");
        file.set_len(KEYS * Self::BYTES).expect("the directory is writable");
        Self(file)
    }

    fn of(&self, number: u64) -> Note {
        let mut bytes = [0; Self::BYTES as usize];
        self.0.read_exact_at(&mut bytes, number * Self::BYTES).expect("the file has a record for each key");
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        Note { begun: word(0), acknowledged: word(8), removed: word(16) == 1 }
    }

    fn begin(&self, number: u64) -> u64 {
        let version = self.of(number).begun + 1;
        self.write(number, 0, version);
        version
    }

    /// Writes the version last: after a kill between the two writes, the record has a version begun and not
    /// acknowledged.
    fn acknowledge(&self, number: u64, version: u64, removed: bool) {
        self.write(number, 16, u64::from(removed));
        self.write(number, 8, version);
    }

    fn write(&self, number: u64, at: u64, word: u64) {
        self.0.write_all_at(&word.to_le_bytes(), number * Self::BYTES + at).expect("a small write");
    }
}

/// The kernel closes the io_uring of a killed process, and releases the lock of the file, some time after the process
/// ended.
fn open_file(path: &Path, options: &FileOptions) -> FileDevice {
    for _ in 0..500 {
        match FileDevice::open(path, options) {
            Err(error) if error.kind() == ErrorKind::Busy => {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            opened => return opened.expect("the file can be opened"),
        }
    }
    FileDevice::open(path, options).expect("the lock of a killed process is released")
}

fn open(directory: &Path) -> Cache {
    let options = FileOptions {
        size_bytes: Some(8 * MIB),
        create: true,
        // A kill keeps the page cache, so buffered writes survive it like direct ones.
        buffered: true,
        ..FileOptions::default()
    };
    let device: Arc<dyn Device> = Arc::new(open_file(&directory.join("flash"), &options));
    let config = cache_config(flash(device), 512 * KIB, 0);
    Cache::builder().config(config).open().expect("a killed cache can be opened again")
}

/// Reads every key and checks it against the records; returns the number found.
fn audit(cache: &Cache, notes: &Notes, label: &str) -> usize {
    let found = (0..KEYS).filter(|&number| {
        let Some(item) = cache.get_blocking(&key(number)) else { return false };
        let (version, note) = (version_of(number, &item), notes.of(number));
        let Note { begun, acknowledged, removed } = note;
        assert!(
            version >= acknowledged && version <= begun,
            "{label}: key {number} has version {version}; {note:?}"
        );
        let was_removed = removed && version == acknowledged && begun == acknowledged;
        assert!(!was_removed, "{label}: key {number} was removed; {note:?}");
        true
    });
    found.count()
}

/// Code of the child process. Run as a usual test, without the environment variable, it returns immediately.
#[test]
fn child_process() {
    let Ok(directory) = std::env::var(DIRECTORY_VARIABLE) else { return };
    let seed: u64 = std::env::var(SEED_VARIABLE).expect("set with the directory").parse().expect("a number");
    let directory = PathBuf::from(directory);
    let notes = Notes::open(&directory);
    let timer = SystemTimer::default();
    for run in 0.. {
        signal_parent();
        // Gives the parent time to kill the child while the cache is closed.
        timer.wait_until(timer.monotonic_ns() + 10_000_000);
        let cache = open(&directory);
        signal_parent();
        audit(&cache, &notes, &format!("child {seed}, run {run}"));
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (cache, notes) = (&cache, &notes);
                let seed = seed << 32 | run << 8 | writer;
                scope.spawn(move || serve(cache, notes, writer, seed));
            }
        });
        signal_parent();
        cache.close().expect("the file can be written");
    }
}

fn serve(cache: &Cache, notes: &Notes, writer: u64, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    for request in 0..REQUESTS_PER_RUN {
        if request % REQUESTS_PER_SIGNAL == 0 {
            signal_parent();
        }
        let number = random.random_range(0..KEYS / WRITERS) * WRITERS + writer;
        match random.random_range(0..10) {
            0..5 => {
                let version = notes.begin(number);
                let bytes = value(number, version);
                cache.insert_blocking(&key(number), &bytes, InsertOptions::default());
                notes.acknowledge(number, version, false);
            }
            5 => {
                let version = notes.begin(number);
                cache.remove(&key(number));
                notes.acknowledge(number, version, true);
            }
            _ => drop(cache.get_blocking(&key(number))),
        }
    }
}

/// Reports progress to the parent.
fn signal_parent() {
    std::io::stdout().write_all(b"\0").expect("the parent reads the pipe");
    std::io::stdout().flush().expect("the parent reads the pipe");
}

fn start_child(directory: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().expect("the path of the test binary"))
        .args(["--exact", "kill::child_process", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY_VARIABLE, directory)
        .env(SEED_VARIABLE, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary starts")
}

/// Waits for `signals` bytes of the child, then kills it.
fn kill_after(mut child: Child, signals: u64, label: &str) {
    let mut out = child.stdout.take().expect("piped");
    let (mut seen, mut bytes) = (0, [0; 256]);
    while seen < signals {
        let count = out.read(&mut bytes).expect("a pipe");
        if count == 0 {
            let mut message = String::new();
            let _ = child.stderr.take().expect("piped").read_to_string(&mut message);
            panic!("{label}: the child ended before the kill: {message}");
        }
        seen += bytes[..count].iter().filter(|&&byte| byte == 0).count() as u64;
    }
    child.kill().expect("the child still runs");
    let status = child.wait().expect("it is a child of this process");
    assert_eq!(status.signal(), Some(9), "{label}: {status}");
}

#[test]
fn killed_process_leaves_no_stale_item() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let notes = Notes::open(directory.path());
    let mut random = StdRng::seed_from_u64(5);
    let signals_per_run = 3 + WRITERS * REQUESTS_PER_RUN / REQUESTS_PER_SIGNAL;
    let (empty, warm) = (AtomicU64::new(0), AtomicU64::new(0));
    for round in seeds(ROUNDS) {
        let label = format!("round {round}");
        // Half of the kills are during requests, the others around a close or the next open.
        let signals = match random.random_range(0..2) {
            0 => random.random_range(1..signals_per_run),
            _ => signals_per_run - 2 + random.random_range(0..6),
        };
        kill_after(start_child(directory.path(), round), signals, &label);
        let cache = open(directory.path());
        let found = audit(&cache, &notes, &label);
        if found == 0 { &empty } else { &warm }.fetch_add(1, Ordering::Relaxed);
        // Every other child begins with a closed cache.
        if round % 2 == 0 {
            cache.close().expect("the file can be written");
        }
    }
    let (empty, warm) = (empty.into_inner(), warm.into_inner());
    assert!(empty >= 10 && warm >= 1, "{empty} kills left an empty cache, {warm} a warm one");
}
