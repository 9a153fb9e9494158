//! A disk that grows under its cache, and a cache that moves to another flash.

use std::fs::File;

use super::{Client, Place, Server, printed};

const DISK_BYTES: u64 = 32 << 20;

/// A cache with five dirty blocks and ten clean ones, whose server ended.
#[expect(clippy::disallowed_methods, reason = "the test polls a server's status")]
fn used(end: fn(Server)) -> Place {
    let place = Place::new();
    let server = place.serve();
    let mut client = Client::connect(&place.path("s"));
    for block in 0..10_u64 {
        client.call(0, block << 20, 4096, &[]);
    }
    for block in 0..5_u8 {
        client.call(1, u64::from(block) << 21 | 8192, 4096, &[block + 1; 4096]);
    }
    client.call(3, 0, 0, &[]);
    // Read blocks are cached and committed in the background. Before that, a kill drops them.
    let is_committed =
        |state: &serde_json::Value| state["held_blocks"] == 15 && state["uncommitted_blocks"] == 0;
    while !is_committed(&place.status()["state"]) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(client);
    end(server);
    place
}

fn check_blocks(client: &mut Client) {
    for block in 0..5_u8 {
        assert_eq!(client.call(0, u64::from(block) << 21 | 8192, 4096, &[]), [block + 1; 4096]);
    }
}

fn resize(place: &Place, name: &str, bytes: u64) {
    File::options().write(true).open(place.path(name)).unwrap().set_len(bytes).unwrap();
}

/// Catches a regression: a larger disk requires that its cache be destroyed and created again.
#[test]
fn grown_disk_is_served_at_its_new_size_with_its_blocks() {
    for end in [Server::kill as fn(Server), Server::stop] {
        let place = used(end);
        let not_yet = place.run("grow", &[], true);
        assert_eq!(not_yet.status.code(), Some(2));
        assert!(printed(&not_yet).contains("the disk has not grown"), "{}", printed(&not_yet));
        resize(&place, "disk", DISK_BYTES + (4 << 20));
        let refused = place.run("flush", &[], true);
        assert!(printed(&refused).contains("`block grow` records its new size"), "{}", printed(&refused));
        let grown = place.run("grow", &[], true);
        assert!(grown.status.success(), "{}", printed(&grown));
        assert_eq!(printed(&grown), "the disk has 37748736 bytes now; it had 33554432\n");
        let server = place.serve();
        let state = &place.status()["state"];
        assert_eq!((&state["dirty_blocks"], &state["held_blocks"]), (&5.into(), &15.into()));
        let mut client = Client::connect(&place.path("s"));
        check_blocks(&mut client);
        client.call(1, DISK_BYTES, 4096, &[9; 4096]);
        assert_eq!(client.call(0, DISK_BYTES, 4096, &[]), [9; 4096]);
        drop(client);
        assert!(place.ask("flush", &[]).status.success());
        server.stop();
        assert_eq!(std::fs::read(place.path("disk")).unwrap()[DISK_BYTES as usize..][..4096], [9; 4096]);
        let check = place.run("check", &["--full"], true);
        assert!(check.status.success(), "{}", printed(&check));
    }
}

#[test]
fn shrunk_disk_is_refused_and_nothing_changes() {
    let place = used(Server::stop);
    resize(&place, "disk", DISK_BYTES - 4096);
    let refused = place.run("grow", &[], true);
    assert_eq!(refused.status.code(), Some(2));
    assert!(printed(&refused).contains("it has only 33550336 bytes, not 33554432"), "{}", printed(&refused));
}

#[test]
fn cache_moves_to_a_larger_flash_with_all_blocks() {
    for end in [Server::kill as fn(Server), Server::stop] {
        let place = used(end);
        let new = place.path("new");
        let to = ["--to", new.to_str().unwrap(), "--to-size", "16MiB", "--yes"];
        let moved = place.run("replace-flash", &to, true);
        assert!(moved.status.success(), "{}", printed(&moved));
        assert!(printed(&moved).contains("15 blocks, 5 of them dirty"), "{}", printed(&moved));
        let old = place
            .command("status", false)
            .arg("--flash")
            .arg(place.path("flash"))
            .args(&place.flags)
            .output();
        assert!(printed(&old.unwrap()).contains("there is no cache on the flash"));
        let server = place.serve_with(&["--flash", "new", "--disk", "disk"]);
        let mut client = Client::connect(&place.path("s"));
        check_blocks(&mut client);
        for block in 0..10_u64 {
            client.call(0, block << 20, 4096, &[]);
        }
        let status = place.status();
        assert_eq!(
            (&status["counters"]["read_hits"], &status["counters"]["disk_reads"]),
            (&15.into(), &0.into())
        );
        assert_eq!(status["state"]["dirty_blocks"], 5);
        drop(client);
        server.stop();
    }
}

#[test]
fn move_to_a_used_flash_is_refused() {
    let place = used(Server::stop);
    for to in [place.path("flash"), place.path("disk")] {
        let refused = place.run("replace-flash", &["--to", to.to_str().unwrap(), "--yes"], true);
        assert_eq!(refused.status.code(), Some(2));
        assert!(printed(&refused).contains("is in use by this cache already"), "{}", printed(&refused));
    }
    let mut file_system = vec![0; 16 << 20];
    file_system[1080..1082].copy_from_slice(b"\x53\xef");
    std::fs::write(place.path("ext4"), &file_system).unwrap();
    let to = place.path("ext4");
    let refused = place.run("replace-flash", &["--to", to.to_str().unwrap(), "--yes"], true);
    assert_eq!(refused.status.code(), Some(2));
    assert!(printed(&refused).contains("ext4 file system"), "{}", printed(&refused));
    assert!(std::fs::read(&to).unwrap() == file_system);
    let forced = place.run("replace-flash", &["--to", to.to_str().unwrap(), "--yes", "--force"], true);
    assert!(forced.status.success(), "{}", printed(&forced));
}

/// Worn-out flash refuses writes. Catches a regression: its cache cannot be opened.
#[test]
fn cache_moves_from_read_only_flash() {
    let place = used(Server::kill);
    let [directory, flash, new] = ["old", "old/flash", "new"].map(|name| place.path(name));
    std::fs::create_dir(&directory).unwrap();
    std::fs::rename(place.path("flash"), &flash).unwrap();
    let old = directory.display();
    let script = format!("mount --bind {old} {old} && mount -o remount,ro,bind {old} && exec \"$@\"");
    let mut moving = place.command("replace-flash", false);
    moving.arg("--flash").arg(&flash).arg("--disk").arg(place.path("disk")).args(&place.flags);
    moving.arg("--to").arg(&new).args(["--to-size", "16MiB", "--yes", "--json", "-"]);
    let mut alone = std::process::Command::new("unshare");
    alone.args(["-m", "sh", "-c", &script, "sh"]).arg(moving.get_program()).args(moving.get_args());
    let Ok(moved) = alone.output() else {
        println!("SKIPPED: there is no unshare");
        return;
    };
    if printed(&moved).contains("unshare") || printed(&moved).contains("mount:") {
        println!("SKIPPED: mounting is not permitted: {}", printed(&moved));
        return;
    }
    assert!(moved.status.success(), "{}", printed(&moved));
    assert!(
        printed(&moved).contains("never serve")
            && printed(&moved).contains("\"old_flash_overwritten\": false")
    );
    let server = place.serve_with(&["--flash", "new", "--disk", "disk"]);
    check_blocks(&mut Client::connect(&place.path("s")));
    server.stop();
}
