//! The environment of the checks: two drives, a cache on them, and its server.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

const FLASHWRIGHT: &str = "/bin/flashwright";
const SOCKET: &str = "/tmp/ublk.sock";

/// The block device of the served disk.
pub const DISK: &str = "/dev/ublkb0";

/// The drives' serial numbers.
const FLASH: &str = "SINGLE01";
const SLOW: &str = "GROUPS01";

/// A cache on one drive for the other.
pub struct Place {
    flash: PathBuf,
    pub slow: PathBuf,
}

impl Place {
    /// Creates a cache, after removing the disk that a failed check can have left.
    pub fn new() -> Self {
        let umount = Command::new("umount").arg("-a").args(["-t", "ext4"]).output();
        let delete = Command::new(FLASHWRIGHT).args(["block", "ublk", "delete", "0", "--yes"]).output();
        // Both commands fail if the previous check passed, because it left no disk.
        drop((umount, delete));
        let place = Self { flash: drive(FLASH), slow: drive(SLOW) };
        let made = place.command("create").args(["--mode", "write-back", "--force", "--yes"]).output();
        succeeded(&made.unwrap());
        place
    }

    /// The command `block …` with both drives.
    pub fn command(&self, command: &str) -> Command {
        let mut text = Command::new(FLASHWRIGHT);
        text.args(["block", command]).arg("--flash").arg(&self.flash).arg("--disk").arg(&self.slow);
        text
    }

    /// Starts a server of [`DISK`] without waiting until it is ready.
    pub fn start(&self) -> Child {
        self.start_with(&[])
    }

    fn start_with(&self, more: &[&str]) -> Child {
        let mut command = self.command("serve");
        command.args(["--socket", SOCKET, "--ublk", "0"]).args(more).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Serves the cache as [`DISK`].
    pub fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    /// As [`serve`](Self::serve), with further flags.
    pub fn serve_with(&self, more: &[&str]) -> Server {
        let server = Server::of(self.start_with(more));
        assert!(server.ready.contains(&format!(" and {DISK}")), "{:?}", server.ready);
        server
    }

    /// Serves the cache as [`DISK`] without an NBD socket.
    pub fn serve_alone(&self) -> Server {
        let mut command = self.command("serve");
        Server::of(command.args(["--ublk", "0"]).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Flushes all dirty blocks to the slow drive, without a server.
    pub fn clean(&self) {
        succeeded(&self.command("flush").output().unwrap());
    }

    /// Verifies metadata and data, without a server.
    pub fn check(&self) {
        succeeded(&self.command("check").arg("--full").output().unwrap());
    }
}

/// A running server, killed on drop so that a failed check does not block the drives of the next.
pub struct Server {
    child: Child,
    pub ready: String,
    lines: BufReader<std::process::ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail for a server that has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Server {
    /// Waits for the line that reports that the server is ready.
    fn of(mut child: Child) -> Self {
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        lines.read_line(&mut ready).unwrap();
        Self { child, ready, lines }
    }

    /// Ends it with `SIGTERM`. Returns its output since it was ready.
    pub fn stop(mut self) -> String {
        run("kill", &[&self.child.id().to_string()]);
        let mut output = String::new();
        while self.lines.read_line(&mut output).unwrap() > 0 {}
        let status: ExitStatus = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {output}");
        output
    }

    /// Ends the server with `SIGKILL`.
    pub fn kill(self) {
        drop(self);
    }

    /// The `block status` of the server selected by these flags.
    pub fn status(&self, of: [&str; 2]) -> Value {
        let mut status = Command::new(FLASHWRIGHT);
        status.args(["block", "status"]).args(of).args(["--json", "-", "--quiet"]);
        let output = status.output().unwrap();
        succeeded(&output);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A counter of `block status`.
    pub fn counter(&self, name: &str) -> u64 {
        let reported = self.status(["--socket", SOCKET]);
        reported["counters"][name].as_u64().unwrap_or_else(|| panic!("{name} is not a counter: {reported}"))
    }
}

/// Whether the disk exists.
pub fn is_there() -> bool {
    Path::new(DISK).exists()
}

/// Opens the disk for direct I/O.
pub fn open_direct(path: &Path) -> File {
    const O_DIRECT: i32 = 0o40_000;
    OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(path).unwrap()
}

/// A sysfs attribute of the disk.
pub fn attribute(name: &str) -> String {
    let path = Path::new("/sys/block/ublkb0").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().into()
}

/// Runs a program of the guest.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    succeeded(&output);
}

/// Runs a dynamically linked program with the libraries in `/bin`.
pub fn run_linked(program: &str, arguments: &[&str]) {
    let path = format!("/bin/{program}");
    let all = [&["--library-path", "/bin", path.as_str()], arguments].concat();
    run("/bin/ld-linux-x86-64.so.2", &all);
}

pub fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, printed(output));
}

pub fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

pub fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// The block device of the drive with a serial number.
fn drive(serial: &str) -> PathBuf {
    let controllers = std::fs::read_dir("/sys/class/nvme").unwrap().flatten();
    let has_serial =
        |path: &Path| std::fs::read_to_string(path.join("serial")).is_ok_and(|found| found.trim() == serial);
    let found = controllers.map(|entry| entry.path()).find(|path| has_serial(path));
    let controller = found.unwrap_or_else(|| panic!("no drive {serial}"));
    PathBuf::from(format!("/dev/{}n1", controller.file_name().unwrap().to_str().unwrap()))
}
