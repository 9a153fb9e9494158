//! Files used by name and through loop devices.

use std::fs::File;

use super::{Place, printed};
use crate::loop_device::LoopDevice;

/// Catches a regression: both servers write to the file and lose flushed data.
#[test]
fn served_flash_file_is_refused_through_a_loop_device() {
    let place = Place::new();
    let server = place.serve();
    let Some(flash) = LoopDevice::attach(&place.path("flash"), &[]) else { return server.stop() };
    let disk = LoopDevice::attach(&place.path("disk"), &[]).expect("the flash got a loop device");
    let both = ["--flash", &flash.0, "--disk", &disk.0];
    let served = place.run("serve", &[&both[..], &["--socket", "t"]].concat(), false);
    let checked = place.run("check", &both, false);
    for refused in [served, checked] {
        let said = printed(&refused);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        let text = format!("{} is in use: process {} (", flash.0, server.child.0.id());
        assert!(said.contains(&text) && said.contains("has the file behind it, "), "{said}");
    }
    // The disk of another cache.
    let other = place.path("other");
    let other = ["--flash", other.to_str().unwrap(), "--flash-size", "8MiB", "--associativity", "64"];
    let created =
        place.run("create", &[&other[..], &["--disk", &disk.0, "--yes", "--force"]].concat(), false);
    assert_eq!(created.status.code(), Some(2), "{}", printed(&created));
    assert!(printed(&created).contains(&format!("--disk: {} is in use: ", disk.0)), "{}", printed(&created));
    assert!(!place.path("other").exists());
    server.stop();
}

/// Each loop device is a separate block device, and the file itself is not locked.
#[test]
fn file_served_through_one_loop_device_is_refused_through_another() {
    let place = Place::new();
    let Some(flash) = LoopDevice::attach(&place.path("flash"), &[]) else { return };
    let again = LoopDevice::attach(&place.path("flash"), &[]).expect("the flash already got a loop device");
    let server = place.serve_with(&["--flash", &flash.0, "--disk", "disk"]);
    let refused = place.run("status", &["--flash", &again.0], false);
    assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
    let text = format!("{} is in use: {}, which has the same bytes of the same file, is", again.0, flash.0);
    assert!(printed(&refused).contains(&text), "{}", printed(&refused));
    server.stop();
    assert_eq!(place.run("status", &["--flash", &again.0], false).status.code(), Some(0));
}

#[test]
fn different_parts_of_a_file_are_served_through_loop_devices() {
    let place = Place::new();
    let both = place.path("both");
    File::create_new(&both).unwrap().set_len(40 << 20).unwrap();
    let Some(flash) = LoopDevice::attach(&both, &["--sizelimit", "8MiB"]) else { return };
    let disk = LoopDevice::attach(&both, &["--offset", "8MiB"]).expect("the flash got a loop device");
    let devices = ["--flash", &flash.0, "--disk", &disk.0];
    let created = place.run("create", &[&devices[..], &["--associativity", "64", "--yes"]].concat(), false);
    assert_eq!(created.status.code(), Some(0), "{}", printed(&created));
    place.serve_with(&devices).stop();
}
