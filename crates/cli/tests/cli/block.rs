//! `flashwright block` through its command line.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::FLASHWRIGHT;

mod alerts;
mod answers;
mod below;
mod clients;
mod frontends;
mod loops;
mod lost_flush;
mod mistakes;
mod moved;
mod online_changes;
mod pairing;
mod refusals;
mod sectors;
mod settings_file;
mod surroundings;
mod ublk;
mod without_io_uring;

/// Two files in their own directory, and the commands on them.
struct Place {
    directory: tempfile::TempDir,
    flags: Vec<String>,
}

impl Place {
    /// A cache of 8 MiB for a disk of 32 MiB.
    fn new() -> Self {
        Self::of_format("2")
    }

    fn of_format(format: &str) -> Self {
        Self::in_directory(tempfile::tempdir().unwrap(), format)
    }

    /// A cache whose flash is a sparse file.
    fn of_sparse_flash() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::File::create_new(directory.path().join("flash")).unwrap().set_len(8 << 20).unwrap();
        Self::in_directory(directory, "2")
    }

    fn in_directory(directory: tempfile::TempDir, format: &str) -> Self {
        // If direct I/O is unsupported, the page cache serves the tests equally.
        let mut place = Self { directory, flags: Vec::new() };
        let sizes = [
            "--flash-size",
            "8MiB",
            "--disk-size",
            "32MiB",
            "--associativity",
            "64",
            "--format",
            format,
            "--yes",
        ];
        let made = place.run("create", &sizes, true);
        if !made.status.success() && printed(&made).contains("--buffered") {
            place.flags.push("--buffered".into());
            assert!(place.run("create", &sizes, true).status.success());
        } else {
            assert!(made.status.success(), "{}", printed(&made));
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, command: &str, with_devices: bool) -> Command {
        let mut text = Command::new(FLASHWRIGHT);
        text.args(["block", command]);
        if with_devices {
            text.arg("--flash")
                .arg(self.path("flash"))
                .arg("--disk")
                .arg(self.path("disk"))
                .args(&self.flags);
        }
        text
    }

    fn run(&self, command: &str, more: &[&str], with_devices: bool) -> Output {
        self.command(command, with_devices).args(more).output().unwrap()
    }

    /// Runs a command on the server.
    fn ask(&self, command: &str, more: &[&str]) -> Output {
        self.command(command, false).arg("--socket").arg(self.path("s")).args(more).output().unwrap()
    }

    fn status(&self) -> Value {
        let output = self.ask("status", &["--json", "-", "--quiet"]);
        assert!(output.status.success(), "{}", printed(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn serve(&self) -> Server {
        self.serve_with(&["--flash", "flash", "--disk", "disk"])
    }

    fn serve_with(&self, devices: &[&str]) -> Server {
        let socket = self.path("s");
        let server = self.serve_at(&[devices, &["--socket", socket.to_str().unwrap()]].concat());
        assert!(server.ready.starts_with("ready nbd+unix:///?socket="), "{:?}", server.ready);
        server
    }

    /// Serves with the devices and frontends of `flags`.
    fn serve_at(&self, flags: &[&str]) -> Server {
        let mut command = self.command("serve", false);
        command.args(flags).args(&self.flags).current_dir(self.directory.path());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        Server { child: Ending(child), ready }
    }
}

struct Server {
    child: Ending,
    ready: String,
}

impl Server {
    fn stop(mut self) {
        let stopped = Command::new("kill").arg(self.child.0.id().to_string()).status().unwrap();
        assert!(stopped.success() && self.child.0.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// An NBD client with simple replies that can write, read and flush.
struct Client(UnixStream);

impl Client {
    fn connect(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        Self(stream)
    }

    fn call(&mut self, command: u16, offset: u64, len: u32, payload: &[u8]) -> Vec<u8> {
        assert_eq!(self.error_of(command, offset, len, payload), 0);
        let mut data = vec![0; if command == 0 { len as usize } else { 0 }];
        self.0.read_exact(&mut data).unwrap();
        data
    }

    /// The error of a reply; data after a successful one stay unread.
    fn error_of(&mut self, command: u16, offset: u64, len: u32, payload: &[u8]) -> u32 {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend([0, 0]);
        request.extend(command.to_be_bytes());
        request.extend([0; 8]);
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(payload);
        self.0.write_all(&request).unwrap();
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        u32::from_be_bytes(head[4..8].try_into().unwrap())
    }
}

#[test]
fn flushed_data_survives_a_kill_and_reaches_the_disk() {
    let place = Place::new();
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i / 999) as u8).collect();
    let server = place.serve();
    let mut client = Client::connect(&place.path("s"));
    client.call(1, 1234, data.len() as u32, &data);
    client.call(3, 0, 0, &[]);
    server.kill();
    let server = place.serve();
    assert!(server.ready.contains(" s: 245 blocks, 245 dirty)"), "{}", server.ready);
    assert!(server.ready.contains("(recovered in "), "{}", server.ready);
    assert!(place.status()["recovery"]["recovery_seconds"].as_f64().unwrap() > 0.0);
    let mut client = Client::connect(&place.path("s"));
    assert!(client.call(0, 1234, data.len() as u32, &[]) == data);
    let status = place.status();
    assert_eq!((status["command"].as_str(), status["world"].as_str()), (Some("block status"), Some("real")));
    assert_eq!(status["state"]["dirty_blocks"], 245);
    assert_eq!(status["connections"]["open"], 1);
    let refused = place.run("destroy", &["--yes"], true);
    assert_eq!(refused.status.code(), Some(2), "the server uses it");
    let flushed = place.ask("flush", &[]);
    assert!(printed(&flushed).starts_with("wrote back 245 dirty blocks"), "{}", printed(&flushed));
    server.stop();
    let disk = std::fs::read(place.path("disk")).unwrap();
    assert!(disk[1234..1234 + data.len()] == data);
    assert!(!place.path("s").exists() && !place.path("s.control").exists());
}

#[test]
fn recording_of_two_servers_is_replayed() {
    let place = Place::new();
    let record = ["--flash", "flash", "--disk", "disk", "--record", "requests.csv"];
    let mut requested = 0;
    for end in [Server::kill as fn(Server), Server::stop] {
        let server = place.serve_with(&record);
        let mut client = Client::connect(&place.path("s"));
        for block in 0..10 {
            client.call(1, block * 4096, 4096, &[7; 4096]);
            client.call(0, block * 8192, 512, &[]);
            requested += 2;
        }
        client.call(3, 0, 0, &[]);
        requested += 1;
        while std::fs::read_to_string(place.path("requests.csv")).unwrap().lines().count() <= requested {
            std::thread::yield_now();
        }
        end(server);
    }
    let replayed = Command::new(FLASHWRIGHT)
        .args(["block", "replay", "--preset", "v3", "--json", "-", "--quiet"])
        .arg(place.path("requests.csv"))
        .output()
        .unwrap();
    assert!(replayed.status.success(), "{}", printed(&replayed));
    let result: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert_eq!(result["trace"]["requests"], requested, "{result}");
    let mut replayed = Command::new(FLASHWRIGHT);
    replayed.args(["block", "replay", "--preset", "v3"]);
    let text = printed(&replayed.arg(place.path("requests.csv")).output().unwrap());
    let dirty = result["caches"][0]["dirty_blocks"].to_string();
    let line = text.lines().find(|line| line.starts_with("blocks dirty, at the end")).unwrap();
    assert_eq!(line.split_whitespace().last(), Some(&*dirty), "{text}");
    std::fs::write(place.path("other.csv"), "a,b\n1,2\n").unwrap();
    let mut other = place.command("serve", true);
    let refused = other
        .arg("--socket")
        .arg(place.path("s"))
        .arg("--record")
        .arg(place.path("other.csv"))
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(printed(&refused).contains("is not a recording"), "{}", printed(&refused));
    assert_eq!(std::fs::read_to_string(place.path("other.csv")).unwrap(), "a,b\n1,2\n");
}

#[test]
fn settings_change_while_served_and_persist() {
    let place = Place::new();
    let server = place.serve();
    let set = place.ask("set", &["policy=lru", "dirty_thresh_pct=33"]);
    assert!(set.status.success(), "{}", printed(&set));
    assert!(printed(&set).contains("dirty_percent=33"), "{}", printed(&set));
    let wrong = place.ask("set", &["dirty_procent=5"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(printed(&wrong), "error: dirty_procent: unknown setting; did you mean dirty_percent?\n");
    assert_eq!(place.status()["tuning"]["policy"], "lru");
    server.stop();
    let set = place.run("set", &["idle_seconds=7"], true);
    assert!(
        printed(&set).contains("policy=lru\n") && printed(&set).contains("idle_seconds=7\n"),
        "{}",
        printed(&set)
    );
    let nobody = place.ask("status", &[]);
    assert_eq!(nobody.status.code(), Some(2));
    assert!(printed(&nobody).contains("no server listens at"), "{}", printed(&nobody));
}

/// A stopped server, as under a debugger or a cgroup freezer: monitoring that polls every minute must not accumulate
/// waiting requests.
#[test]
fn request_to_a_stopped_server_times_out_with_a_message() {
    let place = Place::new();
    let server = place.serve();
    let process = server.child.0.id().to_string();
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
    signal("-STOP");
    let ask = |words: &[&str]| {
        let mut asking = place.command(words[0], false);
        asking.arg("--socket").arg(place.path("s")).args(&words[1..]);
        asking.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let asking = [ask(&["status"]), ask(&["set", "idle_seconds=7"]), ask(&["flush"])];
    for output in asking.map(|asking| asking.wait_with_output().unwrap()) {
        assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
        assert!(printed(&output).contains("has not answered for 10 s"), "{}", printed(&output));
    }
    signal("-CONT");
    assert_eq!(place.status()["state"]["health"], "healthy");
    server.stop();
}

/// Scripts read these figures: names and types must not change.
#[test]
fn status_has_numeric_figures_and_prometheus_has_all_known_ones() {
    let place = Place::new();
    let offline = place
        .command("status", false)
        .arg("--flash")
        .arg(place.path("flash"))
        .args(&place.flags)
        .arg("--prometheus")
        .output();
    let offline = printed(&offline.unwrap());
    assert!(
        offline.contains("\n# TYPE flashwright_block_closed gauge\n") && !offline.contains("healthy"),
        "{offline}"
    );
    assert!(offline.contains("\nflashwright_block_dirty_blocks{"), "{offline}");
    let server = place.serve();
    let status = place.status();
    let prometheus = printed(&place.ask("status", &["--prometheus"]));
    server.stop();
    let (volume, tuning) = (&status["volume"], &status["tuning"]);
    assert_eq!(
        (volume["placement"].as_str(), volume["run_bytes"].as_u64()),
        (Some("permuted"), Some(65_536))
    );
    assert_eq!((tuning["policy"].as_str(), tuning["dirty_percent"].as_u64()), (Some("lru2q"), Some(70)));
    let info = r#"format="2",disk=""#;
    assert!(prometheus.contains("flashwright_block_info{") && prometheus.contains(info), "{prometheus}");
    assert!(
        prometheus.contains(r#",placement="permuted",mode="write-back",policy="lru2q"} 1"#),
        "{prometheus}"
    );
    for (part, prefix, suffix) in
        [("state", "", ""), ("counters", "", "_total"), ("connections", "connections_", "")]
    {
        for (name, _) in status[part].as_object().unwrap().iter().filter(|(_, value)| value.is_number()) {
            let is_counter = ["accepted", "turned_away", "displaced", "dropped"].contains(&name.as_str());
            let suffix = if is_counter { "_total" } else { suffix };
            let reported =
                prometheus.contains(&format!("\n# HELP flashwright_block_{prefix}{name}{suffix} "));
            assert_eq!(reported, !name.ends_with("_percent"), "{name}");
        }
    }
    assert!(prometheus.contains("\n# TYPE flashwright_block_recovery_seconds gauge\n"), "{prometheus}");
    assert!(
        prometheus.contains("\n# TYPE flashwright_block_healthy gauge\nflashwright_block_healthy{volume=")
    );
}

/// Only the command upgrades: until then an older version can open the cache.
#[test]
fn older_format_is_upgraded_only_by_command() {
    for served in [false, true] {
        let place = Place::of_format("1");
        let server = place.serve();
        let text = "; format 1; `block upgrade` upgrades it to 2)";
        assert!(server.ready.contains(text), "{}", server.ready);
        Client::connect(&place.path("s")).call(1, 8192, 4096, &[7; 4096]);
        assert_eq!(place.status()["volume"]["format"], 1);
        assert!(printed(&place.ask("status", &[])).ends_with("format 1; `block upgrade` upgrades it to 2\n"));
        let upgraded = if served {
            let upgraded = place.ask("upgrade", &[]);
            assert_eq!(place.status()["volume"]["format"], 2);
            server.stop();
            upgraded
        } else {
            server.stop();
            place.run("upgrade", &[], true)
        };
        assert!(printed(&upgraded).contains("now has format 2"), "{}", printed(&upgraded));
        let again = place.run("upgrade", &[], true);
        assert!(printed(&again).contains("the newest"), "{}", printed(&again));
        let server = place.serve();
        assert!(server.ready.contains("1 block, 1 dirty, opened in "), "{}", server.ready);
        assert_eq!(Client::connect(&place.path("s")).call(0, 8192, 4096, &[]), [7; 4096]);
        server.stop();
        assert_eq!(place.run("check", &["--full"], true).status.code(), Some(0));
    }
}

/// A process that is killed at the end of the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program, or prints that it is missing.
fn start(words: &[&str]) -> Option<Ending> {
    let started =
        Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match started {
        Ok(child) => Some(Ending(child)),
        Err(_) => {
            println!("SKIPPED: {} is not installed", words[0]);
            None
        }
    }
}

/// fio writes through a proxy that resends unanswered requests, like a machine whose storage returns; the server, started by `serve`, is
/// killed twice meanwhile. `file` grows with the writes.
fn survives_two_kills(place: &Place, file: &str, serve: impl Fn(&Place) -> Server) {
    let mut server = serve(place);
    let steady = place.path("steady");
    let upstream = format!("uri=nbd+unix:///?socket={}", place.path("s").display());
    let retry = ["retries=60", "retry-delay=1", "retry-exponential=no"];
    let proxy = ["nbdkit", "-f", "-U", steady.to_str().unwrap(), "--filter=retry", "nbd", upstream.as_str()];
    let Some(_proxy) = start(&[&proxy[..], &retry[..]].concat()) else { return };
    while !steady.exists() {
        std::thread::yield_now();
    }
    let uri = format!("--uri=nbd+unix:///?socket={}", steady.display());
    let job =
        ["fio", "--name=v", "--ioengine=nbd", &uri, "--rw=randwrite", "--bs=4k", "--size=6M", "--iodepth=16"];
    let verify = ["--verify=crc32c", "--verify_state_save=0", "--randseed=7"];
    let write = ["--fsync=16", "--do_verify=0", "--rate=,4m"];
    let taken = || std::fs::metadata(place.path(file)).unwrap().blocks() * 512;
    let before = taken();
    let Some(mut fio) = start(&[&job[..], &verify[..], &write[..]].concat()) else { return };
    for written in [1 << 20, 3 << 20] {
        while taken() < before + written {
            assert!(fio.0.try_wait().unwrap().is_none(), "fio is still running");
            std::thread::yield_now();
        }
        server.kill();
        server = serve(place);
    }
    assert!(fio.0.wait().unwrap().success());
    let mut check = start(&[&job[..], &verify[..], &["--verify_only", "--verify_fatal=1"]].concat()).unwrap();
    assert!(check.0.wait().unwrap().success(), "all written data is present");
    server.stop();
}

/// The output of `status` for the disk without its flash.
fn disk_status(place: &Place) -> String {
    printed(&place.command("status", false).arg("--disk").arg(place.path("disk")).output().unwrap())
}

#[test]
fn uncached_disk_keeps_acknowledged_writes_after_kills() {
    survives_two_kills(&Place::new(), "disk", |place| place.serve_with(&["--disk", "disk", "--force-disk"]));
}

#[test]
fn cached_disk_keeps_acknowledged_writes_after_kills() {
    survives_two_kills(&Place::of_sparse_flash(), "flash", Place::serve);
}
