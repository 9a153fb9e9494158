//! A process that uses a cache on a file is killed at any moment, fifty times over the same file: while it opens, serves,
//! closes. Whoever opens the file next must find nothing that was replaced or removed.
//!
//! The victim is this test binary again. It notes every write in a file before it begins and after it was
//! acknowledged; such notes outlive the process as its cache's writes do.

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
/// The victim opens, serves this many requests per writer, closes, and starts over.
const REQUESTS_A_LIFE: u64 = 1500;
/// The victim prints a line after this many requests, and when it opens and closes.
const REQUESTS_A_SIGN: u64 = 25;
const DIRECTORY_VARIABLE: &str = "FLASHWRIGHT_TEST_VICTIM_DIRECTORY";
const SEED_VARIABLE: &str = "FLASHWRIGHT_TEST_VICTIM_SEED";

/// For each key the version begun, the version acknowledged, and whether that one put something.
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
        self.0.read_exact_at(&mut bytes, number * Self::BYTES).expect("it was made as long");
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        Note { begun: word(0), acknowledged: word(8), removed: word(16) == 1 }
    }

    fn begin(&self, number: u64) -> u64 {
        let version = self.of(number).begun + 1;
        self.write(number, 0, version);
        version
    }

    /// The version last: a kill in between leaves the write begun and not acknowledged.
    fn acknowledge(&self, number: u64, version: u64, removed: bool) {
        self.write(number, 16, u64::from(removed));
        self.write(number, 8, version);
    }

    fn write(&self, number: u64, at: u64, word: u64) {
        self.0.write_all_at(&word.to_le_bytes(), number * Self::BYTES + at).expect("a small write");
    }
}

/// The kernel closes the ring of a killed process, and with it the locked file, some time after the process ended.
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
        // Whether it is the page cache or the drive that outlives the process makes no difference to a kill.
        buffered: true,
        ..FileOptions::default()
    };
    let device: Arc<dyn Device> = Arc::new(open_file(&directory.join("flash"), &options));
    let config = cache_config(flash(device), 512 * KIB, 0);
    Cache::builder().config(config).open().expect("a killed cache can be opened again")
}

/// Asks for every key; how many are there.
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

/// The victim's code. Not a test of its own: it returns immediately unless it is started as the victim.
#[test]
fn victim() {
    let Ok(directory) = std::env::var(DIRECTORY_VARIABLE) else { return };
    let seed: u64 = std::env::var(SEED_VARIABLE).expect("set beside it").parse().expect("a number");
    let directory = PathBuf::from(directory);
    let notes = Notes::open(&directory);
    let timer = SystemTimer::default();
    for life in 0.. {
        sign();
        // A closed cache is to be found by the murderer now and then, not only one in use.
        timer.wait_until(timer.monotonic_ns() + 10_000_000);
        let cache = open(&directory);
        sign();
        audit(&cache, &notes, &format!("victim {seed}, life {life}"));
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (cache, notes) = (&cache, &notes);
                let seed = seed << 32 | life << 8 | writer;
                scope.spawn(move || serve(cache, notes, writer, seed));
            }
        });
        sign();
        cache.close().expect("the file can be written");
    }
}

fn serve(cache: &Cache, notes: &Notes, writer: u64, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    for request in 0..REQUESTS_A_LIFE {
        if request % REQUESTS_A_SIGN == 0 {
            sign();
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

/// Tells the murderer that something was done.
fn sign() {
    std::io::stdout().write_all(b"\0").expect("somebody listens");
    std::io::stdout().flush().expect("somebody listens");
}

fn start_victim(directory: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().expect("this is a program"))
        .args(["--exact", "kill::victim", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY_VARIABLE, directory)
        .env(SEED_VARIABLE, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a program can run itself")
}

/// Waits for `signs` lines of the victim, then kills it.
fn kill_after(mut victim: Child, signs: u64, label: &str) {
    let mut out = victim.stdout.take().expect("piped");
    let (mut seen, mut bytes) = (0, [0; 256]);
    while seen < signs {
        let count = out.read(&mut bytes).expect("a pipe");
        if count == 0 {
            let mut words = String::new();
            let _ = victim.stderr.take().expect("piped").read_to_string(&mut words);
            panic!("{label}: the victim died by itself: {words}");
        }
        seen += bytes[..count].iter().filter(|&&byte| byte == 0).count() as u64;
    }
    victim.kill().expect("it still runs");
    let status = victim.wait().expect("it is ours");
    assert_eq!(status.signal(), Some(9), "{label}: {status}");
}

#[test]
fn killed_process_leaves_no_stale_item() {
    let directory = tempfile::tempdir().expect("a place for a file");
    let notes = Notes::open(directory.path());
    let mut random = StdRng::seed_from_u64(5);
    let signs_a_life = 3 + WRITERS * REQUESTS_A_LIFE / REQUESTS_A_SIGN;
    let (empty, warm) = (AtomicU64::new(0), AtomicU64::new(0));
    for round in seeds(ROUNDS) {
        let label = format!("round {round}");
        // Half of them die in the middle of a life, the others around its end or the next one's beginning.
        let signs = match random.random_range(0..2) {
            0 => random.random_range(1..signs_a_life),
            _ => signs_a_life - 2 + random.random_range(0..6),
        };
        kill_after(start_victim(directory.path(), round), signs, &label);
        let cache = open(directory.path());
        let found = audit(&cache, &notes, &label);
        if found == 0 { &empty } else { &warm }.fetch_add(1, Ordering::Relaxed);
        // Every other victim begins with a cache that was closed.
        if round % 2 == 0 {
            cache.close().expect("the file can be written");
        }
    }
    let (empty, warm) = (empty.into_inner(), warm.into_inner());
    assert!(empty >= 10 && warm >= 1, "both ends were seen: {empty} empty, {warm} not");
}
