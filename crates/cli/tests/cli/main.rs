//! The command from outside, as people and scripts use it. One binary, since every one of them would be linked for itself.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

mod bench;
mod block;
mod evaluate;
mod golden;
mod interrupt;
mod loop_device;
mod names;
mod predict;
mod recordings;
mod reports;
mod simulate;
mod ssd;
mod ssd_device;
mod trace;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The command itself.
const FLASHWRIGHT: &str = env!("CARGO_BIN_EXE_flashwright");

/// What a run of `flashwright` with these arguments came to. Nobody answers its questions.
fn flashwright(arguments: &[&str]) -> Output {
    Command::new(FLASHWRIGHT).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Whether a lost terminal is heard of, by this process and those it starts: under `nohup` nobody is told.
fn hears_hangups() -> bool {
    const HANGUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let heard = u64::from_str_radix(ignored.trim(), 16).unwrap() & HANGUP == 0;
    if !heard {
        println!("hang-ups are ignored here, as under nohup: SKIPPED");
    }
    heard
}

/// The result of a run that passes.
fn json(arguments: &[&str]) -> Value {
    result(&flashwright(&[arguments, &["--json", "-"]].concat()))
}

/// What a run that passed printed with `--json -`.
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
