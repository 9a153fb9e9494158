//! A cache served without NBD.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::{Place, Server, printed};

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
