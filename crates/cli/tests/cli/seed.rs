//! `--seed` of every kind of command: those that draw nothing say so.

use std::path::Path;

use super::{err, flashwright};

const WARNING: &str = "warning: --seed: has no effect, because nothing in this run of ";

/// The warning about the seed, if there is one.
fn warning(call: &[&str]) -> Option<String> {
    let output = flashwright(&[call, &["--seed", "3"]].concat());
    let text = err(&output);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{call:?}: {text}");
    text.lines().find(|line| line.starts_with(WARNING)).map(str::to_owned)
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().unwrap().to_owned()
}

#[test]
fn seed_of_a_command_that_draws_nothing_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| path(directory.path(), name);
    let (trace, made, page, rows) = (file("t.csv"), file("made.csv"), file("page.html"), file("rows.json"));
    std::fs::write(&trace, "ts,key,op,size\n0,a,GET,10\n1,b,GET,10\n2,a,GET,10\n").unwrap();
    let simulate = ["simulate", &trace, "--size", "30", "--warmup", "0"];
    flashwright(&[&simulate[..], &["--json", &rows]].concat());
    for (command, call) in [
        ("trace formats", &["trace", "formats"][..]),
        ("trace info", &["trace", "info", &trace]),
        ("trace convert", &["trace", "convert", &trace, &made]),
        ("ssd cards", &["ssd", "cards"]),
        ("compare", &["compare", &rows, &rows]),
        ("report", &["report", &rows, "-o", &page]),
        ("bench --validate", &["bench", "--validate"]),
        ("simulate", &simulate),
        ("simulate", &[&simulate[..], &["--policy", "s3fifo,log"]].concat()),
        ("simulate", &[&simulate[..], &["--policy", "lru", "--admission", "reject-first"]].concat()),
        ("simulate", &[&simulate[..], &["--policy", "log", "--admission", "probability:0.5"]].concat()),
    ] {
        assert_eq!(warning(call), Some(format!("{WARNING}`{command}` is random")), "{call:?}");
    }
}

#[test]
fn seed_of_a_command_that_draws_is_not_reported() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| path(directory.path(), name);
    let (trace, made) = (file("t.csv"), file("made.csv"));
    std::fs::write(&trace, "ts,key,op,size\n0,a,GET,10\n1,b,GET,10\n2,a,GET,10\n").unwrap();
    let simulate = ["simulate", &trace, "--size", "30", "--warmup", "0", "--policy"];
    for call in [
        &["trace", "generate", "cdn", "--requests", "1000", "-o", &made][..],
        &[&simulate[..], &["lru,random"]].concat(),
        &[&simulate[..], &["cacheus"]].concat(),
        &[&simulate[..], &["clairvoyant-size"]].concat(),
        &[&simulate[..], &["lru", "--admission", "adaptsize"]].concat(),
    ] {
        assert_eq!(warning(call), None, "{call:?}");
    }
}
