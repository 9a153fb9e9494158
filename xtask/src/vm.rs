//! `cargo xtask vm`: the NVMe back ends against an emulated drive with placement, on old and new kernels.
//!
//! QEMU, kernels and busybox are Debian's packages, unpacked into `target/vm` and installed nowhere. Each kernel boots once
//! with five drives (placing, several reclaim groups, a single handle, none, and failing every write) and runs `nvme_probe`,
//! an example of the device room built without shared libraries, and with it the bench. The machine is interpreted
//! (no KVM): 10 to 20 seconds a kernel. Where the packages cannot be had, that is said, and nothing is called passed.

mod guest;
mod machine;
mod packages;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

use guest::Job;
use packages::{Packages, Unavailable};

/// A kernel to boot: what it stands for, the Debian suite whose cloud kernel it is, and the releases that will do.
struct Kernel {
    stands_for: &'static str,
    suite: &'static str,
    releases: RangeInclusive<(u32, u32)>,
}

const KERNELS: &[Kernel] = &[
    Kernel {
        stands_for: "6.1: passing commands through takes root",
        suite: "bookworm",
        releases: (6, 1)..=(6, 1),
    },
    Kernel {
        stands_for: "6.12: everyone may, no write streams",
        suite: "trixie",
        releases: (6, 2)..=(6, 15),
    },
    Kernel {
        stands_for: "6.16 or later: write streams",
        suite: "trixie-backports",
        releases: (6, 16)..=(u32::MAX, 0),
    },
];

/// The suite whose QEMU emulates placement (10 or later).
const QEMU_SUITE: &str = "trixie";

/// Runs the probe on every kernel.
pub fn run() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let folder = root.join("target/vm");
    let packages = match Packages::prepare(&folder, QEMU_SUITE) {
        Ok(packages) => packages,
        Err(Unavailable(reason)) => {
            println!("vm: SKIPPED, nothing was tested: {reason}");
            return Ok(());
        }
    };
    let programs = build(root, &folder)?;
    let mut failures = Vec::new();
    for kernel in KERNELS {
        println!("vm: kernel {}", kernel.stands_for);
        match packages.kernel(kernel.suite) {
            Err(Unavailable(reason)) => println!("vm: SKIPPED, this kernel was not tested: {reason}"),
            Ok(image) => {
                let initramfs = guest::initramfs(&folder, &packages.busybox, &programs, Job::Probe)?;
                let console = machine::boot(&folder, &packages, kernel.suite, &image, &initramfs)?;
                let verdict = guest::verdict(&console, &kernel.releases);
                failures.extend(verdict.err().map(|why| format!("{}: {why}", kernel.stands_for)));
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Our CPU time of a 4 KiB read beside fio's, on the newest kernel; three turns each.
pub fn measure() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let folder = root.join("target/vm");
    let suite = KERNELS[KERNELS.len() - 1].suite;
    let fetched = Packages::prepare(&folder, QEMU_SUITE)
        .and_then(|packages| Ok((packages.kernel(suite)?, packages.fio(QEMU_SUITE)?, packages)));
    let (image, fio, packages) = match fetched {
        Ok(fetched) => fetched,
        Err(Unavailable(reason)) => {
            println!("vm: SKIPPED, nothing was measured: {reason}");
            return Ok(());
        }
    };
    let programs = [build(root, &folder)?, fio].concat();
    let initramfs = guest::initramfs(&folder, &packages.busybox, &programs, Job::Measure)?;
    let console = machine::boot(&folder, &packages, "measure", &image, &initramfs)?;
    let measured: Vec<&str> = console.lines().filter_map(|line| line.strip_prefix("MEASURE ")).collect();
    measured.iter().for_each(|line| println!("vm:   {line}"));
    if measured.is_empty() { Err(console) } else { Ok(()) }
}

/// The programs that run in the guest, without shared libraries: it has none.
fn build(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let target = "x86_64-unknown-linux-gnu";
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root).args(["build", "--release", "--quiet", "--target", target, "--target-dir"]);
    command.arg(folder.join("build"));
    command.args(["-p", "flashwright-device", "-p", "flashwright", "--example", "nvme_probe"]);
    command.args(["--bin", "flashwright"]);
    // Linking the whole program as one buys nothing on an interpreted machine.
    command.env("RUSTFLAGS", "-C target-feature=+crt-static").env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16").env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    super::run(&mut command)?;
    let built = folder.join("build").join(target).join("release");
    Ok(vec![built.join("examples/nvme_probe"), built.join("flashwright")])
}
