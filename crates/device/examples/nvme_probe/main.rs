//! Tests with drives and a kernel, on the emulated drives that `cargo xtask vm` boots: prints a line per check, and exits with 1 if any
//! failed. Overwrites only the drives with the expected serial numbers.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a probe prints, and a check fails by panicking"
)]

mod back_ends;
mod drives;
mod failures;
mod measure;
mod placement;
mod programs;
mod unprivileged;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use drives::Drives;

/// A check: its title and function. It panics on failure, or returns why it does not apply to this kernel.
type Check = (&'static str, fn(&Drives) -> Verdict);

/// The result of a check that did not fail.
enum Verdict {
    Held,
    DoesNotApply(&'static str),
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => probe(),
        Some("measure") => {
            measure::print(&Drives::find());
            ExitCode::SUCCESS
        }
        Some(path) => unprivileged::look_at(path.as_ref()),
    }
}

fn probe() -> ExitCode {
    let drives = Drives::find();
    println!("PROBE kernel {}", drives::kernel());
    let checks: Vec<Check> =
        [placement::CHECKS, back_ends::CHECKS, failures::CHECKS, unprivileged::CHECKS, programs::CHECKS]
            .concat();
    let failed = checks.iter().filter(|(name, check)| !holds(name, || check(&drives))).count();
    println!("PROBE done: {} checks, {failed} failed", checks.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn holds(name: &str, check: impl FnOnce() -> Verdict) -> bool {
    let outcome = catch_unwind(AssertUnwindSafe(check));
    match &outcome {
        Ok(Verdict::Held) => println!("PROBE ok {name}"),
        Ok(Verdict::DoesNotApply(why)) => println!("PROBE n/a {name}: {why}"),
        Err(_) => println!("PROBE FAILED {name}"),
    }
    outcome.is_ok()
}
