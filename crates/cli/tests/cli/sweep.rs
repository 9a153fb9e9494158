//! `flashwright sweep`: all combinations, each once, also after an interrupt or a failure.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{FLASHWRIGHT, err, flashwright, json, out, result};

/// Requests for 300 objects, the popular ones more often.
fn trace(directory: &Path, name: &str, seed: u64) -> String {
    let mut state = seed;
    let mut rows = String::from("time,key,size\n");
    for time in 0..5000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = (state >> 33) % 300;
        rows += &format!("{time},{},{}\n", draw * draw / 300, 100 + draw);
    }
    let file = directory.join(name);
    std::fs::write(&file, rows).unwrap();
    file.to_str().unwrap().to_owned()
}

fn plan(directory: &Path, text: &str) -> String {
    let file = directory.join("plan.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn rows(out: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(Path::new(out).join("results.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn sweep_rows_equal_those_of_simulate_and_a_second_sweep_runs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let traces = ["a.csv", "b.csv"].map(|name| trace(directory.path(), name, name.len() as u64));
    let text = format!(
        "command = \"simulate\"\n[fixed]\nwarmup = \"10%\"\n[axes]\ntrace = {traces:?}\npolicy = [\"lru\", \"sieve\"]\nsize = [\"5%\", \"20%\"]\n"
    );
    let plan = plan(directory.path(), &text);
    let output = directory.path().join("out").to_str().unwrap().to_owned();

    let listed = out(&flashwright(&["sweep", &plan, "--out", &output, "--dry-run"]));
    assert!(listed.ends_with("8 cells, 8 to run\n"), "{listed}");
    let first = json(&["sweep", &plan, "--out", &output]);
    assert_eq!((&first["cells"], &first["ran"], &first["rows"]), (&8.into(), &8.into(), &8.into()));
    let found = rows(&output);
    for (number, row) in found.iter().enumerate() {
        let (policy, trace) = (row["policy"].as_str().unwrap(), row["trace"].as_str().unwrap());
        let size = if number % 4 < 2 { "5%" } else { "20%" };
        assert_eq!(
            (&row["cell"], row["size"].as_str()),
            (&number.into(), Some(size)),
            "trace varies fastest"
        );
        let alone = json(&["simulate", trace, "--policy", policy, "--size", size, "--warmup", "10%"]);
        for (name, value) in alone["rows"][0].as_object().unwrap() {
            assert_eq!(&row[name], value, "{name} of cell {number}");
        }
    }
    let second = json(&["sweep", &plan, "--out", &output]);
    assert_eq!((&second["ran"], &second["had_results"]), (&0.into(), &8.into()));
    assert_eq!(rows(&output), found);
}

#[test]
fn cells_run_one_by_one_combine_to_the_same_rows() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), "a.csv", 3);
    let text = format!(
        "command = \"simulate\"\n[fixed]\ntrace = {trace:?}\n[axes]\nseed = [1, 2]\npolicy = [\"lru\", \"fifo\"]\n"
    );
    let plan = plan(directory.path(), &text);
    let [whole, parts] =
        ["whole", "parts"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
    json(&["sweep", &plan, "--out", &whole]);
    for cell in ["3", "0", "2", "1", "2"] {
        json(&["sweep", &plan, "--out", &parts, "--cell", cell]);
    }
    assert!(!Path::new(&parts).join("results.jsonl").exists());
    json(&["sweep", &plan, "--out", &parts, "--combine"]);
    let read = |out: &str| std::fs::read(Path::new(out).join("results.jsonl")).unwrap();
    assert_eq!(read(&whole), read(&parts));
    let beyond = flashwright(&["sweep", &plan, "--out", &parts, "--cell", "4"]);
    assert_eq!(err(&beyond), "error: --cell 4: the plan has 4 cells, numbered from 0\n");
}

#[test]
fn failing_cell_is_reported_and_the_others_run() {
    let directory = tempfile::tempdir().unwrap();
    let good = trace(directory.path(), "good.csv", 3);
    let bad = directory.path().join("bad.csv");
    std::fs::write(&bad, "time,key,size\nno,number,here\n").unwrap();
    let bad = bad.to_str().unwrap();
    let text = format!(
        "command = \"simulate\"\n[axes]\ntrace = [{bad:?}, {good:?}]\npolicy = [\"lru\", \"fifo\"]\n"
    );
    let plan = plan(directory.path(), &text);
    let output = directory.path().join("out").to_str().unwrap().to_owned();
    let ran = flashwright(&["sweep", &plan, "--out", &output, "--json", "-"]);
    assert_eq!(ran.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&found["ran"], &found["rows"]), (&2.into(), &4.into()));
    let failures = found["verdict"]["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 2);
    assert!(failures[0].as_str().unwrap().contains("bad.csv"), "{failures:?}");

    // A changed file is another cell: it runs again, and the other keeps its results.
    std::fs::copy(&good, bad).unwrap();
    let again = json(&["sweep", &plan, "--out", &output]);
    assert_eq!(
        (&again["ran"], &again["cells"]),
        (&0.into(), &4.into()),
        "the content is that of the good trace"
    );
}

#[test]
fn wrong_flag_of_a_cell_is_refused_before_any_cell_runs() {
    let directory = tempfile::tempdir().unwrap();
    let plan =
        plan(directory.path(), "command = \"simulate\"\n[fixed]\ntrace = \"a.csv\"\nwarmpu = 1\n[axes]\n");
    let output = directory.path().join("out");
    let refused = flashwright(&["sweep", &plan, "--out", output.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        err(&refused).starts_with("error: cell 0: unexpected argument '--warmpu' found;"),
        "{}",
        err(&refused)
    );
    assert!(!output.exists());
}

#[test]
fn ssd_run_and_bench_are_swept_with_their_results_as_rows() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out").to_str().unwrap().to_owned();
    let text = "command = \"ssd run\"\n[fixed]\ncard = \"pm9d3\"\nscale = \"1/8192\"\nwarm_up = 1\nmeasure = 1\n[axes]\nop = [\"10%\", \"30%\"]\n";
    json(&["sweep", &plan(directory.path(), text), "--out", &output]);
    let found = rows(&output);
    let dlwa: Vec<f64> = found.iter().map(|row| row["dlwa"].as_f64().unwrap()).collect();
    assert!(
        dlwa.len() == 2 && dlwa[0] > dlwa[1],
        "more over-provisioning, less write amplification: {dlwa:?}"
    );

    let config = directory.path().join("config.json");
    let keys = "\"keySizeRange\": [8, 16], \"keySizeRangeProbability\": [1.0], \"valSizeRange\": [100, 200], \"valSizeRangeProbability\": [1.0]";
    let test = format!(
        "{{\"numOps\": 500, \"numThreads\": 1, \"numKeys\": 100, \"getRatio\": 0.5, \"setRatio\": 0.5, {keys}}}"
    );
    std::fs::write(
        &config,
        format!("{{\"cache_config\": {{\"cacheSizeMB\": 64}}, \"test_config\": {test}}}"),
    )
    .unwrap();
    let text = format!(
        "command = \"bench\"\n[fixed]\nconfig = {config:?}\n[axes]\n\"test_config.numOps\" = [300, 400]\n"
    );
    json(&["sweep", &plan(directory.path(), &text), "--out", &output]);
    let operations: Vec<_> = rows(&output).iter().map(|row| row["test_config.numOps"].clone()).collect();
    assert_eq!(operations, [300, 400]);
    assert!(rows(&output).iter().all(|row| row["verdict"]["passed"] == true && row["totals"].is_object()));
}

#[test]
fn interrupted_sweep_keeps_its_cells_and_can_be_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out").to_str().unwrap().to_owned();
    let text = "command = \"ssd run\"\n[fixed]\ncard = \"pm9d3\"\nscale = \"1/8192\"\n[axes]\nmeasure = [0.5, 1000000]\n";
    let plan = plan(directory.path(), text);
    let mut child = Command::new(FLASHWRIGHT)
        .args(["sweep", &plan, "--out", &output, "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let cells = Path::new(&output).join("cells");
    let has_result = || {
        std::fs::read_dir(&cells).is_ok_and(|files| {
            files.flatten().any(|file| file.path().extension().is_some_and(|it| it == "json"))
        })
    };
    while !has_result() {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::park_timeout(Duration::from_millis(50));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&found["ran"], &found["rows"]), (&1.into(), &1.into()));
    assert_eq!(found["verdict"]["failures"][0], "interrupted: run the command again to continue");
    let listed = result(&flashwright(&["sweep", &plan, "--out", &output, "--dry-run", "--json", "-"]));
    let done: Vec<_> = listed["cells"].as_array().unwrap().iter().map(|cell| cell["done"].clone()).collect();
    assert_eq!(done, [true, false]);
}

#[test]
fn shards_of_a_sweep_add_up_to_the_requests_of_the_whole_trace() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), "a.csv", 5);
    let text = format!(
        "command = \"simulate\"\nshards = 4\n[fixed]\ntrace = {trace:?}\nwarmup = 0\n[axes]\nsize = [\"20%\", 20000]\npolicy = [[\"lru\", \"fifo\"]]\n"
    );
    let plan = plan(directory.path(), &text);
    let output = directory.path().join("out").to_str().unwrap().to_owned();
    let swept = json(&["sweep", &plan, "--out", &output]);
    assert_eq!((&swept["cells"], &swept["rows"]), (&8.into(), &4.into()));
    let found = rows(&output);
    let alone = json(&["simulate", &trace, "--policy", "lru,fifo", "--size", "20%,20000", "--warmup", "0"]);
    for (row, number) in found.iter().zip([0, 2, 1, 3]) {
        let whole = &alone["rows"][number];
        assert_eq!((&row["policy"], &row["shards"], &row.get("shard")), (&whole["policy"], &4.into(), &None));
        assert_eq!(
            (&row["requests"], &row["requested_bytes"]),
            (&whole["requests"], &whole["requested_bytes"])
        );
        let [sharded, whole] = [row, whole].map(|row| row["object_hit_ratio"].as_f64().unwrap());
        assert!((sharded - whole).abs() < 0.03, "{sharded} of shards, {whole} of the whole");
    }
    let one =
        json(&["simulate", &trace, "--shard", "2/4", "--size", "20000", "--policy", "lru", "--warmup", "0"]);
    assert_eq!((&one["config"]["shard"], &one["rows"][0]["size_bytes"]), (&"2/4".into(), &5000.into()));
    let wrong = flashwright(&["simulate", &trace, "--shard", "5/4"]);
    assert!(err(&wrong).contains("\"5/4\" is no shard: write 1/16 to 16/16"), "{}", err(&wrong));
}

#[test]
fn report_of_a_sweep_is_a_page_in_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path(), "a.csv", 5);
    let text = format!(
        "command = \"simulate\"\n[fixed]\ntrace = {trace:?}\n[axes]\nsize = [\"5%\", \"20%\"]\npolicy = [\"lru\", \"fifo\"]\n"
    );
    let plan = plan(directory.path(), &text);
    let output = directory.path().join("out").to_str().unwrap().to_owned();
    json(&["sweep", &plan, "--out", &output]);
    let page = format!("{output}/report.html");
    assert_eq!(out(&flashwright(&["report", &output])), format!("{page}\n"));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("Pareto front") && text.contains("by policy and size"), "{text}");
    assert_eq!(text.matches("<tr class=").count(), 4);
    let both = flashwright(&["report", &output, &page]);
    assert!(err(&both).contains("a sweep has a page of its own"), "{}", err(&both));
}

#[test]
fn study_is_swept_with_a_directory_for_the_plots_of_each_cell() {
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(
        directory.path(),
        "command = \"study\"\n[axes]\nname = [\"cdn-fig1\"]\ntrace = [\"nowhere.csv\", \"none.csv\"]\n",
    );
    let output = directory.path().join("out").to_str().unwrap().to_owned();
    let ran = flashwright(&["sweep", &plan, "--out", &output, "--json", "-"]);
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let failures = found["verdict"]["failures"].as_array().unwrap();
    assert_eq!((&found["cells"], failures.len()), (&2.into(), 2), "{found}");
    assert!(
        failures.iter().any(|it| it.as_str().unwrap().contains("nowhere.csv: No such file")),
        "{failures:?}"
    );
    assert_eq!(std::fs::read_dir(format!("{output}/figures")).unwrap().count(), 2);
}
