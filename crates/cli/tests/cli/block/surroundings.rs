//! The environment of a server and its commands: system limits, readers that close their pipe, full disks.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::{err, flashwright, receives_sighup};

/// The command of a server on the cache, started with this `ulimit`.
fn limited(place: &Place, limit: &str, more: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    let text = format!("ulimit {limit}; exec \"$0\" \"$@\"");
    shell.args(["-c", &text, FLASHWRIGHT, "block", "serve", "--flash", "flash", "--disk", "disk"]);
    shell.args(&place.flags).args(["--socket", "s"]).args(more).current_dir(place.directory.path());
    shell
}

/// Starts the server of a command and waits until it is ready.
fn ready(mut command: Command) -> Server {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    Server { child: Ending(child), ready }
}

#[test]
fn configured_connections_work_despite_a_low_soft_limit() {
    let place = Place::new();
    let server = ready(limited(&place, "-Sn 24", &[]));
    let clients: Vec<UnixStream> = (0..64)
        .map(|number| {
            let mut client = UnixStream::connect(place.path("s")).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            client.read_exact(&mut [0; 18]).unwrap_or_else(|error| panic!("client {number}: {error}"));
            client
        })
        .collect();
    drop(clients);
    server.stop();
}

#[test]
fn connections_beyond_the_hard_limit_are_refused_by_flag() {
    let place = Place::new();
    let refused = limited(&place, "-n 300", &["--connections", "100"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let text = "--connections 100: needs 428 file descriptors, but the limit is 300";
    assert!(printed(&refused).contains(text), "{}", printed(&refused));
}

#[test]
fn watch_ends_when_its_reader_closes_the_pipe() {
    let place = Place::new();
    let server = place.serve();
    let mut watch = Command::new("timeout");
    watch.args(["20", FLASHWRIGHT, "block", "status", "--watch", "--socket"]).arg(place.path("s"));
    let mut watch = Ending(watch.stdout(Stdio::piped()).spawn().unwrap());
    let mut heading = String::new();
    BufReader::new(watch.0.stdout.take().unwrap()).read_line(&mut heading).unwrap();
    assert!(heading.contains("read/s"), "{heading}");
    assert_eq!(watch.0.wait().unwrap().code(), Some(0));
    server.stop();
}

#[test]
fn full_disk_error_of_figures_is_reported() {
    let place = Place::new();
    for format in [&["--prometheus"][..], &[]] {
        let mut status = place.command("status", false);
        status.arg("--flash").arg(place.path("flash")).args(&place.flags).args(format);
        let output =
            status.stdout(File::create("/dev/full").unwrap()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{format:?}");
        assert!(printed(&output).contains("standard output: No space left"), "{}", printed(&output));
    }
}

fn signal(server: &Server, name: &str) {
    let number = server.child.0.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &number]).status().unwrap().success());
}

/// A killed server leaves a write-through cache empty and a dead mount.
#[test]
fn closed_terminal_stops_a_server_cleanly() {
    if !receives_sighup() {
        return;
    }
    let place = Place::new();
    let mut server = place.serve();
    signal(&server, "HUP");
    assert_eq!(server.child.0.wait().unwrap().code(), Some(0));
    assert!(place.serve().ready.contains("closed cleanly"));
}

#[test]
fn server_under_nohup_outlives_its_terminal() {
    let place = Place::new();
    let mut shell = Command::new("sh");
    let text = "trap '' HUP; exec \"$0\" block serve --flash flash --disk disk --socket s \"$@\"";
    shell.args(["-c", text, FLASHWRIGHT]).args(&place.flags).current_dir(place.directory.path());
    let server = ready(shell);
    signal(&server, "HUP");
    assert!(place.ask("status", &[]).status.success());
    server.stop();
}

#[test]
fn server_result_has_its_figures() {
    let place = Place::new();
    let (socket, result) = (place.path("s"), place.path("result.json"));
    let flags = ["--flash", "flash", "--disk", "disk", "--socket", socket.to_str().unwrap(), "--json"];
    place.serve_at(&[&flags[..], &[result.to_str().unwrap()]].concat()).stop();
    let result: Value = serde_json::from_slice(&std::fs::read(result).unwrap()).unwrap();
    assert_eq!((&result["command"], &result["world"]), (&"block serve".into(), &"real".into()));
    assert_eq!((&result["verdict"]["passed"], &result["config"]["disk"]), (&true.into(), &"disk".into()));
    assert!(result["counters"]["reads"].is_u64(), "{}", result["counters"]);
}

#[test]
fn status_of_ublk_device_and_flash_are_exclusive() {
    let both = flashwright(&["block", "status", "--ublk", "3", "--flash", "flash"]);
    assert_eq!(both.status.code(), Some(2));
    assert!(err(&both).contains("cannot be used with"), "{}", err(&both));
}

/// Catches a regression: recovery is announced for the next start, which then refuses the disk.
#[test]
fn server_of_a_truncated_disk_reports_how_to_recover() {
    let place = Place::new();
    let mut command = place.command("serve", true);
    command.arg("--socket").arg(place.path("s")).stderr(Stdio::piped());
    let mut server = ready(command);
    let cut = |bytes| std::fs::File::options().write(true).open(place.path("disk")).unwrap().set_len(bytes);
    cut(16 << 20).unwrap();
    signal(&server, "TERM");
    let mut said = String::new();
    server.child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let promise = "it will be recovered when next opened, once the disk, which has 16777216 bytes now, has its 33554432 again (--force-disk: it was changed)";
    assert!(said.contains(promise), "{said}");
    cut(32 << 20).unwrap();
    if disk_status(&place).contains("belongs to the cache") {
        let refused = printed(&place.run("serve", &["--socket", "s"], true));
        assert!(
            refused.contains("modified after the cache") && refused.contains("--force-disk"),
            "{refused}"
        );
    }
    place.serve_with(&["--flash", "flash", "--disk", "disk", "--force-disk"]).stop();
}

/// Catches a regression: the failing disk is reported as healthy.
#[test]
fn failing_disk_is_reported() {
    let place = Place::new();
    let mut command = place.command("serve", true);
    command.arg("--socket").arg(place.path("s")).stderr(Stdio::piped());
    let mut server = ready(command);
    let disk = File::options().write(true).open(place.path("disk")).unwrap();
    disk.set_len(0).unwrap();
    let mut client = Client::connect(&place.path("s"));
    assert_ne!(client.error_of(0, 1 << 20, 4096, &[]), 0);
    let state = &place.status()["state"];
    assert_eq!((&state["health"], &state["flash_errors"]), (&"disk-errors".into(), &0.into()));
    assert!(state["disk_errors"].as_u64() > Some(0) && state["disk_errors_seconds"].is_f64(), "{state}");
    assert!(state["disk_first_error"].as_str().is_some_and(|error| error.contains("disk")), "{state}");
    let prometheus = printed(&place.ask("status", &["--prometheus"]));
    let is_reported = |line: &str| line.starts_with("flashwright_block_healthy{") && line.ends_with(" 0");
    assert!(prometheus.lines().any(is_reported), "{prometheus}");
    // Restored so that the cache can be closed.
    disk.set_len(32 << 20).unwrap();
    let mut stderr = server.child.0.stderr.take().unwrap();
    server.stop();
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("health: disk-errors (was healthy): ") && said.lines().count() == 1, "{said}");
}
