//! Comparison of results, with differences and margins computed by hand.
use flashwright_bench::report::compare::{Compared, Comparison, compare};
use flashwright_bench::report::differences;
use flashwright_bench::report::finished::{Finished, Interval};
use serde_json::{Value, json};

/// A run with this seed and the result keys in `more`.
fn run(seed: u64, more: &Value) -> Finished {
    let mut result = json!({
        "flashwright": "0.1.0", "command": "bench", "config": { "cacheSizeMB": 8 }, "seed": seed,
        "verdict": { "passed": true, "failures": [] },
    });
    more.as_object().unwrap().iter().for_each(|(key, value)| result[key] = value.clone());
    let Value::Object(result) = result else { unreachable!("it was written as an object") };
    Finished { file: format!("{seed}.json").into(), result, intervals: Vec::new() }
}

/// Runs with consecutive seeds, each with one value per figure.
fn side(seed: u64, figures: &[(&str, &[f64])]) -> Vec<Finished> {
    let runs = figures[0].1.len();
    let of_run = |number: usize| {
        let totals = figures.iter().map(|(name, values)| ((*name).to_owned(), json!(values[number])));
        run(seed + number as u64, &json!({ "totals": totals.collect::<serde_json::Map<_, _>>() }))
    };
    (0..runs).map(of_run).collect()
}

fn figure<'a>(comparison: &'a Comparison, name: &str) -> &'a Compared {
    comparison.figures.iter().find(|figure| figure.a.name == name).unwrap()
}

/// Four values around `mean` with a variance of 2/3.
fn around(mean: f64) -> [f64; 4] {
    [0.0, 1.0, -1.0, 0.0].map(|rest| mean + rest)
}

#[test]
fn repeated_runs_are_judged_by_direction_of_each_figure() {
    let (low, mid, high) = (around(10.0), around(13.0), around(14.0));
    let (none, one, some) = ([0.0; 4], [0.0, 0.0, 1.0, 0.0], [2.0; 4]);
    let cases: [(&str, [f64; 4], [f64; 4], &str); 8] = [
        ("throughput_ops_per_second", low, high, "better"),
        ("alwa", low, high, "worse"),
        ("dlwa", high, low, "better"),
        ("hit_ratio", low, mid, "within noise"),
        ("ops", low, high, "differs"),
        ("inconsistencies", none, none, "same"),
        ("io_errors", none, one, "worse"),
        ("checksum_errors", some, none, "better"),
    ];
    let a = side(1, &cases.each_ref().map(|(name, a, ..)| (*name, &a[..])));
    let b = side(5, &cases.each_ref().map(|(name, _, b, _)| (*name, &b[..])));
    let comparison = compare(&a, &b).unwrap();
    assert_eq!(
        (comparison.judged, comparison.is_repeated),
        (5, true),
        "error counts are not judged statistically"
    );
    for (name, a, b, word) in cases {
        let found = figure(&comparison, name);
        let mean = |values: [f64; 4]| Some(values.iter().sum::<f64>() / 4.0);
        assert_eq!((found.a.value, found.b, found.word()), (mean(a), mean(b), word), "{name}");
        let margin = found.margin.unwrap_or(0.0);
        // Five figures: Student's t of 0.01 / 5 with 6 degrees of freedom is 5.208, and the standard error is sqrt(2 * 2/3 / 4).
        let expected = if name.ends_with("rs") || name == "inconsistencies" { 0.0 } else { 5.208 };
        assert!((margin - expected * (1.0_f64 / 3.0).sqrt()).abs() < 1e-3, "{name}: {margin}");
    }
    let worse = ["worse: alwa 10.0000 became 14.0000", "worse: io_errors 0 became 0.2500"];
    assert_eq!(comparison.worse(), worse);
    let errors = comparison.to_json()["figures"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["name"] == "io_errors")
        .cloned();
    assert_eq!(
        errors.unwrap(),
        json!({ "name": "io_errors", "a": 0, "b": 0.25, "ratio": null, "beyond_noise": true, "difference": null,
            "margin": null, "better": "none", "unit": "" })
    );
}

#[test]
fn figure_unknown_in_one_run_is_not_compared() {
    let mut b = side(3, &[("hit_ratio", &[0.7, 0.8])]);
    b[1].result["totals"]["hit_ratio"] = Value::Null;
    let comparison = compare(&side(1, &[("hit_ratio", &[0.5, 0.6])]), &b).unwrap();
    let found = figure(&comparison, "hit_ratio");
    assert_eq!((found.a.value, found.b, found.beyond_noise, found.word()), (Some(0.55), None, None, ""));
    assert_eq!(comparison.judged, 0);
    let text = comparison.to_text();
    assert!(text.contains("The noise of these figures is unknown"));
    assert!(text.lines().any(|line| line.starts_with("hit_ratio") && line.contains(" unknown ")), "{text}");
}

#[test]
fn single_run_uses_variance_of_the_other_side() {
    let comparison = compare(&side(1, &[("alwa", &[10.0])]), &side(2, &[("alwa", &[12.0, 14.0])])).unwrap();
    assert_eq!((comparison.judged, comparison.is_repeated), (1, true));
    let alwa = figure(&comparison, "alwa");
    assert_eq!((alwa.difference.unwrap().value, alwa.word()), (3.0, "within noise"));
    // The variance of the mean of the two runs is 1 and of the single run 2; Student's t with 1 degree of freedom is 63.657.
    assert!((alwa.margin.unwrap() - 63.657 * 3.0_f64.sqrt()).abs() < 1e-2, "{:?}", alwa.margin);
}

#[test]
fn differences_within_histogram_resolution_and_rounding_are_noise() {
    let latency = |p50: f64, p99: f64| json!({ "cache": { "get": { "p50": p50, "p99": p99 } } });
    let runs = |seed: u64, p50: f64, p99: f64, alwa: f64, hit_ratio: f64| {
        let totals = json!({ "latency_ns": latency(p50, p99), "alwa": alwa, "dlwa": alwa + 1.0, "hit_ratio": hit_ratio });
        [0, 1].map(|number| run(seed + number, &json!({ "totals": totals })))
    };
    // There is no variance. 2 % of the larger values is 20.38 and 20.5.
    let (a, b) = (runs(1, 1000.0, 1000.0, 0.1 + 0.2, 0.0), runs(3, 1019.0, 1025.0, 0.3, 0.0));
    let comparison = compare(&a, &b).unwrap();
    let judged = |name: &str| (figure(&comparison, name).margin.unwrap(), figure(&comparison, name).word());
    assert_eq!(judged("latency_ns.cache.get.p50"), (20.38, "within noise"));
    assert_eq!(judged("latency_ns.cache.get.p99"), (20.5, "worse"));
    assert_eq!(judged("alwa"), (0.0, "within noise"));
    assert_eq!(judged("hit_ratio"), (0.0, "within noise"));
    let shorter = compare(&a, &runs(3, 1000.0, 1000.0, 0.299, 0.0)).unwrap();
    assert_eq!(figure(&shorter, "alwa").word(), "better", "a difference of 1/1000 is not rounding");
}

/// A run whose first quarter has other rates than the rest.
fn over_time(seed: u64, whole: f64, after_warm_up: f64) -> Vec<Finished> {
    let second = |number: u32| Interval {
        until_seconds: f64::from(number + 1),
        seconds: 1.0,
        ops: Some(if number < 10 { 9000.0 } else { after_warm_up + f64::from(number % 2) }),
        ..Interval::default()
    };
    let run = run(seed, &json!({ "totals": { "throughput_ops_per_second": whole, "alwa": 1.5 } }));
    vec![Finished { intervals: (0..40).map(second).collect(), ..run }]
}

#[test]
fn single_runs_are_judged_by_intervals_after_first_quarter() {
    let comparison = compare(&over_time(1, 3000.0, 1000.0), &over_time(2, 2900.0, 1100.0)).unwrap();
    let throughput = figure(&comparison, "throughput_ops_per_second");
    assert_eq!((throughput.a.value, throughput.b), (Some(3000.0), Some(2900.0)));
    let difference = throughput.difference.unwrap().value;
    assert!((difference - 100.0).abs() < 1e-9, "{difference}");
    assert_eq!(throughput.word(), "better", "though its whole run was slower");
    let alwa = figure(&comparison, "alwa");
    assert_eq!(
        (alwa.beyond_noise, alwa.difference, alwa.word()),
        (None, None, ""),
        "intervals do not have this figure"
    );
    assert_eq!((comparison.judged, comparison.is_repeated), (1, false));
    assert!(
        comparison
            .to_text()
            .ends_with("Give several runs per side (--against) to include noise between runs.\n")
    );
}

/// The figures exclude the twelve intervals of the warm-up and include all later ones.
#[test]
fn configured_warm_up_is_excluded_exactly() {
    let second = |number: u32, right_after: f64, later: f64| Interval {
        until_seconds: f64::from(number + 1) * 0.1,
        seconds: f64::from(number + 1) * 0.1 - f64::from(number) * 0.1,
        ops: Some(match number {
            0..12 => 9000.0,
            12..14 => right_after,
            _ => later,
        }),
        ..Interval::default()
    };
    let side = |seed: u64, length: u32, ended: bool, right_after: f64, later: f64| {
        let totals =
            json!({ "throughput_ops_per_second": 1.0, "warmup": { "ended": ended, "seconds": 1.2 } });
        let run = run(seed, &json!({ "totals": totals }));
        [Finished { intervals: (0..length).map(|it| second(it, right_after, later)).collect(), ..run }]
    };
    let difference = |a: &[Finished], b: &[Finished]| {
        let comparison = compare(a, b).unwrap();
        figure(&comparison, "throughput_ops_per_second").difference.map(|it| it.value)
    };
    // The first quarter of 24 intervals would be only half of the warm-up.
    let short = difference(&side(1, 24, true, 100.0, 100.0), &side(2, 24, true, 110.0, 110.0)).unwrap();
    assert!((short - 100.0).abs() < 1e-6, "ten more in a tenth of a second: {short}");
    // The first quarter of 56 intervals is 14, two more than the warm-up.
    let long = difference(&side(1, 56, true, 100.0, 100.0), &side(2, 56, true, 320.0, 100.0)).unwrap();
    assert!((long - 100.0).abs() < 1e-6, "220 more in two of 44 intervals: {long}");
    let unended = difference(&side(1, 56, false, 100.0, 100.0), &side(2, 56, false, 320.0, 100.0)).unwrap();
    assert!(unended.abs() < 1e-6, "without an end of the warm-up the first quarter is excluded: {unended}");
    let brief = difference(&side(1, 21, true, 100.0, 100.0), &side(2, 21, true, 110.0, 110.0));
    assert_eq!(brief, None, "nine intervals are too few");
}

#[test]
fn results_without_figure_table_are_compared_by_common_names() {
    let study = |seed: u64, result: Value| [run(seed, &json!({ "command": "model dlwa", "result": result }))];
    let (a, b) =
        (study(1, json!({ "x": 2, "none": 0, "y": 1 })), study(2, json!({ "z": 1, "none": 4, "x": 3 })));
    let figures = compare(&a, &b).unwrap().to_json()["figures"].take();
    let figure_at =
        |number: usize| (&figures[number]["name"], &figures[number]["b"], &figures[number]["ratio"]);
    assert_eq!(figure_at(0), (&json!("result.x"), &json!(3), &json!(1.5)));
    assert_eq!(figure_at(1), (&json!("result.none"), &json!(4), &Value::Null));
    assert_eq!(figures.as_array().unwrap().len(), 2);
    let nothing = compare(&a, &study(2, json!({ "z": 1 }))).unwrap_err();
    assert_eq!(nothing, "results of `model dlwa` have no figures in common");
}

#[test]
fn invalid_sides_are_refused() {
    let runs = side(1, &[("alwa", &[1.0, 2.0])]);
    let refused = |a: &[Finished], b: &[Finished]| compare(a, b).unwrap_err();
    assert_eq!(refused(&[], &runs), "no runs to compare");
    assert!(refused(&runs, &[]).starts_with("one run has nothing to compare with"));
    let other = run(9, &json!({ "command": "ssd run", "totals": { "alwa": 1.0 } }));
    assert!(refused(&runs, &[runs[0].clone(), other]).contains("9.json of `ssd run`"));
    let twice = [runs[0].clone(), runs[0].clone()];
    assert!(
        refused(&twice, &runs).contains("is the same run as") && refused(&runs, &twice).contains("--seed")
    );
    // Equal figures are not a duplicate run, and a real drive gives different figures for the same seed.
    let alike = side(3, &[("alwa", &[1.0, 1.0])]);
    let one_seed =
        [run(5, &json!({ "totals": { "alwa": 1.0 } })), run(5, &json!({ "totals": { "alwa": 2.0 } }))];
    assert!(compare(&alike, &one_seed).is_ok());
    assert!(compare(&runs[..1], &runs[..1]).is_ok(), "the same run may be on both sides");
}

#[test]
fn failed_check_on_second_side_only_is_worse() {
    let passed = || side(1, &[("alwa", &[1.0])]);
    let failed = || {
        [run(2, &json!({ "totals": { "alwa": 1.0 }, "verdict": { "passed": false, "failures": ["lost"] } }))]
    };
    assert_eq!(compare(&passed(), &failed()).unwrap().worse(), ["2.json: lost"]);
    assert!(compare(&failed(), &passed()).unwrap().worse().is_empty());
    assert!(compare(&failed(), &failed()).unwrap().worse().is_empty(), "it failed before as well");
}

#[test]
fn differences_list_config_and_seed_but_not_start_time() {
    let requested = |seed: u64, config: Value, at: u64| {
        let environment = json!({ "cores": 2, "started_unix_seconds": at, "arguments": [["bench"], at] });
        run(
            seed,
            &json!({ "config": config, "environment": environment, "drive": { "card": "tlc", "dlwa": at } }),
        )
    };
    let a = [
        requested(1, json!({ "sizes": [1, 2], "pools": [{ "mb": 4 }, { "mb": 8 }], "empty": {} }), 10),
        requested(2, json!({ "sizes": [1, 2], "pools": [{ "mb": 4 }, { "mb": 9 }], "empty": {} }), 20),
    ];
    let b = [requested(3, json!({ "sizes": [1, 3], "pools": [{ "mb": 4 }], "threads": 2 }), 30)];
    let (differing, mixed) = differences::between(&a, &b);
    let listed: Vec<(&str, Value, Value)> =
        differing.iter().map(|it| (it.key.as_str(), it.a.clone(), it.b.clone())).collect();
    assert_eq!(
        listed,
        [
            ("config.empty", json!({}), Value::Null),
            ("config.pools[1].mb", json!([8, 9]), Value::Null),
            ("config.sizes", json!([1, 2]), json!([1, 3])),
            ("config.threads", Value::Null, json!(2)),
            ("seed", json!([1, 2]), json!(3)),
        ]
    );
    assert_eq!(mixed, ["config.pools[1].mb"], "different seeds are expected in repeated runs");
    assert_eq!(differences::between(&b, &a).1, mixed);
    assert_eq!(differences::value(&a[0], "config.pools[1].mb"), Some(&json!(8)));
    assert_eq!(differences::value(&a[0], "drive.card"), Some(&json!("tlc")));
    assert_eq!(differences::value(&b[0], "config.pools[1].mb"), None);
}

#[test]
fn text_lists_differences_then_figures_then_reliability() {
    let a = side(1, &[("throughput_ops_per_second", &[1000.0, 1000.0]), ("io_errors", &[0.0, 0.0])]);
    let mut b = side(1, &[("throughput_ops_per_second", &[1500.0, 1500.0]), ("io_errors", &[0.0, 0.0])]);
    let same = compare(&a, &b).unwrap().to_text();
    assert!(same.starts_with("Config, seed, environment and version are the same.\n\n"), "{same}");
    let config = |run: &mut Finished, config: Value| run.result.insert("config".into(), config);
    b.iter_mut().for_each(|run| _ = config(run, json!({ "cacheSizeMB": 8, "path": "x".repeat(100) })));
    let shown = compare(&a, &b).unwrap().to_text();
    let cut = "x".repeat(59);
    let expected = format!(
        "Differences:\n  config.path  null  →  \"{cut}…\n
figure                         a      b   b / a
throughput_ops_per_second  1,000  1,500  1.5000  better
io_errors                      0      0       -  same\n
Figures tested: 1. In 1 % of comparisons, chance alone puts one of them beyond noise.\n"
    );
    assert_eq!(shown, expected);
    for keys in [24, 25, 30] {
        let many: serde_json::Map<String, Value> = (0..keys).map(|key| (key.to_string(), json!(1))).collect();
        b.iter_mut().for_each(|run| _ = config(run, json!({ "cacheSizeMB": 8, "many": many })));
        let shown = compare(&a, &b).unwrap().to_text();
        assert_eq!(shown.matches("null  →  1").count(), 24);
        let more = format!("  and {} more keys; --json lists them\n", keys - 24);
        assert_eq!(shown.contains(&more), keys > 24, "{shown}");
    }
}
