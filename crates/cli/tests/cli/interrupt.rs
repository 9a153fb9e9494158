//! An interrupt ends what takes long with what was found so far, or with a line that says that nothing is kept.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::{FLASHWRIGHT, err, out, result};

/// What comes of a command that is interrupted while it works. `input` is written before, and ends after.
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
    // Signals are handled before anything is done; that it is under way is recognised by time passing only.
    std::thread::park_timeout(Duration::from_millis(1500));
    assert_eq!(child.try_wait().unwrap(), None, "{arguments:?} ended by itself");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    // A thread of its own hears it, and the end of the input is not to be read before.
    std::thread::park_timeout(Duration::from_millis(500));
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// A drive that is full and warm at once.
const SMALL: [&str; 7] = ["ssd", "run", "pm9d3", "--units", "40", "--pages-per-block", "64"];

#[test]
fn an_interrupt_ended_ssd_run_without_a_word() {
    for timed in [&[][..], &["--timed"], &["--timed", "--reads", "99.99%"]] {
        let long = ["--op", "20%", "--warm-up", "0.001", "--measure", "1000000"];
        let asked = [&SMALL[..], &long, timed].concat();
        let output = interrupted(&asked, b"");
        assert_eq!(output.status.code(), Some(0), "{timed:?}: {}", err(&output));
        assert!(out(&output).starts_with("stopped early: "), "{}", out(&output));
        let found = result(&interrupted(&[&asked[..], &["--json", "-"]].concat(), b""));
        assert_eq!(found["was_stopped"], true);
        assert!(found["host_pages"].as_u64().unwrap() > 0, "{found}");
    }
    for timed in [&[][..], &["--timed"]] {
        let cold = ["--op", "20%", "--warm-up", "1000000", "--measure", "1"];
        let output = interrupted(&[&SMALL[..], &cold, timed].concat(), b"");
        assert_eq!(output.status.code(), Some(2), "{timed:?}");
        // A line before it says how long this takes.
        assert!(err(&output).ends_with("error: interrupted: nothing was counted yet\n"), "{}", err(&output));
    }
}

#[test]
fn an_interrupt_ended_trace_info_without_a_word() {
    let rows: String = (0..200_000).map(|row| format!("{row},{},GET,100\n", row % 1000)).collect();
    let words = format!("ts,key,op,size\n{rows}");
    let output = interrupted(&["trace", "info", "-"], words.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).contains("stopped early: the figures cover the rows read up to then\n"),
        "{}",
        out(&output)
    );
    let found = result(&interrupted(&["trace", "info", "-", "--json", "-"], words.as_bytes()));
    assert_eq!((&found["was_stopped"], &found["objects"]), (&true.into(), &1000.into()));
}

#[test]
fn an_interrupt_ended_trace_generate_cdn_without_a_word_while_its_past_was_made() {
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
