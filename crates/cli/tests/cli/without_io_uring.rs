//! A seccomp filter that denies io_uring, as in containers: commands use threads instead, and warn.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use serde_json::Value;

use super::FLASHWRIGHT;

/// The number of the system call, the same on all architectures.
const IO_URING_SETUP: i64 = 425;

/// The errors with which Docker's and older profiles deny a system call.
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

pub const WARNING: &str = "io_uring is not available (a seccomp profile, as in containers";

/// The path of requests without a filter: on machines that deny io_uring to all processes, the tests that need it check threads.
pub fn usual_path() -> &'static str {
    let is_denied = io_uring::IoUring::new(2).is_err();
    if is_denied { "threads" } else { "io_uring" }
}

/// Starts the command with its output piped and io_uring denied.
pub fn spawn(command: &mut Command, errno: u32) -> Child {
    let rules = BTreeMap::from([(IO_URING_SETUP, Vec::new())]);
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), architecture);
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // The filter is that of a thread and of the processes that it starts.
    std::thread::scope(|scope| {
        let started = scope.spawn(|| {
            apply_filter(&program).unwrap();
            command.spawn().unwrap()
        });
        started.join().unwrap()
    })
}

/// The exit code, standard output and standard error.
fn finish(child: Child) -> (Option<i32>, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A directory on a file system with direct I/O.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn command(directory: &Path, line: &str) -> Command {
    let mut command = Command::new(FLASHWRIGHT);
    command.args(line.split(' ')).current_dir(directory);
    command
}

#[test]
fn bench_without_io_uring_warns_and_names_threads_in_text_and_json() {
    let directory = directory();
    let config = r#"{ "cache_config": { "cacheSizeMB": 8, "nvmCacheSizeMB": 64, "nvmCachePaths": ["flash"] },
        "test_config": { "numOps": 1000, "numKeys": 100, "numThreads": 1, "getRatio": 0.5, "setRatio": 0.5,
            "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [1000, 5000], "valSizeRangeProbability": [1.0] } }"#;
    std::fs::write(directory.path().join("c.json"), config).unwrap();
    for (errno, permitted) in [(Some(EPERM), false), (Some(ENOSYS), false), (None, true)] {
        let mut bench = command(directory.path(), "bench c.json --force --json result.json");
        let child = match errno {
            Some(errno) => spawn(&mut bench, errno),
            None => bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        };
        let (code, out, err) = finish(child);
        assert_eq!(code, Some(0), "{err}");
        let result = std::fs::read_to_string(directory.path().join("result.json")).unwrap();
        let result: Value = serde_json::from_str(&result).unwrap();
        let path = if permitted { usual_path() } else { "threads" };
        assert_eq!(result["instances"][0]["flash_io"], path);
        assert!(out.contains(&format!("NVM I/O path  : {path}")), "{out}");
        let warns = path == "threads";
        assert_eq!(err.contains(WARNING), warns, "{err}");
        assert_eq!(
            result["totals"]["warnings"].to_string().contains(WARNING),
            warns,
            "{}",
            result["totals"]["warnings"]
        );
    }
}

#[test]
fn precondition_without_io_uring_warns() {
    let directory = directory();
    std::fs::write(directory.path().join("drive"), [7; 1 << 20]).unwrap();
    let line = "ssd precondition drive --yes --write-size 4KiB";
    let (code, _, err) = finish(spawn(&mut command(directory.path(), line), EPERM));
    assert!(matches!(code, Some(0 | 1)), "{err}");
    assert!(err.contains(&format!("warning: drive: {WARNING}")), "{err}");
}

#[test]
fn server_without_io_uring_warns_and_keeps_items_over_a_restart() {
    let directory = directory();
    let line = "serve --flash flash --flash-size 64MiB --dram 16MiB --listen unix:socket --json result.json";
    for (request, reply) in
        [("set key 7 0 5\r\nvalue\r\n", "STORED\r\n"), ("get key\r\n", "VALUE key 7 5\r\nvalue\r\nEND\r\n")]
    {
        let mut server = spawn(&mut command(directory.path(), line), EPERM);
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        let mut socket = UnixStream::connect(directory.path().join("socket")).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, reply);
        assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
        let (code, _, err) = finish(server);
        assert_eq!(code, Some(0), "{err}");
        assert!(err.contains(&format!("warning: --flash flash: {WARNING}")), "{err}");
        let result = std::fs::read_to_string(directory.path().join("result.json")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&result).unwrap()["flash_io"], "threads");
    }
}
