//! A cache served without NBD.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{Timespec, Timestamps, futimens};

use super::{Place, Server, printed};
use crate::http_get;

/// Whether FUSE is available.
fn has_fuse() -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let has_fuse = is_root && File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !has_fuse {
        println!("SKIPPED: no FUSE here, or not for us");
    }
    has_fuse
}

/// The `serve` flags for a FUSE file in the directory `mounted`, which is created; `None` if FUSE is not available.
fn fuse(place: &Place) -> Option<[&'static str; 6]> {
    if !has_fuse() {
        return None;
    }
    std::fs::create_dir(place.path("mounted")).unwrap();
    Some(["--flash", "flash", "--disk", "disk", "--fuse", "mounted"])
}

/// The FUSE file suffices; `status` and other commands find the control socket beside the directory.
#[test]
fn fuse_file_is_served_without_nbd() {
    let place = Place::new();
    let Some(fuse) = fuse(&place) else { return };
    let server = place.serve_at(&fuse);
    assert!(
        server.ready.starts_with("ready mounted/flashwright (closed cleanly: 0 blocks"),
        "{:?}",
        server.ready
    );
    let file = File::options().read(true).write(true).open(place.path("mounted/flashwright")).unwrap();
    file.write_all_at(b"kept", 12_345).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let control = place.path("mounted.control");
    let status = place.command("status", false).arg("--control").arg(&control).output().unwrap();
    let figures = printed(&status);
    assert!(figures.contains("serving mounted/flashwright") && !figures.contains("connections"), "{figures}");
    server.stop();
    assert!(!control.exists());
    let server = place.serve_at(&fuse);
    let mut found = [0; 4];
    File::open(place.path("mounted/flashwright")).unwrap().read_exact_at(&mut found, 12_345).unwrap();
    assert_eq!(&found, b"kept");
    server.stop();
}

/// The request is one at which the session panics.
#[test]
fn failed_fuse_session_is_shown_by_status_and_health() {
    let place = Place::new();
    let Some(fuse) = fuse(&place) else { return };
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let server = place.serve_at(&[&fuse[..], &["--metrics", &address]].concat());
    let control = place.path("mounted.control");
    let status = || {
        let status =
            place.command("status", false).arg("--json").arg("-").arg("--control").arg(&control).output();
        serde_json::from_slice::<serde_json::Value>(&status.unwrap().stdout).unwrap()["fuse"]["failed"]
            .clone()
    };
    assert_eq!(status(), false);
    assert!(http_get(&address, "/health").starts_with("HTTP/1.1 200"));
    let file = File::options().read(true).write(true).open(place.path("mounted/flashwright")).unwrap();
    let earliest = Timespec { tv_sec: i64::MIN, tv_nsec: 1 };
    assert!(futimens(&file, &Timestamps { last_access: earliest, last_modification: earliest }).is_err());
    drop(file);
    while status() == false {
        std::thread::yield_now();
    }
    assert!(http_get(&address, "/metrics").contains("flashwright_block_fuse_failed{"));
    let health = http_get(&address, "/health");
    assert!(health.starts_with("HTTP/1.1 503") && health.contains("the FUSE session failed"), "{health}");
    server.stop();
}

/// Catches a regression: the directory becomes unusable, and the next server refuses it.
#[test]
fn server_stops_with_open_file_and_the_next_mounts_again_even_after_kill() {
    let place = Place::new();
    let Some(fuse) = fuse(&place) else { return };
    for end in [Server::stop as fn(Server), Server::kill, Server::stop] {
        let server = place.serve_at(&fuse);
        let file = File::options().read(true).write(true).open(place.path("mounted/flashwright")).unwrap();
        file.write_all_at(b"kept", 12_345).unwrap();
        file.sync_all().unwrap();
        end(server);
        assert!(file.read_at(&mut [0; 4], 12_345).is_err(), "the server has ended");
    }
    assert_eq!(std::fs::read_dir(place.path("mounted")).unwrap().count(), 0);
}
