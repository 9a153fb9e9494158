//! `flashwright ssd info|trim|precondition|wear` on files; `cargo xtask vm` runs them on drives.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

use super::flashwright;
use super::loop_device::LoopDevice;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// A file of that size full of sevens, beside the executable, where direct I/O must work.
fn file(bytes: usize) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("flash");
    fs::write(&path, vec![7; bytes]).unwrap();
    (directory, path)
}

#[test]
fn info_of_a_file_reports_known_and_unknown_properties() {
    let (_directory, path) = file(8192);
    let output = flashwright(&["ssd", "info", path.to_str().unwrap(), "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["command"], &result["world"]), (&"ssd info".into(), &"real".into()));
    assert_eq!((&result["kind"], &result["capacity_bytes"]), (&"file".into(), &8192.into()));
    assert!(result["model"].is_null() && result["nvme"].is_null());
    assert!(result["unknown"]["wear"].is_string());
    assert!(text(&output).contains("8 KiB"), "the text is on standard error");
}

#[test]
fn missing_or_foreign_path_exits_2_and_is_named() {
    for (command, device) in
        [("info", "/nonexistent"), ("trim", "/dev/null"), ("wear", "/dev/null"), ("info", "/tmp")]
    {
        let output = flashwright(&["ssd", command, device]);
        assert_eq!(output.status.code(), Some(2), "{command} {device}");
        assert!(text(&output).contains(device), "{}", text(&output));
    }
}

/// Catches a regression: the drive is trimmed before the write of its result fails.
#[test]
fn unwritable_result_is_refused_before_the_drive_changes() {
    let (directory, path) = file(1 << 20);
    let device = path.to_str().unwrap();
    for command in ["trim", "precondition"] {
        for (result, reason) in
            [("/nonexistent/result", "writing /nonexistent/result"), (device, "would overwrite")]
        {
            let output = flashwright(&["ssd", command, device, "--yes", "--json", result]);
            assert_eq!(output.status.code(), Some(2));
            assert!(text(&output).contains(reason), "{command}: {}", text(&output));
            assert!(fs::read(&path).unwrap().iter().all(|&byte| byte == 7), "{command} {result}");
        }
    }
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for flag in ["--json", "--csv"] {
        let output = flashwright(&["ssd", "wear", device, flag, link.to_str().unwrap()]);
        assert!(text(&output).contains("would overwrite the device"), "{flag}: {}", text(&output));
    }
    let output = flashwright(&["ssd", "info", device, "--json", device]);
    assert!(text(&output).contains("would overwrite the device"), "{}", text(&output));
    assert!(fs::read(&path).unwrap().iter().all(|&byte| byte == 7));
}

#[test]
fn data_is_not_destroyed_without_confirmation() {
    let (_directory, path) = file(1 << 20);
    for command in ["trim", "precondition"] {
        let output = flashwright(&["ssd", command, path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output).contains("--yes"), "{}", text(&output));
        assert!(fs::read(&path).unwrap().iter().all(|&byte| byte == 7));
    }
}

#[test]
fn device_in_use_is_refused_with_its_user() {
    let (_directory, path) = file(1 << 20);
    let held = fs::File::open(&path).unwrap();
    held.lock().unwrap();
    for command in ["trim", "precondition"] {
        let output = flashwright(&["ssd", command, path.to_str().unwrap(), "--yes"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output).contains("in use: process"), "{}", text(&output));
        assert!(fs::read(&path).unwrap().iter().all(|&byte| byte == 7));
    }
}

/// Such a file has no visible user. Catches a regression: a mounted file system on it is destroyed.
#[test]
fn file_behind_a_loop_device_is_in_use() {
    let (_directory, path) = file(1 << 20);
    let path_text = path.to_str().unwrap();
    let Some(device) = LoopDevice::attach(&path, &[]) else { return };
    let done = ["trim", "precondition"].map(|command| flashwright(&["ssd", command, path_text, "--yes"]));
    let info = flashwright(&["ssd", "info", path_text]);
    for output in done {
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output).contains(&format!("in use: it is the file behind {}", device.0)),
            "{}",
            text(&output)
        );
    }
    assert!(text(&info).contains(&device.0), "{}", text(&info));
    assert!(fs::read(&path).unwrap().iter().all(|&byte| byte == 7));
}

#[test]
fn trimmed_file_is_zeros_of_the_same_length() {
    let (_directory, path) = file(1 << 20);
    let output = flashwright(&["ssd", "trim", path.to_str().unwrap(), "--yes", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["trimmed_bytes"], 1 << 20);
    let now = fs::read(&path).unwrap();
    assert!(now.len() == 1 << 20 && now.iter().all(|&byte| byte == 0));
}

#[test]
fn preconditioning_writes_everything_and_reports_steadiness() {
    let (_directory, path) = file(4 << 20);
    let path_text = path.to_str().unwrap();
    let output =
        flashwright(&["ssd", "precondition", path_text, "--yes", "--write-size", "4KiB", "--json", "-"]);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let steady = result["steady"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!steady)), "{}", text(&output));
    assert_eq!(result["verdict"]["passed"], steady);
    let rounds = result["rounds"].as_array().unwrap();
    let sequential = rounds.iter().filter(|round| round["sequential"] == true);
    assert_eq!(sequential.map(|round| round["written_bytes"].as_u64().unwrap()).sum::<u64>(), 4 << 20);
    assert!(rounds.iter().all(|round| round["dlwa"].is_null()), "unknown for a file");
    assert!(fs::read(&path).unwrap().chunks(4096).all(|block| block.iter().any(|&byte| byte != 7)));
}

#[test]
fn unfitting_write_size_or_depth_exits_2() {
    let (_directory, path) = file(1 << 20);
    let depths = ["0", "4097", "99999999999999999"].map(|depth| ["--depth", depth]);
    let sizes = ["100", "1GiB", "lots"].map(|size| ["--write-size", size]);
    for flags in sizes.into_iter().chain(depths) {
        let path = path.to_str().unwrap();
        let output = flashwright(&[&["ssd", "precondition", path, "--yes"], flags.as_slice()].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {}", text(&output));
    }
}
