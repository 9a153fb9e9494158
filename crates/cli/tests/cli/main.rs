//! The command as people and scripts use it. One binary, because each one would be linked separately.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stdout, reason = "tests report what they skip")]

mod bench;
mod block;
mod evaluate;
mod golden;
mod interrupt;
mod loop_device;
mod names;
mod parquet_files;
mod predict;
mod recordings;
mod reports;
mod seed;
mod serve;
mod simulate;
mod ssd;
mod ssd_device;
mod ssd_jobs;
mod sweep;
mod trace;
mod without_io_uring;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The path of the command.
const FLASHWRIGHT: &str = env!("CARGO_BIN_EXE_flashwright");

/// The output of `flashwright` with these arguments, without standard input.
fn flashwright(arguments: &[&str]) -> Output {
    Command::new(FLASHWRIGHT).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The reply to an HTTP request, with its headers.
fn http_get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// Whether SIGHUP ends this process and its children: not under `nohup`.
fn receives_sighup() -> bool {
    const HANGUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let receives = u64::from_str_radix(ignored.trim(), 16).unwrap() & HANGUP == 0;
    if !receives {
        println!("hang-ups are ignored here, as under nohup: SKIPPED");
    }
    receives
}

/// The result of a successful run.
fn json(arguments: &[&str]) -> Value {
    result(&flashwright(&[arguments, &["--json", "-"]].concat()))
}

/// The JSON printed by a successful run with `--json -`.
fn result(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", err(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
