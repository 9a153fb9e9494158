//! Tests `flashwright block serve --ublk` on a kernel with ublk, in the machine that `cargo xtask vm` boots with two emulated drives.
//! Prints a line per check, and exits with 1 if any failed. Overwrites only the drives with the expected serial numbers.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a probe prints, starts threads and sleeps; a check fails by panicking"
)]

mod disk;
mod filesystem;
mod handover;
mod place;
mod refusals;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

/// A check: its description and its function, which panics on failure.
type Check = (&'static str, fn());

/// The driver, on kernels that have it as a module.
const MODULE: &str = "/modules/ublk_drv.ko";

fn main() -> ExitCode {
    println!("PROBE kernel {}", std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim());
    let mut checks = refusals::WITHOUT_DRIVER.to_vec();
    let mut failed = run(&checks);
    if Path::new(MODULE).exists() {
        place::run("insmod", &[MODULE]);
        let others = [refusals::CHECKS, disk::CHECKS, filesystem::CHECKS, handover::CHECKS].concat();
        failed += run(&others);
        checks.extend(others);
    } else {
        println!("PROBE n/a all other ublk checks: SKIPPED, this kernel was built without ublk_drv");
    }
    println!("PROBE done: {} checks, {failed} failed", checks.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the checks and returns the number of failures.
fn run(checks: &[Check]) -> usize {
    checks.iter().filter(|(name, check)| !passes(name, check)).count()
}

fn passes(name: &str, check: impl FnOnce()) -> bool {
    let held = catch_unwind(AssertUnwindSafe(check)).is_ok();
    println!("PROBE {} {name}", if held { "ok" } else { "FAILED" });
    held
}
