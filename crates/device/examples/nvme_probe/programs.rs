//! The `flashwright` program on drives: info, trim, precondition, wear, and a hybrid bench with placement.

use std::path::Path;
use std::process::{Command, Output};

use flashwright_device::Device;
use serde_json::Value;

use crate::drives::{
    BLOCK_BYTES, Drives, GROUPS, PLACING, PLAIN, SINGLE, UNIT_BYTES, blocks_left, has_write_streams,
    renew_all,
};
use crate::{Check, Verdict};

const FLASHWRIGHT: &str = "/bin/flashwright";
const CONFIG: &str = "/bench.json";
const UNIT_BLOCKS: u64 = UNIT_BYTES / BLOCK_BYTES;

pub const CHECKS: &[Check] = &[
    ("ssd info reports placement and missing requirements", info),
    ("ssd wear agrees with the statistics page to the byte", wear),
    ("ssd trim and precondition refuse a mounted drive, by either path", mounted),
    ("ssd trim deallocates everything", trim),
    ("ssd precondition writes the reported bytes", precondition),
    ("a hybrid bench uses only its handles", |drives| {
        bench(drives, &[PLACING], &drives.generic(PLACING).display().to_string())
    }),
    ("a hybrid bench on a stripe of two drives places on both", |drives| {
        let paths = [PLACING, GROUPS].map(|serial| format!("{:?}", drives.generic(serial)));
        bench(drives, &[PLACING, GROUPS], &format!("[{}]", paths.join(",")))
    }),
    ("a hybrid bench places by write streams", |drives| {
        if !has_write_streams(drives) {
            return Verdict::DoesNotApply("this kernel has no write streams");
        }
        bench(drives, &[PLACING], &drives.block(PLACING).display().to_string())
    }),
    ("two instances on one drive report its media writes together, and one of them uses placement", shared),
    ("a bench without placement uses only the default handle", unplaced),
];

fn flashwright(arguments: &[&str]) -> Output {
    Command::new(FLASHWRIGHT).args(arguments).output().expect("the program is in the guest")
}

/// The JSON result and the exit code.
fn result(arguments: &[&str]) -> (Value, i32) {
    let output = flashwright(&[arguments, &["--json", "-"]].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {message}"));
    (value, output.status.code().expect("it exited"))
}

fn info(drives: &Drives) -> Verdict {
    for path in [drives.generic(PLACING), &drives.block(PLACING)] {
        let (result_json, code) = result(&["ssd", "info", path.to_str().unwrap()]);
        let placement = &result_json["nvme"]["placement"];
        assert_eq!((code, &placement["state"]), (0, &"ready".into()));
        assert_eq!(placement["handles"].as_array().unwrap().len(), 4);
        assert_eq!(placement["configuration"]["reclaim_unit_bytes"], 4 << 20);
        assert_eq!(result_json["nvme"]["serial"], PLACING);
        assert!(result_json["in_use"].is_null());
    }
    let (result_json, code) = result(&["ssd", "info", drives.generic(PLAIN).to_str().unwrap()]);
    let placement = &result_json["nvme"]["placement"];
    assert_eq!((code, &placement["state"]), (0, &"not capable".into()));
    assert!(placement["missing"].is_string() && result_json["nvme"]["wear"]["media_written_bytes"].is_null());
    let (result_json, _) = result(&["ssd", "info", drives.generic(SINGLE).to_str().unwrap()]);
    assert_eq!(result_json["nvme"]["placement"]["state"], "single handle");
    Verdict::Held
}

fn wear(drives: &Drives) -> Verdict {
    let expected = drives.drive(PLACING).fdp_statistics(1).unwrap();
    let device = drives.generic(PLACING).to_str().unwrap();
    let (result_json, code) =
        result(&["ssd", "wear", device, "--every", "50ms", "--count", "3", "--csv", "/tmp/wear.csv"]);
    let samples = result_json["samples"].as_array().unwrap();
    assert_eq!((code, samples.len()), (0, 3));
    for sample in samples {
        assert_eq!(u128::from(sample["host_written_bytes"].as_u64().unwrap()), expected.host_written_bytes);
        assert_eq!(u128::from(sample["media_written_bytes"].as_u64().unwrap()), expected.media_written_bytes);
        assert!(sample["dlwa_since_first"].is_null(), "nothing was written in between");
    }
    assert_eq!(std::fs::read_to_string("/tmp/wear.csv").unwrap().lines().count(), 4);
    Verdict::Held
}

fn mounted(drives: &Drives) -> Verdict {
    let block = drives.block(PLAIN);
    run("mke2fs", &["-b", "4096", block.to_str().unwrap()]);
    std::fs::create_dir_all("/tmp/mounted").unwrap();
    run("mount", &["-t", "ext4", block.to_str().unwrap(), "/tmp/mounted"]);
    for path in [drives.generic(PLAIN), &block] {
        for command in ["trim", "precondition"] {
            let output = flashwright(&["ssd", command, path.to_str().unwrap(), "--yes"]);
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{message}");
            assert!(message.contains("mounted on /tmp/mounted"), "{message}");
        }
    }
    let (result_json, _) = result(&["ssd", "info", block.to_str().unwrap()]);
    assert_eq!(result_json["in_use"], "mounted on /tmp/mounted");
    run("umount", &["/tmp/mounted"]);
    Verdict::Held
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(Path::new("/bin").join(program)).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

fn trim(drives: &Drives) -> Verdict {
    for path in [drives.generic(SINGLE), &drives.block(SINGLE)] {
        let (result_json, code) = result(&["ssd", "trim", path.to_str().unwrap(), "--yes"]);
        assert_eq!((code, result_json["trimmed_bytes"].as_u64()), (0, Some(64 << 20)));
    }
    Verdict::Held
}

/// Whether an emulated drive on a busy machine becomes steady is chance: only the exit code and the result must agree.
fn precondition(drives: &Drives) -> Verdict {
    let drive = drives.drive(SINGLE);
    let before = drive.fdp_statistics(1).unwrap().host_written_bytes;
    let path = drives.generic(SINGLE).to_str().unwrap();
    let (result_json, code) = result(&["ssd", "precondition", path, "--yes", "--max-passes", "1.5"]);
    assert_eq!(code, i32::from(!result_json["steady"].as_bool().unwrap()));
    let rounds = result_json["rounds"].as_array().unwrap();
    assert!(rounds.iter().all(|round| round["dlwa"].as_f64().is_some_and(|dlwa| dlwa >= 1.0)), "{rounds:?}");
    let written: u64 = rounds.iter().map(|round| round["written_bytes"].as_u64().unwrap()).sum();
    let after = drive.fdp_statistics(1).unwrap().host_written_bytes;
    assert_eq!(after - before, u128::from(written));
    Verdict::Held
}

/// Runs the bench on `paths` and compares its counters with those of the drives.
fn bench(drives: &Drives, serials: &[&str], paths: &str) -> Verdict {
    let host_bytes = |serial: &&str| drives.drive(serial).fdp_statistics(1).unwrap().host_written_bytes;
    let host_bytes = || serials.iter().map(host_bytes).sum::<u128>();
    let left = || serials.iter().map(|serial| blocks_left(&drives.drive(serial))).collect::<Vec<_>>();
    serials.iter().for_each(|serial| renew_all(&drives.placed(serial)));
    let (host_bytes_before, left_before) = (host_bytes(), left());
    let paths = if paths.starts_with('[') { paths.to_owned() } else { format!("[{paths:?}]") };
    let paths = format!("cache_config.nvmCachePaths={paths}");
    let (result_json, code) = result(&["bench", CONFIG, "--quiet", "--set", &paths]);
    assert_eq!(code, 0, "{}", result_json["verdict"]);
    let totals = &result_json["totals"];
    let (host, media) = (number(totals, "flash_bytes_host"), number(totals, "flash_bytes_media"));
    // Writes in flight when the figures were taken reach the drive later and are not counted.
    let written = host_bytes() - host_bytes_before;
    let late = written.checked_sub(host.into()).expect("only written bytes are counted");
    assert!(media >= host && late < u128::from(host));
    let by_engine = |name| number(&totals["details"], name);
    assert!(by_engine("navy_bh_physical_written") > 0 && by_engine("navy_bc_physical_written") > 0);
    assert_eq!((&totals["io_errors"], &totals["inconsistencies"]), (&0.into(), &0.into()));
    let given: Vec<(&str, u64)> = totals["placement"].as_array().unwrap().iter().map(consumer).collect();
    assert_eq!(given, [("loc", 1), ("soc", 2)]);
    engines_kept_to_their_handles(written as u64, &left_before, &left());
    Verdict::Held
}

/// The remaining blocks of a handle's unit show the bytes written with it, modulo whole units. The default handle has only the few blocks
/// that no engine writes; the third has none; the two engines' have the rest.
fn engines_kept_to_their_handles(written_bytes: u64, before: &[Vec<u64>], after: &[Vec<u64>]) {
    const FEW_BLOCKS: u64 = 256;
    let taken = |handle: usize| {
        let drives = before.iter().zip(after);
        drives.map(|(before, after)| UNIT_BLOCKS + before[handle] - after[handle]).sum::<u64>() % UNIT_BLOCKS
    };
    let [by_default, by_loc, by_soc, by_nobody] = [0, 1, 2, 3].map(taken);
    assert!(by_default < FEW_BLOCKS && by_nobody == 0, "{by_default} by default, {by_nobody} by the third");
    let blocks = written_bytes / BLOCK_BYTES;
    assert_eq!((by_default + by_loc + by_soc) % UNIT_BLOCKS, blocks % UNIT_BLOCKS, "blocks of all handles");
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name} is {}", of[name]))
}

fn consumer(given: &Value) -> (&str, u64) {
    (given["consumer"].as_str().unwrap(), given["handle"].as_u64().unwrap())
}

/// Two instances share a drive, which only their total can report: separately, their media writes are unknown. One of them uses placement.
fn shared(drives: &Drives) -> Verdict {
    let block_path = drives.block(PLACING);
    let name = block_path.file_name().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(CONFIG).unwrap();
    let mut placing: Value = serde_json::from_str(&text).unwrap();
    placing["cache_config"]["nvmCacheSizeMB"] = 48.into();
    placing["cache_config"]["nvmCachePaths"] = vec![drives.generic(PLACING).to_str().unwrap()].into();
    placing["test_config"]["numOps"] = 10_000.into();
    for list in [vec![name], Vec::new()] {
        placing["cache_config"]["writeAmpDeviceList"] = list.into();
        let mut plain = placing.clone();
        plain["cache_config"]["deviceEnableFDP"] = false.into();
        let config = "/tmp/shared.json";
        std::fs::write(config, Value::from(vec![placing.clone(), plain]).to_string()).unwrap();
        let written = || drives.drive(PLACING).fdp_statistics(1).unwrap().media_written_bytes;
        let before = written();
        let (result_json, code) = result(&["bench", config, "--quiet"]);
        let by_drive = written() - before;
        assert_eq!(code, 0, "{}", result_json["verdict"]);
        let instances = result_json["instances"].as_array().unwrap();
        let handles: Vec<usize> =
            instances.iter().map(|it| it["placement"].as_array().unwrap().len()).collect();
        assert_eq!(handles, [2, 0]);
        assert!(instances.iter().all(|it| it["flash_bytes_media"].is_null()), "{instances:?}");
        let totals = &result_json["totals"];
        let (host, media) = (number(totals, "flash_bytes_host"), number(totals, "flash_bytes_media"));
        assert!(media >= host && u128::from(media) <= by_drive, "{host} {media} {by_drive}");
    }
    Verdict::Held
}

fn unplaced(drives: &Drives) -> Verdict {
    renew_all(&drives.placed(PLACING));
    let before = blocks_left(&drives.drive(PLACING));
    let device = drives.generic(PLACING).to_str().unwrap();
    let off = "cache_config.deviceEnableFDP=false";
    let (result_json, code) = result(&["bench", CONFIG, "--quiet", "--device", device, "--set", off]);
    assert_eq!((code, &result_json["totals"]["placement"]), (0, &Value::Array(Vec::new())));
    assert_eq!(blocks_left(&drives.drive(PLACING))[1..], before[1..]);
    assert_eq!(drives.placed(PLACING).geometry().placement_handles, 3);
    Verdict::Held
}
