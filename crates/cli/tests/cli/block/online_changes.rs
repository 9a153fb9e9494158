//! A disk that grows, and a flash that is replaced, while clients use the cache.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::{Client, Place, printed};

const DISK_BYTES: u64 = 32 << 20;

/// First byte of a range that only [`while_writing`] uses.
const BUSY: u64 = 24 << 20;

/// Runs `change` while a client writes blocks and reads them back. Returns how many it wrote.
fn while_writing(place: &Place, change: impl FnOnce()) -> u64 {
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = Client::connect(&place.path("s"));
            let mut written = 0;
            while !is_over.load(Relaxed) {
                let (offset, byte) = (BUSY + written * 7 % 100 * 4096, (written % 250) as u8 + 1);
                client.call(1, offset, 4096, &[byte; 4096]);
                if written % 10 == 0 {
                    client.call(3, 0, 0, &[]);
                }
                assert_eq!(client.call(0, offset, 4096, &[]), [byte; 4096]);
                written += 1;
                rounds.store(written, Relaxed);
            }
            written
        });
        let wait_for = |count| {
            while rounds.load(Relaxed) < count {
                assert!(!writer.is_finished(), "the client failed");
                std::thread::yield_now();
            }
        };
        wait_for(20);
        change();
        wait_for(rounds.load(Relaxed) + 20);
        is_over.store(true, Relaxed);
        writer.join().unwrap()
    })
}

/// The newest byte of each block that [`while_writing`] wrote.
fn check_written(client: &mut Client, written: u64) {
    for number in written.saturating_sub(100)..written {
        let offset = BUSY + number * 7 % 100 * 4096;
        assert_eq!(client.call(0, offset, 4096, &[]), [(number % 250) as u8 + 1; 4096], "write {number}");
    }
}

#[test]
fn disk_grows_while_a_client_writes() {
    let place = Place::new();
    let server = place.serve();
    let mut old = Client::connect(&place.path("s"));
    old.call(1, DISK_BYTES - 4096, 4096, &[5; 4096]);
    let refused = place.ask("grow", &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(printed(&refused).contains("the disk has not grown"), "{}", printed(&refused));
    let written = while_writing(&place, || {
        let disk = File::options().write(true).open(place.path("disk")).unwrap();
        disk.set_len(DISK_BYTES + (4 << 20)).unwrap();
        let grown = place.ask("grow", &[]);
        assert!(grown.status.success(), "{}", printed(&grown));
        assert_eq!(printed(&grown), "the disk has 37748736 bytes now; it had 33554432\n");
    });
    assert_eq!(place.status()["volume"]["disk_bytes"], DISK_BYTES + (4 << 20));
    // A connection keeps the size of its handshake.
    assert_ne!(old.error_of(0, DISK_BYTES, 4096, &[]), 0);
    assert_eq!(old.call(0, DISK_BYTES - 4096, 4096, &[]), [5; 4096]);
    let mut new = Client::connect(&place.path("s"));
    new.call(1, DISK_BYTES, 4096, &[9; 4096]);
    assert_eq!(new.call(0, DISK_BYTES, 4096, &[]), [9; 4096]);
    check_written(&mut new, written);
    drop((old, new));
    server.stop();
    let check = place.run("check", &["--full"], true);
    assert!(check.status.success(), "{}", printed(&check));
}

#[test]
fn flash_is_replaced_while_a_client_writes() {
    let place = Place::new();
    let server = place.serve();
    let mut client = Client::connect(&place.path("s"));
    for block in 0..10_u64 {
        client.call(1, block << 20, 4096, &[block as u8 + 1; 4096]);
        client.call(0, block << 20 | 8192, 4096, &[]);
    }
    let flash = place.path("flash");
    let refused = place.ask("replace-flash", &["--to", flash.to_str().unwrap(), "--yes"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(printed(&refused).contains("is in use by this cache already"), "{}", printed(&refused));
    let before = place.status();
    let new = place.path("new flash");
    let to = ["--to", new.to_str().unwrap(), "--to-size", "16MiB", "--yes"];
    let written = while_writing(&place, || {
        let moved = place.ask("replace-flash", &to);
        assert!(moved.status.success(), "{}", printed(&moved));
        assert!(printed(&moved).contains(", 0 of them dirty\n"), "{}", printed(&moved));
    });
    let status = place.status();
    let capacity = |status: &serde_json::Value| status["state"]["capacity_blocks"].as_u64().unwrap();
    assert!(capacity(&status) > capacity(&before) * 3 / 2);
    assert_eq!(status["tuning"]["mode"], "write-back");
    let reads = |status: &serde_json::Value| status["counters"]["disk_reads"].as_u64().unwrap();
    for block in 0..10_u64 {
        assert_eq!(client.call(0, block << 20, 4096, &[]), [block as u8 + 1; 4096]);
        assert_eq!(client.call(0, block << 20 | 8192, 4096, &[]), [0; 4096]);
    }
    assert_eq!(reads(&place.status()), reads(&status), "all of them are cached");
    check_written(&mut client, written);
    drop(client);
    server.stop();
    let old = place.command("status", false).arg("--flash").arg(&flash).args(&place.flags).output().unwrap();
    assert!(printed(&old).contains("there is no cache on the flash"), "{}", printed(&old));
    let server = place.serve_with(&["--flash", "new flash", "--disk", "disk"]);
    check_written(&mut Client::connect(&place.path("s")), written);
    server.stop();
}
