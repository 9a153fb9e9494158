//! `flashwright study`: published figures as commands.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::run::stop::Stop;
use bench::study::{Outcome, Point, Progress, Runner, STUDIES, Study};
use clap::Args;
use serde_json::{Value, json};

use crate::output::{Common, Finding, usage_error};
use crate::signals::stop_on_signals;

/// The command line of `study`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Which; without one they are listed
    name: Option<String>,
    /// All of them
    #[arg(long, conflicts_with = "name")]
    all: bool,
    /// The drive and the cache are so much smaller than the paper's
    #[arg(long, value_name = "1/N", default_value = "1/2048", value_parser = crate::quantity::scale)]
    scale: u32,
    /// Where the pictures go, as SVG files
    #[arg(long, value_name = "DIRECTORY", default_value = "studies")]
    figures: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let chosen: Vec<&Study> = match &arguments.name {
        Some(name) => match STUDIES.iter().find(|study| study.name == *name) {
            Some(study) => vec![study],
            None => return unknown(name),
        },
        None if arguments.all => STUDIES.iter().collect(),
        None => return list(arguments),
    };
    let checked = arguments.common.check_result_file().map_err(|error| error.to_string());
    let checked = checked.and_then(|()| make_directory(&arguments.figures));
    if let Err(error) = checked {
        return usage_error(&error);
    }
    let stop = Stop::default();
    if let Err(error) = stop_on_signals(&stop) {
        return usage_error(&error);
    }
    let runner =
        Runner::new(arguments.scale, arguments.common.seed, stop, Progress::new(arguments.common.quiet));
    let config = json!({ "scale": format!("1/{}", arguments.scale) });
    arguments.common.conclude("study", &config, run_all(&chosen, &runner, arguments))
}

fn run_all(chosen: &[&Study], runner: &Runner, arguments: &Arguments) -> Result<Finding, String> {
    let (mut results, mut failures) = (Vec::new(), Vec::new());
    for study in chosen {
        let outcome = (study.run)(runner).map_err(|error| format!("{}: {error}", study.name))?;
        let figures = draw(study, &outcome, &arguments.figures)?;
        // All of them take long: each is told as it comes.
        arguments.common.say(words(study, &outcome, &figures).trim_end());
        let missed = outcome.points.iter().filter(|point| point.ok() == Some(false));
        failures.extend(missed.map(|point| format!("{}: {} is {:.3}", study.name, point.name, point.ours)));
        results.push(to_json(study, &outcome, &figures));
    }
    let result = match <[Value; 1]>::try_from(results) {
        Ok([one]) => one,
        Err(several) => json!({ "studies": several }),
    };
    Ok(Finding { result, text: String::new(), failures })
}

fn to_json(study: &Study, outcome: &Outcome, figures: &[PathBuf]) -> Value {
    let point = |it: &Point| {
        let (low, high) = it.accepted.unzip();
        json!({
            "name": it.name, "paper": it.paper, "ours": it.ours, "unit": it.unit,
            "low": low, "high": high, "ok": it.ok(),
        })
    };
    json!({
        "study": study.name,
        "title": study.title,
        "points": outcome.points.iter().map(point).collect::<Vec<_>>(),
        "figures": figures,
        "notes": outcome.notes,
    })
}

fn words(study: &Study, outcome: &Outcome, figures: &[PathBuf]) -> String {
    let mut out = format!("{}: {}\n", study.name, study.title);
    let _ = writeln!(out, "  {:<36} {:>9} {:>9} {:>8}  accepted", "", "paper", "ours", "differ");
    for point in &outcome.points {
        let paper = point.paper.map_or_else(|| "-".into(), |paper| format!("{paper:.2}"));
        let differ = point
            .paper
            .map_or_else(|| "-".into(), |paper| format!("{:+.1} %", (point.ours / paper - 1.0) * 100.0));
        let accepted = match (point.accepted, point.ok()) {
            (Some((low, high)), Some(ok)) => {
                format!("{low:.2} to {high:.2}{}", if ok { "" } else { "  MISSED" })
            }
            _ => String::new(),
        };
        let _ = writeln!(out, "  {:<36} {paper:>9} {:>9.3} {differ:>8}  {accepted}", point.name, point.ours);
    }
    outcome.notes.iter().for_each(|note| {
        let _ = writeln!(out, "  note: {note}");
    });
    figures.iter().for_each(|figure| {
        let _ = writeln!(out, "  figure: {}", figure.display());
    });
    out
}

fn draw(study: &Study, outcome: &Outcome, directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut files = Vec::new();
    for (number, chart) in outcome.charts.iter().enumerate() {
        let part = if number == 0 { String::new() } else { format!("-{}", number + 1) };
        let file = directory.join(format!("{}{part}.svg", study.name));
        let svg = chart.svg().map_err(|error| failed(&file, &error))?;
        std::fs::write(&file, svg).map_err(|error| failed(&file, &error))?;
        files.push(file);
    }
    Ok(files)
}

fn make_directory(directory: &Path) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))
}

fn list(arguments: &Arguments) -> ExitCode {
    let text = STUDIES.iter().map(|study| format!("{:<11} {}\n", study.name, study.title)).collect();
    let studies = STUDIES.iter().map(|study| json!({ "study": study.name, "title": study.title }));
    let result = json!({ "studies": studies.collect::<Vec<_>>() });
    let found = Finding { result, text, failures: Vec::new() };
    arguments.common.conclude("study", &json!({}), Ok(found))
}

fn unknown(name: &str) -> ExitCode {
    let nearest = bench::config::knob::nearest(name, STUDIES.iter().map(|study| study.name));
    let hint = nearest.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    usage_error(&format!("there is no study `{name}`{hint}"))
}
