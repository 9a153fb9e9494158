//! `flashwright simulate` as scripts use it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{FLASHWRIGHT, err, flashwright, out, result};

/// Twelve requests for five objects of 10 bytes.
const TEXTBOOK: &str = "ts,key,op,size\n0,a,GET,10\n1,b,GET,10\n2,c,GET,10\n3,d,SET,10\n4,a,GET,10\n5,b,GET,10\n6,e,GET,10\n\
                        7,a,GET,10\n8,b,GET,10\n9,c,GET,10\n10,d,GET,10\n11,e,GET,10\n";

fn trace(directory: &Path, text: &str) -> String {
    trace_named(directory, "trace.csv", text)
}

fn trace_named(directory: &Path, name: &str, text: &str) -> String {
    let file = directory.join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn textbook_trace_has_the_textbook_hits_in_all_outputs() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), TEXTBOOK);
    let (csv, plots) = (directory.path().join("rows.csv"), directory.path().join("plots"));
    let (csv_name, plots_name) = (csv.to_str().unwrap(), plots.to_str().unwrap());
    let requested = [
        "simulate",
        &trace,
        "--policy",
        "FIFO,lru,clairvoyant,exact-lru,opt,fifo",
        "--size",
        "30,40B,80%",
        "--warmup",
        "0",
    ];
    let output =
        flashwright(&[&requested[..], &["--json", "-", "--csv", csv_name, "--plot", plots_name]].concat());
    let result = result(&output);
    let row = |row: &Value| {
        (
            row["policy"].as_str().unwrap().to_owned(),
            row["policy_as_given"].as_str().unwrap().to_owned(),
            row["size_bytes"].as_u64().unwrap(),
            row["hits"].as_u64().unwrap(),
        )
    };
    let rows: Vec<_> = result["rows"].as_array().unwrap().iter().map(row).collect();
    // Belady's anomaly: FIFO has fewer hits with more space. A name typed twice has one row, an alias its own.
    let expected = [
        ("fifo", "fifo", 30, 3),
        ("fifo", "fifo", 40, 2),
        ("lru", "lru", 30, 2),
        ("lru", "lru", 40, 4),
        ("clairvoyant", "clairvoyant", 30, 5),
        ("clairvoyant", "clairvoyant", 40, 6),
        ("exact-lru", "exact-lru", 30, 2),
        ("exact-lru", "exact-lru", 40, 4),
        ("clairvoyant", "opt", 30, 5),
        ("clairvoyant", "opt", 40, 6),
    ];
    let found =
        rows.iter().map(|(name, requested, size, hits)| (name.as_str(), requested.as_str(), *size, *hits));
    assert!(found.eq(expected), "{rows:?}");
    assert!(err(&output).contains("clairvoyant (opt)"), "{}", err(&output));
    let first = &result["rows"][0];
    assert_eq!((first["requests"].as_u64(), first["object_hit_ratio"].as_f64()), (Some(12), Some(0.25)));
    assert_eq!(
        (result["trace"]["objects"].as_u64(), result["trace"]["footprint_bytes"].as_u64()),
        (Some(5), Some(50))
    );
    assert!(first["interval"].is_null() && first["write_amplification"].is_null());
    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(csv.starts_with("policy,size_bytes,requests,hits,object_hit_ratio,"), "{csv}");
    assert!(csv.contains("\nlru,40,12,4,0.333333,0.333333,\n"), "{csv}");
    for name in ["object-hit-ratio.svg", "byte-hit-ratio.svg"] {
        assert!(std::fs::read_to_string(plots.join(name)).unwrap().contains("clairvoyant"), "{name}");
    }
    assert!(err(&output).contains("0.333333"), "the table is on standard error");
}

/// Sizes in objects correspond to a flag of libCacheSim. Catches a regression: they are treated as bytes, with a hit
/// ratio of 0.000.
#[test]
fn sizes_in_objects_count_objects() {
    let directory = tempfile::tempdir().unwrap();
    // Objects of 10 to 50 bytes, and one of 0 bytes.
    let text = TEXTBOOK.replace("a,GET,10", "a,GET,50").replace("e,GET,10", "e,GET,0");
    let trace = trace(directory.path(), &text);
    let run = |more: &[&str]| {
        flashwright(&[&["simulate", &trace, "--policy", "fifo,clairvoyant", "--warmup", "0"], more].concat())
    };
    for more in
        [&["-s", "3obj,4obj"][..], &["-s", "3,4", "--ignore-size"], &["-s", "60%,80%", "--ignore-size"]]
    {
        let found = result(&run(&[more, &["--json", "-"]].concat()));
        let row = |row: &Value| (row["size_objects"].as_u64().unwrap(), row["hits"].as_u64().unwrap());
        let rows: Vec<_> = found["rows"].as_array().unwrap().iter().map(row).collect();
        assert_eq!(rows, [(3, 3), (4, 2), (3, 5), (4, 6)], "{more:?}");
        let first = &found["rows"][0];
        assert_eq!(first["requests"], 12, "the object of 0 bytes is counted: {first}");
        assert!(first["size_bytes"].is_null() && first["byte_hit_ratio"].is_null(), "{first}");
        assert!(found["trace"]["footprint_bytes"].is_null() && found["sizes_ignored"] == true, "{found}");
    }
    let csv = directory.path().join("rows.csv");
    let message = out(&run(&["-s", "3obj", "--csv", csv.to_str().unwrap()]));
    assert!(message.contains("3 obj") && !message.contains("byte hit ratio"), "{message}");
    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(csv.starts_with("policy,size_objects,") && csv.contains("\nfifo,3,12,3,0.250000,,\n"), "{csv}");
    for (more, said) in [
        (
            &["-s", "5"][..],
            "no object fits into 5 bytes: the smallest has 10; a size is in bytes, and 5obj is a cache of so many objects",
        ),
        (
            &["-s", "3obj,1KiB"],
            "--size: 1024 bytes cannot be combined with --ignore-size or a size in objects",
        ),
        (&["-s", "3obj", "--first-size"], "--first-size: cannot be combined with --size in objects"),
        (&["-s", "3obj", "--by-tenant"], "--by-tenant: cannot be combined with --size in objects"),
        (
            &["-s", "3obj", "--policy", "log"],
            "log has blocks or sets of bytes, and cannot ignore the sizes of objects",
        ),
        (&["-s", "0obj"], "0"),
        (&["-s", "manyobj"], "many"),
    ] {
        let output = run(more);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", out(&output));
        assert!(err(&output).contains(said), "{more:?}: {}", err(&output));
    }
    let output = run(&["-s", "15,60", "--policy", "s3fifo,lru"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        err(&output).contains("--size: s3fifo of 60 B admits no object of this trace"),
        "{}",
        err(&output)
    );
}

#[test]
fn flag_aliases_of_other_commands_are_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), TEXTBOOK);
    let rows = |flag| {
        let requested = ["simulate", &trace, "--policy", "lru", "--size", "30", flag, "0", "--json", "-"];
        result(&flashwright(&requested))["rows"].clone()
    };
    assert_eq!(rows("--warm-up"), rows("--warmup"));
    assert_eq!(rows("--warm-up").as_array().unwrap().len(), 1);
}

#[test]
fn trace_from_standard_input_is_spooled_if_needed() {
    let mut command = Command::new(FLASHWRIGHT);
    command.args([
        "simulate", "-", "--format", "plain", "--policy", "min", "--size", "60%", "--warmup", "0", "--json",
        "-",
    ]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(TEXTBOOK.as_bytes()).unwrap();
    let result = result(&child.wait_with_output().unwrap());
    assert_eq!(
        (result["rows"][0]["size_bytes"].as_u64(), result["rows"][0]["hits"].as_u64()),
        (Some(30), Some(5))
    );
}

#[test]
fn usage_error_suggests_the_right_value() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), TEXTBOOK);
    let said = |more: &[&str]| {
        let output = flashwright(&[&["simulate", &trace], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", err(&output));
        err(&output)
    };
    let text = said(&["--policy", "lru,seive"]);
    assert!(text.starts_with("error: no policy is named `seive`: did you mean `sieve`?"), "{text}");
    assert!(said(&["--size", "10MX"]).contains("\"10MX\" is not a size: write 4096, 64KiB or 1.5GiB"));
    assert!(said(&["--size", "0"]).contains("a cache of 0 bytes holds nothing"));
    assert!(said(&["--size", "0.0001%"]).contains("of the footprint (50 bytes) is less than one byte"));
    assert!(
        said(&["--size", "10pct"]).contains("64KiB or 1.5GiB, 10% of the footprint, or 1000obj for objects")
    );
    assert!(said(&["--size", "-5%"]).contains("\"-5%\" is not a percentage or fraction"));
    assert!(said(&["--warmup", "200%"]).contains("200% is more than 100% of the requests"));
    for warmup in ["100%", "12", "500"] {
        let text = said(&["--size", "30", "--warmup", warmup]);
        assert_eq!(text, "error: all 12 requests are warm-up, and none is left to count: lower --warmup\n");
    }
    assert!(said(&["--sample", "100%"]).contains("a sample of 100 %: must be above 0 and below 100 %"));
    assert!(said(&["--sample", "1%", "--policy", "blockcache"]).contains("blockcache moves many objects"));
    assert!(said(&["--json", "/nowhere/result.json"]).contains("/nowhere/result.json"));
}

#[test]
fn malformed_rows_are_skipped_and_counted_or_stop() {
    let directory = tempfile::tempdir().unwrap();
    let bad = TEXTBOOK
        .replace("3,d,SET,10", "3,d,SOT,10")
        .replace("8,b,GET,10", "2,b,GET,10")
        .replace("9,c,GET,10", "9,c,GET,0");
    let trace = trace(directory.path(), &bad);
    let requested = ["simulate", &trace, "--policy", "lru", "--size", "30", "--warmup", "0", "--json", "-"];
    let output = flashwright(&requested);
    let result = result(&output);
    let counted = |name: &str| result["trace"][name].as_u64().unwrap();
    assert_eq!((counted("bad_rows"), counted("zero_sizes"), counted("backward_times")), (1, 1, 1));
    assert_eq!(counted("requests"), 10);
    assert!(err(&output).contains("trace.csv") && err(&output).contains("SOT"), "{}", err(&output));
    let stopped = flashwright(&[&requested[..], &["--on-bad-row", "stop"]].concat());
    assert_eq!(stopped.status.code(), Some(2));
    assert!(err(&stopped).contains("SOT"), "{}", err(&stopped));
    let empty = directory.path().join("empty.csv");
    std::fs::write(&empty, "ts,key,op,size\n").unwrap();
    let output = flashwright(&["simulate", empty.to_str().unwrap(), "--format", "plain"]);
    let reported = format!("error: {}: the trace has no requests\n", empty.display());
    assert_eq!((output.status.code(), err(&output)), (Some(2), reported));
}

/// Catches a regression: the message names "the trace" instead of the file.
#[test]
fn commands_name_the_trace_without_requests() {
    let directory = tempfile::tempdir().unwrap();
    let made = |name: &str, header: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, header).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (objects, blocks) =
        (made("objects.csv", "key,op,size\n"), made("blocks.csv", "time_us,op,offset,bytes\n"));
    for (arguments, code, file, text) in [
        (&["predict", &objects, "--drive", "pm9d3"][..], 2, &objects, "has 0 accesses; a prediction"),
        (&["study", "cdn-fig1", "--trace", &objects], 2, &objects, "the trace has no requests"),
        (&["block", "replay", &blocks], 1, &blocks, "the trace has no requests"),
        (&["trace", "info", &objects], 2, &objects, "the trace has no requests"),
    ] {
        let output = flashwright(arguments);
        let reported = err(&output);
        assert_eq!(output.status.code(), Some(code), "{reported}");
        assert!(reported.contains(&format!("{file}: {text}")), "{reported}");
    }
    let zero = made("zero.csv", "key,op,size\n7,GET,0\n");
    let reported = err(&flashwright(&["trace", "info", &zero]));
    assert!(reported.contains("1 are for 0-byte objects (--zero-size keep counts them)"), "{reported}");
}

#[test]
fn output_never_overwrites_the_input_and_failure_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), TEXTBOOK);
    for output in ["--csv", "--json"] {
        let output = flashwright(&["simulate", &trace, "--size", "30", output, &trace]);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains("would overwrite the input"), "{}", err(&output));
        assert_eq!(std::fs::read_to_string(&trace).unwrap(), TEXTBOOK);
    }
    let new = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (csv, json) = (new("new.csv"), new("new.json"));
    let failed = flashwright(&["simulate", &new("none"), "--size", "30", "--csv", &csv, "--json", &json]);
    assert_eq!(failed.status.code(), Some(2));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "only the trace");
    let output = flashwright(&["simulate", &trace, "--size", "30", "--csv", "-"]);
    assert!(err(&output).contains("only --json can write to standard output"), "{}", err(&output));
}

#[test]
fn reject_first_admits_objects_at_their_second_miss() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), TEXTBOOK);
    let call = ["simulate", &trace, "--policy", "lru", "--warmup", "0", "--admission"];
    let found = result(&flashwright(&[&call[..], &["reject-first", "--size", "40", "--json", "-"]].concat()));
    // a, b, c, d and e miss and are rejected; a and b are admitted at their second miss and hit at the third request.
    assert_eq!((&found["rows"][0]["hits"], &found["rows"][0]["inserts"]), (&2.into(), &5.into()));
    assert_eq!(found["config"]["admission"], "reject-first");
    for (rule, more, message) in [
        ("reject-frist", ["--size", "40"], "did you mean `reject-first`"),
        ("below:4KiB", ["--size", "4obj"], "--admission below:4096: needs sizes"),
        ("reject-first", ["--sample", "10%"], "--admission reject-first: cannot be combined with --sample"),
    ] {
        let output = flashwright(&[&call[..], &[rule], &more].concat());
        assert_eq!(output.status.code(), Some(2), "{rule}");
        assert!(err(&output).contains(message), "{}", err(&output));
    }
}

#[test]
fn flag_without_effect_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), TEXTBOOK);
    for (policies, flag, value, used_by) in [
        ("lru,sieve", "--dram", "1MiB", "log, hash-log, set-associative and kangaroo"),
        ("ripq", "--dram", "1MiB", "log, hash-log, set-associative and kangaroo"),
        ("lru", "--object-overhead", "1", "log, hash-log, set-associative and kangaroo"),
        ("lru", "--object-limit", "9", "log, hash-log, set-associative and kangaroo"),
        ("set-associative", "--block-size", "4096", "flash caches other than set-associative and kangaroo"),
        ("log,lru", "--set-size", "4096", "set-associative and kangaroo"),
        ("sieve,log", "--refresh", "60", "lru, lru2q and tinylfu"),
        ("ripq", "--rules", "paper", "policies other than flash caches"),
        ("log", "--size-on-hit", "update", "policies other than flash caches"),
        ("log", "--admission", "reject-first", "policies other than flash caches"),
    ] {
        let output = flashwright(&["simulate", &trace, "--policy", policies, "--size", "8KiB", flag, value]);
        assert_eq!(output.status.code(), Some(0), "{flag} {policies}");
        let reported = format!(
            "warning: {flag}: has no effect on {}; it is for {used_by}\n",
            policies.replace(',', ", ")
        );
        assert!(err(&output).contains(&reported), "{}", err(&output));
        let using = match used_by {
            "policies other than flash caches" | "lru, lru2q and tinylfu" => "lru",
            "flash caches other than set-associative and kangaroo" => "log",
            _ => "set-associative",
        };
        let both = format!("{policies},{using}");
        let output = flashwright(&["simulate", &trace, "--policy", &both, "--size", "8KiB", flag, value]);
        assert_eq!(output.status.code(), Some(0), "{flag} {both}: {}", err(&output));
        assert!(!err(&output).contains("has no effect"), "{}", err(&output));
    }
}

#[test]
fn too_small_sample_has_no_interval() {
    let directory = tempfile::tempdir().unwrap();
    let all = trace(directory.path(), TEXTBOOK);
    let sampled = |trace: &str, rate: &str| {
        flashwright(&["simulate", trace, "--size", "50%", "-p", "lru", "--sample", rate, "--json", "-"])
    };
    let output = sampled(&all, "10%");
    assert!(err(&output).contains("the sample is all 5 objects") && !err(&output).contains("more or less"));
    let whole = result(&output);
    assert_eq!(
        (&whole["rows"][0]["interval"], &whole["sampled"]["other_objects"]),
        (&Value::Null, &0.into())
    );

    // A hundred popular objects and fifty others, few or none of them sampled.
    let rows = (0..100).flat_map(|object| [object, object]).chain(100..150).chain(100..150);
    let rows: String = rows.enumerate().map(|(time, object)| format!("{time},{object},GET,10\n")).collect();
    let few = trace_named(directory.path(), "few.csv", &format!("ts,key,op,size\n{rows}"));
    let output = sampled(&few, "20%");
    assert!(err(&output).contains("(-: too few objects sampled)"), "{}", err(&output));
    assert!(!err(&output).contains("0.000000\n\nbyte"), "no error of 0: {}", err(&output));
    let drawn = result(&output);
    assert_eq!(drawn["rows"][0]["interval"], Value::Null);
    assert!(drawn["sampled"]["drawn_objects"].as_u64().unwrap() > 0, "{}", drawn["sampled"]);
    let output = sampled(&few, "0.0001%");
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("drew none of 50 objects: take a larger share"), "{}", err(&output));
}

/// Catches a regression: the CSV has estimates without their error.
#[test]
fn csv_has_the_intervals_of_a_sample() {
    let directory = tempfile::tempdir().unwrap();
    let rows = (0..20_000_u64).map(|time| format!("{time},{},GET,10\n", time * time % 4001));
    let trace = trace_named(directory.path(), "squares.csv", &rows.collect::<String>());
    let csv = directory.path().join("rows.csv");
    let requested = ["simulate", &trace, "--size", "20%", "-p", "lru", "--csv", csv.to_str().unwrap()];
    let sampled = [&requested[..], &["--sample", "20%", "--json", "-"]].concat();
    let interval = result(&flashwright(&sampled))["rows"][0]["interval"].clone();
    let both = |key: &str| [0, 1].map(|end| format!("{:.6}", interval[key][end].as_f64().unwrap())).join(",");
    let found = std::fs::read_to_string(&csv).unwrap();
    let expected = format!(",{},{}\n", both("object_hit_ratio"), both("byte_hit_ratio"));
    assert!(found.ends_with(&expected), "{found} {expected}");
    assert!(flashwright(&requested).status.success());
    assert!(std::fs::read_to_string(&csv).unwrap().starts_with(
        "policy,size_bytes,requests,hits,object_hit_ratio,byte_hit_ratio,write_amplification\n"
    ));
}

#[test]
fn pebibyte_flash_cache_needs_memory_only_for_requested_objects() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), TEXTBOOK);
    for policy in ["set-associative", "log", "ripq", "blockcache", "lru", "s3fifo"] {
        let output = flashwright(&["simulate", &trace, "--policy", policy, "--size", "1P"]);
        assert_eq!(output.status.code(), Some(0), "{policy}: {}", err(&output));
    }
}

#[test]
fn hits_by_tenant_are_in_all_outputs() {
    let directory = tempfile::tempdir().unwrap();
    let rows =
        "0,a,GET,10,web\n1,b,GET,10,\"a d,s\n2,a,GET,10,web\n3,b,GET,10,web\n4,b,GET,10,\n5,c,GET,30,x\n";
    let trace = trace(directory.path(), &format!("ts,key,op,size,tenant\n{}", rows.replace("d,s", "ds")));
    let csv = directory.path().join("rows.csv");
    let requested = ["simulate", &trace, "--policy", "lru", "--size", "100", "--warmup", "0"];
    let by_tenant =
        [&requested[..], &["--by-tenant=2", "--csv", csv.to_str().unwrap(), "--json", "-"]].concat();
    let result = result(&flashwright(&by_tenant));
    let tenants = &result["tenants"];
    assert_eq!(
        (&tenants["largest"][0]["tenant"], &tenants["largest"][0]["requests"]),
        (&"web".into(), &3.into())
    );
    assert_eq!(tenants["largest"][0]["rows"][0]["object_hit_ratio"], 2.0 / 3.0);
    assert_eq!(
        (&tenants["others"]["distinguished"], &tenants["without_tenant"]["rows"][0]["hits"]),
        (&1.into(), &1.into())
    );
    let csv = std::fs::read_to_string(csv).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "policy,size_bytes,requests,hits,object_hit_ratio,byte_hit_ratio,write_amplification,tenant"
    );
    assert_eq!(lines[1], "lru,100,6,3,0.500000,0.375000,,");
    assert_eq!(lines[2], "lru,100,3,2,0.666667,0.666667,,web");
    assert_eq!((lines[3], lines.len()), ("lru,100,1,0,0.000000,0.000000,,\"\"\"a ds\"", 6));
    let text = super::out(&flashwright(&[&requested[..], &["--by-tenant"]].concat()));
    assert!(
        text.contains("lru by tenant: object hit ratio, byte hit ratio") && text.contains("  web "),
        "{text}"
    );
    let sampled = flashwright(&[&requested[..], &["--by-tenant", "--sample", "10%"]].concat());
    assert!(err(&sampled).contains("--by-tenant cannot be combined with --sample"), "{}", err(&sampled));
    let alone = flashwright(&[&requested[..], &["--tenant-columns", "tenant"]].concat());
    assert!(err(&alone).contains("--tenant-columns: needs --by-tenant"), "{}", err(&alone));
}

#[test]
fn count_of_one_is_singular() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), "ts,key,op,size,ttl\n0,1,GET,5,9\n,,\n");
    let text = out(&flashwright(&["simulate", &trace, "--size", "9", "--warmup", "0"]));
    assert!(
        text.starts_with("1 request for 1 object of 5 B in all; the first 0 were warm-up and not"),
        "{text}"
    );
    assert!(text.contains("\n1 request has a time to live: "), "{text}");
    let text = out(&flashwright(&["trace", "info", &trace]));
    assert!(text.contains("note: 1 malformed row was skipped\n"), "{text}");
}

/// Catches a regression: blocks of 5 and of 64 MiB silently give the same rows.
#[test]
fn reducing_too_large_blocks_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), TEXTBOOK);
    let said = |block: &str| {
        let policies = ["--policy", "ripq,mcdipper,log", "--size", "10MiB", "--block-size", block];
        let output = flashwright(&[&["simulate", &trace], &policies[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        err(&output)
    };
    let large = said("64MiB");
    for text in ["--block-size: ripq of 10.0 MiB has blocks of ", "--block-size: log of 10.0 MiB"] {
        assert!(large.contains(text), "{large}");
    }
    assert_eq!(said("64KiB"), "");
}

/// Catches a regression: all parents of a mistyped path are created, while other outputs refuse it.
#[test]
fn plot_directory_with_missing_parent_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), TEXTBOOK);
    let folder = directory.path().join("no/where");
    let output = flashwright(&["simulate", &trace, "--plot", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("--plot: cannot create the directory "), "{}", err(&output));
    assert!(!directory.path().join("no").exists());
}

/// FIFO of three objects hits at 7, 8 and 11 seconds.
#[test]
fn interval_reports_hits_over_time_and_warmup_can_be_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), TEXTBOOK);
    let csv = directory.path().join("over_time.csv");
    let call = ["simulate", &trace, "--policy", "fifo", "--size", "30", "--json", "-", "--warmup"];
    let found = |more: &[&str]| result(&flashwright(&[&call[..], more].concat()));
    let series = |found: &Value| -> Vec<[u64; 3]> {
        let points = found["rows"][0]["series"].as_array().unwrap().iter();
        points.map(|point| ["start", "requests", "hits"].map(|key| point[key].as_u64().unwrap())).collect()
    };
    let in_time = found(&["0", "--interval", "5s", "--interval-csv", csv.to_str().unwrap()]);
    assert_eq!(series(&in_time), [[0, 5, 0], [5, 5, 2], [10, 2, 1]]);
    assert_eq!(in_time["config"]["interval"]["seconds"], 5);
    let rows = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(
        rows.lines().next().unwrap(),
        "policy,size_bytes,start,requests,hits,object_hit_ratio,byte_hit_ratio"
    );
    assert_eq!(rows.lines().nth(2).unwrap(), "fifo,30,5,5,2,0.400000,0.400000");
    assert_eq!(series(&found(&["50%", "--interval", "6"])), [[0, 6, 0], [6, 6, 3]]);
    assert_eq!(series(&found(&["0"])), [[0; 3]; 0]);

    let warm = found(&["8s"]);
    assert_eq!((&warm["warmup_requests"], &warm["rows"][0]["hits"]), (&Value::from(8), &Value::from(2)));
}

#[test]
fn times_for_interval_and_warmup_are_refused_where_they_cannot_be_counted() {
    let directory = tempfile::tempdir().unwrap();
    let timed = trace(directory.path(), TEXTBOOK);
    let untimed = trace_named(directory.path(), "untimed.csv", "key,size\na,10\nb,10\na,10\n");
    for (trace, flags, message) in [
        (&timed, &["--interval", "5s"][..], "--interval: needs --json or --interval-csv"),
        (&timed, &["--interval", "0", "--json", "-"], "write 100000, 60s or 1h"),
        (&timed, &["--interval", "500ms", "--json", "-"], "500ms: must be whole seconds, at least 1s"),
        (&timed, &["--interval", "5s", "--sample", "10%", "--json", "-"], "cannot be used with"),
        (&timed, &["--warmup", "5s", "--by-tenant"], "--warmup: a time cannot be combined with --by-tenant"),
        (&timed, &["--warmup", "5s", "--sample", "50%"], "--warmup: a time cannot be combined with --sample"),
        (&untimed, &["--warmup", "5s"], "--warmup: the trace has no times"),
        (
            &untimed,
            &["--interval", "5s", "--json", "-", "--warmup", "0"],
            "--interval: the trace has no times",
        ),
    ] {
        let output = flashwright(&[&["simulate", trace, "--size", "30"], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(err(&output).contains(message), "{flags:?}: {}", err(&output));
    }
}
