//! `block ublk` without ublk devices. Devices are tested in an emulated machine.

use std::path::Path;

use super::printed;
use crate::flashwright;

fn has_devices() -> bool {
    std::fs::read_dir("/sys/class/ublk-char").is_ok_and(|mut devices| devices.next().is_some())
}

#[test]
fn without_ublk_devices_the_list_is_empty_and_delete_fails() {
    if has_devices() {
        println!("SKIPPED: this machine has ublk devices");
        return;
    }
    let listed = flashwright(&["block", "ublk", "list"]);
    assert!(listed.status.success());
    assert_eq!(printed(&listed), "there are no ublk devices\n");
    let json = flashwright(&["block", "ublk", "list", "--json", "-", "--quiet"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["command"], &json["devices"]), (&"block ublk list".into(), &serde_json::json!([])));
    let deleted = flashwright(&["block", "ublk", "delete", "7", "--yes"]);
    assert_eq!(deleted.status.code(), Some(2));
    assert!(
        printed(&deleted).contains("there is no /dev/ublkb7; there are no ublk devices"),
        "{}",
        printed(&deleted)
    );
    assert!(!Path::new("/dev/ublkb7").exists());
}
