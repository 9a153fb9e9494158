//! Where the checks happen: two drives, a cache made of them, and a server that comes and goes.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

const FLASHWRIGHT: &str = "/bin/flashwright";
const SOCKET: &str = "/tmp/ublk.sock";

/// What a served disk is called.
pub const DISK: &str = "/dev/ublkb0";

/// The drives, by their serial numbers.
const FLASH: &str = "SINGLE01";
const SLOW: &str = "GROUPS01";

/// A cache on a drive for another.
pub struct Place {
    flash: PathBuf,
    pub slow: PathBuf,
}

impl Place {
    /// Creates a cache, after removing the disk that a failed check may have left.
    pub fn new() -> Self {
        let umount = Command::new("umount").arg("-a").args(["-t", "ext4"]).output();
        let delete = Command::new(FLASHWRIGHT).args(["block", "ublk", "delete", "0", "--yes"]).output();
        // Both fail after a check that passed.
        drop((umount, delete));
        let place = Self { flash: drive(FLASH), slow: drive(SLOW) };
        let made = place.command("create").args(["--mode", "write-back", "--force", "--yes"]).output();
        succeeded(&made.unwrap());
        place
    }

    /// `block …` with both drives.
    pub fn command(&self, command: &str) -> Command {
        let mut words = Command::new(FLASHWRIGHT);
        words.args(["block", command]).arg("--flash").arg(&self.flash).arg("--disk").arg(&self.slow);
        words
    }

    /// Starts a server of [`DISK`], without waiting until it is ready.
    pub fn start(&self) -> Child {
        self.start_with(&[])
    }

    fn start_with(&self, more: &[&str]) -> Child {
        let mut command = self.command("serve");
        command.args(["--socket", SOCKET, "--ublk", "0"]).args(more).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Serves it as [`DISK`].
    pub fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    /// The same with more flags.
    pub fn serve_with(&self, more: &[&str]) -> Server {
        let server = Server::of(self.start_with(more));
        assert!(server.ready.contains(&format!(" and {DISK}")), "{:?}", server.ready);
        server
    }

    /// Serves it as [`DISK`], without an NBD socket.
    pub fn serve_alone(&self) -> Server {
        let mut command = self.command("serve");
        Server::of(command.args(["--ublk", "0"]).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Brings everything to the slow drive; nobody serves.
    pub fn clean(&self) {
        succeeded(&self.command("flush").output().unwrap());
    }

    /// Verifies the structures on flash, and all data; nobody serves.
    pub fn check(&self) {
        succeeded(&self.command("check").arg("--full").output().unwrap());
    }
}

/// A running server, killed when dropped: a failed check must not hold the drives of the next.
pub struct Server {
    child: Child,
    pub ready: String,
    lines: BufReader<std::process::ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail for a server that was stopped or killed before.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Server {
    /// Waits for the line that says that the server is ready.
    fn of(mut child: Child) -> Self {
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        lines.read_line(&mut ready).unwrap();
        Self { child, ready, lines }
    }

    /// Ends it by `SIGTERM`. What it said since it was ready.
    pub fn stop(mut self) -> String {
        run("kill", &[&self.child.id().to_string()]);
        let mut said = String::new();
        while self.lines.read_line(&mut said).unwrap() > 0 {}
        let status: ExitStatus = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        said
    }

    /// Ends it by `SIGKILL`.
    pub fn kill(self) {
        drop(self);
    }

    /// What `block status` tells of the server that these words name.
    pub fn status(&self, of: [&str; 2]) -> Value {
        let mut status = Command::new(FLASHWRIGHT);
        status.args(["block", "status"]).args(of).args(["--json", "-", "--quiet"]);
        let output = status.output().unwrap();
        succeeded(&output);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A counter of `block status`.
    pub fn counter(&self, name: &str) -> u64 {
        let told = self.status(["--socket", SOCKET]);
        told["counters"][name].as_u64().unwrap_or_else(|| panic!("{name} is no counter: {told}"))
    }
}

/// Whether the disk is there.
pub fn is_there() -> bool {
    Path::new(DISK).exists()
}

/// The disk past the page cache.
pub fn open_direct(path: &Path) -> File {
    const O_DIRECT: i32 = 0o40_000;
    OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(path).unwrap()
}

/// What the kernel says of the disk.
pub fn attribute(name: &str) -> String {
    let path = Path::new("/sys/block/ublkb0").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().into()
}

/// Runs a program of the guest.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    succeeded(&output);
}

/// Runs a program that has its libraries beside it.
pub fn run_linked(program: &str, arguments: &[&str]) {
    let path = format!("/bin/{program}");
    let all = [&["--library-path", "/bin", path.as_str()], arguments].concat();
    run("/bin/ld-linux-x86-64.so.2", &all);
}

pub fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, told(output));
}

pub fn told(output: &Output) -> String {
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
