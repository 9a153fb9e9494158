//! Files whose names are not valid UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::FLASHWRIGHT;

const TRACE: &str = "ts,key,op,size\n0,1,GET,5\n1,2,GET,6\n2,1,GET,5\n3,2,GET,6\n";
const BLOCKS: &str = "time_us,op,offset,bytes\n0,R,0,4096\n1,W,8192,4096\n2,R,0,4096\n";

/// A name with an invalid byte.
fn odd(name: &str) -> OsString {
    OsStr::from_bytes(&[b"\xff", name.as_bytes()].concat()).to_owned()
}

/// Runs a command line, in which words with an @ are files with such names. Returns the JSON result.
fn run(folder: &Path, line: &str) -> Value {
    let text = line.split(' ').map(|word| word.strip_prefix('@').map_or_else(|| word.into(), odd));
    let output =
        Command::new(FLASHWRIGHT).current_dir(folder).args(text).args(["--json", "-"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{line}: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Catches a regression: some commands panic, even after their work.
#[test]
fn non_utf8_file_names_are_read_and_written() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folder.path();
    std::fs::write(folder.join(odd("trace.csv")), TRACE).unwrap();
    std::fs::write(folder.join(odd("blocks.csv")), BLOCKS).unwrap();
    let run = |line| run(folder, line);
    let simulated = run("simulate @trace.csv --size 20 --warmup 0 --policy lru --plot @plots");
    assert_eq!(simulated["config"]["reading"]["trace"][0], "\u{fffd}trace.csv");
    run("trace info @trace.csv");
    assert_eq!(run("trace convert @trace.csv @trace.fwt")["output"], "\u{fffd}trace.fwt");
    run("trace generate zipf --requests 20000 -o @made.csv");
    run("trace generate innodb --operations 10 -o @made-blocks.csv");
    run("block replay @blocks.csv --preset v3 --figures @figures");
    run("predict @made.csv --drive test --rate 1000 --dram 1% --utilization 100%");
    let result = serde_json::to_string(&run("model dlwa --soc 4% --op 17%")).unwrap();
    std::fs::write(folder.join(odd("run.json")), result).unwrap();
    run("report @run.json -o @page.html");
    run("compare @run.json @run.json");
    for made in ["plots", "trace.fwt", "made.csv", "made-blocks.csv", "figures", "page.html"] {
        assert!(folder.join(odd(made)).exists(), "{made}");
    }
}
