//! Opening, locking and closing files.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::*;
use crate::{Completion, ErrorKind, IoBuffer, IoSlice, Request};

const SIZE: u64 = 1 << 20;

fn sized() -> OpenOptions {
    OpenOptions { size_bytes: Some(SIZE), create: true, buffered: true, ..Default::default() }
}

fn refusal(path: &Path, options: &OpenOptions) -> (ErrorKind, String) {
    let error = FileDevice::open(path, options).expect_err("an opening that must be refused");
    (error.kind(), error.to_string())
}

/// Names of this process's device threads.
fn device_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("flash-")).collect()
}

#[test]
fn second_open_names_the_owner() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("flash");
    let first = FileDevice::open(&path, &sized()).unwrap();
    let (kind, message) = refusal(&path, &sized());
    assert_eq!(kind, ErrorKind::Busy);
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    drop(first);
    FileDevice::open(&path, &sized()).unwrap();
}

/// The kernel takes a moment to complete transfers of a killed process. Here another process keeps its lock.
#[test]
fn open_waits_for_a_lock_of_an_ended_process() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("flash");
    drop(FileDevice::open(&path, &sized()).unwrap());
    let script = "exec 9<>\"$0\"; flock 9 && { sleep 1 & }";
    let locked = std::process::Command::new("sh").args(["-c", script]).arg(&path).status().unwrap();
    if !locked.success() {
        println!("SKIPPED: flock is not installed");
        return;
    }
    FileDevice::open(&path, &sized()).unwrap();
}

/// Like `udev` with a device that a writer closed.
#[test]
fn open_waits_for_a_shared_lock() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("flash");
    drop(FileDevice::open(&path, &sized()).unwrap());
    let mut locker = std::process::Command::new("flock");
    locker.arg("-s").arg(&path).args(["sh", "-c", "echo shared && sleep 1"]);
    let Ok(mut looking) = locker.stdout(std::process::Stdio::piped()).spawn() else {
        println!("SKIPPED: flock is not installed");
        return;
    };
    std::io::Read::read_exact(looking.stdout.as_mut().unwrap(), &mut [0; 7]).unwrap();
    let opened = FileDevice::open(&path, &sized());
    looking.wait().unwrap();
    opened.unwrap();
}

#[test]
fn dropped_device_is_unlocked_immediately() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("flash");
    for _ in 0..50 {
        let device = FileDevice::open(&path, &sized()).unwrap();
        for block in 0..32 {
            drop((&device as &dyn Device).read(block * 4096, 4096));
        }
    }
}

#[test]
fn unfitting_sizes_are_refused_without_changes() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("flash");
    let of_size = |size_bytes, create| OpenOptions { size_bytes, create, ..sized() };
    assert_eq!(refusal(&path, &of_size(Some(SIZE), false)).0, ErrorKind::Open, "does not exist");
    assert_eq!(refusal(&path, &of_size(None, true)).0, ErrorKind::Open, "no size");
    assert_eq!(refusal(&path, &of_size(Some(SIZE + 1), true)).0, ErrorKind::Open, "not in blocks");
    assert_eq!(refusal(&path, &of_size(Some(0), true)).0, ErrorKind::Open, "nothing");
    assert!(!path.exists(), "an unusable new file is removed");

    drop(FileDevice::open(&path, &of_size(Some(SIZE), true)).unwrap());
    assert_eq!(refusal(&path, &of_size(Some(2 * SIZE), false)).0, ErrorKind::Open, "too small");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE);
    let capacity = |options| FileDevice::open(&path, &options).unwrap().geometry().capacity_bytes;
    assert_eq!(capacity(of_size(None, false)), SIZE);
    assert_eq!(capacity(of_size(Some(SIZE / 2), true)), SIZE / 2);
    assert_eq!(capacity(of_size(Some(2 * SIZE), true)), 2 * SIZE);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * SIZE);
}

#[test]
fn read_only_open_neither_creates_nor_writes() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("flash");
    let reading = OpenOptions { read_only: true, ..sized() };
    assert_eq!(refusal(&path, &reading).0, ErrorKind::Open);
    std::fs::write(&path, vec![7; SIZE as usize]).unwrap();
    let longer = OpenOptions { size_bytes: Some(2 * SIZE), ..reading };
    assert_eq!(refusal(&path, &longer).0, ErrorKind::Open, "the file does not grow");

    let device = FileDevice::open(&path, &reading).unwrap();
    let shared: &dyn Device = &device;
    let data = || IoSlice::from(IoBuffer::zeroed(4096));
    let write = || Request::write(0, data());
    let outcomes = [
        device.execute(write()).map(drop),
        device.execute(Request::Trim { offset: 0, len: 4096 }).map(drop),
        shared.start(write()).wait().map(drop),
        device.absorb(0, &data()).expect("files have the page cache"),
    ];
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("opened read-only"), "{error}");
    }
    device.execute(Request::Flush).unwrap();
    let read = Request::read(0, 4096);
    assert!(device.execute(read).unwrap().iter().all(|byte| *byte == 7));
    drop(device);
    assert!(std::fs::read(&path).unwrap() == vec![7; SIZE as usize]);
}

#[test]
fn directories_and_special_files_are_refused_by_kind() {
    let scratch = tempfile::tempdir().unwrap();
    let (kind, message) = refusal(scratch.path(), &sized());
    assert_eq!(kind, ErrorKind::Open);
    assert!(message.contains("a directory"), "{message}");
    assert!(refusal(Path::new("/dev/null"), &sized()).1.contains("a character device"));
}

#[test]
fn preallocation_reserves_space_or_fails_with_no_space() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("flash");
    let preallocated = OpenOptions { preallocate: true, ..sized() };
    let device = FileDevice::open(&path, &preallocated).unwrap();
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 >= SIZE);
    drop(device);

    let much = 1 << 42;
    let huge = scratch.path().join("huge");
    let (kind, message) = refusal(&huge, &OpenOptions { size_bytes: Some(much), ..preallocated });
    assert_eq!(kind, ErrorKind::NoSpace, "{message}");
    assert!(message.contains("huge") && message.contains(&much.to_string()), "{message}");
    assert!(!huge.exists());
}

#[test]
fn reserve_space_fills_a_sparse_file_or_leaves_it_unchanged() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("sparse");
    let taken = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let file = std::fs::File::create_new(&path).unwrap();
    file.set_len(SIZE).unwrap();
    assert_eq!(taken(), 0, "the file system supports sparse files");
    reserve_space(&path).unwrap();
    assert!(taken() >= SIZE);

    let (much, taken_before) = (1 << 42, taken());
    file.set_len(much).unwrap();
    let error = reserve_space(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("sparse") && error.to_string().contains(&much.to_string()), "{error}");
    assert_eq!((file.metadata().unwrap().len(), taken()), (much, taken_before));
}

#[test]
fn only_created_files_are_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("flash");
    let passing = OpenOptions { remove_on_drop: true, ..sized() };
    drop(FileDevice::open(&path, &passing).unwrap());
    assert!(!path.exists());
    drop(FileDevice::open(&path, &sized()).unwrap());
    drop(FileDevice::open(&path, &passing).unwrap());
    assert!(path.exists(), "an existing file stays");
}

#[test]
fn file_created_concurrently_is_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("flash");
    std::fs::write(&path, "precious").unwrap();
    let removal = medium::Removal { armed: true, file: path.clone(), directory: None };
    open::open_file(&path, &sized(), Some(removal)).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn buffered_file_is_reported_and_keeps_data() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("flash");
    let device = FileDevice::open(&path, &sized()).unwrap();
    assert!(device.geometry().buffered);
    let data = IoBuffer::copy_of(&[5; 8192]);
    device.execute(Request::write(4096, data)).unwrap();
    drop(device);
    let device =
        FileDevice::open(&path, &OpenOptions { size_bytes: None, create: false, ..sized() }).unwrap();
    let read = device.execute(Request::read(0, 12288)).unwrap();
    assert!(read[..4096].iter().all(|&byte| byte == 0) && read[4096..].iter().all(|&byte| byte == 5));
}

#[test]
fn trim_frees_the_space_of_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    let device = FileDevice::open(scratch.path().join("flash"), &sized()).unwrap();
    let data = IoBuffer::copy_of(&vec![5; SIZE as usize]);
    device.execute(Request::write(0, data)).unwrap();
    device.execute(Request::Flush).unwrap();
    let trimmed = device.execute(Request::Trim { offset: 0, len: SIZE });
    if trimmed.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported) {
        return println!("skipped: this file system has no holes");
    }
    trimmed.unwrap();
    let metadata = std::fs::metadata(device.path()).unwrap();
    assert_eq!((metadata.len(), metadata.blocks()), (SIZE, 0));
}

#[test]
fn threads_start_with_submitted_requests_and_end_with_the_device() {
    // A separate process, because other tests have threads too.
    const INSIDE: &str = "FLASHWRIGHT_TEST_COUNTS_THREADS";
    if std::env::var_os(INSIDE).is_none() {
        let name = "file::tests::only_submitted_requests_need_threads_and_they_go_with_the_device";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", name, "--test-threads=1"]).env(INSIDE, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    for engine in [None, Some(Engine::ThreadPool)] {
        let options = OpenOptions { engine, ..sized() };
        let device = FileDevice::open(scratch.path().join("flash"), &options).unwrap();
        device.execute(Request::Flush).unwrap();
        assert_eq!(device_threads(), [""; 0], "a device for blocking callers has no thread");
        (&device as &dyn Device).start(Request::Flush).wait().unwrap();
        assert_eq!(device_threads().len(), 1);
        drop(device);
        // The kernel lists a thread for a moment after it was joined.
        let gone = (0..100_000).any(|_| {
            std::thread::yield_now();
            device_threads().is_empty()
        });
        assert!(gone, "{:?}", device_threads());
    }
}

#[test]
fn completion_can_be_the_last_owner() {
    let scratch = tempfile::tempdir().unwrap();
    for engine in [None, Some(Engine::ThreadPool)] {
        // The thread that runs the completion closes the file some time later.
        let path = scratch.path().join(format!("flash of {engine:?}"));
        let device = Arc::new(FileDevice::open(&path, &OpenOptions { engine, ..sized() }).unwrap());
        let (sender, receiver) = std::sync::mpsc::channel();
        let owner = Arc::clone(&device);
        let last = Completion::new(move |outcome| {
            // Keeps the device until the caller has dropped it.
            while Arc::strong_count(&owner) > 1 {
                std::thread::yield_now();
            }
            drop(owner);
            sender.send(outcome.is_ok()).unwrap();
        });
        device.submit(Request::Flush, last);
        drop(device);
        assert!(receiver.recv().unwrap());
    }
}

#[test]
fn request_submitted_during_completions_completes() {
    let scratch = tempfile::tempdir().unwrap();
    let device = Arc::new(FileDevice::open(scratch.path().join("flash"), &sized()).unwrap());
    let read = || Request::read(0, 4096);
    for _ in 0..200 {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let (device_there, sender_of_thread) = (Arc::clone(&device), sender.clone());
        // The first read's completion starts the second read, and blocks until a third is submitted.
        let first = Completion::new(move |_| {
            sender_of_thread.send("first").unwrap();
            let second = Completion::new(move |outcome| {
                sender_of_thread.send(outcome.map_or("", |_| "second")).unwrap();
            });
            device_there.submit(read(), second);
            let _ = wait.recv();
        });
        device.submit(read(), first);
        assert_eq!(receiver.recv(), Ok("first"));
        let third = Completion::new(move |outcome| sender.send(outcome.map_or("", |_| "third")).unwrap());
        device.submit(read(), third);
        drop(go_on);
        let mut ended = [receiver.recv().unwrap(), receiver.recv().unwrap()];
        ended.sort_unstable();
        assert_eq!(ended, ["second", "third"]);
    }
}

#[test]
fn panicking_completion_does_not_affect_other_requests() {
    let scratch = tempfile::tempdir().unwrap();
    for engine in [None, Some(Engine::ThreadPool)] {
        let path = scratch.path().join("flash");
        let device = FileDevice::open(&path, &OpenOptions { engine, ..sized() }).unwrap();
        device.submit(Request::Flush, Completion::new(|_| panic!("on purpose")));
        (&device as &dyn Device).start(Request::Flush).wait().unwrap();
    }
}

#[test]
fn refused_direct_io_is_reported() {
    let error = open::open_error(Path::new("/some/where"), rustix::io::Errno::INVAL, false);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("direct I/O is not supported"), "{error}");
}

#[test]
fn temporary_file_has_no_name() {
    let scratch = tempfile::tempdir().unwrap();
    let options = OpenOptions { buffered: true, ..sized() };
    let device = FileDevice::create_temporary(scratch.path(), &options).unwrap();
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "a killed process leaves nothing");
    let data = IoBuffer::zeroed(4096);
    device.execute(Request::write(4096, data)).unwrap();
}

#[test]
fn holes_are_reported_until_written() {
    let scratch = tempfile::tempdir().unwrap();
    let device: Box<dyn Device> = Box::new(FileDevice::open(scratch.path().join("f"), &sized()).unwrap());
    let Some(all) = device.hole_in(0..1 << 20) else {
        return println!("SKIPPED: this file system does not report holes");
    };
    assert_eq!(all, 0..1 << 20);
    let data: IoSlice = IoBuffer::copy_of(&[7; 64 << 10]).into();
    device.write(256 << 10, data.clone()).wait().unwrap();
    device.absorb(768 << 10, &data).expect("a file has the page cache").unwrap();
    assert_eq!(device.hole_in(0..1 << 20), Some(0..256 << 10));
    assert_eq!(device.hole_in(256 << 10..1 << 20), Some(320 << 10..768 << 10));
    assert_eq!(device.hole_in(768 << 10..1 << 20), Some(832 << 10..1 << 20));
    assert_eq!(device.hole_in(768 << 10..800 << 10), None);
    device.start(Request::Trim { offset: 0, len: 1 << 20 }).wait().unwrap();
    assert_eq!(device.hole_in(512..1 << 20).unwrap().end, 1 << 20);
}
