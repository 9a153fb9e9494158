//! `flashwright predict` as scripts use it, and compared with the engine.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::{err, flashwright, json, out};

const FIGURES: [&str; 6] = ["hit_ratio", "alwa", "dlwa", "nand_mb_per_second", "life_years", "kgco2e"];

/// Small and large objects of one size each (with several sizes, the engine's few slabs would be shared unevenly), with
/// a power-law popularity, one set in ten accesses, 5000 accesses a second. `ttl` returns the TTL of an object in seconds; 0 never expires.
fn trace(directory: &Path, accesses: u32, objects: u32, ttl: fn(u32) -> u32) -> String {
    let mut text = "op_time,key,key_size,op,op_count,size,ttl\n".to_owned();
    let mut state = 12_345_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    for access in 0..accesses {
        let object = (f64::from(objects).powf(random()) * 7919.0) as u32 % objects;
        let size = if object.is_multiple_of(5) { 12_000 } else { 300 };
        let op = if random() < 0.1 { "SET" } else { "GET" };
        let _ = writeln!(text, "{},k{object:07},8,{op},1,{size},{}", access / 5000, ttl(object));
    }
    let file = directory.join("kv.csv");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn figure(point: &Value, name: &str) -> [f64; 3] {
    ["low", "value", "high"]
        .map(|part| point[name][part].as_f64().unwrap_or_else(|| panic!("{name}: {point}")))
}

#[test]
fn prediction_has_bounds_and_follows_the_inputs() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), 100_000, 40_000, |_| 0);
    let requested = ["predict", &trace, "--drive", "pm9d3", "--scale", "1/16384", "--dram", "1%,8%"];
    let result = json(&[&requested[..], &["--rate", "20000"]].concat());
    let points = result["points"].as_array().unwrap();
    assert_eq!(points.len(), 8, "two sizes of DRAM, two shares of the drive, with and without placement");
    for point in points {
        for name in FIGURES {
            let [low, value, high] = figure(point, name);
            assert!(low <= value && value <= high && low >= 0.0, "{name}: {point}");
        }
        let [_, hits, _] = figure(point, "hit_ratio");
        let [_, of_dram, _] = figure(point, "hit_ratio_dram");
        assert!(of_dram < hits && hits < 1.0 && figure(point, "dlwa")[1] >= 1.0, "{point}");
        assert!(figure(point, "latency_ns")[0] > 10_000.0, "reading flash takes time: {point}");
    }
    let find = |dram: usize, share: f64, placement: bool| {
        let mut fitting =
            points.iter().filter(|it| it["utilization"] == share && it["placement"] == placement);
        fitting.nth(dram).unwrap()
    };
    let hits = |point: &Value| figure(point, "hit_ratio")[1];
    assert!(hits(find(1, 1.0, true)) > hits(find(0, 1.0, true)), "more DRAM hits more");
    assert!(hits(find(0, 1.0, true)) > hits(find(0, 0.5, true)), "more flash hits more");
    let [mixed, apart] = [false, true].map(|placement| figure(find(0, 1.0, placement), "dlwa")[1]);
    assert!(mixed > apart + 0.5, "{mixed} without placement, {apart} with");
    for number in result["pareto"].as_array().unwrap() {
        let best = &points[number.as_u64().unwrap() as usize];
        assert_eq!(best["placement"], true, "handles have no disadvantage: {best}");
    }
    let twice = json(&[&requested[..], &["--rate", "40000"]].concat());
    for (once, twice) in points.iter().zip(twice["points"].as_array().unwrap()) {
        let [once, twice] = [once, twice].map(|it| figure(it, "life_years")[1]);
        assert!((once / twice - 2.0).abs() < 1e-9, "twice the load is half the life: {once} and {twice}");
    }
    assert!(result["assumptions"].as_array().unwrap().len() > 5);
    // The engine was not measured at this scale, so no bounds must be given. Catches a regression: wrong bounds are
    // printed.
    let warning = result["warning"].as_str().unwrap();
    assert!(warning.contains("as small as those of pm9d3 at 1/8192"), "{warning}");
    let flood = json(
        &[&requested[..], &["--rate", "500000000", "--utilization", "100%", "--placement", "off"]].concat(),
    );
    assert!(flood["points"][0]["latency_ns"].is_null() && flood["points"][0]["is_overloaded"] == true);
    assert_eq!(points[0]["is_overloaded"], false);
}

/// Regions are as small as this scale allows, a twelfth of a reclaim unit; predictions are calibrated for a drive's ratio of a hundredth
/// and less. A region of a sixth fills so large a part of a unit that the drive relocates a quarter less.
#[test]
fn engine_matches_the_prediction() {
    let directory = tempfile::tempdir().unwrap();
    let (ran, forecast) = both(directory.path(), 600_000, |_| 0);
    assert_eq!(forecast["points"][0]["is_filled"], true, "{forecast}");
    assert!(forecast["warning"].is_null(), "{forecast}");
    assert_eq!(outside(&ran, &forecast), [""; 0], "{ran} {forecast}");
}

/// Catches a regression: expiry is ignored, so that far too many hits are predicted.
#[test]
fn prediction_accounts_for_expiry() {
    let directory = tempfile::tempdir().unwrap();
    let (ran, forecast) = both(directory.path(), 200_000, |object| [0, 3, 5, 9][(object % 4) as usize]);
    // After so few writes flash is not full, and the drive relocates less than a full one, for which the interval was computed.
    assert_eq!(forecast["points"][0]["is_filled"], false);
    assert_eq!(figure(&forecast["points"][0], "dlwa")[0], 1.0);
    assert_eq!(outside(&ran, &forecast), [""; 0], "{ran} {forecast}");
    let trace = &forecast["trace"];
    assert!(trace["ttl_requests_honoured"].as_u64().unwrap() > 100_000, "{trace}");
    let ignoring = json(&[&PREDICT[..], &["--ignore-ttl", &path(directory.path())]].concat());
    assert_eq!(outside(&ran, &ignoring), ["hit_ratio", "alwa"], "{ran} {ignoring}");
}

const PREDICT: [&str; 11] = [
    "predict",
    "--drive",
    "pm9d3",
    "--scale",
    "1/8192",
    "--dram",
    "560000MiB",
    "--utilization",
    "99.8%",
    "--placement",
    "off",
];

fn path(directory: &Path) -> String {
    directory.join("kv.csv").to_str().unwrap().to_owned()
}

/// The engine's result in virtual time, and the prediction for it; the first half is a warm-up.
fn both(directory: &Path, accesses: u32, ttl: fn(u32) -> u32) -> (Value, Value) {
    let trace = trace(directory, accesses, 120_000, ttl);
    let config = directory.join("config.json");
    let text = r#"{ "cache_config": { "cacheSizeMB": 560000, "nvmCacheSizeMB": 1790000, "navyBigHashSizePct": 4, "navyRegionSizeMB": 256,
        "navySegmentedFifoSegmentRatio": [1] },
      "test_config": { "generator": "replay", "numOps": ACCESSES, "numThreads": 1, "traceFileName": "kv.csv", "enableLookaside": true,
        "traceSpeed": 1, "timestampFactor": 1, "warmupOps": HALF } }"#;
    let text = text.replace("ACCESSES", &accesses.to_string()).replace("HALF", &(accesses / 2).to_string());
    std::fs::write(&config, text).unwrap();
    let ran = json(&["bench", config.to_str().unwrap(), "--device", "sim:pm9d3", "--scale", "1/8192"]);
    (ran, json(&[&PREDICT[..], &[&trace]].concat()))
}

/// Figures outside the predicted bounds.
fn outside(ran: &Value, forecast: &Value) -> Vec<&'static str> {
    let is_outside = |name: &&str| {
        let [low, _, high] = figure(&forecast["points"][0], name);
        !(low..=high).contains(&ran["totals"][*name].as_f64().unwrap())
    };
    ["hit_ratio", "hit_ratio_dram", "alwa", "dlwa"].into_iter().filter(is_outside).collect()
}

/// Catches a regression: a trace of a minute is treated as half a century, with a drive that never wears out.
#[test]
fn leading_rows_without_timestamps_do_not_extend_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("late.csv");
    let row = |time: String, row: u32| format!("{time},{},GET,4000\n", row * 7919 % 4001);
    let rows = (0..1000).map(|at| row(String::new(), at));
    let timed = (0..12_001).map(|at| row(format!("{}", 1_700_000_000.0 + f64::from(at) / 200.0), at));
    std::fs::write(&path, "time,key,op,size\n".to_owned() + &rows.chain(timed).collect::<String>()).unwrap();
    let path = path.to_str().unwrap();
    let result = super::json(&["predict", path, "--drive", "test"]);
    assert_eq!(result["trace"]["seconds"], 60.0);
    let rate = result["trace_requests_per_second"].as_f64().unwrap();
    assert!((rate - 200.0).abs() < 0.1, "{rate}");
    let scaled = super::json(&["predict", path, "--drive", "test", "--scale", "1/7"]);
    let rate = scaled["requests_per_second"].as_f64().unwrap();
    assert!((rate / 7.0 - 200.0).abs() < 0.1, "{rate}");
    assert_eq!(super::json(&["trace", "info", path])["span_seconds"], 60.0);
}

/// Catches a regression: for a trace of some megabytes, 57 million requests per second and a price of two million
/// dollars are predicted, because the drive is assumed to serve as many such traces as its size allows.
#[test]
fn rate_is_unknown_unless_the_scale_or_the_rate_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), 50_000, 20_000, |_| 0);
    let requested =
        ["predict", &trace, "--drive", "pm9d3", "--utilization", "100%", "--dram", "4%", "--placement", "on"];
    let unknown = json(&requested);
    assert!((unknown["trace_requests_per_second"].as_f64().unwrap() / 5000.0 - 1.0).abs() < 0.2, "{unknown}");
    let point = &unknown["points"][0];
    assert!(unknown["requests_per_second"].is_null(), "{unknown}");
    for name in ["nand_mb_per_second", "life_years", "kgco2e", "price", "latency_ns"] {
        assert!(point[name].is_null(), "{name}: {point}");
    }
    let text = out(&flashwright(&requested));
    assert!(text.contains("the trace itself has ") && text.contains("give --rate"), "{text}");
    assert!(!text.contains("USD") && !text.contains("NAND MB/s"), "{text}");
    let scale = unknown["scale"].as_str().unwrap();
    for more in [&["--scale", scale][..], &["--rate", "150000"]] {
        let requested = [&requested[..], more].concat();
        let known = json(&requested);
        assert!(known["points"][0]["life_years"]["value"].as_f64().unwrap() > 0.0, "{known}");
        assert!(out(&flashwright(&requested)).contains("NAND MB/s"));
    }
}

/// Catches a regression: only the interval is printed, and it is wide if the trace changes over time.
#[test]
fn value_and_interval_are_printed_and_the_spread_over_time_apart() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), 50_000, 20_000, |_| 0);
    let requested =
        ["predict", &trace, "--drive", "pm9d3", "--utilization", "100%", "--dram", "4%", "--placement", "on"];
    let result = json(&requested);
    let point = &result["points"][0];
    let [low, value, high] = figure(point, "hit_ratio");
    assert!((high - low - 0.05).abs() < 1e-9, "the engine's measured deviation: {point}");
    let over_time = &point["hit_ratio"]["over_time"];
    let [lowest, highest] = ["low", "high"].map(|end| over_time[end].as_f64().unwrap());
    assert!(lowest < value && value < highest, "{point}");
    for name in ["hit_ratio_dram", "alwa"] {
        assert!(point[name]["over_time"]["low"].is_number(), "{name}: {point}");
    }
    let text = out(&flashwright(&requested));
    let [low, value, high, lowest, highest] = [low, value, high, lowest, highest].map(|it| it * 100.0);
    let expected = format!("{value:.1} ({low:.1}-{high:.1})");
    assert!(text.contains(&expected), "{expected}: {text}");
    assert!(text.contains(&format!(" {lowest:.1}-{highest:.1} ")), "{text}");
}

/// Catches a regression: `~` is printed for every trace without small objects, except with `--soc 0%`.
#[test]
fn trace_without_small_objects_fills_flash() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("large.csv");
    let rows: String = (0..40_000_u32).map(|row| format!("k{},GET,8000\n", row * 7919 % 20_011)).collect();
    std::fs::write(&file, format!("key,op,size\n{rows}")).unwrap();
    let requested =
        ["predict", file.to_str().unwrap(), "--drive", "pm9d3", "--dram", "1%", "--placement", "off"];
    for soc in ["4%", "0%", "50%"] {
        let result = json(&[&requested[..], &["--soc", soc]].concat());
        for point in result["points"].as_array().unwrap() {
            assert_eq!(point["is_filled"], true, "{soc}: {point}");
        }
    }
}

#[test]
fn trace_without_timestamps_has_no_lifetime_in_years() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.csv");
    let rows: String = (0..20_000).map(|row| format!("k{:04},GET,{}\n", row * 37 % 5000, 3000)).collect();
    std::fs::write(&file, format!("key,op,size\n{rows}")).unwrap();
    let requested =
        ["predict", file.to_str().unwrap(), "--drive", "pm9d3", "--plot", directory.path().to_str().unwrap()];
    let output = flashwright(&requested);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).contains("it has no timestamps, so rates are unknown: give --rate"),
        "{}",
        out(&output)
    );
    assert!(
        err(&output).contains("--plot: nothing to plot: carbon is unknown without a request rate (--rate)"),
        "{}",
        err(&output)
    );
    let result = json(&requested[..4]);
    assert!(result["points"][0]["life_years"].is_null() && result["requests_per_second"].is_null());
    assert!(figure(&result["points"][0], "dlwa")[1] >= 1.0);
}

#[test]
fn impossible_prediction_is_refused_by_flag() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), 20_000, 4_000, |_| 0);
    for (arguments, expected) in [
        (&["--drive", "pm9d4"][..], "did you mean `pm9d3`"),
        (&["--drive", "tlc", "--placement", "on"], "tlc has no placement handles"),
        (&["--drive", "pm9d3", "--utilization", "0%"], "above 0%"),
        (&["--drive", "pm9d3", "--utilization", "101%"], "at most 100%"),
        (&["--drive", "pm9d3", "--warmup", "100%"], "--warmup: must be below 100%"),
        (&["--drive", "pm9d3", "--soc", "120%"], "more than all"),
        (&["--drive", "pm9d3", "--scale", "1/100000000"], "needs at least 1048576"),
        (&["--drive", "pm9d3", "--limit", "5000"], "5000 accesses; a prediction needs at least 10000"),
        (&["--drive", "pm9d3", "--dram", "much"], "or 4% of the flash"),
    ] {
        let output = flashwright(&[&["predict", &trace][..], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains(expected), "{arguments:?}: {}", err(&output));
        assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    }
}

#[test]
fn target_names_the_cheapest_point_or_the_condition_that_none_meets() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), 100_000, 40_000, |_| 0);
    let run =
        ["predict", &trace, "--drive", "pm9d3", "--scale", "1/16384", "--dram", "1%,8%", "--rate", "20000"];
    let result = json(&[&run[..], &["--target", "hits>10%,p99<1s"]].concat());
    let price = |point: &Value| figure(point, "price")[1];
    let points = result["points"].as_array().unwrap();
    let chosen = &points[result["target"]["point"].as_u64().unwrap() as usize];
    assert!(points.iter().all(|point| price(chosen) <= price(point)), "{}", result["target"]);
    let none = json(&[&run[..], &["--target", "hits>99.9%"]].concat());
    assert!(none["target"]["point"].is_null());
    let best = points.iter().map(|point| figure(point, "hit_ratio")[1]).fold(0.0, f64::max);
    assert_eq!(none["target"]["conditions"][0]["best"], best);
    let text = out(&flashwright(&[&run[..], &["--target", "hits>99.9%"]].concat()));
    assert!(text.contains("target: no point meets hits>99.9%\n  hits>99.9%: the best point has"), "{text}");
}

/// A cache of small objects alone, in sets over 95 % of the drive.
const SMALL_OBJECTS: &str = r#"{ "cache_config": { "cacheSizeMB": 43000, "maxAllocSize": 16384, "allocFactor": 1.2, "nvmCacheSizeMB": 1790000,
    "nvmCachePaths": ["/dev/nvme0n1"], "navyBlockSize": 4096, "navyBigHashSizePct": 95, "navySegmentedFifoSegmentRatio": [1] },
  "test_config": { "generator": "online", "enableLookaside": true, "numOps": 125000, "numThreads": 8, "numKeys": 12000000000,
    "keySizeRange": [16, 17], "keySizeRangeProbability": [1.0], "valSizeRange": [200, 400], "valSizeRangeProbability": [1.0],
    "popularityBuckets": [600000000, 3000000000, 8400000000], "popularityWeights": [0.5, 0.3, 0.2], "getRatio": 0.8, "setRatio": 0.2,
    "delRatio": 0.0 } }"#;

/// Runs a config in the engine on the model drive, and predicts it. Hits must be within a point, the cache's write amplification
/// within 5 %, and the drive's within 10 %.
fn compare(config: &str, changes: &[&str]) {
    let mut flags = vec!["--scale", "1/8192", "--threads", "1"];
    changes.iter().for_each(|change| flags.extend(["--set", change]));
    let of_engine: Vec<&str> =
        flags.iter().copied().filter(|flag| !["--threads", "1"].contains(flag)).collect();
    let ran = json(&[&["bench", config, "--device", "sim:pm9d3"][..], &of_engine].concat());
    let forecast = json(&[&["predict", config, "--drive", "pm9d3"][..], &flags].concat());
    let point = &forecast["points"][0];
    let pair = |name: &str| (ran["totals"][name].as_f64().unwrap(), point[name]["value"].as_f64().unwrap());
    println!("{config} {changes:?}: engine and prediction {:?}", ["hit_ratio", "alwa", "dlwa"].map(pair));
    let (hits, predicted) = pair("hit_ratio");
    assert!((hits - predicted).abs() <= 0.01, "hits {hits}, predicted {predicted}");
    for (name, share) in [("alwa", 0.05), ("dlwa", 0.1)] {
        let (ours, predicted) = pair(name);
        assert!((predicted / ours - 1.0).abs() <= share, "{name} {ours}, predicted {predicted}");
    }
}

#[test]
fn config_is_predicted_as_the_engine_runs_it() {
    let directory = tempfile::tempdir().unwrap();
    let small_objects = directory.path().join("small.json");
    std::fs::write(&small_objects, SMALL_OBJECTS).unwrap();
    let fdp = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fdp.json");
    let shorter = ["test_config.numOps=40000", "test_config.warmupOps=20000"];
    compare(fdp, &shorter);
    compare(small_objects.to_str().unwrap(), &["test_config.warmupOps=80000"]);
    compare(fdp, &[&shorter[..], &["cache_config.navySmallItemEngine=log"]].concat());
}

fn traces() -> Option<std::path::PathBuf> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(2);
    let found = folders.find_map(|it| Some(it.join("shared/traces")).filter(|it| it.is_dir()));
    if found.is_none() {
        println!("SKIPPED: no traces beside the sources");
    }
    found
}

/// Real traces: key-value items of 200 bytes on a twentieth of the drive, and of 1 KiB on nearly all of it.
#[test]
fn replay_of_a_trace_is_predicted_as_the_engine_runs_it() {
    let Some(traces) = traces() else { return };
    let directory = tempfile::tempdir().unwrap();
    for (file, requests, dram_mb, flash_mb, soc) in [
        ("libcachesim/kv_twitter_c52_1m.csv.zst", 1_000_000, 65_536, 98_304, 90),
        ("caffeine/kv_scarab_recs.csv.zst", 1_245_184, 131_072, 1_785_856, 95),
    ] {
        let config = directory.path().join("replay.json");
        let text = serde_json::json!({
            "cache_config": { "cacheSizeMB": dram_mb, "nvmCacheSizeMB": flash_mb, "navyBigHashSizePct": soc,
                "navySegmentedFifoSegmentRatio": [1], "maxAllocSize": 4_000_000, "allocFactor": 1.2 },
            "test_config": { "generator": "replay", "numOps": 2 * requests, "numThreads": 1, "enableLookaside": true,
                "traceFileName": traces.join(file), "replayGeneratorConfig": { "traceFormat": "auto" },
                "warmupOps": requests / 2 },
        });
        std::fs::write(&config, text.to_string()).unwrap();
        compare(config.to_str().unwrap(), &[]);
    }
}

/// A replay shorter than `numOps` counts what follows its `warmupOps`, and one without a rest is refused.
#[test]
fn warm_up_of_a_replay_is_counted_in_requests() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.json");
    trace(directory.path(), 20_000, 4_000, |_| 0);
    let text = r#"{ "cache_config": { "cacheSizeMB": 64, "nvmCacheSizeMB": 1024, "navyBigHashSizePct": 4 },
      "test_config": { "generator": "replay", "numOps": 1000000, "numThreads": 2, "traceFileName": "kv.csv", "warmupOps": 4000 } }"#;
    std::fs::write(&config, text).unwrap();
    let asked = ["predict", config.to_str().unwrap(), "--drive", "pm9d3"];
    let result = json(&asked);
    assert_eq!(
        (&result["warmup_accesses"], &result["trace"]["accesses"]),
        (&Value::from(8000), &Value::from(20_000))
    );
    assert!(out(&flashwright(&asked)).contains("the config is simulated at full size"));
    let output = flashwright(&[&asked[..], &["--set", "test_config.warmupOps=10000"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(
        err(&output).contains("has 20000 accesses, and all are in the warm-up (20000)"),
        "{}",
        err(&output)
    );
}

/// The log writes its objects once and takes an index, which is counted in carbon.
#[test]
fn sets_and_log_are_rows_of_one_prediction() {
    let fdp = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fdp.json");
    let requested =
        ["predict", fdp, "--drive", "pm9d3", "--scale", "1/8192", "--set", "test_config.numOps=5000"];
    let more = ["--small", "sets,log", "--rate", "1000", "--target", "alwa<1.5"];
    let result = json(&[&requested[..], &more].concat());
    let [sets, log] = result["points"].as_array().unwrap().as_slice() else { panic!("{result}") };
    assert_eq!((&sets["small"], &log["small"]), (&Value::from("sets"), &Value::from("log")));
    assert!(figure(sets, "alwa")[1] > 1.5 && figure(log, "alwa")[1] < 1.2, "{result}");
    assert_eq!(result["target"]["point"], 1);
    // 71,600 MiB of small objects: a filter of 8 bytes per 4 KiB, and some 3 bytes per object of 256.
    let [of_sets, of_log] = [sets, log].map(|point| point["small_dram_bytes"].as_f64().unwrap());
    assert!((of_sets / 146_636_800.0 - 1.0).abs() < 0.01, "{of_sets}");
    let objects = 71_600.0 * 1_048_576.0 / 256.0;
    assert!((2.8..5.0).contains(&(of_log / objects)), "{of_log}");
    assert!(figure(log, "kgco2e")[0] > 1.5 * (43_000.0 * 1.048_576 + of_log / 1e6) / 1e3, "{log}");
}

#[test]
fn config_that_cannot_be_predicted_is_refused_with_its_key() {
    let fdp = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fdp.json");
    for (drive, flags, said) in [
        ("pm9d3", vec!["--set", "cache_config.nvmCacheSizeMB=0"], "cache_config.nvmCacheSizeMB"),
        ("pm9d3", vec!["--set", "cache_config.nvmCacheSizeMB=3000000"], "--utilization 100% takes all of it"),
        (
            "pm9d3",
            vec!["--set", "cache_config.navyAdmissionWriteRateMB=10"],
            "cache_config.navyAdmissionWriteRateMB",
        ),
        (
            "pm9d3",
            vec!["--set", "cache_config.nvmAdmissionRetentionTimeThreshold=60"],
            "nvmAdmissionRetentionTime",
        ),
        ("pm9d3", vec!["--set", "test_config.onlySetIfMiss=true"], "--set test_config.onlySetIfMiss=false"),
        ("pm9d3", vec!["--set", "test_config.numOps=100"], "fdp.json: has 1600 accesses; a prediction needs"),
        ("pm9d3", vec!["--format", "csv"], "--format: is for a trace"),
        ("tlc", vec![], "cache_config.deviceEnableFDP: tlc has no placement handles"),
    ] {
        let output = flashwright(&[&["predict", fdp, "--drive", drive][..], &flags].concat());
        assert!(!output.status.success() && err(&output).contains(said), "{flags:?}: {}", err(&output));
    }
    let trace = flashwright(&["predict", "trace.csv", "--drive", "pm9d3", "--set", "test_config.numOps=1"]);
    assert!(err(&trace).contains("--set: is for a config"), "{}", err(&trace));
    let lru = ["predict", fdp, "--drive", "pm9d3", "--scale", "1/8192", "--set", "test_config.numOps=1000"];
    let output =
        flashwright(&[&lru[..], &["--set", "cache_config.navySegmentedFifoSegmentRatio=null"]].concat());
    assert!(output.status.success() && err(&output).contains("predicted as evicted first in, first out"));
    let text = "the config is simulated at 1/8192 of its sizes; it limits no rate (test_config.opRatePerSec): give --rate";
    assert!(out(&output).contains(text), "{}", out(&output));
    let all = flashwright(&[&lru[..], &["--set", "test_config.warmupOps=999", "--warmup", "0%"]].concat());
    assert!(out(&all).contains("the first 0 warmed up"), "{}", out(&all));
}
