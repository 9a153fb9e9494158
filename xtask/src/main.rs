//! Development tasks and house rules: `cargo xtask ci` runs the checks of continuous integration.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a task prints to the terminal")]

mod book;
mod circles;
mod databases;
mod links;
mod packages;
mod prose;
mod release;
mod rules;
mod vm;

use std::path::Path;
use std::process::{Command, ExitCode};

/// One step of a task: its name and its function.
struct Step {
    name: &'static str,
    run: fn() -> Result<(), String>,
}

const CI: &[Step] = &[
    Step { name: "format", run: || cargo(&["fmt", "--all", "--check"]) },
    Step { name: "house rules", run: rules::check },
    Step {
        name: "lints",
        run: || cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    },
    Step { name: "tests", run: || cargo(&["test", "--workspace"]) },
    Step { name: "documentation", run: documentation },
];

/// Not part of continuous integration: slow, and needs a nightly compiler.
const MIRI: &[Step] = &[Step { name: "miri", run: miri }];

fn main() -> ExitCode {
    let chore = std::env::args().nth(1).unwrap_or_default();
    let steps: &[Step] = match chore.as_str() {
        "ci" => CI,
        "docs" => &[Step { name: "documentation site", run: book::build }],
        "databases" => &[Step { name: "databases on cached disks", run: databases::run }],
        "lint" => &CI[..3],
        "rules" => &CI[1..2],
        "vm-measure" => &[Step { name: "emulated drives beside fio", run: vm::measure }],
        "vm" => &[Step { name: "emulated drives", run: vm::run }],
        "package" => &[Step { name: "packages", run: release::build }],
        "package-test" => &[Step { name: "the package in Debian", run: release::test }],
        "package-crates" => &[Step { name: "crates for a registry", run: release::crates }],
        "miri" => MIRI,
        "leaks" => &[Step { name: "leaks", run: leaks }],
        "fuzz" => &[Step { name: "fuzz targets", run: fuzz }],
        _ => {
            eprintln!(
                "usage: cargo xtask ci | docs | databases [kills] [trial…] | lint | package | package-test | package-crates | rules | vm [kernel] [probe] | vm-measure | miri [filter…] | leaks"
            );
            eprintln!("       cargo xtask fuzz [seconds [target…]]");
            return ExitCode::from(2);
        }
    };
    for step in steps {
        println!("== {}", step.name);
        if let Err(reason) = (step.run)() {
            eprintln!("{} failed: {reason}", step.name);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn cargo(arguments: &[&str]) -> Result<(), String> {
    run(Command::new(env!("CARGO")).args(arguments))
}

fn documentation() -> Result<(), String> {
    run(Command::new(env!("CARGO"))
        .args(["doc", "--workspace", "--no-deps", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings"))
}

/// Tests of the cache's unsafe code, formats and indexes to run under Miri, which detects out-of-bounds accesses, use after free,
/// uninitialised reads and data races. Other filters can be given on the command line.
const UNDER_MIRI: &[&str] = &[
    "dram::slab",
    "dram::table",
    "dram::tests::basics",
    "dram::tests::chains",
    "dram::tests::model",
    "dram::tests::slabs",
    "dram::tests::threads",
    "flash::chain",
    "flash::log::fences",
    "flash::log::index",
    "flash::log::page",
    "flash::region::buffer",
    "flash::region::entry",
    "flash::region::index",
    "flash::region::table",
    "flash::soc::bucket",
    "flash::soc::filter",
    "in_flight::tests",
];

fn miri() -> Result<(), String> {
    let requested: Vec<String> = std::env::args().skip(2).collect();
    let usual = UNDER_MIRI.iter().map(|filter| (*filter).to_owned());
    let filters = if requested.is_empty() { usual.collect() } else { requested };
    run(Command::new("rustup")
        .args(["run", "nightly", "cargo", "miri", "test", "-p", "flashwright-cache", "--lib", "--"])
        .args(filters)
        // Some tests use files and clocks of the machine.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation"))
}

/// The target that the sanitizer is built for. Naming it keeps the sanitizer out of build scripts.
const SANITIZED_TARGET: &str = "x86_64-unknown-linux-gnu";

/// The tests that repeat calls, connections, opens and closes, under LeakSanitizer: it reports each allocation that is unreachable
/// when the process ends, with the stack that made it. The tests themselves find memory that stays reachable and grows.
fn leaks() -> Result<(), String> {
    for room in ["flashwright-device", "flashwright-cache", "flashwright-block"] {
        run(Command::new("rustup")
            .args(["run", "nightly", "cargo", "test", "-p", room, "--test", "leaks"])
            .args(["--target", SANITIZED_TARGET, "--target-dir", "target/leaks"])
            .env("RUSTFLAGS", "-Zsanitizer=leak"))?;
    }
    Ok(())
}

/// Runs all fuzz targets on their seeds; with a number of seconds, runs each of them (or the named ones) under libFuzzer for that time,
/// which needs `cargo-fuzz`. No sanitizer, because those need a nightly compiler; Miri checks unsafe code.
fn fuzz() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let room = root.join("fuzz");
    let requested: Vec<String> = std::env::args().skip(2).collect();
    let Some((seconds, named)) = requested.split_first() else {
        return run(Command::new(env!("CARGO")).args(["test", "--release", "--tests"]).current_dir(room));
    };
    let mut targets = named.to_vec();
    if targets.is_empty() {
        let files = std::fs::read_dir(room.join("fuzz_targets")).map_err(|error| error.to_string())?;
        let stems = files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()));
        targets.extend(stems);
        targets.sort();
    }
    for target in targets {
        let found = format!("corpus/{target}");
        std::fs::create_dir_all(room.join(&found)).map_err(|error| error.to_string())?;
        let limits =
            [format!("-max_total_time={seconds}"), "-rss_limit_mb=2048".into(), "-timeout=20".into()];
        run(Command::new(env!("CARGO"))
            .args(["fuzz", "run", "-s", "none", &target, &found])
            .args([format!("seeds/{target}")].iter().filter(|seeds| room.join(seeds).is_dir()))
            .arg("--")
            .args(limits)
            .current_dir(&room))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}
