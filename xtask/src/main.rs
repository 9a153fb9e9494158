//! Chores and house rules: `cargo xtask ci` runs what continuous integration runs.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to the terminal")]

mod rules;
mod vm;

use std::process::{Command, ExitCode};

/// One step of the chore: what it is called, and how it is run.
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

fn main() -> ExitCode {
    let chore = std::env::args().nth(1).unwrap_or_default();
    let steps: &[Step] = match chore.as_str() {
        "ci" => CI,
        "lint" => &CI[..3],
        "rules" => &CI[1..2],
        "vm" => &[Step { name: "emulated drives", run: vm::run }],
        _ => {
            eprintln!("usage: cargo xtask ci | lint | rules | vm");
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

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}
