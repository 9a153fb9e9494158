//! A cache with a disk that is not its own or was written without it.

use std::os::unix::fs::FileExt;
use std::process::Output;

use serde_json::Value;

use super::{Client, Place, disk_status, printed};

/// A cache with a dirty block whose server was killed; `None` if its disk could not be marked.
fn dirty() -> Option<Place> {
    let place = Place::new();
    if !disk_status(&place).contains("belongs to the cache") {
        println!("SKIPPED: no extended attributes here");
        return None;
    }
    let server = place.serve();
    let mut client = Client::connect(&place.path("s"));
    client.call(1, 8 << 20, 4096, &[7; 4096]);
    client.call(3, 0, 0, &[]);
    server.kill();
    Some(place)
}

/// A command on the flash of one and the disk of another.
fn across(one: &Place, other: &Place, command: &str, more: &[&str]) -> Output {
    let mut command = one.command(command, false);
    command.arg("--flash").arg(one.path("flash")).arg("--disk").arg(other.path("disk"));
    command.args(more).args(&one.flags).output().unwrap()
}

#[test]
fn command_with_the_disk_of_another_cache_is_refused() {
    let (Some(one), Some(other)) = (dirty(), dirty()) else { return };
    let before = std::fs::read(other.path("disk")).unwrap();
    for command in ["flush", "check", "status", "upgrade", "destroy"] {
        let refused = across(&one, &other, command, &[]);
        let said = printed(&refused);
        assert!(!refused.status.success(), "{command}: {said}");
        assert!(
            said.contains("belongs to the cache ") && said.contains(", the flash to the cache "),
            "{said}"
        );
        assert_eq!(
            said.contains("--force-disk accepts it"),
            matches!(command, "flush" | "upgrade"),
            "{said}"
        );
    }
    assert!(std::fs::read(other.path("disk")).unwrap() == before);
    let forced = across(&one, &other, "flush", &["--force-disk"]);
    assert!(printed(&forced).starts_with("wrote back 1 dirty block "), "{}", printed(&forced));
    let refused = printed(&other.run("flush", &[], true));
    assert!(
        refused.contains("belongs to the cache "),
        "the forced disk now belongs to the other cache: {refused}"
    );
}

#[test]
fn disk_modified_after_a_crash_is_refused_without_force() {
    let Some(place) = dirty() else { return };
    let disk = std::fs::File::options().write(true).open(place.path("disk")).unwrap();
    disk.write_all_at(&[9; 4096], 20 << 20).unwrap();
    disk.set_modified(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(2_000_000_000))
        .unwrap();
    for command in [&["check", "--full"][..], &["flush"], &["serve", "--socket", "s"]] {
        let refused = place.run(command[0], &command[1..], true);
        let said = printed(&refused);
        assert!(
            !refused.status.success() && said.contains("modified after the cache"),
            "{command:?}: {said}"
        );
    }
    let forced = place.run("flush", &["--force-disk"], true);
    assert!(forced.status.success(), "{}", printed(&forced));
    let bytes = std::fs::read(place.path("disk")).unwrap();
    assert_eq!((bytes[8 << 20], bytes[20 << 20]), (7, 9));
    assert!(printed(&place.run("check", &["--full"], true)).contains("\nsound\n"));
}

#[test]
fn unmarked_copy_of_the_disk_requires_force() {
    let Some(place) = dirty() else { return };
    let bytes = std::fs::read(place.path("disk")).unwrap();
    std::fs::remove_file(place.path("disk")).unwrap();
    std::fs::write(place.path("disk"), bytes).unwrap();
    let said = printed(&place.run("flush", &[], true));
    assert!(said.contains("lacks the mark of the cache") && said.contains("--force-disk"), "{said}");
    assert!(place.run("flush", &["--force-disk"], true).status.success());
    assert!(place.run("flush", &[], true).status.success(), "the disk is marked now");
}

/// Catches a regression: `status` of a disk does not name its dirty cache.
#[test]
fn disk_status_names_its_cache_until_destroyed() {
    let Some(place) = dirty() else { return };
    let flash = ["--flash-size", "8MiB", "--associativity", "64", "--yes"];
    let (disk, new) = (place.path("disk"), place.path("new"));
    let both = ["--flash", new.to_str().unwrap(), "--disk", disk.to_str().unwrap()];
    for command in [
        ["create"].iter().chain(&both).chain(&flash).collect::<Vec<_>>(),
        ["serve"].iter().chain(&both[2..]).chain(&["--socket", "s"]).collect(),
    ] {
        let mut refused = place.command(command[0], false);
        let refused = refused.args(&command[1..]).args(&place.flags).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        let said = printed(&refused);
        assert!(said.contains("belongs to the cache ") && said.contains("--force"), "{said}");
    }
    assert!(!new.exists(), "the new file is removed again");
    let status = place.run("status", &["--json", "-", "--quiet"], true);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(
        (&status["disk"]["cache"], &status["volume"]["disk_marked"]),
        (&status["volume"]["uuid"], &true.into())
    );
    assert!(place.run("flush", &[], true).status.success());
    assert!(place.run("destroy", &["--yes"], true).status.success());
    assert!(disk_status(&place).contains("has no mark of a cache"), "{}", disk_status(&place));
    place.serve_with(&["--disk", "disk"]).stop();
}
