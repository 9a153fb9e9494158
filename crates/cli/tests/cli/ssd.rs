//! `ssd run`, `ssd cards` and `model` as scripts use them.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{FLASHWRIGHT, err, flashwright, json, out};

/// A fast run: 128 units of 32 pages.
const QUICK: [&str; 7] = ["ssd", "run", "test", "--units", "128", "--pages-per-block", "32"];

#[test]
fn run_result_has_stable_keys_and_the_closed_form() {
    let result = json(&[&QUICK[..], &["--pattern", "uniform", "--op", "28%", "--gc", "fifo"]].concat());
    assert_eq!(result["command"], "ssd run");
    assert_eq!(result["world"], "simulated");
    assert_eq!(result["pattern"], "uniform");
    assert_eq!(result["verdict"]["passed"], true);
    assert!((result["op_ratio"].as_f64().unwrap() - 0.28).abs() < 1e-4);
    let number = |key: &str| result[key].as_u64().unwrap_or_else(|| panic!("{key}: {}", result[key]));
    assert_eq!(number("host_pages") + number("relocated_pages"), number("media_pages"));
    assert!(number("gc_events") <= number("erases"));
    let dlwa = result["dlwa"].as_f64().unwrap();
    assert_eq!(dlwa, number("media_pages") as f64 / number("host_pages") as f64);
    assert!((dlwa / result["closed_form"]["dlwa"].as_f64().unwrap() - 1.0).abs() < 0.1);
    assert_eq!(result["latency_ns"], Value::Null);
    assert_eq!(result["config"]["gc"], "fifo");
}

#[test]
fn sequential_run_has_write_amplification_one() {
    let result = json(&[&QUICK[..], &["--pattern", "sequential", "--op", "7%"]].concat());
    assert_eq!(result["dlwa"], 1.0);
    assert_eq!(result["relocated_pages"], 0);
}

#[test]
fn result_bytes_depend_on_the_seed_alone() {
    let run = |seed: &str| {
        let more = ["--pattern", "zipf", "--timed", "--reads", "50%", "--json", "-", "--seed", seed];
        flashwright(&[&QUICK[..], &more].concat()).stdout
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn streams_are_separate_and_placement_changes_their_cost() {
    let mixed = [&QUICK[..], &["--pattern", "mixed", "--op", "17%"]].concat();
    let of = |placement: &str| {
        let result = json(&[&mixed[..], &["--placement", placement]].concat());
        assert_eq!(result["streams"].as_array().unwrap().len(), 2, "{result}");
        result["dlwa"].as_f64().unwrap()
    };
    assert!(of("off") > 1.5 * of("on"));
}

#[test]
fn timed_run_reports_latencies() {
    let timed = ["--timed", "--reads", "50%", "--rate", "2000", "--op", "28%"];
    let result = json(&[&QUICK[..], &timed].concat());
    for served in ["read", "write"] {
        let latency = &result["latency_ns"][served];
        assert!(latency["p50"].as_u64() <= latency["p99"].as_u64() && latency["count"].as_u64() > Some(1000));
    }
    assert_eq!(result["latency_ns"]["keeps_up"], true);
    let flood = json(&[&QUICK[..], &["--timed", "--rate", "100000000"]].concat());
    let latency = &flood["latency_ns"];
    assert_eq!(latency["keeps_up"], false, "{latency}");
    let [done, offered] =
        ["requests_per_second", "offered_per_second"].map(|name| latency[name].as_f64().unwrap());
    assert!(done < offered / 2.0, "{done} of {offered}");
    let rate = result["latency_ns"]["requests_per_second"].as_f64().unwrap();
    assert!((rate / 2000.0 - 1.0).abs() < 0.01, "{rate}");
}

#[test]
fn cards_are_listed_with_sources() {
    let cards = json(&["ssd", "cards"]);
    let names: Vec<&str> =
        cards["cards"].as_array().unwrap().iter().filter_map(|card| card["name"].as_str()).collect();
    assert_eq!(names[..4], ["pm9d3", "tlc", "qlc", "photo"]);
    assert_eq!((names.len(), names[11]), (12, "test"));
    let one = flashwright(&["ssd", "cards", "pm9d3"]);
    let text = String::from_utf8(one.stdout).unwrap();
    assert!(
        text.contains("placement.handles = 8 reclaim-unit handles\n") && text.contains("paper §3.2.1"),
        "{text}"
    );
    assert!(text.contains("space.unit_bytes = 6442450944 bytes (6 GiB)\n"), "{text}");
    let all = out(&flashwright(&["ssd", "cards"]));
    assert!(all.contains("108.45 GB usable, over-provisioning 9.4 %, 221 reclaim units of 512 MiB"), "{all}");
    assert!(all.contains("rated for 0.5 drive writes per day (DWPD) over 5 years"), "{all}");
}

#[test]
fn closed_forms_report_formula_source_and_inputs() {
    let dlwa = json(&["model", "dlwa", "--soc", "100%", "--op", "7%"]);
    assert!((dlwa["result"]["dlwa"].as_f64().unwrap() - 7.817_160).abs() < 1e-6);
    assert!(dlwa["formula"].as_str().unwrap().contains("delta") && dlwa["source"].is_string());
    let soc = json(&["model", "dlwa", "--soc", "4%", "--op", "17%"]);
    assert!((soc["result"]["dlwa"].as_f64().unwrap() - 1.005).abs() < 0.001, "{}", soc["result"]);
    let carbon = json(&["model", "carbon", "--dlwa", "3.28", "--dram-gb", "43"]);
    assert!((carbon["result"]["kgco2e"].as_f64().unwrap() - 1143.6).abs() < 0.1);
    // The paper's 2048 GB are GiB; a card has the capacity that `predict` uses.
    let of_card = json(&["model", "carbon", "--dlwa", "1", "--drive", "pm9d3"]);
    assert!((of_card["result"]["kgco2e"].as_f64().unwrap() - 2_199.023_255_552 * 0.16).abs() < 1e-6);
    assert!(carbon["inputs"]["gb"].as_str().unwrap().contains("the paper uses 2048"), "{carbon}");
    let rated = ["model", "lifetime", "--capacity-gb", "1800", "--dwpd", "3"];
    let life = json(&[&rated[..], &["--host-mb-per-second", "62.5"]].concat());
    assert!((life["result"]["years"].as_f64().unwrap() - 5.0).abs() < 1e-9);
    assert!((life["inputs"]["rated_mb_per_second"].as_f64().unwrap() - 62.5).abs() < 1e-9);
}

#[test]
fn impossible_input_is_refused_in_one_line() {
    let cases: [(&[&str], &str); 7] = [
        (
            &["ssd", "run", "pm9d4"],
            "error: pm9d4: no such card; did you mean `pm9d3`? valid cards are pm9d3, tlc",
        ),
        (&["ssd", "run", "test", "--op", "0%"], "error: --op, --units: "),
        (
            &["ssd", "run", "test", "--pages-per-block", "1"],
            "error: --pages-per-block: 1 pages are fewer than the minimum of 2",
        ),
        (&["ssd", "run", "tlc", "--placement", "on"], "error: --placement: tlc has no placement handles"),
        (&["ssd", "run", "pm9d3", "--scale", "1/1000000"], "error: pm9d3: space.unit_bytes: at 1/1000000"),
        (&["model", "dlwa", "--soc", "4%", "--op", "0%"], "error: --op: the physical space must be larger"),
        (
            &["model", "lifetime", "--host-mb-per-second", "1"],
            "error: missing: the rated endurance (--drive CARD, --tbw TB, or --capacity-gb GB with --dwpd X)\n",
        ),
    ];
    for (arguments, expected) in cases {
        let output = flashwright(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(err(&output).starts_with(expected), "{arguments:?}: {}", err(&output));
        assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
        assert!(output.stdout.is_empty());
    }
    for wrong in [&["ssd", "run", "test", "--op", "7"], &["ssd", "run", "test", "--gc", "gready"]] {
        let output = flashwright(&wrong[..]);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn inputs_outside_a_closed_form_are_refused_by_flag() {
    for (words, reported) in [
        ("dlwa --soc 200% --op 17%", "--soc: must be above 0% and at most 100%"),
        ("dlwa --soc 0% --op 17%", "--soc: must be above 0% and at most 100%"),
        ("dlwa --soc 4% --op 7% --pages-per-block 0", "--pages-per-block"),
        ("carbon --dlwa 1.3 --dram-gb=-5", "--dram-gb"),
        ("dlwa --soc 4% --op 7% --pages-per-block 1", "--pages-per-block: the model needs larger units"),
        ("carbon --dlwa 0.5", "a write amplification of 0.5 is less than 1: a drive without compression"),
        ("carbon --dlwa -1.3", "\"-1.3\" is not a number above 0"),
        ("dlwa --soc 4% --op -5%", "--op <SHARE>': \"-5%\" is not a percentage or fraction"),
        ("lifetime --tbw 9 --years 5 --dlwa 0.9", "--dlwa <X>': a write amplification of 0.9 is less than 1"),
        ("lifetime --drive tlc --years 5 --rated-dlwa 0.9", "--rated-dlwa <X>': a write amplification"),
        ("lifetime --drive tlc --years 5 --warranty-years 3", "cannot be used with '--warranty-years"),
        (
            "lifetime --drive tlc",
            "missing: the host write rate (--host-mb-per-second MB) or the lifetime to reach (--years YEARS)",
        ),
        (
            "lifetime",
            "--capacity-gb GB with --dwpd X); and the host write rate (--host-mb-per-second MB) or the lifetime",
        ),
        ("carbon --dlwa 1e308", "kgco2e overflows with these inputs"),
    ] {
        let words: Vec<&str> = ["model"].into_iter().chain(words.split(' ')).collect();
        let output = flashwright(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(err(&output).contains(reported), "{words:?}: {}", err(&output));
    }
}

#[test]
fn endless_run_is_refused_by_flag() {
    run_refused(&[
        ("--timed --reads 100%", "--reads: must be below 100%"),
        // Catches a regression: the error names --pattern.
        ("--pattern mixed --random-space 0%", "--random-space: 0 %; must be above 0%"),
        ("--timed --rate 1e300", "--rate: "),
        ("--warm-up 1e300", "--warm-up: "),
        ("--measure 0.0000001", "--measure: 0.0000001 capacities of "),
        ("--timed --warm-up 0.0000001", "--warm-up: 0.0000001 capacities of "),
        ("--pages-per-block 4294967295", "--units, --pages-per-block: "),
        ("--gc d-choices:0", "d-choices:0: the number of units to draw must be from 1 to 255"),
        ("--measure 1e7", "--measure: 10000000 drive capacities; must be at most 1000000"),
    ]);
}

#[track_caller]
fn run_refused(cases: &[(&str, &str)]) {
    for (words, reported) in cases {
        let words: Vec<&str> = ["ssd", "run", "test"].into_iter().chain(words.split(' ')).collect();
        let output = flashwright(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(err(&output).contains(reported), "{words:?}: {}", err(&output));
    }
}

#[test]
fn flag_without_effect_is_refused_by_name() {
    run_refused(&[
        (
            "--random-space 5%",
            "--random-space: has no effect with --pattern uniform; it is for --pattern mixed",
        ),
        ("--pattern zipf --random-writes 5%", "--random-writes: has no effect with --pattern zipf"),
        (
            "--pattern mixed --zipf-exponent 1.2",
            "--zipf-exponent: has no effect with --pattern mixed; it is for --pattern zipf",
        ),
        (
            "--placement on --collection-frontier apart",
            "--collection-frontier: has no effect on a drive that places",
        ),
        ("--scale 1/4 --pages-per-block 64", "'--scale <1/N>' cannot be used with '--pages-per-block <N>'"),
        (
            "--gc gready",
            "\"gready\" is not a victim policy; did you mean `greedy`? valid policies are greedy",
        ),
    ]);
    let mixed = json(&[&QUICK[..], &["--pattern", "mixed", "--random-space", "10%"]].concat());
    assert_eq!(mixed["config"]["streams"][0]["space"], 0.1);
    assert_eq!(mixed["config"]["collection_frontier"], "apart");
}

/// The command is killed as soon as it has printed the line.
#[test]
fn long_run_announces_its_duration_and_how_to_shorten_it() {
    let mut child = Command::new(FLASHWRIGHT)
        .args(["ssd", "run", "pm9d3"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        line,
        "5,048,828,125 page writes on a model that takes 3.7 GiB of memory; --scale 1/64 takes 1/64 of both, \
         for the same units, shares and write amplification\n"
    );
    let small = flashwright(&[&QUICK[..], &["--json", "-"]].concat());
    assert!(!err(&small).contains("--scale"), "{}", err(&small));
}
