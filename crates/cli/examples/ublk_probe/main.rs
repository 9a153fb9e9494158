//! What only a kernel with ublk can show, for the machine that `cargo xtask vm` boots: `flashwright block serve --ublk` from
//! outside, on two emulated drives. One line a check, and exit code 1 if any failed. It writes all over the drives it
//! knows by their serial numbers, and only over those.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a probe talks to the terminal, starts threads and waits; a panic is how its checks fail"
)]

mod disk;
mod filesystem;
mod handover;
mod place;
mod refusals;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

/// A check: what it shows, and how. It panics if it does not hold.
type Check = (&'static str, fn());

/// The driver, where this kernel has it as a module.
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
        println!("PROBE n/a everything else of ublk: SKIPPED, this kernel was built without ublk_drv");
    }
    println!("PROBE done: {} checks, {failed} failed", checks.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How many did not hold.
fn run(checks: &[Check]) -> usize {
    checks.iter().filter(|(name, check)| !holds(name, check)).count()
}

fn holds(name: &str, check: impl FnOnce()) -> bool {
    let held = catch_unwind(AssertUnwindSafe(check)).is_ok();
    println!("PROBE {} {name}", if held { "ok" } else { "FAILED" });
    held
}
