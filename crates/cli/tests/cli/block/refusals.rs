//! Refused commands: their messages, and no files or changes left behind.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::{Client, Place, printed};
use crate::loop_device::LoopDevice;
use crate::{flashwright, result};

/// A cache that is not closed would lose clean state, such as all blocks of a write-through cache.
#[test]
fn failed_server_start_leaves_the_cache_closed_and_no_recording() {
    let place = Place::new();
    place.serve().stop();
    let closed = || {
        let mut status = place.command("status", false);
        status.arg("--flash").arg(place.path("flash")).args(&place.flags);
        let status = status.args(["--json", "-", "--quiet"]).output().unwrap();
        let figures: Value =
            serde_json::from_slice(&status.stdout).unwrap_or_else(|_| panic!("{}", printed(&status)));
        figures["state"]["closed"].clone()
    };
    assert_eq!(closed(), true);
    std::fs::write(place.path("plain"), "no socket").unwrap();
    let names = ["no/where", "plain", "s", "recording"].map(|name| place.path(name));
    let [nowhere, plain, ready, recording] = names.each_ref().map(|path| path.to_str().unwrap());
    for fronts in [
        vec!["--socket", nowhere],
        vec!["--socket", plain],
        vec!["--socket", ready, "--control", nowhere],
        vec!["--socket", ready, "--fuse", nowhere],
        vec!["--socket", ready, "--fuse", plain],
    ] {
        let refused = place.run("serve", &[&fronts[..], &["--record", recording]].concat(), true);
        assert_eq!(refused.status.code(), Some(2), "{fronts:?}: {}", printed(&refused));
        assert_eq!(closed(), true, "{fronts:?}");
        assert!(!Path::new(recording).exists(), "{fronts:?}");
    }
}

/// The mount would hide the server's own sockets, or another server's file.
#[test]
fn mount_that_hides_files_is_refused() {
    let place = Place::new();
    let (full, socket) = (place.path("full"), place.path("full/s"));
    std::fs::create_dir(&full).unwrap();
    let fronts = ["--socket", socket.to_str().unwrap(), "--fuse", full.to_str().unwrap()];
    let refused = place.run("serve", &fronts, true);
    assert_eq!(refused.status.code(), Some(2));
    let said = printed(&refused);
    assert!(said.contains("is not empty: s") && said.contains("would become unreachable"), "{said}");
    assert_eq!(std::fs::read_dir(&full).unwrap().count(), 0);
}

#[test]
fn flash_of_a_cache_is_refused_as_a_disk() {
    let place = Place::new();
    let flash = place.path("flash");
    let alone = ["--disk", flash.to_str().unwrap(), "--socket", "s"];
    let refused = place.command("serve", false).args(alone).args(&place.flags).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(printed(&refused).contains("is the flash of the cache"), "{}", printed(&refused));
}

#[test]
fn swapped_flash_and_disk_are_detected_before_writing() {
    let place = Place::new();
    let ask = |flash: &str, disk: &str| {
        let devices = ["--flash", flash, "--disk", disk, "--associativity", "64", "--yes"];
        let mut command = place.command("create", false);
        let output = command.args(devices).args(&place.flags).current_dir(place.directory.path()).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
        printed(&output)
    };
    let said = ask("disk", "flash");
    assert!(said.contains("are flash and disk swapped?"), "{said}");
    std::fs::write(place.path("blank"), vec![0; 8 << 20]).unwrap();
    let said = ask("blank", "flash");
    assert!(said.contains("--disk flash: is the flash of the cache "), "{said}");
    assert!(std::fs::read(place.path("disk")).unwrap().iter().all(|&byte| byte == 0), "nothing was written");
    // Otherwise a --force meant for the cache would destroy the disk.
    for (command, more) in [
        ("serve", &["--socket", "s"][..]),
        ("check", &[]),
        ("flush", &[]),
        ("destroy", &["--force", "--yes"]),
    ] {
        let mut command = place.command(command, false);
        command.args(["--flash", "disk", "--disk", "flash"]).args(more).args(&place.flags);
        let said = printed(&command.current_dir(place.directory.path()).output().unwrap());
        assert!(said.contains("the disk is the flash of a cache: are they swapped?"), "{said}");
    }
    let mut file_system = vec![0; 8 << 20];
    file_system[1080..1082].copy_from_slice(b"\x53\xef");
    std::fs::write(place.path("ext4"), &file_system).unwrap();
    let said = ask("ext4", "disk");
    assert!(said.contains("--flash ext4: holds an ext2, ext3 or ext4 file system"), "{said}");
    assert!(std::fs::read(place.path("ext4")).unwrap() == file_system);
}

#[test]
fn disk_with_an_unreachable_end_is_refused() {
    let place = Place::new();
    std::fs::write(place.path("odd"), vec![7; (1 << 20) + 1]).unwrap();
    std::fs::write(place.path("blank"), vec![0; 8 << 20]).unwrap();
    let created = ["--flash", "blank", "--disk", "odd", "--associativity", "64", "--yes"];
    let served = ["--disk", "odd", "--socket", "s"];
    for (command, flags) in [("create", &created[..]), ("serve", &served)] {
        let mut command = place.command(command, false);
        command.args(flags).args(&place.flags).current_dir(place.directory.path());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = printed(&output);
        assert!(said.contains("--disk odd: its last byte does not fill a block of "), "{said}");
    }
}

#[test]
fn failed_create_leaves_no_files() {
    let place = Place::new();
    for refused in [
        &["--associativity", "32768"][..],
        &["--mode", "write-through", "--ordered"],
        &["--disk-size", "1000"],
        &["--flash-size", "4TiB"],
    ] {
        let files = ["--flash", "new", "--disk", "slow", "--flash-size", "8MiB", "--disk-size", "8MiB"];
        let files: Vec<_> = files.chunks(2).filter(|pair| pair[0] != refused[0]).flatten().collect();
        let mut command = place.command("create", false);
        let output =
            command.args(files).args(refused).args(&place.flags).current_dir(place.directory.path()).output();
        assert_eq!(output.unwrap().status.code(), Some(2), "{refused:?}");
        assert!(!place.path("new").exists() && !place.path("slow").exists(), "{refused:?}");
    }
    let mut command = place.command("create", false);
    let files = ["--flash", "flash", "--disk", "slow", "--disk-size", "8MiB", "--yes"];
    command.args(files).args(&place.flags).current_dir(place.directory.path());
    assert_eq!(command.output().unwrap().status.code(), Some(2), "there is a cache");
    assert!(place.path("flash").exists() && !place.path("slow").exists(), "existing files stay");
}

#[test]
fn flash_file_space_is_reserved_and_disk_file_is_sparse() {
    let place = Place::new();
    let taken = |name| std::fs::metadata(place.path(name)).unwrap().blocks() * 512;
    assert!(taken("flash") >= 8 << 20, "{}", taken("flash"));
    assert!(taken("disk") < 32 << 20, "{}", taken("disk"));
}

#[test]
fn regular_file_is_never_replaced_by_a_socket() {
    let place = Place::new();
    std::fs::write(place.path("mine"), "mine").unwrap();
    let (mine, socket) = (place.path("mine"), place.path("s"));
    for (fronts, flag) in [
        (vec![("--socket", &mine)], "--socket"),
        (vec![("--socket", &socket), ("--control", &mine)], "--control"),
    ] {
        let mut command = place.command("serve", true);
        fronts.iter().for_each(|(flag, path)| {
            command.arg(flag).arg(path);
        });
        let refused = command.output().unwrap();
        let text = format!("error: {flag} {}: exists and is not a socket\n", mine.display());
        assert_eq!((refused.status.code(), printed(&refused)), (Some(2), text));
        assert_eq!(std::fs::read(&mine).unwrap(), b"mine");
    }
    // Sockets left by a killed server do not stop the next one.
    place.serve().kill();
    assert!(socket.exists());
    let server = place.serve();
    let second = place
        .command("serve", false)
        .arg("--disk")
        .arg("memory:1MiB")
        .arg("--socket")
        .arg(&socket)
        .output()
        .unwrap();
    assert!(printed(&second).contains("another server is listening there"), "{}", printed(&second));
    server.stop();
}

#[test]
fn check_reports_a_foreign_disk() {
    let place = Place::new();
    std::fs::write(place.path("other"), vec![0; 16 << 20]).unwrap();
    let mut command = place.command("check", false);
    command.args(["--flash", "flash", "--disk", "other", "--json", "result"]).args(&place.flags);
    let checked = command.current_dir(place.directory.path()).output().unwrap();
    assert_eq!(checked.status.code(), Some(1));
    let said = printed(&checked);
    assert!(said.starts_with("the disk is not the cache's"), "{said}");
    assert!(said.contains("it has 16777216 bytes, not 33554432") && !said.contains("0 blocks"), "{said}");
    // Catches a regression: the error names the size of the right disk.
    let its = place.path("disk").canonicalize().unwrap();
    let its = format!("does not match the cache, whose disk was {}", its.display());
    assert!(said.contains(&its), "{said}");
    let result: Value = serde_json::from_slice(&std::fs::read(place.path("result")).unwrap()).unwrap();
    assert_eq!((result["found"].is_null(), &result["refused"]), (true, &Value::from("wrong-disk")));
}

#[test]
fn read_only_devices_can_be_checked_but_not_served() {
    let place = Place::new();
    let attach = |name: &str| LoopDevice::attach(&place.path(name), &["--read-only"]);
    let Some(flash) = attach("flash") else { return };
    let disk = attach("disk").expect("the flash got a loop device");
    let both = ["--flash", &flash.0, "--disk", &disk.0];
    let [checked, full, served] = [("check", None), ("check", Some("--full")), ("flush", None)]
        .map(|(command, more)| place.run(command, &[&both, more.as_slice()].concat(), false));
    let status = place.run("status", &both[..2], false);
    for done in [checked, full, status] {
        assert_eq!(done.status.code(), Some(0), "{}", printed(&done));
    }
    assert!(printed(&served).contains(&format!("{} is write-protected", flash.0)), "{}", printed(&served));
}

#[test]
fn truncated_control_request_changes_nothing() {
    let place = Place::new();
    let server = place.serve();
    let long = format!("set {}dirty_percent=100\n", "idle_seconds=900 ".repeat(1200));
    for request in ["set dirty_percent=10", &long] {
        let mut stream = UnixStream::connect(place.path("s.control")).unwrap();
        let _ = stream.write_all(request.as_bytes());
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(!answer.contains("done"), "{answer}");
    }
    assert_eq!(place.status()["tuning"]["dirty_percent"], 70);
    server.stop();
}

/// Catches a regression: at its end the server connects to the other server's socket to wake its own thread, waits
/// forever, and would remove that socket.
#[test]
fn server_with_a_replaced_control_socket_ends_and_keeps_the_new_one() {
    let place = Place::new();
    let server = place.serve();
    let path = place.path("s.control");
    std::fs::remove_file(&path).unwrap();
    let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    server.stop();
    assert!(UnixStream::connect(&path).is_ok(), "the socket still exists");
}

/// Catches a regression: the second writer writes back settings that it read before the first one's change.
#[test]
fn concurrent_setting_changes_all_take_effect() {
    let place = Place::new();
    let server = place.serve();
    let set = |name: &str, value: u32| {
        let mut stream = UnixStream::connect(place.path("s.control")).unwrap();
        writeln!(stream, "set {name}={value}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("done"), "{answer}");
    };
    for value in 1..=20 {
        std::thread::scope(|scope| {
            for name in ["dirty_percent", "idle_seconds", "lazy_depth"] {
                scope.spawn(move || set(name, value));
            }
        });
        let tuning = &place.status()["tuning"];
        for name in ["dirty_percent", "idle_seconds", "lazy_depth"] {
            assert_eq!(tuning[name], value, "{name}");
        }
    }
    server.stop();
}

#[test]
fn cache_is_not_overwritten_without_force() {
    let place = Place::new();
    let again = place.run("create", &["--yes"], true);
    assert_eq!(again.status.code(), Some(2));
    assert!(
        printed(&again).contains("already holds the cache") && printed(&again).contains("--force"),
        "{}",
        printed(&again)
    );
    let server = place.serve();
    let busy = place.run("check", &[], true);
    assert!(printed(&busy).contains("is in use: process"), "{}", printed(&busy));
    for (command, more) in
        [("check", &[][..]), ("flush", &[]), ("upgrade", &[]), ("set", &["mode=write-back"])]
    {
        let busy = place.run(command, more, true);
        assert!(
            printed(&busy).contains("if it is being served, reach the server with --socket"),
            "{}",
            printed(&busy)
        );
    }
    Client::connect(&place.path("s")).call(1, 0, 4096, &[1; 4096]);
    server.stop();
    let unconfirmed = place.run("destroy", &[], true);
    assert!(
        printed(&unconfirmed).contains("1 block is newer here than on the disk"),
        "{}",
        printed(&unconfirmed)
    );
    let checked = place.run("check", &["--full"], true);
    assert_eq!(checked.status.code(), Some(0), "{}", printed(&checked));
    let flushed = place.run("flush", &[], true);
    assert!(flushed.status.success(), "{}", printed(&flushed));
    let unconfirmed = place.run("destroy", &[], true);
    assert!(printed(&unconfirmed).contains("--yes"), "{}", printed(&unconfirmed));
    assert!(place.run("destroy", &["--yes"], true).status.success());
    let gone = place.run("check", &[], true);
    assert_eq!(gone.status.code(), Some(2));
    assert!(printed(&gone).contains("no cache"), "{}", printed(&gone));
}

#[test]
fn usage_errors_report_the_reason() {
    let place = Place::new();
    for (command, more, text) in [
        (
            "create",
            &["--mode", "write-bakc"][..],
            "--mode: unknown mode \"write-bakc\"; did you mean write-back?",
        ),
        ("create", &["--policy", "mru"], "--policy: unknown policy"),
        ("create", &["--block-size", "3000"], "--block-size 3000: must be a power of two from 4096 to 65536"),
        ("create", &["--associativity", "32769"], "--associativity 32769: must be from 1 to 32768"),
        (
            "create",
            &["--associativity", "9"],
            "--associativity 9: makes sets of 36864 bytes, less than the runs of 65536 that the preset keeps together in \
             one; give --run-size 32768 (or less), or at least --associativity 16",
        ),
        (
            "create",
            &["--associativity", "8", "--run-size", "64KiB"],
            "--run-size 65536: must be a power of two from 4096 (a block) to 32768 (a set)",
        ),
        (
            "create",
            &["--set", "policy=lru2q", "--set", "reclaim_policy=0"],
            "--set reclaim_policy=0: contradicts --set policy=lru2q",
        ),
        (
            "create",
            &["--set", "mode=write-around", "--mode", "write-back"],
            "--set mode=write-around: contradicts --mode write-back",
        ),
        ("set", &["policy=lru2q", "reclaim_policy=0"], "reclaim_policy=0: contradicts policy=lru2q"),
        (
            "create",
            &["--placement", "linear", "--run-size", "64KiB"],
            "--run-size: has no effect with --placement linear",
        ),
        (
            "create",
            &["--preset", "v2", "--run-size", "64KiB"],
            "--run-size: has no effect with the preset's placement",
        ),
        (
            "create",
            &["--set", "dirty_percent=300"],
            "--set dirty_percent=300: must be a whole number from 0 to 100",
        ),
        ("create", &["--format", "3"], "--format 3: this version writes formats 1 to 2"),
        ("create", &["--disk-size", "5MiB"], "--disk-size 5242880: "),
        ("set", &["lazy_depth=-1"], "lazy_depth=-1: must be a whole number from 0 to 4294967295"),
        ("serve", &[], "--socket PATH or --listen ADDRESS:PORT"),
        ("serve", &[], "--ublk NUMBER (a block device), --fuse DIRECTORY (a file)"),
        ("serve", &["--socket", "s", "--connections", "0"], "must be a whole number from 1 to 4096"),
        ("serve", &["--socket", "s", "--name", ""], "must be usable as a file name: 1 to 200 bytes"),
        ("serve", &["--socket", "s", "--name", "a/b"], "must be usable as a file name: 1 to 200 bytes"),
        ("serve", &["--listen", "0.0.0.0:0"], "--allow-remote"),
        ("serve", &["--listen", "localhost:1"], "must be an IP address and a port, like 127.0.0.1:10809"),
        ("serve", &["--socket", "/nowhere/s"], "/nowhere/s"),
    ] {
        let output = place.run(command, more, true);
        assert_eq!(output.status.code(), Some(2), "{command} {more:?}: {}", printed(&output));
        assert!(printed(&output).contains(text), "{command} {more:?}: {}", printed(&output));
    }
    let same = place.command("check", false).arg("--flash").arg("a").arg("--disk").arg("a").output().unwrap();
    assert!(printed(&same).contains("cannot be both the flash and the disk"), "{}", printed(&same));
    std::os::unix::fs::symlink(place.path("flash"), place.path("link")).unwrap();
    let mut same = place.command("check", false);
    same.args(["--flash", "flash", "--disk", "link"]).args(&place.flags).current_dir(place.directory.path());
    let said = printed(&same.output().unwrap());
    assert!(said.contains("flash, which is link, cannot be both the flash and the disk"), "{said}");
    for (flash, text) in [
        ("nowhere", "nowhere: does not exist; --flash-size SIZE creates it"),
        // Kinds of devices of other commands, and unknown ones.
        (
            "sim:test",
            "sim:test: needs a card and the device that has its bytes, as in sim:test:/tmp/flash.img; a device is named by PATH ",
        ),
        (
            "ssd:test",
            "ssd:test: does not exist; a device is named by PATH (a block device or a file), file:PATH, ",
        ),
        ("stripe:flash,b", "b: does not exist; --flash-size SIZE creates it"),
        // Catches a regression: such a name creates a file that cannot be served.
        (
            "memory:64MiB",
            "--flash memory:64MiB: is memory of this process, so the cache would be lost when the command ends",
        ),
    ] {
        let mut absent = place.command("create", false);
        absent.args(["--flash", flash, "--disk", "disk", "--yes"]).args(&place.flags);
        let absent = absent.current_dir(place.directory.path()).output().unwrap();
        assert!(absent.status.code() == Some(2) && printed(&absent).contains(text), "{}", printed(&absent));
    }
    let nothing = flashwright(&["block", "replay"]);
    assert!(printed(&nothing).contains("name a TRACE, or use --generate mysql8"), "{}", printed(&nothing));
}

/// `cargo xtask vm` tests a kernel with the driver.
#[test]
fn missing_ublk_driver_is_reported_with_the_remedy() {
    if Path::new("/dev/ublk-control").exists() {
        return;
    }
    let place = Place::new();
    let socket = place.path("s");
    let output = place.run("serve", &["--socket", socket.to_str().unwrap(), "--ublk", "0"], true);
    assert_eq!(output.status.code(), Some(2));
    assert!(printed(&output).contains("--ublk: /dev/ublk-control does not exist"), "{}", printed(&output));
    assert!(printed(&output).contains("modprobe ublk_drv"), "{}", printed(&output));
    assert!(!socket.exists(), "no server was started");
}

/// `--format` takes the format names of the other commands, and sizes are written as for `block create`.
#[test]
fn replay_accepts_the_format_block_csv_and_names_wrong_flags() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.csv");
    std::fs::write(&trace, "time_us,op,offset,bytes\n1,W,8192,4096\n2,R,8192,4096\n").unwrap();
    let replay = |more: &[&str]| flashwright(&[&["block", "replay", trace.to_str().unwrap()], more].concat());
    for format in ["auto", "block-csv", "plain"] {
        let reported = result(&replay(&["--format", format, "--cache-size", "64MiB", "--json", "-"]));
        assert_eq!(reported["trace"]["requests"], 2, "{format}");
        assert_eq!(reported["caches"][1]["geometry"]["placement"], "permuted");
        assert_eq!(reported["caches"][1]["tuning"]["hot_percent"], 75);
    }
    for (flags, text) in [
        (["--associativity", "0"], "--associativity 0: must be from 1 to 32768"),
        (["--block-size", "5000"], "--block-size 5000: must be a power of two"),
        // No cache can have blocks of this size.
        (["--block-size", "512"], "--block-size 512: must be a power of two from 4096 to 65536"),
        (["--set", "latency_gate_ms=5"], "--set latency_gate_ms: has no effect in a replay"),
        (["--run-size", "1KiB"], "--run-size 1024: must be a power of two from 4096 (a block)"),
        (["--cache-size", "2MB"], "--cache-size 2000000: is less than a set of 2097152 bytes"),
        (
            ["--cache-size", "900TiB"],
            "--cache-size 989560464998400: makes 471859200 sets; must be at least 1, with fewer than 2^32 blocks",
        ),
        (["--json", "/nowhere/result"], "writing /nowhere/result: No such file"),
        (["--figures", "/dev/null"], "--figures: cannot create the directory /dev/null: "),
    ] {
        let refused = replay(&flags);
        assert_eq!(refused.status.code(), Some(2), "{flags:?}");
        assert!(printed(&refused).contains(text), "{}", printed(&refused));
    }
    let contradicted = replay(&["--sweep", "hot-percent", "--set", "hot_percent=50"]);
    let text = "--set hot_percent=50: contradicts --sweep hot-percent";
    assert!(printed(&contradicted).contains(text), "{}", printed(&contradicted));
    let all_warm_up = replay(&["--warm-up", "2"]);
    assert_eq!(all_warm_up.status.code(), Some(1));
    assert!(printed(&all_warm_up).contains("no request was counted"), "{}", printed(&all_warm_up));
    // Catches a regression: a table of zeros precedes the error.
    std::fs::write(&trace, "time_us,op,offset,bytes\n").unwrap();
    let of_nothing = replay(&[]);
    assert_eq!(of_nothing.status.code(), Some(1));
    let said = printed(&of_nothing);
    assert!(said.contains("the trace has no requests") && !said.contains("ssd_writes"), "{said}");
}

/// Catches a regression: the cache is created or destroyed before the write of the result fails, or the result
/// overwrites the cache.
#[test]
fn unwritable_result_is_refused_before_devices_change() {
    let place = Place::new();
    let both = || ["flash", "disk"].map(|name| std::fs::read(place.path(name)).unwrap());
    let before = both();
    let commands: &[(&str, &[&str])] = &[
        ("create", &["--force", "--yes"]),
        ("destroy", &["--yes"]),
        ("check", &[]),
        ("flush", &[]),
        ("upgrade", &[]),
        ("set", &[]),
        ("set", &["dirty_percent=33"]),
        ("serve", &["--socket", "socket"]),
    ];
    for (command, more) in commands {
        for (result, reason) in [
            ("flash", "would overwrite the device"),
            ("./disk", "would overwrite the device"),
            ("absent/result", "writing absent/result"),
        ] {
            let mut line = place.command(command, true);
            line.args(*more).args(["--json", result]).current_dir(place.directory.path());
            let output = line.output().unwrap();
            let text = printed(&output);
            assert!(output.status.code() == Some(2) && text.contains(reason), "{command} {result}: {text}");
            assert!(both() == before, "{command} {result}");
        }
    }
}

/// Catches a regression: a result file overwrites the served disk. Only the server knows its devices.
#[test]
fn result_never_overwrites_a_served_device() {
    let place = Place::new();
    let server = place.serve();
    let both = || ["flash", "disk"].map(|name| std::fs::metadata(place.path(name)).unwrap().len());
    let before = both();
    for (command, more) in
        [("status", &[][..]), ("set", &["dirty_percent=33"]), ("flush", &[]), ("upgrade", &[])]
    {
        for device in ["flash", "./disk"] {
            let mut line = place.command(command, false);
            line.arg("--socket").arg(place.path("s")).args(more).args(["--json", device]);
            let output = line.current_dir(place.directory.path()).output().unwrap();
            let text = printed(&output);
            assert_eq!(output.status.code(), Some(2), "{command} {device}: {text}");
            assert!(text.contains("would overwrite the device /"), "{command} {device}: {text}");
        }
        let result = place.path("result");
        // The second time the file exists and is not a device.
        for _ in 0..2 {
            let output = place.ask(command, &[more, &["--json", result.to_str().unwrap()]].concat());
            assert!(output.status.success(), "{command}: {}", printed(&output));
        }
    }
    assert_eq!(both(), before);
    server.stop();
}

/// Catches a regression: the error is a failed "integral type conversion", or a file of 0 bytes is created first.
#[test]
fn impossible_file_size_is_rejected_with_the_limits() {
    let place = Place::new();
    for (size, why) in [
        ("18446744073709551615", "a file has at most 9223372036854775807 bytes"),
        ("9223372036854775807", "more than a file of this file system can have"),
        ("0", "must be at least 512 bytes, one block"),
    ] {
        for (flag, name) in [("--flash-size", "new"), ("--disk-size", "slow")] {
            let devices = ["--flash", if name == "new" { "new" } else { "flash" }];
            let devices = [&devices[..], &["--disk", if name == "slow" { "slow" } else { "disk" }]].concat();
            let mut line = place.command("create", false);
            line.args(devices).args([flag, size, "--force", "--yes"]);
            let output = line.current_dir(place.directory.path()).output().unwrap();
            let said = printed(&output);
            assert!(said.contains(&format!("{flag} {size}: {name}: {why}")), "{said}");
            assert!(!place.path(name).exists());
        }
    }
}
