//! Messages without a driver, permission or matching server.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::Check;
use crate::place::{DISK, Place, is_there, printed, succeeded};

pub const WITHOUT_DRIVER: &[Check] =
    &[("without its driver, serving by ublk reports how to load it", absent)];

pub const CHECKS: &[Check] = &[
    ("serving by ublk without permission fails with one line", unprivileged),
    ("a waiting disk is refused to another server", foreign),
    ("a waiting disk is not created again under another number, and its cache not destroyed", twice),
    ("a disk without a server is listed and deleted, and its readers get errors", stale),
    ("the disk of a forcibly destroyed cache is deleted too", orphan),
];

/// Serves a file created for this check.
fn serve_file() -> Command {
    std::fs::write("/tmp/other.img", vec![0; 1 << 20]).unwrap();
    let mut command = Command::new("/bin/flashwright");
    command.args(["block", "serve", "--disk", "/tmp/other.img", "--buffered"]);
    command.args(["--socket", "/tmp/other.sock", "--ublk", "0"]);
    command
}

fn absent() {
    let output = serve_file().output().unwrap();
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("modprobe ublk_drv") && text.trim().lines().count() == 1, "{text}");
}

fn unprivileged() {
    const NOBODY: u32 = 65_534;
    let output = serve_file().uid(NOBODY).gid(NOBODY).output().unwrap();
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("ublk needs root") && text.trim().lines().count() == 1, "{text}");
}

fn foreign() {
    let place = Place::new();
    place.serve().kill();
    let output = serve_file().output().unwrap();
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(&format!("{DISK} already exists")), "{text}");
    let server = place.serve();
    assert!(server.ready.contains("taken over"), "{}", server.ready);
    server.stop();
    assert!(!is_there());
}

/// Catches a regression: readers of a device without a server wait forever, and no command deletes the device.
fn stale() {
    let place = Place::new();
    let server = place.serve();
    let refused = ublk(&["delete", "0", "--yes"]);
    assert!(
        !refused.status.success() && printed(&refused).contains("is being served by process"),
        "{}",
        printed(&refused)
    );
    server.kill();
    let mut reader = Command::new("dd");
    reader.args([&format!("if={DISK}"), "of=/dev/null", "bs=4096", "count=1", "iflag=direct"]);
    let mut reader = reader.spawn().unwrap();
    crate::place::pause(1000);
    let listed = printed(&ublk(&["list"]));
    assert!(listed.contains(DISK) && listed.contains(" waiting "), "{listed}");
    assert!(reader.try_wait().unwrap().is_none(), "the reader waits for the next server");
    succeeded(&ublk(&["delete", "0", "--yes"]));
    assert!(!reader.wait().unwrap().success() && !is_there());
    assert_eq!(printed(&ublk(&["list"])), "there are no ublk devices\n");
    let server = place.serve();
    assert!(!server.ready.contains("taken over"), "{}", server.ready);
    server.stop();
}

fn ublk(arguments: &[&str]) -> std::process::Output {
    Command::new("/bin/flashwright").args(["block", "ublk"]).args(arguments).output().unwrap()
}

fn orphan() {
    let place = Place::new();
    place.serve().kill();
    let destroyed = place.command("destroy").args(["--yes", "--force"]).output().unwrap();
    succeeded(&destroyed);
    assert!(
        printed(&destroyed).contains(&format!("deleted {DISK}")) && !is_there(),
        "{}",
        printed(&destroyed)
    );
}

/// A file system mounted through both disks would be corrupted.
fn twice() {
    let place = Place::new();
    place.serve().kill();
    place.clean();
    let second = ["--socket", "/tmp/second.sock", "--ublk", "1"];
    for (command, more) in [("serve", &second[..]), ("destroy", &["--yes"])] {
        let output = place.command(command).args(more).output().unwrap();
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {text}");
        assert!(text.contains(DISK) && !Path::new("/dev/ublkb1").exists(), "{command}: {text}");
        let offers_deletion = text.contains("`flashwright block ublk delete 0` deletes it");
        assert_eq!(offers_deletion, command == "destroy", "{command}: {text}");
    }
    let server = place.serve();
    assert!(server.ready.contains("taken over"), "{}", server.ready);
    server.stop();
    succeeded(&place.command("destroy").arg("--yes").output().unwrap());
}
