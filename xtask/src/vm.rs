//! `cargo xtask vm [KERNEL] [PROBE]`: tests the NVMe back ends on emulated drives with placement, and cached disks as ublk block devices,
//! on old and new kernels.
//!
//! QEMU, kernels, busybox and the ext4 tools are Debian packages, unpacked into `target/vm` without installation. Each kernel boots once
//! with five drives (placement, several reclaim groups, a single handle, no placement, and failing writes) and runs `nvme_probe` and
//! `ublk_probe`, examples of the crates `device` and `cli`, and with them the program. The machine is emulated without KVM. `6.1`, `6.12`
//! or `newest` selects a kernel, `nvme_probe` or `ublk_probe` a probe. If the packages are unavailable, the tests are reported as SKIPPED.

mod guest;
mod machine;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::{Packages, Unavailable, find};
use guest::{Contents, Job};

/// A kernel to boot: its label, the Debian suite of its cloud kernel, and the accepted releases.
struct Kernel {
    name: &'static str,
    stands_for: &'static str,
    suite: &'static str,
    releases: RangeInclusive<(u32, u32)>,
}

const KERNELS: &[Kernel] = &[
    Kernel {
        name: "6.1",
        stands_for: "6.1: passing commands through takes root",
        suite: "bookworm",
        releases: (6, 1)..=(6, 1),
    },
    Kernel {
        name: "6.12",
        stands_for: "6.12: everyone may, no write streams",
        suite: "trixie",
        releases: (6, 2)..=(6, 15),
    },
    Kernel {
        name: "newest",
        stands_for: "6.16 or later: write streams",
        suite: "trixie-backports",
        releases: (6, 16)..=(u32::MAX, 0),
    },
];

/// The suite whose QEMU emulates placement (10 or later).
const QEMU_SUITE: &str = "trixie";

/// The guest's programs with checks.
const PROBES: &[&str] = &["nvme_probe", "ublk_probe"];

/// Programs that create and verify file systems in the guest.
const E2FS_PROGRAMS: &[&str] = &["usr/sbin/mkfs.ext4", "usr/sbin/e2fsck"];

/// The emulator and the fixed parts of its guests.
struct Machine {
    packages: Packages,
    /// The unpacked tree with QEMU and its libraries.
    qemu: PathBuf,
    /// The static busybox.
    busybox: PathBuf,
}

impl Machine {
    fn prepare(folder: &Path) -> Result<Self, Unavailable> {
        let packages = Packages::open(folder)?;
        let qemu = packages.install(QEMU_SUITE, "qemu", &["qemu-system-x86", "seabios"])?;
        let busybox = packages.install(QEMU_SUITE, "busybox", &["busybox-static"])?;
        Ok(Self { packages, qemu, busybox: find(&busybox, |name| name == "busybox")? })
    }
}

/// Runs the probes on every kernel, or the kernel and probe named on the command line.
pub fn run() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let requested = |name: &str| words.iter().any(|word| word == name);
    let known = |word: &str| PROBES.contains(&word) || KERNELS.iter().any(|kernel| kernel.name == word);
    if let Some(word) = words.iter().find(|word| !known(word)) {
        return Err(format!(
            "{word:?} is neither a kernel (6.1, 6.12, newest) nor a probe ({})",
            PROBES.join(", ")
        ));
    }
    let probes: Vec<&str> = PROBES.iter().copied().filter(|probe| requested(probe)).collect();
    let probes = if probes.is_empty() { PROBES } else { &probes };
    let any_kernel = !KERNELS.iter().any(|kernel| requested(kernel.name));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let folder = root.join("target/vm");
    let machine = match Machine::prepare(&folder) {
        Ok(machine) => machine,
        Err(Unavailable(reason)) => {
            println!("vm: SKIPPED, nothing was tested: {reason}");
            return Ok(());
        }
    };
    let built = build(root, "test")?;
    let mut failures = Vec::new();
    for kernel in KERNELS.iter().filter(|kernel| any_kernel || requested(kernel.name)) {
        println!("vm: kernel {}", kernel.stands_for);
        match fetch(&machine.packages, kernel.suite) {
            Err(Unavailable(reason)) => println!("vm: SKIPPED, this kernel was not tested: {reason}"),
            Ok(Fetched { image, module, tools }) => {
                let job = Job::Probe(probes);
                let contents = Contents { built: &built, tools: &tools, module: module.as_deref(), job };
                let initramfs = guest::initramfs(&folder, &machine.busybox, &contents)?;
                let console = machine::boot(&folder, &machine, kernel.suite, &image, &initramfs)?;
                let verdict = guest::verdict(&console, &kernel.releases, probes.len());
                failures.extend(verdict.err().map(|why| format!("{}: {why}", kernel.stands_for)));
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// The fetched parts of one kernel.
struct Fetched {
    image: PathBuf,
    /// The ublk driver, if it is a module.
    module: Option<PathBuf>,
    tools: Vec<PathBuf>,
}

fn fetch(packages: &Packages, suite: &str) -> Result<Fetched, Unavailable> {
    Ok(Fetched {
        image: packages.kernel(suite)?,
        module: packages.module(suite, "ublk_drv")?,
        tools: packages.programs(QEMU_SUITE, "e2fsprogs", E2FS_PROGRAMS)?,
    })
}

/// Measures CPU time per 4 KiB read, ours and fio's, on the newest kernel; three runs each.
pub fn measure() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let folder = root.join("target/vm");
    let suite = KERNELS[KERNELS.len() - 1].suite;
    let fetched = Machine::prepare(&folder).and_then(|machine| {
        let packages = &machine.packages;
        Ok((packages.kernel(suite)?, packages.programs(QEMU_SUITE, "fio", &["usr/bin/fio"])?, machine))
    });
    let (image, fio, machine) = match fetched {
        Ok(fetched) => fetched,
        Err(Unavailable(reason)) => {
            println!("vm: SKIPPED, nothing was measured: {reason}");
            return Ok(());
        }
    };
    let built = build(root, "release")?;
    let contents = Contents { built: &built, tools: &fio, module: None, job: Job::Measure };
    let initramfs = guest::initramfs(&folder, &machine.busybox, &contents)?;
    let console = machine::boot(&folder, &machine, "measure", &image, &initramfs)?;
    let measured: Vec<&str> = console.lines().filter_map(|line| line.strip_prefix("MEASURE ")).collect();
    measured.iter().for_each(|line| println!("vm:   {line}"));
    if measured.is_empty() { Err(console) } else { Ok(()) }
}

/// Builds our programs for the guest.
fn build(root: &Path, profile: &str) -> Result<Vec<PathBuf>, String> {
    let mut command = Command::new(env!("CARGO"));
    // Builds the whole workspace, so that features are unified as in tests and the tests' artifacts are reused.
    command.current_dir(root).args(["build", "--quiet", "--workspace", "--bins", "--examples"]);
    super::run(command.args(["--profile", profile]))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |path| root.join(path));
    let built = target.join(if profile == "release" { profile } else { "debug" });
    let examples = PROBES.iter().map(|probe| built.join("examples").join(probe));
    Ok(examples.chain([built.join("flashwright")]).collect())
}
