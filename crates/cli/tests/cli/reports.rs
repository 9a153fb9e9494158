//! Finished runs: comparison and HTML page.

use std::path::Path;

use serde_json::{Value, json};

use crate::{err, flashwright, json as result_of, out};

const CONFIG: &str = r#"{
  "cache_config": { "cacheSizeMB": 8, "nvmCacheSizeMB": 32, "navyRegionSizeMB": 1, "navyBlockSize": 4096 },
  "test_config": { "numOps": 20000, "numThreads": 2, "numKeys": 20000, "enableLookaside": true,
    "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 4000], "valSizeRangeProbability": [1.0],
    "getRatio": 0.8, "setRatio": 0.2, "delRatio": 0.0 }
}"#;

/// Results in their own directory.
struct Results(tempfile::TempDir);

impl Results {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config.json"), CONFIG).unwrap();
        Self(directory)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// A simulated run of `bench`.
    fn bench(&self, name: &str, more: &[&str]) -> String {
        let (config, file) = (self.path("config.json"), self.path(name));
        let run = ["bench", &config, "--device", "sim:test", "-q", "--json", &file];
        let output = flashwright(&[&run, more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        file
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }
}

fn read(file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn figure<'a>(comparison: &'a Value, name: &str) -> &'a Value {
    comparison["figures"].as_array().unwrap().iter().find(|figure| figure["name"] == name).unwrap()
}

#[test]
fn half_sized_cache_is_worse_beyond_noise_and_fails_the_gate() {
    let results = Results::new();
    let (large, small) = (
        results.bench("a.json", &["--set", "cache_config.cacheSizeMB=16"]),
        results.bench("b.json", &["--seed", "2"]),
    );
    let comparison = result_of(&["compare", &large, &small]);
    assert_eq!(comparison["command"], "compare");
    let dram = figure(&comparison, "hit_ratio_dram");
    assert_eq!((&dram["beyond_noise"], &dram["better"]), (&json!(true), &json!("higher")), "{dram}");
    assert!(dram["ratio"].as_f64().unwrap() < 0.8, "{dram}");
    assert_eq!(figure(&comparison, "io_errors")["beyond_noise"], false, "none on both sides");
    assert_eq!(
        figure(&comparison, "latency_ns.cache.get.p99")["beyond_noise"],
        Value::Null,
        "one run has one p99"
    );
    let keys: Vec<_> =
        comparison["differences"].as_array().unwrap().iter().map(|it| it["key"].clone()).collect();
    assert_eq!(keys, ["config.cache_config.cacheSizeMB", "seed"]);

    let gate = |a: &str, b: &str| flashwright(&["compare", a, b, "--fail-if-worse", "--quiet"]);
    let failed = gate(&large, &small);
    assert_eq!(failed.status.code(), Some(1));
    assert!(err(&failed).contains("failed: worse: hit_ratio_dram 0."), "{}", err(&failed));
    assert_eq!(gate(&small, &large).status.code(), Some(0), "better is not worse");
    assert_eq!(gate(&small, &small).status.code(), Some(0));
}

#[test]
fn repeated_runs_give_the_noise_of_latencies() {
    let results = Results::new();
    let side = |size: &str, seeds: [&str; 3]| {
        let set = format!("cache_config.cacheSizeMB={size}");
        seeds.map(|seed| results.bench(&format!("{size}-{seed}.json"), &["--set", &set, "--seed", seed]))
    };
    let (a, b) = (side("8", ["1", "2", "3"]), side("24", ["4", "5", "6"]));
    let comparison = result_of(&["compare", &a[0], &a[1], &a[2], "--against", &b[0], &b[1], &b[2]]);
    assert_eq!(figure(&comparison, "hit_ratio_dram")["beyond_noise"], true);
    assert!(figure(&comparison, "latency_ns.cache.get.p99")["beyond_noise"].is_boolean());
    assert_eq!(comparison["differing_within_a_side"], json!([]));

    let twice = flashwright(&["compare", &a[0], &a[0], "--against", &b[0]]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(err(&twice).contains("is the same run as"), "{}", err(&twice));
    let three = flashwright(&["compare", &a[0], &a[1], &a[2]]);
    assert!(err(&three).starts_with("error: more than two RUNs need --against"), "{}", err(&three));
}

#[test]
fn results_are_compared_by_name_and_different_commands_refused() {
    let results = Results::new();
    let written = |name: &str, arguments: &[&str]| {
        let file = results.path(name);
        let output = flashwright(&[arguments, &["-q", "--json", &file]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        file
    };
    let dlwa = |name: &str, op: &str| written(name, &["model", "dlwa", "--soc", "4%", "--op", op]);
    let (less, more) = (dlwa("a.json", "7%"), dlwa("b.json", "17%"));
    let comparison = result_of(&["compare", &less, &more]);
    let figure = figure(&comparison, "result.dlwa");
    assert!(figure["b"].as_f64() < figure["a"].as_f64() && figure["beyond_noise"].is_null(), "{figure}");
    let drive = written("c.json", &["ssd", "run", "test", "--warm-up", "1", "--measure", "1"]);
    let refused = flashwright(&["compare", &less, &drive]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        err(&refused).contains("`model dlwa`") && err(&refused).contains("`ssd run`"),
        "{}",
        err(&refused)
    );

    let page = results.path("all.html");
    let output = flashwright(&["report", &less, &more, &drive, "-o", &page]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let page = std::fs::read_to_string(page).unwrap();
    for text in ["result.dlwa", "gc_events", "streams", "ssd run", "Theorem 1"] {
        assert!(page.contains(text), "{text} is missing");
    }
}

#[test]
fn page_is_self_contained() {
    let results = Results::new();
    let run = results.bench("a.json", &["--set", "cache_config.deviceEnableFDP=true"]);
    let output = flashwright(&["report", &run]);
    assert_eq!(
        (output.status.code(), out(&output)),
        (Some(0), format!("{}\n", results.path("a.html"))),
        "{}",
        err(&output)
    );
    let page = std::fs::read_to_string(results.path("a.html")).unwrap();
    let shown = [
        "Passed its checks",
        "throughput_ops_per_second",
        "Over time",
        "p9999",
        "Placement",
        "cacheSizeMB",
        "--device sim:test",
    ];
    for text in shown {
        assert!(page.contains(text), "{text} is missing");
    }
    let charts = "throughput, hit ratio, slow gets, slow reads of the device, write amplification, latency";
    assert_eq!(page.matches("<svg").count(), 6, "{charts}");
    let asks = page.replace("http://www.w3.org/2000/svg", "");
    for word in ["http:", "https:", "<script", "<link", "<img", "@import", "url(", "NaN", "inf,"] {
        assert!(!asks.contains(word), "{word}");
    }
    // The page can be replaced by another page; other files stay.
    assert_eq!(flashwright(&["report", &run]).status.code(), Some(0));
    results.write("a.html", "mine");
    assert_eq!(flashwright(&["report", &run]).status.code(), Some(2));
    assert_eq!(std::fs::read(results.path("a.html")).unwrap(), b"mine");
    let over = flashwright(&["report", &run, "-o", &run]);
    assert_eq!(over.status.code(), Some(2));
    assert!(read(&run)["totals"].is_object(), "the run's result is unchanged");
}

/// Catches a regression: if the first run lacks an operation, the second is drawn in the first one's colour.
#[test]
fn run_keeps_its_colour_if_an_earlier_run_is_missing() {
    let results = Results::new();
    let run = read(&results.bench("run.json", &[]));
    let page_of = |ahead: &Value| {
        let (ahead, whole) = (ahead.to_string(), run.to_string());
        let (one, two) = (results.write("ahead.json", ahead), results.write("whole.json", whole));
        let page = results.path("page.html");
        assert_eq!(flashwright(&["report", &one, &two, "-o", &page]).status.code(), Some(0));
        std::fs::read_to_string(page).unwrap()
    };
    let mut without = run.clone();
    without["seed"] = 7.into();
    let with_both = page_of(&without);
    without["totals"]["latency_ns"]["cache"].as_object_mut().unwrap().remove("set").unwrap();
    let lines = |page: &str, colour: &str| page.matches(&format!("stroke=\"{colour}\"")).count();
    let (of_first, of_second) = ("#0072B2", "#D55E00");
    let page = page_of(&without);
    assert!(lines(&page, of_first) < lines(&with_both, of_first));
    assert_eq!(lines(&page, of_second), lines(&with_both, of_second));
}

#[test]
fn file_contents_are_escaped_in_the_page() {
    let results = Results::new();
    let mut run = read(&results.bench("a.json", &[]));
    let evil = "</pre><script>alert('x')</script>\"&\u{1}\u{1b}[2J";
    run["config"]["cache_config"]["nvmCachePaths"] = json!([evil]);
    run["totals"]["warnings"] = json!([evil]);
    run["verdict"] = json!({ "passed": false, "failures": [evil] });
    run["environment"]["arguments"] = json!(["bench", evil]);
    run["totals"]["latency_ns"]["cache"][evil] = run["totals"]["latency_ns"]["cache"]["get"].clone();
    run[evil] = json!([{ evil: evil }]);
    let file = results.write("<b>&'\"x.json", run.to_string());
    let page = results.path("page.html");
    let output = flashwright(&["report", &file, &file, "-o", &page]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        !page.contains("<script")
            && !page.contains("<b>")
            && !page.contains('\u{1b}')
            && !page.contains('\u{1}')
    );
    assert!(
        page.contains("&lt;/pre&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;"),
        "it is shown"
    );
}

#[test]
fn old_result_without_intervals_is_rendered_and_compared() {
    let results = Results::new();
    let mut run = read(&results.bench("a.json", &[]));
    run.as_object_mut().unwrap().remove("intervals");
    let old = results.write("old.json", run.to_string());
    let page = results.path("old.html");
    assert_eq!(flashwright(&["report", &old, "-o", &page]).status.code(), Some(0));
    let comparison = result_of(&["compare", &old, &results.path("a.json")]);
    assert_eq!(figure(&comparison, "hit_ratio")["beyond_noise"], Value::Null);
}

#[test]
fn invalid_result_file_is_one_line_and_nothing_is_written() {
    let results = Results::new();
    let good = results.bench("a.json", &[]);
    let text = std::fs::read_to_string(&good).unwrap();
    let newer = text.replacen(env!("CARGO_PKG_VERSION"), "99.0.0", 1);
    let wrong = text.replacen("\"hit_ratio\": ", "\"hit_ratio\": \"x\", \"was\": ", 9);
    let cases: [(&str, &[u8], &str); 7] = [
        ("empty.json", b"", "is empty"),
        ("config.json", CONFIG.as_bytes(), "not a flashwright result"),
        ("list.json", b"[1, 2]", "not a flashwright result"),
        ("text.json", b"== Test Results ==\n", "not JSON: "),
        ("newer.json", newer.as_bytes(), "which is newer than this version"),
        ("wrong.json", wrong.as_bytes(), "totals.hit_ratio: \"x\" is not a number"),
        ("cut.json", &text.as_bytes()[..text.len() / 2], "is truncated in line "),
    ];
    let page = results.path("page.html");
    for (name, bytes, reason) in cases {
        let file = results.write(name, bytes);
        for arguments in
            [vec!["report", &good, &file, "-o", &page], vec!["compare", &good, &file, "--json", &page]]
        {
            let output = flashwright(&arguments);
            let said = err(&output);
            assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
            assert!(said.starts_with(&format!("error: {file}: ")) && said.contains(reason), "{said}");
            assert!(!Path::new(&page).exists(), "{name}");
        }
    }
}

/// The `drive` of a prediction is a card's name; that of `bench` is the model drive.
#[test]
fn prediction_is_rendered_and_compared() {
    let results = Results::new();
    let (trace, file, page) = (results.path("trace.csv"), results.path("p.json"), results.path("p.html"));
    let made = flashwright(&["trace", "generate", "zipf", "--requests", "20000", "-o", &trace]);
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    let cache = ["--drive", "test", "--rate", "1000", "--dram", "1%", "--utilization", "100%"];
    let run = flashwright(&[&["predict", &trace, "--json", &file][..], &cache].concat());
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    let output = flashwright(&["report", &file, "-o", &page]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h2>points</h2>") && page.contains("<summary>drive</summary>"), "{page}");
    let comparison = result_of(&["compare", &file, &file]);
    assert_eq!(figure(&comparison, "points[0].hit_ratio.value")["ratio"], 1.0);
}

/// Catches a regression: results of the same seed differ in the time of their creation.
#[test]
fn simulated_result_has_no_wall_clock_time() {
    let results = Results::new();
    let run = read(&results.bench("a.json", &[]));
    assert_eq!(
        (&run["world"], &run["environment"]["started_unix_seconds"]),
        (&"simulated".into(), &Value::Null)
    );
    let real = result_of(&["bench", &results.path("config.json"), "--device", "memory:"]);
    assert!(real["environment"]["started_unix_seconds"].is_u64());
}
