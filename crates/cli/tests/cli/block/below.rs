//! Devices below a cache: stripes, and a model SSD.

use std::process::Command;

use serde_json::Value;

use super::{Client, FLASHWRIGHT, Place, printed};

/// Writes some blocks and flushes.
fn fill(place: &Place) {
    let mut client = Client::connect(&place.path("s"));
    for number in 0..40 {
        client.call(1, number * 300_000 / 4096 * 4096, 4096, &[number as u8 + 1; 4096]);
    }
    client.call(3, 0, 0, &[]);
}

fn is_there(place: &Place) -> bool {
    let mut client = Client::connect(&place.path("s"));
    (0..40).all(|number| {
        client.call(0, number * 300_000 / 4096 * 4096, 4096, &[]) == vec![number as u8 + 1; 4096]
    })
}

fn block(place: &Place, command: &str, flash: &str, disk: &str, more: &[&str]) -> (Option<i32>, String) {
    let mut text = place.command(command, false);
    text.args(["--flash", flash, "--disk", disk]).args(&place.flags).args(more);
    let output = text.current_dir(place.directory.path()).output().unwrap();
    (output.status.code(), printed(&output))
}

#[test]
fn stripes_are_accepted_and_their_members_checked() {
    let place = Place::new();
    let (flash, disk) = ("stripe:f1,f2,f3", "stripe:d1,d2");
    let sizes = ["--flash-size", "24MiB", "--disk-size", "32MiB", "--yes"];
    let (code, said) = block(&place, "create", flash, disk, &sizes);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(std::fs::metadata(place.path("f2")).unwrap().len(), 8 << 20);
    let server = place.serve_with(&["--flash", flash, "--disk", disk]);
    fill(&place);
    server.kill();
    for (flash, disk, text) in [
        ("stripe:f1,f3,f2", disk, "f3: is given as member 2 of its stripe, but is member 3"),
        ("stripe:f1,f2", disk, "f1: belongs to a stripe of 3 members, but 2 are given"),
        ("stripe:f1,f2,disk", disk, "disk: is not a member of a stripe of flash"),
        ("stripe:f1,f2,d1", disk, "have a device in common"),
        ("f1", disk, "f1: is member 1 of 3 of a stripe; name them all"),
        (flash, "d1", "bytes, not 33554432"),
        (disk, flash, "is not a member of a stripe of flash"),
        ("stripe:f1,f2,f3", "f2", "f2"),
    ] {
        let (code, said) = block(&place, "flush", flash, disk, &[]);
        assert!(code == Some(2) && said.contains(text), "{flash} {disk}: {said}");
    }
    let (_, marked) = block(&place, "status", flash, disk, &[]);
    if marked.contains("belongs to the cache") {
        let (code, said) = block(&place, "flush", flash, "stripe:d2,d1", &[]);
        assert!(code == Some(2) && said.contains("lacks the mark"), "{said}");
    }
    let (code, said) = block(&place, "create", "f1", "other", &["--disk-size", "1MiB", "--yes"]);
    assert!(code == Some(2) && said.contains("f1: holds a block cache"), "{said}");
    let server = place.serve_with(&["--flash", flash, "--disk", disk]);
    assert!(is_there(&place));
    server.stop();
    assert_eq!(block(&place, "flush", flash, disk, &[]).0, Some(0));
    let (code, said) = block(&place, "check", flash, disk, &["--full"]);
    assert!(code == Some(0) && said.contains("\nsound\n"), "{said}");
    let (code, said) = block(&place, "destroy", flash, disk, &["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let server = place.serve_with(&["--disk", disk]);
    assert!(is_there(&place), "the disk has all blocks");
    server.stop();
    let (code, said) = block(&place, "create", flash, disk, &["--yes"]);
    assert_eq!(code, Some(0), "no label of the stripe is left: {said}");
}

/// Catches a regression: the labels are written before the check, so a refused create destroys those of the old stripe.
#[test]
fn refused_create_leaves_stripe_labels_unchanged() {
    let place = Place::new();
    let (flash, disk) = ("stripe:f1,f2", "d1");
    let sizes = ["--flash-size", "16MiB", "--disk-size", "32MiB", "--yes"];
    assert_eq!(block(&place, "create", flash, disk, &sizes).0, Some(0));
    for wrong in [&["--ordered", "--mode", "write-through"][..], &["--associativity", "16384"]] {
        let (code, said) =
            block(&place, "create", "stripe:f2,f1", disk, &[wrong, &["--force", "--yes"]].concat());
        assert_eq!(code, Some(2), "{said}");
        let (code, said) = block(&place, "check", flash, disk, &[]);
        assert_eq!(code, Some(0), "{wrong:?}: {said}");
    }
}

/// Catches a regression: the members keep the labels of a stripe that is never created.
#[test]
fn failed_create_removes_stripe_labels() {
    let place = Place::new();
    for name in ["f1", "f2", "d"] {
        std::fs::File::create_new(place.path(name)).unwrap().set_len(8 << 20).unwrap();
    }
    // In blocks of 512 bytes: the labels fit below the limit, everything else does not.
    let limited = "trap '' XFSZ; ulimit -f 512; exec \"$0\" block create \"$@\"";
    let create = |text: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", text, FLASHWRIGHT, "--flash", "stripe:f1,f2", "--disk", "d", "--yes"]);
        let output = shell.args(&place.flags).current_dir(place.path("")).output().unwrap();
        (output.status.code(), printed(&output))
    };
    let (code, said) = create(limited);
    assert!(code == Some(2) && said.contains("writing a superblock"), "{said}");
    for name in ["f1", "f2"] {
        assert!(std::fs::read(place.path(name)).unwrap().iter().all(|byte| *byte == 0), "{name}");
    }
    let (code, said) = create("exec \"$0\" block create \"$@\"");
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn model_ssd_reports_write_amplification_and_keeps_data_in_a_file() {
    let place = Place::new();
    let (flash, disk) = ("sim:test:f", "hdd:d");
    let sizes = ["--flash-size", "8MiB", "--disk-size", "32MiB", "--yes"];
    let (code, said) = block(&place, "create", flash, disk, &sizes);
    assert_eq!(code, Some(0), "{said}");
    let server = place.serve_with(&["--flash", flash, "--disk", disk]);
    fill(&place);
    let status = place.status();
    let (flash_status, disk_status) = (&status["flash"], &status["disk"]);
    assert!(flash_status["bytes_host"].as_u64().unwrap() >= 40 * 4096, "{flash_status}");
    assert!(flash_status["bytes_media"].as_u64() >= flash_status["bytes_host"].as_u64(), "{flash_status}");
    assert!(flash_status["dlwa"].as_f64().unwrap() >= 1.0, "{flash_status}");
    assert_eq!((&disk_status["bytes_media"], &disk_status["dlwa"]), (&Value::Null, &Value::Null));
    server.stop();
    let server = place.serve_with(&["--flash", flash, "--disk", disk]);
    assert!(is_there(&place));
    server.stop();
    for (flash, text) in [
        ("sim:test", "needs a card and the device that has its bytes, as in sim:test:/tmp/flash.img"),
        ("sim:tset:f", "no such card; "),
    ] {
        let (code, said) = block(&place, "check", flash, disk, &[]);
        assert!(code == Some(2) && said.contains(text), "{said}");
    }
    assert_eq!(block(&place, "flush", "f", "d", &[]).0, Some(0), "the cache opens without the models");
}

#[test]
fn zero_stats_and_do_sync_work_and_unsupported_actions_are_explained() {
    let place = Place::new();
    let server = place.serve();
    fill(&place);
    let status = place.status();
    assert_eq!((&status["counters"]["writes"], &status["state"]["dirty_blocks"]), (&40.into(), &40.into()));
    assert_eq!(status["requests"]["write"]["iosize_hist"]["4096"], 40);
    assert!(status["requests"]["flush"]["latency_ns"]["p99"].as_u64().unwrap() > 0);
    let hot_and_warm = ["hot_blocks", "warm_blocks"].map(|name| status["state"][name].as_u64().unwrap());
    assert_eq!(hot_and_warm.iter().sum::<u64>(), 40);
    let prometheus = printed(&place.ask("status", &["--prometheus"]));
    assert!(prometheus.contains("kind=\"write\",le=\"4096\"} 40\n"), "{prometheus}");
    let said = printed(&place.ask("status", &[]));
    assert!(said.contains("\nrequests\n") && said.contains("40, 163840 bytes; us: mean "), "{said}");
    let set = place.ask("set", &["zero_stats=1", "do_sync=1"]);
    assert!(set.status.success(), "{}", printed(&set));
    while place.status()["state"]["dirty_blocks"] != 0 {
        std::thread::yield_now();
    }
    let status = place.status();
    assert_eq!(
        (&status["counters"]["writes"], &status["requests"]["write"]["requests"]),
        (&0.into(), &0.into())
    );
    assert_eq!(status["counters"]["cleanings"], 40);
    assert!(status["counted_seconds"].as_f64() < status["up_seconds"].as_f64());
    assert!(place.ask("set", &["stop_sync=1"]).status.success());
    server.stop();
    for (text, expected) in [
        ("zero_stats=1", "zero_stats=1: is for a cache that is being served"),
        ("fast_remove=1", "fast_remove: has no counterpart here: stop the server"),
    ] {
        let said = printed(&place.run("set", &[text], true));
        assert!(said.contains(expected), "{said}");
    }
}
