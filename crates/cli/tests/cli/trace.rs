//! `trace info`, `convert`, `generate` and `formats` as scripts use them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{FLASHWRIGHT, err, flashwright, json, out};

fn at(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn generated_trace_keeps_its_counts_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let made = at(folder.path(), "made.csv.zst");
    let generate = ["trace", "generate", "cdn", "--requests", "20000", "--seed", "7", "-o", &made];
    let result = json(&generate);
    assert_eq!((&result["command"], &result["seed"]), (&"trace generate cdn".into(), &7.into()));
    assert_eq!(
        (&result["config"]["requests"], &result["config"]["objects"]),
        (&20_000.into(), &6_000.into())
    );
    assert_eq!(result["written"]["accesses"], 20_000);
    let counts = |file: &str| {
        let info = json(&["trace", "info", file]);
        ["requests", "objects", "footprint_bytes", "compulsory_miss_ratio"].map(|key| info[key].clone())
    };
    let plain = counts(&made);
    assert_eq!(plain[0], 20_000);
    for (name, form, format) in [
        ("other.bin.gz", "oracle-general", "oracle-general"),
        ("other.bin", "oracle-general", "oracle-general"),
        ("other.tr.xz", "webcachesim", "webcachesim"),
        ("other.csv", "plain", "plain"),
    ] {
        let other = at(folder.path(), name);
        let converted = json(&["trace", "convert", &made, &other, "--to", form]);
        assert_eq!(converted["reading"]["format"], "plain");
        assert_eq!(counts(&other), plain, "{name}");
        assert_eq!(json(&["trace", "info", &other])["reading"]["format"], format);
    }
    let again = at(folder.path(), "again.csv.zst");
    json(&["trace", "generate", "cdn", "--requests", "20000", "--seed", "7", "-o", &again]);
    assert_eq!(std::fs::read(&made).unwrap(), std::fs::read(&again).unwrap());
}

#[test]
fn several_files_are_converted_into_one() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, both] = ["first.csv", "second.csv", "both.csv"].map(|name| at(folder.path(), name));
    std::fs::write(&first, "ts,key,op,size\n0,1,GET,5\n").unwrap();
    std::fs::write(&second, "ts,key,op,size\n1,2,SET,6\n").unwrap();
    json(&["trace", "convert", &first, &second, &both]);
    assert_eq!(std::fs::read_to_string(&both).unwrap(), "ts,key,op,size\n0,1,GET,5\n1,2,SET,6\n");
    let output = flashwright(&["trace", "convert", &first, &second, &first]);
    assert!(err(&output).contains("would overwrite the input"), "{}", err(&output));
}

/// Catches a regression: the text is lost silently.
#[test]
fn full_disk_on_standard_output_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(FLASHWRIGHT).args(["trace", "formats"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).starts_with("error: writing standard output: "), "{}", err(&output));
}

/// Catches a regression: the output is CSV with the name of a binary trace.
#[test]
fn converted_trace_has_the_format_of_its_name_or_flag() {
    let folder = tempfile::tempdir().unwrap();
    let made = at(folder.path(), "made.csv");
    json(&["trace", "generate", "zipf", "--requests", "1000", "--objects", "100", "-o", &made]);
    for (name, form) in [
        ("other.oracleGeneral.zst", "oracle-general"),
        ("other.tr", "webcachesim"),
        ("other.txt.gz", "plain"),
    ] {
        let other = at(folder.path(), name);
        json(&["trace", "convert", &made, &other]);
        assert_eq!(json(&["trace", "info", &other])["reading"]["format"], form);
        json(&["trace", "convert", &made, &other, "--to", "plain"]);
        assert_eq!(json(&["trace", "info", &other])["reading"]["format"], "plain");
    }
}

/// Catches a regression: `convert x.csv out.lcs` writes CSV with that name.
#[test]
fn output_name_of_an_unknown_format_is_refused_unless_the_format_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let made = at(folder.path(), "made.csv");
    json(&["trace", "generate", "zipf", "--requests", "1000", "--objects", "100", "-o", &made]);
    for name in ["out.lcs", "out.lcs.zst", "out.jsonl", "out.bin", "out.LIS", "out.orc"] {
        let out = at(folder.path(), name);
        for command in [
            &["trace", "convert", &made, &out][..],
            &["trace", "generate", "zipf", "--requests", "9", "-o", &out],
        ] {
            let output = flashwright(command);
            assert_eq!(output.status.code(), Some(2), "{name}");
            let said = err(&output);
            assert!(said.contains(name) && said.contains("--to (plain, oracle-general"), "{said}");
            assert!(!std::path::Path::new(&out).exists(), "{name}");
        }
        json(&["trace", "convert", &made, &out, "--to", "plain"]);
    }
    for name in ["out", "out.2024-05-01", "out.5", "out.txt", "out.csv.gz"] {
        json(&["trace", "convert", &made, &at(folder.path(), name)]);
    }
}

/// Catches a regression: the flag is accepted without effect.
#[test]
fn time_units_of_a_format_with_fixed_units_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let made = at(folder.path(), "made.csv");
    std::fs::write(&made, "ts,key,op,size\n0,1,GET,10\n2000,2,GET,10\n5000,1,GET,10\n").unwrap();
    let span = |more: &[&str]| json(&[&["trace", "info", &made][..], more].concat())["span_seconds"].as_f64();
    assert_eq!(
        (span(&[]), span(&["--time-units", "1000"])),
        (Some(5000.0), Some(5.0)),
        "plain leaves its unit open"
    );
    for (name, format) in [("x.oracleGeneral", "oracle-general"), ("x.fwt", "binary")] {
        let fixed = at(folder.path(), name);
        json(&["trace", "convert", &made, &fixed]);
        for command in [
            &["trace", "info", &fixed][..],
            &["simulate", &fixed],
            &["predict", &fixed, "--drive", "test"],
            &["trace", "convert", &fixed, &at(folder.path(), "again.fwt")],
            &["trace", "convert", &fixed, &at(folder.path(), "again.csv")],
        ] {
            let output = flashwright(&[command, &["--time-units", "1000"]].concat());
            assert_eq!(output.status.code(), Some(2), "{command:?}: {}", out(&output));
            let said = err(&output);
            assert!(
                said.contains(&format!("--time-units: `{format}` traces have a time unit of their own")),
                "{said}"
            );
        }
    }
}

/// Catches a regression: the unit in the header is used even if the flag gives another one.
#[test]
fn time_units_flag_overrides_the_unit_in_a_header() {
    let folder = tempfile::tempdir().unwrap();
    for (name, header) in [("a.csv", "timestamp_us,key,size"), ("b.csv", "# time_ms,key,size")] {
        let file = at(folder.path(), name);
        std::fs::write(&file, format!("{header}\n0,a,10\n2000,b,10\n5000,a,10\n")).unwrap();
        let span =
            |more: &[&str]| json(&[&["trace", "info", &file][..], more].concat())["span_seconds"].as_f64();
        let named = if name == "a.csv" { 0.005 } else { 5.0 };
        assert_eq!(span(&[]), Some(named), "{name}");
        assert_eq!(span(&["--time-units", "1"]), Some(5000.0), "{name}");
    }
}

/// Catches a regression: the output is text under any name.
#[test]
fn generated_trace_has_the_format_of_its_name_or_flag() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        ("x.oracleGeneral", "oracle-general"),
        ("x.tr", "webcachesim"),
        ("x.fwt.zst", "binary"),
        ("x.csv", "plain"),
    ];
    for (name, form) in names {
        let made = at(folder.path(), name);
        let generate = ["trace", "generate", "zipf", "--requests", "1000", "--objects", "100", "-o", &made];
        json(&generate);
        assert_eq!(json(&["trace", "info", &made])["reading"]["format"], form, "{name}");
        json(&[&generate[..], &["--to", "plain"]].concat());
        assert_eq!(json(&["trace", "info", &made])["reading"]["format"], "plain", "{name}");
    }
}

#[test]
fn generated_block_trace_replays_like_its_generator() {
    let folder = tempfile::tempdir().unwrap();
    let (made, again) = (at(folder.path(), "made.csv.zst"), at(folder.path(), "again.csv.zst"));
    let generate = |file: &str, seed: &str| {
        json(&["trace", "generate", "innodb", "--operations", "20000", "--seed", seed, "-o", file])
    };
    let written = generate(&made, "7")["written"].clone();
    let replay = |source: &[&str]| {
        let cache = ["block", "replay", "--cache-size", "16MiB", "--warm-up", "0"];
        json(&[&cache[..], source].concat())
    };
    let of_file = replay(&[&made]);
    let of_generator = replay(&["--generate", "mysql8", "--operations", "20000", "--seed", "7"]);
    assert_eq!(of_file["trace"]["requests"], written["requests"]);
    assert_eq!(of_file["caches"], of_generator["caches"]);
    let info = json(&["trace", "info", &made, "--page-size", "whole"]);
    assert_eq!(info["reading"]["format"], "block-csv");
    assert_eq!((&info["gets"], &info["sets"]), (&written["reads"], &written["writes"]));
    let bytes = |key: &str| written[key].as_u64().unwrap();
    assert_eq!(info["requested_bytes"], bytes("read_bytes") + bytes("written_bytes"));
    generate(&again, "7");
    assert_eq!(std::fs::read(&made).unwrap(), std::fs::read(&again).unwrap());
    generate(&again, "8");
    assert_ne!(std::fs::read(&made).unwrap(), std::fs::read(&again).unwrap());
}

#[test]
fn trace_is_read_from_standard_input() {
    let mut child = Command::new(FLASHWRIGHT)
        .args(["trace", "info", "-", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"ts,key,op,size\n0,1,GET,5\n2,2,SET,6\n2,1,GET,5\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |key: &str| info[key].as_u64().unwrap();
    assert_eq!((number("requests"), number("objects"), number("footprint_bytes")), (3, 2, 11));
    assert_eq!((number("gets"), number("sets"), &info["span_seconds"]), (2, 1, &2.0.into()));
}

#[test]
fn problems_are_reported_with_file_row_and_handling() {
    let folder = tempfile::tempdir().unwrap();
    let bad = at(folder.path(), "bad.csv");
    std::fs::write(&bad, "ts,key,op,size\n0,1,GET,5\n1,1,GIT,5\n2,2,GET,0\n1,3,GET,7\n").unwrap();
    let output = flashwright(&["trace", "info", &bad]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for message in [
        "note: 1 malformed row was skipped",
        "bad.csv: row 3: `GIT` is not a known operation; skipped",
        "bad.csv: row 4: the size is 0; skipped",
    ] {
        assert!(text.contains(message), "{message} is not in\n{text}");
    }
    let info = json(&["trace", "info", &bad]);
    assert_eq!((&info["requests"], &info["reading"]["bad_rows"]), (&2.into(), &1.into()));
    let output = flashwright(&["trace", "info", &bad, "--on-bad-row", "stop"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("bad.csv: row 3: `GIT` is not a known operation; stopped there"),
        "{}",
        err(&output)
    );
}

#[test]
fn failed_conversion_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let torn = at(folder.path(), "torn.csv.zst");
    let whole: String = (0..50_000).map(|row| format!("{row},{},GET,5\n", row % 77)).collect();
    let whole = format!("ts,key,op,size\n{whole}");
    std::fs::write(at(folder.path(), "whole.csv"), &whole).unwrap();
    json(&["trace", "convert", &at(folder.path(), "whole.csv"), &torn]);
    let bytes = std::fs::read(&torn).unwrap();
    std::fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    let out = at(folder.path(), "out.csv");
    let output = flashwright(&["trace", "convert", &torn, &out]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("cannot read its zstd data"), "{}", err(&output));
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        2,
        "neither an output nor a temporary file"
    );
}

#[test]
fn usage_errors_name_the_valid_values() {
    for (call, message) in [
        (&["trace", "info", "x", "--format", "acr"][..], "the formats are auto, plain, kvcache"),
        (
            &["trace", "convert", "x", "y", "--to", "arc"],
            "unknown output format `arc`: the formats are plain, oracle-general, webcachesim",
        ),
        (
            &["trace", "convert", "x", "y", "--to", "webcachesm"],
            "did you mean `webcachesim`? the formats are",
        ),
        (
            &["trace", "convert", "x", "y", "--to", "webcachesim", "--ttl"],
            "--ttl: only --to plain has a time-to-live column",
        ),
        (&["trace", "convert", "/dev/null", "-"], "error: /dev/null: the file is empty"),
        (
            &["trace", "generate", "zipf", "-o", "-"],
            "traces cannot be written to standard output: name a file",
        ),
        (&["trace", "generate", "zipf", "-o", "x.bz2"], ".gz, .zst and .xz can"),
        (
            &["trace", "generate", "innodb", "-o", "x.fwt.gz"],
            "x.fwt.gz: requests to a block device are written as CSV",
        ),
        (&["trace", "generate", "zipf", "-o", "x", "--requests", "0"], "\"0\" is not a whole number above 0"),
        (
            &["trace", "generate", "zipf", "-o", "x", "--requests", "1Mi"],
            "\"1Mi\" is not a whole number: write",
        ),
        (&["trace", "generate", "zipf", "-o", "x", "--size", "4q"], "\"4q\" is not a size"),
        (&["trace", "generate", "zipf", "-o", "x", "--size", "17TiB"], "an object has at most 16 TiB"),
        (&["trace", "generate", "cdn", "-o", "x", "--zipf-exponent", "1e300"], "above 0 and at most 10"),
        (&["trace", "generate", "cdn", "-o", "x", "--ageing-end", "1e9"], "above 0 and at most 1000"),
        (
            &["trace", "generate", "cdn", "-o", "x", "--album", "0.5"],
            "an album needs at least one photo on average",
        ),
        (
            &["study", "cdn-fig1", "--scale", "1/64"],
            "--scale: is for the figures of the FDP paper (fdp-fig*)",
        ),
        (
            &["study", "cdn-fig1", "--figures", "/dev/null"],
            "--figures: cannot create the directory /dev/null",
        ),
        (&["study", "--trace", "x"], "required arguments were not provided: <NAME|--all>"),
        (&["study", "--scale", "1/64"], "required arguments were not provided: <NAME|--all>"),
        (&["study", "--figures", "x"], "required arguments were not provided: <NAME|--all>"),
        (&["study", "--limit", "5"], "required arguments were not provided: "),
        (&["trace", "info", "/no/such/trace"], "cannot open the trace /no/such/trace"),
        (
            &["trace", "generate", "zipf", "--exponent=-1", "-o", "x"],
            "'--exponent <X>': \"-1\" is not a number of 0 or more",
        ),
        (
            &["trace", "generate", "zipf", "--exponent", "inf", "-o", "x"],
            "'--exponent <X>': \"inf\" is not a number of 0 or more",
        ),
        // No visit of any album was ever found.
        (&["trace", "generate", "cdn", "--ageing-end", "1e-30", "-o", "x"], "1e-30 is less than 0.001"),
        (&["trace", "generate", "cdn", "--ageing-exponent", "1e-30", "-o", "x"], "1e-30 is less than 0.01"),
        (&["trace", "generate", "cdn", "--zipf-shift", "1e30%", "-o", "x"], "1e30% is more than 100%"),
        // Catches a regression: the value has no effect.
        (
            &["block", "replay", "x", "--operations", "5"],
            "'[TRACE]...' cannot be used with '--operations <N>'",
        ),
        (
            &["block", "replay", "--generate", "mysql8", "--device", "sda"],
            "'--generate <WORKLOAD>' cannot be used with '--device <NAME>'",
        ),
    ] {
        let output = flashwright(call);
        assert_eq!(output.status.code(), Some(2), "{call:?}");
        assert!(err(&output).contains(message), "{call:?}: {}", err(&output));
    }
    let formats = json(&["trace", "formats"]);
    let formats = formats["formats"].as_array().unwrap();
    let detectable = |name: &str| &formats.iter().find(|it| it["name"] == name).unwrap()["detectable"];
    assert_eq!((detectable("vscsi"), detectable("u64be")), (&true.into(), &false.into()));
}

#[test]
fn unrecognised_file_reports_detectable_and_other_formats() {
    let folder = tempfile::tempdir().unwrap();
    let file = at(folder.path(), "what");
    std::fs::write(&file, "root:x:0:0:root\n".repeat(40)).unwrap();
    let output = flashwright(&["trace", "info", &file]);
    assert_eq!(output.status.code(), Some(2));
    let message = err(&output);
    let (apart, named) =
        message.split_once("); the others must be named (").unwrap_or_else(|| panic!("{message}"));
    assert!(
        apart.ends_with(
            "csv, parquet, binary, cachebench-binary, lcs, disksim, mqsim, fiu, squid, common-log, ibm-cos"
        ) && !apart.contains("u32le"),
        "{apart}"
    );
    assert_eq!(named, "u32le, u32be, u64le, u64be)\n");
}

/// Catches a regression: any file with a letter before its first commas is reported as having a wrong header.
#[test]
fn binary_file_is_not_reported_with_a_header() {
    let folder = tempfile::tempdir().unwrap();
    let file = at(folder.path(), "what");
    std::fs::write(&file, b"a\x01,b\x02\nc\x03,d\n").unwrap();
    let output = flashwright(&["trace", "info", &file]);
    assert!(!err(&output).contains("header"), "{}", err(&output));
}

#[test]
fn new_trace_replaces_only_regular_files() {
    let folder = tempfile::tempdir().unwrap();
    let (old, linked, symbolic) =
        (at(folder.path(), "a.csv"), at(folder.path(), "b.csv"), at(folder.path(), "c.csv"));
    let text = "ts,key,op,size\n0,1,GET,5\n2,2,SET,6\n";
    std::fs::write(&old, text).unwrap();
    std::fs::hard_link(&old, &linked).unwrap();
    std::os::unix::fs::symlink("a.csv", &symbolic).unwrap();
    let roundabout = folder.path().join(".").join("a.csv").to_str().unwrap().to_owned();
    for same in [&old, &linked, &symbolic, &roundabout] {
        let output = flashwright(&["trace", "convert", &old, same, "--to", "oracle-general"]);
        assert_eq!(output.status.code(), Some(2), "{same}");
        assert!(err(&output).contains("would overwrite the input"), "{}", err(&output));
        assert_eq!(std::fs::read_to_string(&old).unwrap(), text);
    }
    let directory = folder.path().to_str().unwrap();
    for (output, message) in [(directory, "it is a directory"), ("/dev/null", "it is not a regular file")] {
        for command in
            [&["convert", &old, output][..], &["generate", "zipf", "--requests", "9", "-o", output]]
        {
            let output = flashwright(&[&["trace"], command].concat());
            assert_eq!(output.status.code(), Some(2), "{command:?}");
            assert!(err(&output).contains(message), "{}", err(&output));
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "no temporary file is left");
}

#[test]
fn interrupted_generation_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = at(folder.path(), "out.csv");
    let arguments = ["trace", "generate", "zipf", "--requests", "100000000000", "-o", &out];
    let child = Command::new(FLASHWRIGHT).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
    let part = folder.path().join("out.csv.part");
    while std::fs::metadata(&part).map_or(0, |part| part.len()) == 0 {
        std::thread::yield_now();
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(err(&output), "error: interrupted: nothing was written\n");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

const TENANTS: &str = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n\
    1,a,1,GET,2,10,0,0,web,7\n2,b,1,SET,1,20,0,0,ads,\n3,c,1,GET,1,30,0,0,,\n4,a,1,GET,1,10,0,0,ads,\n5,a,1,GET,1,10,0,0,ads,\n";

#[test]
fn tenants_are_counted_selected_and_kept_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let [trace, kept, lost] = ["t.csv", "kept.csv", "lost.csv"].map(|name| at(folder.path(), name));
    std::fs::write(&trace, TENANTS).unwrap();
    let message = |arguments: &[&str]| {
        let tenants = json(&[&["trace", "info"], arguments].concat())["tenants"].clone();
        let row = |row: &Value| {
            let number = |key: &str| row[key].as_u64().unwrap();
            (
                row["tenant"].as_str().unwrap().to_owned(),
                number("requests"),
                number("objects"),
                number("footprint_bytes"),
            )
        };
        let rows: Vec<_> = tenants["largest"].as_array().into_iter().flatten().map(row).collect();
        (rows, tenants["without_tenant"]["requests"].clone())
    };
    let expected = vec![("ads".to_owned(), 3, 1, 20), ("web/7".to_owned(), 2, 1, 10)];
    assert_eq!(message(&[&trace]), (expected.clone(), 1.into()));
    let by_part = message(&[&trace, "--tenant-columns", "sub_usecase,cache_hits"]);
    assert_eq!(by_part.0[0], ("/0".to_owned(), 4, 2, 50));
    let converted = json(&["trace", "convert", &trace, &kept, "--tenant"]);
    assert_eq!(converted["written"]["tenants_left_out"], 0);
    assert_eq!(message(&[&kept]), (expected, 1.into()));
    let output = flashwright(&["trace", "convert", &trace, &lost]);
    assert!(super::out(&output).contains("note: 5 accesses lost their tenant"), "{}", super::out(&output));
    assert_eq!(message(&[&lost]).0, []);
    let output = flashwright(&["trace", "info", &trace, "--tenant-columns", "usecases"]);
    assert!(err(&output).contains("no column `usecases`"), "{}", err(&output));
    let text = super::out(&flashwright(&["trace", "info", &trace]));
    assert!(text.contains("tenants            2\n  ads ") && text.contains("  (none) "), "{text}");
}
