//! An interrupt ends long commands with the results so far, or with a line that says that nothing is kept.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::{FLASHWRIGHT, err, out, result};

/// The output of a command that is interrupted while it works. The command gets `input` before the interrupt, and its end afterwards.
fn interrupted(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(FLASHWRIGHT)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    // Signals are handled before the work; that it has started is detected by waiting only.
    std::thread::park_timeout(Duration::from_millis(1500));
    assert_eq!(child.try_wait().unwrap(), None, "{arguments:?} ended by itself");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    // A separate thread handles the signal. The command must not read the end of its input before that.
    std::thread::park_timeout(Duration::from_millis(500));
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// A drive that is filled and warm immediately.
const SMALL: [&str; 7] = ["ssd", "run", "pm9d3", "--units", "40", "--pages-per-block", "64"];

#[test]
fn interrupted_ssd_run_reports_its_results() {
    for timed in [&[][..], &["--timed"], &["--timed", "--reads", "99.99%"]] {
        let long = ["--op", "20%", "--warm-up", "0.001", "--measure", "1000000"];
        let requested = [&SMALL[..], &long, timed].concat();
        let output = interrupted(&requested, b"");
        assert_eq!(output.status.code(), Some(0), "{timed:?}: {}", err(&output));
        assert!(out(&output).starts_with("stopped early: "), "{}", out(&output));
        let found = result(&interrupted(&[&requested[..], &["--json", "-"]].concat(), b""));
        assert_eq!(found["was_stopped"], true);
        assert!(found["host_pages"].as_u64().unwrap() > 0, "{found}");
    }
    for timed in [&[][..], &["--timed"]] {
        let cold = ["--op", "20%", "--warm-up", "1000000", "--measure", "1"];
        let output = interrupted(&[&SMALL[..], &cold, timed].concat(), b"");
        assert_eq!(output.status.code(), Some(2), "{timed:?}");
        // An earlier line says how long the command takes.
        assert!(err(&output).ends_with("error: interrupted: nothing was counted yet\n"), "{}", err(&output));
    }
}

#[test]
fn interrupted_trace_info_reports_its_results() {
    let rows: String = (0..200_000).map(|row| format!("{row},{},GET,100\n", row % 1000)).collect();
    let text = format!("ts,key,op,size\n{rows}");
    let output = interrupted(&["trace", "info", "-"], text.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).contains("stopped early: the figures cover the rows read up to then\n"),
        "{}",
        out(&output)
    );
    let found = result(&interrupted(&["trace", "info", "-", "--json", "-"], text.as_bytes()));
    assert_eq!((&found["was_stopped"], &found["objects"]), (&true.into(), &1000.into()));
}

#[test]
fn interrupted_trace_generate_reports_that_nothing_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.csv");
    let output = interrupted(
        &["trace", "generate", "cdn", "--requests", "1000000000", "-o", file.to_str().unwrap()],
        b"",
    );
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(err(&output), "error: interrupted: nothing was written\n");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
