//! The emulated machine and its drives.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Machine;
use crate::packages::Packages;

/// Far longer than a boot and the probes take on a busy machine.
const TIME_LIMIT_SECONDS: &str = "600";

/// An emulated drive, which the probe identifies by its serial number.
struct Drive {
    serial: &'static str,
    size_bytes: u64,
    /// Placement of the subsystem; `None` without.
    placement: Option<&'static str>,
    /// Placement handles of the namespace.
    handles: &'static str,
    fails_writes: bool,
}

const MIB: u64 = 1 << 20;

const DRIVES: &[Drive] = &[
    Drive {
        serial: "PLACING1",
        size_bytes: 256 * MIB,
        placement: Some("fdp=on,fdp.runs=4M,fdp.nrg=1,fdp.nruh=8"),
        handles: ",fdp.ruhs=0-3",
        fails_writes: false,
    },
    Drive {
        serial: "GROUPS01",
        size_bytes: 256 * MIB,
        placement: Some("fdp=on,fdp.runs=4M,fdp.nrg=2,fdp.nruh=4"),
        handles: ",fdp.ruhs=0-1",
        fails_writes: false,
    },
    Drive {
        serial: "SINGLE01",
        size_bytes: 64 * MIB,
        placement: Some("fdp=on,fdp.runs=4M,fdp.nrg=1,fdp.nruh=8"),
        handles: ",fdp.ruhs=0",
        fails_writes: false,
    },
    Drive { serial: "PLAIN001", size_bytes: 64 * MIB, placement: None, handles: "", fails_writes: false },
    Drive { serial: "FAULTY01", size_bytes: 64 * MIB, placement: None, handles: "", fails_writes: true },
];

/// Boots the kernel `image` and returns its console output until it switches itself off.
pub fn boot(
    folder: &Path,
    machine: &Machine,
    name: &str,
    image: &Path,
    initramfs: &Path,
) -> Result<String, String> {
    let run = folder.join(format!("run-{name}"));
    fs::create_dir_all(&run).map_err(|error| format!("{}: {error}", run.display()))?;
    let mut command = emulator(machine);
    command.arg("-kernel").arg(image).arg("-initrd").arg(initramfs);
    command.args(["-append", "console=ttyS0 panic=-1 no_timer_check quiet rdinit=/init"]);
    for (number, drive) in DRIVES.iter().enumerate() {
        let image = run.join(format!("{}.img", drive.serial));
        let made = fs::File::create(&image).and_then(|file| file.set_len(drive.size_bytes));
        made.map_err(|error| format!("{}: {error}", image.display()))?;
        command.args(drive.arguments(number, &image));
    }
    // The log can be watched during the run.
    let log = run.join("console.log");
    let stdout = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let started = command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).spawn();
    let output = started.and_then(std::process::Child::wait_with_output);
    let output = output.map_err(|error| format!("QEMU: {error}"))?;
    let console = fs::read(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let console = String::from_utf8_lossy(&console).replace('\r', "");
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(format!("QEMU ended with {}:\n{words}\n{console}", output.status));
    }
    Ok(console)
}

/// QEMU without KVM, which works on every machine.
fn emulator(machine: &Machine) -> Command {
    let root = &machine.qemu;
    let qemu = Packages::program(root, "usr/bin/qemu-system-x86_64", "pulseaudio");
    let mut command = Command::new("timeout");
    command.arg(TIME_LIMIT_SECONDS).arg(qemu.get_program()).args(qemu.get_args());
    command.arg("-L").arg(root.join("usr/share/qemu")).arg("-L").arg(root.join("usr/share/seabios"));
    command.args(["-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024"]);
    // Without -nic none a missing option ROM of a network card stops the machine.
    command.args(["-nodefaults", "-no-user-config", "-nic", "none", "-display", "none", "-no-reboot"]);
    command.args(["-serial", "stdio", "-monitor", "none"]);
    command
}

impl Drive {
    fn arguments(&self, number: usize, image: &Path) -> Vec<String> {
        let serial = self.serial;
        let placement = self.placement.map_or_else(String::new, |it| format!(",{it}"));
        [
            "-blockdev".to_owned(),
            self.medium(number, image),
            "-device".to_owned(),
            format!("nvme-subsys,id=subsystem{number},nqn={serial}{placement}"),
            "-device".to_owned(),
            format!("nvme,id=drive{number},serial={serial},subsys=subsystem{number}"),
            "-device".to_owned(),
            format!(
                "nvme-ns,drive=medium{number},bus=drive{number},nsid=1,logical_block_size=4096,\
                 physical_block_size=4096{}",
                self.handles
            ),
        ]
        .into()
    }

    /// The image behind a drive. `discard=unmap` gives trims an effect.
    fn medium(&self, number: usize, image: &Path) -> String {
        let (node, image) = (format!("driver=raw,node-name=medium{number},discard=unmap"), image.display());
        if self.fails_writes {
            format!(
                "{node},file.driver=blkdebug,file.image.driver=file,file.image.filename={image},\
                 file.inject-error.0.event=none,file.inject-error.0.iotype=write,file.inject-error.0.errno=5,\
                 file.inject-error.0.once=off"
            )
        } else {
            format!("{node},cache.no-flush=on,file.driver=file,file.filename={image}")
        }
    }
}
