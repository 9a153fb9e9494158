//! `ssd run --job` as scripts use it, and fio's own example files.

use super::{err, flashwright, json};

const STREAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fdp-streams.fio");

#[test]
fn job_file_runs_with_placement_and_reports_jobs_handles_and_curve() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, plot) = (folder.path().join("curve.csv"), folder.path().join("curve.svg"));
    let [csv, plot] = [&csv, &plot].map(|path| path.to_str().unwrap());
    let run = ["ssd", "run", "test", "--units", "128", "--op", "17%", "--job", STREAMS];
    let result = json(&[&run[..], &["--csv", csv, "--plot", plot]].concat());
    assert_eq!(result["config"]["placement"], "on");
    let names: Vec<&str> =
        result["jobs"].as_array().unwrap().iter().filter_map(|job| job["name"].as_str()).collect();
    assert_eq!(names, ["fill", "fill-random", "ring", "random", "skewed"]);
    let dlwa = |place: &serde_json::Value| place["dlwa"].as_f64().unwrap();
    assert_eq!(dlwa(&result["phases"][0]), 1.0);
    assert!(dlwa(&result["handles"][2]) > dlwa(&result["handles"][1]), "{}", result["handles"]);
    let rows = std::fs::read_to_string(csv).unwrap();
    assert_eq!(rows.lines().count(), result["intervals"].as_array().unwrap().len() + 1);
    assert!(std::fs::read_to_string(plot).unwrap().contains("<svg"));
    let off = json(&[&run[..], &["--placement", "off"]].concat());
    assert!(dlwa(&off) > 1.1 * dlwa(&result), "{} {}", off["dlwa"], result["dlwa"]);
}

/// The counters of a model drive serve as the log of a real one.
#[test]
fn card_learned_from_a_log_runs_with_its_policy_and_an_interval() {
    let folder = tempfile::tempdir().unwrap();
    let [job, log, card] = ["job.fio", "log.csv", "learned.toml"].map(|name| folder.path().join(name));
    std::fs::write(&job, "[j]\nrw=randwrite\nnorandommap\nbs=4k\nfilename=/dev/x\nio_size=500%\n").unwrap();
    let [job, log, card] = [&job, &log, &card].map(|path| path.to_str().unwrap());
    json(&["ssd", "run", "test", "--job", job, "--csv", log, "--gc", "fifo"]);
    let learned = json(&["ssd", "learn", log, "--job", job, "--from", "test", "--out", card]);
    assert!(learned["residual"].as_f64().unwrap() < 0.05, "{learned}");
    let result = json(&["ssd", "run", card, "--job", job]);
    assert_eq!((&result["gc"], &result["dlwa_interval"]["logs"]), (&learned["gc"], &1.into()));
    let dlwa = result["dlwa_last_tenth"].as_f64().unwrap();
    assert!(result["dlwa_interval"]["low"].as_f64().unwrap() < dlwa, "{result}");
    let output = flashwright(&["ssd", "learn", log, log, "--job", job, "--from", "test", "--series", "a"]);
    assert!(err(&output).contains("--series: 1 names for 2 logs"), "{}", err(&output));
    let forecast = json(&["ssd", "forecast", log, "--card", card, "--job", job, "--capacities", "5"]);
    let model = &forecast["model"]["dlwa"];
    assert!((model["value"].as_f64().unwrap() / dlwa - 1.0).abs() < 0.05, "{forecast}");
}

#[test]
fn job_file_with_an_unknown_key_is_refused_with_file_line_and_suggestion() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.fio");
    std::fs::write(&file, "[j]\nrw=write\nsise=4m\n").unwrap();
    let output = flashwright(&["ssd", "run", "test", "--job", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let message = err(&output);
    assert!(
        message
            .contains("wrong.fio, line 3: sise: is not a key that the model supports; did you mean `size`?"),
        "{message}"
    );
}

/// Debian's `fio-examples`, or a folder in `FIO_EXAMPLES`. Skipped without either.
#[test]
fn each_example_of_fio_runs_or_is_refused_by_line() {
    let folder = std::env::var("FIO_EXAMPLES").unwrap_or_else(|_| "/usr/share/doc/fio/examples".into());
    let Ok(entries) = std::fs::read_dir(&folder) else {
        return eprintln!("SKIPPED: {folder} is not there (package fio-examples)");
    };
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut ran = 0;
    for file in files.filter(|path| path.extension().is_some_and(|it| it == "fio")) {
        let path = file.to_str().unwrap();
        let output = flashwright(&["ssd", "run", "pm9d3", "--scale", "1/4096", "--quiet", "--job", path]);
        let message = err(&output);
        match output.status.code() {
            Some(0) => ran += 1,
            Some(2) => assert!(message.contains(", line "), "{path}: {message}"),
            other => panic!("{path}: {other:?}: {message}"),
        }
    }
    assert!(ran >= 20, "only {ran} ran");
}
