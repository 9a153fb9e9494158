//! A run must not overwrite a user's files.

use std::path::Path;
use std::process::{Command, Output};

use super::super::loop_device::LoopDevice;
use super::super::{FLASHWRIGHT, err, flashwright, out};
use super::{SMALL, config};

/// A run of a few operations with its flash at `device`.
fn run_on(device: &str, file: &str, more: &[&str]) -> Output {
    let few = ["--set", "cache_config.flashBuffered=true", "--set", "test_config.numOps=10", "--quiet"];
    flashwright(&[&["bench", file, "--device", device][..], &few, more].concat())
}

#[test]
fn foreign_file_is_overwritten_only_with_force() {
    let (directory, file) = config("small.json", SMALL);
    let path = directory.path().join("flash");
    let device = path.to_str().unwrap();
    let run = |more: &[&str]| run_on(device, &file, more);
    let wanted = 32 << 20;
    let ext4 = [vec![0; 1080], b"\x53\xef".to_vec(), vec![0; wanted - 1082]].concat();
    let block_cache = [b"FWBLKVOL".to_vec(), vec![0; wanted - 8]].concat();
    // Catches a regression: a file of the same length is treated as that of a cache.
    let foreign = vec![7; wanted];
    for (held, said) in [
        (b"key,op\n1,GET\n".to_vec(), "data that is not a cache's"),
        (ext4, "an ext2, ext3 or ext4 file system"),
        (block_cache, "holds a block cache"),
        (foreign, "data that is not a cache's"),
    ] {
        std::fs::write(&path, &held).unwrap();
        let refused = run(&[]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(err(&refused).contains(&format!("{device} holds")), "{}", err(&refused));
        assert!(err(&refused).contains(said) && err(&refused).contains("--force"), "{}", err(&refused));
        assert!(std::fs::read(&path).unwrap() == held, "{said}: the file is unchanged");
    }
    assert_eq!(run(&["--force"]).status.code(), Some(0));
    assert_eq!(run(&[]).status.code(), Some(0), "the file belongs to a cache");
    std::fs::write(&path, vec![0; 4096]).unwrap();
    assert_eq!(run(&[]).status.code(), Some(0), "zeros contain no data");
}

/// Catches a regression: only the beginning of a file is checked.
#[test]
fn foreign_file_that_begins_with_zeros_is_not_overwritten() {
    let (directory, file) = config("small.json", SMALL);
    let path = directory.path().join("flash");
    let device = path.to_str().unwrap();
    let run = |more: &[&str]| run_on(device, &file, more);
    let held = [vec![0; 20 << 20], vec![7; 1 << 20], vec![0; 43 << 20]].concat();
    std::fs::write(&path, &held).unwrap();
    for refused in [run(&[]), run(&["--validate"]), flashwright(&["evaluate", device, "--plan"])] {
        assert_eq!(refused.status.code(), Some(2), "{}", out(&refused));
        assert!(err(&refused).contains("holds data that is not a cache's; --force"), "{}", err(&refused));
        assert!(std::fs::read(&path).unwrap() == held, "the file is unchanged");
    }
    assert_eq!(run(&["--force"]).status.code(), Some(0));
    assert_eq!(run(&[]).status.code(), Some(0), "the file belongs to a cache");
    std::fs::write(&path, vec![0; 32 << 20]).unwrap();
    assert_eq!(run(&[]).status.code(), Some(0), "zeros contain no data");
}

/// The disk contains the user's bytes, which usually have no known format.
#[test]
fn disk_of_a_block_cache_is_not_overwritten() {
    let (directory, file) = config("small.json", SMALL);
    let [flash, disk] = ["flash", "disk"].map(|name| directory.path().join(name).display().to_string());
    let sizes =
        ["--flash-size", "8MiB", "--disk-size", "64MiB", "--associativity", "64", "--buffered", "--yes"];
    let create = [&["block", "create", "--flash", &flash, "--disk", &disk][..], &sizes].concat();
    assert_eq!(flashwright(&create).status.code(), Some(0));
    let mut value = [0_u8; 64];
    if rustix::fs::getxattr(disk.as_str(), "user.flashwright.volume", &mut value).is_err() {
        println!("SKIPPED: no extended attributes here");
        return;
    }
    let [other_flash, other_disk] = [&disk, "other"];
    let create = ["block", "create", "--flash", other_flash, "--disk", other_disk, "--disk-size", "32MiB"];
    let create = [&create[..], &["--associativity", "64", "--buffered", "--yes"]].concat();
    for command in [
        &["bench", &file, "--set", "cache_config.flashBuffered=true", "--device", &disk][..],
        &["bench", &file, "--validate", "--device", &disk],
        &["evaluate", &disk, "--plan"],
        &["ssd", "trim", &disk, "--yes"],
        &["ssd", "precondition", &disk, "--yes"],
        &create,
    ] {
        let refused = Command::new(FLASHWRIGHT).args(command).current_dir(directory.path()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{command:?}: {}", out(&refused));
        let said = err(&refused);
        assert!(said.contains("holds the disk of a block cache") && said.contains("--force"), "{said}");
    }
    assert_eq!(flashwright(&["ssd", "trim", &disk, "--yes", "--force"]).status.code(), Some(0));
}

#[test]
fn foreign_file_in_a_stripe_is_not_overwritten() {
    let (directory, file) = config("small.json", SMALL);
    let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
    let run = |paths: &[&Path], more: &[&str]| {
        let paths = format!("cache_config.nvmCachePaths={paths:?}");
        let few = ["--set", "cache_config.flashBuffered=true", "--set", "test_config.numOps=2000", "--quiet"];
        flashwright(&[&["bench", &file, "--set", &paths][..], &few, more].concat())
    };
    let member_bytes = 32 << 20;
    std::fs::write(&one, vec![0; member_bytes]).unwrap();
    std::fs::write(&other, vec![7; member_bytes]).unwrap();
    let refused = |code: Option<i32>| {
        let output = run(&[&one, &other], &[]);
        assert_eq!(output.status.code(), code, "{}", err(&output));
        code == Some(0) || err(&output).contains(&format!("{} holds data that is not", other.display()))
    };
    assert!(refused(Some(2)), "with an empty file");
    assert_eq!(run(&[&one], &[]).status.code(), Some(0));
    assert!(refused(Some(2)), "with a cache that is not striped");
    assert!(std::fs::read(&other).unwrap() == vec![7; member_bytes], "the file is unchanged");
    assert_eq!(run(&[&one, &other], &["--force"]).status.code(), Some(0));
    assert!(refused(Some(0)), "both files belong to a cache");
}

#[test]
fn persistent_cache_overwrites_foreign_data_only_with_force() {
    let (directory, file) = config("small.json", &SMALL.replace("\"checkConsistency\": true,", ""));
    let path = directory.path().join("flash");
    let run = |more: &[&str]| {
        let paths = format!("cache_config.nvmCachePaths=[{path:?}]");
        let state = format!("cache_config.cacheDir={}", directory.path().join("state").display());
        let sets = ["--set", &paths, "--set", &state, "--set", "cache_config.flashBuffered=true", "--quiet"];
        flashwright(&[&["bench", &file][..], &sets, more].concat())
    };
    let mut newer = vec![0; 32 << 20];
    newer[..8].copy_from_slice(b"FLSHWRT\0");
    newer[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    // The CRC-32C of an otherwise empty superblock.
    newer[12..16].copy_from_slice(&0xd5f7_9266_u32.to_le_bytes());
    for (held, said) in
        [(vec![7; 32 << 20], "data that is not a cache's"), (newer, "newer than this version's")]
    {
        std::fs::write(&path, &held).unwrap();
        let refused = run(&[]);
        let text = err(&refused);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text.contains("nvmCachePaths") && text.contains(path.to_str().unwrap()), "{text}");
        assert!(text.contains(said) && text.contains("--force"), "{text}");
        let forced = run(&["--force"]);
        assert_eq!(forced.status.code(), Some(0), "{}", err(&forced));
        assert_eq!(run(&[]).status.code(), Some(0), "the file belongs to a cache");
    }
}

#[test]
fn drive_with_a_file_system_is_overwritten_only_with_force() {
    let (directory, file) = config("small.json", SMALL);
    let backing = directory.path().join("backing");
    let ext4 = [vec![0; 1080], b"\x53\xef".to_vec(), vec![0; (32 << 20) - 1082]].concat();
    std::fs::write(&backing, &ext4).unwrap();
    let Some(device) = LoopDevice::attach(&backing, &[]) else { return };
    let device = &device.0;
    let run = |more: &[&str]| {
        let few = ["--set", "test_config.numOps=10", "--quiet"];
        flashwright(&[&["bench", &file, "--device", device][..], &few, more].concat())
    };
    let refused = run(&[]);
    let left = std::fs::read(&backing).unwrap();
    let [forced, again] = [run(&["--force"]), run(&[])];

    assert_eq!(refused.status.code(), Some(2));
    let said = format!("{device} holds an ext2, ext3 or ext4 file system");
    assert!(err(&refused).contains(&said) && err(&refused).contains("--force"), "{}", err(&refused));
    assert!(left == ext4, "the drive is unchanged");
    assert_eq!((forced.status.code(), again.status.code()), (Some(0), Some(0)), "{}", err(&forced));
}

/// Catches a regression: the old result is truncated before the new one is written.
#[test]
fn failed_result_write_keeps_the_previous_result() {
    let (directory, file) = config("small.json", SMALL);
    let result = directory.path().join("result.json");
    let good = "{\"verdict\": \"good\"}\n";
    std::fs::write(&result, good).unwrap();
    // Like a full disk: files can have only one block.
    let script = "ulimit -f 1; trap '' XFSZ; exec \"$@\"";
    let run = [FLASHWRIGHT, "bench", &file, "--quiet", "--json", result.to_str().unwrap()];
    let output = Command::new("sh").args(["-c", script, "sh"]).args(run).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains("result.json: File too large"), "{}", err(&output));
    assert_eq!(std::fs::read_to_string(&result).unwrap(), good);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "no temporary file is left");
}

#[test]
fn result_is_written_through_symlinks_and_to_devices() {
    use std::os::unix::fs::PermissionsExt;

    let (directory, file) = config("small.json", SMALL);
    let [result, link] = ["result.json", "link.json"].map(|name| directory.path().join(name));
    std::fs::write(&result, "old").unwrap();
    std::fs::set_permissions(&result, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&result, &link).unwrap();
    let run =
        |to: &Path| flashwright(&["bench", &file, "--validate", "--quiet", "--json", to.to_str().unwrap()]);
    assert_eq!(run(&link).status.code(), Some(0));
    assert!(link.is_symlink());
    assert!(std::fs::read_to_string(&result).unwrap().contains("\"valid\": true"));
    assert_eq!(std::fs::metadata(&result).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(run(Path::new("/dev/null")).status.code(), Some(0));
    let full = run(Path::new("/dev/full"));
    assert!(full.status.code() == Some(2) && err(&full).contains("/dev/full"), "{}", err(&full));
}

/// Catches a regression: validation does not check the device.
#[test]
fn validation_rejects_unusable_devices() {
    let (directory, file) = config("small.json", SMALL);
    let at = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(at("page.html"), "<html>").unwrap();
    std::fs::write(at("plain"), [0; 4096]).unwrap();
    for (device, set, said) in [
        ("/dev/nonexist", None, "/dev/nonexist: no such device"),
        (&at("no/where/x"), None, "/no: No such file"),
        (&at("no/"), None, "no/: no such directory"),
        (&at("no/x/"), None, "no/x/: no such directory"),
        (&at("page.html"), None, "page.html holds data that is not a cache's"),
        (&at("new"), Some("cache_config.deviceEnableFDP=true"), "no placement"),
        (&at("plain"), Some("cache_config.deviceEnableFDP=true"), "no placement"),
    ] {
        let set = set.map_or(vec![], |set| vec!["--set", set]);
        let flags = [&["bench", &file, "--device", device][..], &set].concat();
        let [validated, run] =
            [&["--validate"][..], &[]].map(|more| flashwright(&[&flags[..], more].concat()));
        assert_eq!((validated.status.code(), run.status.code()), (Some(2), Some(2)), "{device}");
        assert!(err(&validated).contains(said), "{device}: {}", err(&validated));
        assert_eq!(err(&validated), err(&run));
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3, "no file is created");
    assert_eq!(flashwright(&["bench", &file, "--device", &at("new"), "--validate"]).status.code(), Some(0));
    assert!(!Path::new(&at("new")).exists());
    let elsewhere = ["--set", "cache_config.nvmCachePaths=[\"/dev/nonexist\"]", "--validate"];
    let elsewhere = flashwright(&[&["bench", &file][..], &elsewhere].concat());
    assert_eq!(elsewhere.status.code(), Some(2), "same exit code as a run");
    assert!(out(&elsewhere).contains("but a run would stop here"), "{}", out(&elsewhere));
    let lines: Vec<String> = err(&elsewhere).lines().map(str::to_owned).collect();
    assert!(
        lines.len() == 1 && lines[0].contains("/dev/nonexist: no such device"),
        "one line for one device: {lines:?}"
    );
}

/// Catches a regression: a memory device is accepted silently.
#[test]
fn measuring_a_memory_device_as_flash_warns() {
    let (_directory, file) = config("small.json", SMALL);
    let Ok(shared) = tempfile::tempdir_in("/dev/shm") else { return println!("SKIPPED: no /dev/shm") };
    let device = shared.path().join("flash").display().to_string();
    let flags = ["bench", &file, "--device", &device, "--set", "cache_config.flashBuffered=true"];
    for more in [&["--validate"][..], &["--set", "test_config.numOps=10"]] {
        let output = flashwright(&[&flags[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let message = format!("{device}: is in memory (tmpfs)");
        assert!(err(&output).contains(&message), "{}", err(&output));
    }
}

#[test]
fn validation_reports_the_errors_of_a_run() {
    let (directory, file) = config("small.json", SMALL);
    let traces = format!("test_config.traceFileNames=[{:?}]", directory.path());
    let replay = [
        "--set",
        "test_config.generator=replay",
        "--set",
        "test_config.checkConsistency=false",
        "--set",
        &traces,
    ];
    for (flags, said) in [
        (&["--set", "cache_config.deviceEnableFDP=true"][..], "memory: no placement"),
        (
            &["--scale", "1/1000000"],
            "--scale 1/1000000: is too large a divisor for cache_config.nvmCacheSizeMB",
        ),
        (&replay, "test_config.traceFileNames: "),
    ] {
        for validate in [&[][..], &["--validate"]] {
            let output = flashwright(&[&["bench", &file][..], flags, validate].concat());
            assert!(output.status.code() == Some(2) && err(&output).contains(said), "{}", err(&output));
        }
    }
}

/// Catches a regression: the cache is reported as killed although it was closed.
#[test]
fn run_on_a_closed_persistent_cache_does_not_report_a_crash() {
    let (directory, file) = config("small.json", &SMALL.replace("\"checkConsistency\": true,", ""));
    let paths = format!("cache_config.nvmCachePaths=[{:?}]", directory.path().join("flash"));
    let state = format!("cache_config.cacheDir={}", directory.path().join("state").display());
    let run = |more: &[&str]| {
        let sets = ["--set", &paths, "--set", "cache_config.flashBuffered=true"];
        let output = flashwright(&[&["bench", &file][..], &sets, more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    };
    run(&["--set", &state]);
    run(&[]);
    let message = run(&["--set", &state]);
    assert!(
        message.contains("the earlier process was killed, failed, or ran with a setting that keeps no cache"),
        "{message}"
    );
}
