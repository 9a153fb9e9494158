//! `flashwright study`: reproduces published figures.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::run::stop::Stop;
use bench::study::{
    GivenTrace, Outcome, Point, Progress, REPORTED_ONLY, Runner, STUDIES, Study, StudyError, scale_warning,
};
use clap::Args;
use device::names;
use serde_json::{Value, json};

use crate::files::Files;
use crate::output::{Common, Finding, make_folder, names_of, write_picture};
use crate::trace_flags::TraceFlags;

/// The command line of `study`.
#[derive(Debug, Args)]
#[command(mut_group("TraceFlags", |group| group.requires("trace")))]
#[command(group = clap::ArgGroup::new("which").args(["names", "all"]))]
pub struct Arguments {
    /// Studies to run, which share the runs they have in common; without a name, list the studies
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Run all studies, or with --trace all that take a trace
    #[arg(long)]
    all: bool,
    /// fdp-fig*: size of drive and cache relative to the paper's [default: 1/2048]
    #[arg(long, value_name = "1/N", value_parser = crate::quantity::scale, requires = "which")]
    scale: Option<u32>,
    /// cdn-*: run on this trace instead of the generated workload, without the article's values to compare with; several
    /// files are read one after the other
    #[arg(long, value_name = "FILE", requires = "which")]
    trace: Vec<PathBuf>,
    /// warp: directory with warp_series.csv and warp_series_meta.csv, logs of drives that are compared with the model
    #[arg(long, value_name = "DIRECTORY", requires = "which")]
    logs: Option<PathBuf>,
    /// fdp-*: share of the host's writes that are buckets; logs of real caches have 74% to 90%
    #[arg(long, value_name = "SHARE", value_parser = inner_share, default_value = "80%", requires = "which")]
    bucket_writes: f64,
    /// Directory for the plots, as SVG and PNG files
    #[arg(long, value_name = "DIRECTORY", default_value = "studies", requires = "which")]
    figures: PathBuf,
    #[command(flatten)]
    reading: TraceFlags,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A share above 0% and below 100%: with one kind of writes alone, the other's part of flash is never rewritten.
fn inner_share(text: &str) -> Result<f64, String> {
    match crate::quantity::share(text)? {
        share if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err(format!("{text}: must be above 0% and below 100%")),
    }
}

/// Default ratio of the paper's drive and cache to the modelled ones.
const SCALE: u32 = 2048;

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    if arguments.names.is_empty() && !arguments.all {
        return list(arguments);
    }
    let config = arguments.config();
    arguments.common.conclude("study", &config, studied(arguments, &config))
}

fn studied(arguments: &Arguments, config: &Value) -> Result<Finding, String> {
    let chosen = arguments.chosen()?;
    if let Some(study) = chosen.iter().find(|study| !arguments.wants(study)) {
        let reason =
            if arguments.trace.is_empty() { StudyError::NeedsLogs } else { StudyError::TakesNoTrace };
        return Err(format!("{} {reason}", study.name));
    }
    if arguments.all && arguments.logs.is_none() && arguments.trace.is_empty() {
        arguments.common.warn("warp: skipped, because it needs --logs");
    }
    if arguments.scale.is_some() && !chosen.iter().any(|study| study.takes_scale) {
        return Err(
            "--scale: is for the figures of the FDP paper (fdp-fig*); other studies have their own scale, or none".into()
        );
    }
    if let Some(scale) = arguments.scale {
        scale_warning(scale)
            .map_err(|error| error.to_string())?
            .iter()
            .for_each(|text| arguments.common.warn(text));
    }
    Files::reading(&arguments.trace).writing([arguments.common.result_file()]).check()?;
    make_folder("--figures", &arguments.figures)?;
    let stop = arguments.common.stop()?;
    run_all(&chosen, &arguments.runner(&stop)?, config, arguments)
}

impl Arguments {
    /// The chosen studies in the order given, or of the table.
    fn chosen(&self) -> Result<Vec<&'static Study>, String> {
        if self.all {
            return Ok(STUDIES.iter().filter(|study| self.wants(study)).collect());
        }
        let named =
            |name: &String| STUDIES.iter().find(|study| study.name == *name).ok_or_else(|| unknown(name));
        self.names.iter().map(named).collect()
    }

    /// Whether `study` can run with the given flags.
    fn wants(&self, study: &Study) -> bool {
        (self.trace.is_empty() || study.takes_trace) && (self.logs.is_some() || !study.needs_logs)
    }

    fn runner(&self, stop: &Stop) -> Result<Runner, String> {
        let (seed, quiet) = (self.common.seed(), self.common.quiet);
        let runner = Runner::new(self.scale.unwrap_or(SCALE), seed, stop.clone(), Progress::new(quiet))
            .with_bucket_writes(self.bucket_writes)
            .with_logs(self.logs.clone());
        if self.trace.is_empty() {
            return Ok(runner);
        }
        let given = GivenTrace::survey(self.reading.input(self.trace.clone()), stop, quiet);
        let given = given.map_err(|error| error.to_string())?;
        given.read.remarks().iter().chain(&given.read.messages).for_each(|message| self.common.warn(message));
        Ok(runner.on_trace(given))
    }

    fn config(&self) -> Value {
        let mut config = json!({
            "scale": format!("1/{}", self.scale.unwrap_or(SCALE)),
            "bucket_writes": self.bucket_writes,
        });
        if !self.trace.is_empty() {
            config["reading"] = self.reading.config(&self.trace);
        }
        config
    }
}

fn run_all(
    chosen: &[&Study],
    runner: &Runner,
    config: &Value,
    arguments: &Arguments,
) -> Result<Finding, String> {
    let mut outcomes = Outcomes::default();
    for study in chosen {
        match one(study, runner, arguments) {
            Ok((result, missed)) => {
                outcomes.results.push(result);
                outcomes.failures.extend(missed);
            }
            // An interruption keeps the results of finished studies.
            Err(error) if !outcomes.results.is_empty() => {
                outcomes.failures.push(error);
                break;
            }
            Err(error) => return Err(error),
        }
        if outcomes.results.len() < chosen.len() {
            arguments.common.keep("study", config, outcomes.finding(chosen.len()))?;
        }
    }
    Ok(outcomes.finding(chosen.len()))
}

/// The outcome of the studies so far.
#[derive(Default)]
struct Outcomes {
    results: Vec<Value>,
    failures: Vec<String>,
}

impl Outcomes {
    /// The result of one study, or a list for several.
    fn finding(&self, chosen: usize) -> Finding {
        let result = match self.results.as_slice() {
            [one] if chosen == 1 => one.clone(),
            several => json!({ "studies": several }),
        };
        Finding { result, text: String::new(), failures: self.failures.clone() }
    }
}

/// Runs a study, draws and prints it immediately, because studies take long. Returns its result and the values outside the accepted range.
fn one(study: &Study, runner: &Runner, arguments: &Arguments) -> Result<(Value, Vec<String>), String> {
    let outcome = study.make(runner).map_err(|error| format!("{}: {error}", study.name))?;
    let figures = draw(study, &outcome, &arguments.figures)?;
    arguments.common.say(text(study, &outcome, &figures).trim_end());
    let missed = outcome.points.iter().filter(|point| point.ok() == Some(false));
    let text = |point: &Point| {
        let accepted = point.accepted.map(|(low, high)| format!(", accepted is {low:.2} to {high:.2}"));
        let other_scale = study.takes_scale && runner.scale != SCALE;
        let of_scale =
            if other_scale { format!(" at 1/{SCALE}, not at 1/{}", runner.scale) } else { String::new() };
        let accepted = accepted.map_or_else(String::new, |accepted| accepted + &of_scale);
        format!("{}: {} is {:.3}{accepted}", study.name, point.name, point.ours)
    };
    let missed = missed.map(text).collect();
    Ok((to_json(study, &outcome, &figures), missed))
}

fn to_json(study: &Study, outcome: &Outcome, figures: &[PathBuf]) -> Value {
    let point = |it: &Point| {
        let (low, high) = it.accepted.unzip();
        json!({
            "name": it.name, "paper": it.paper, "ours": it.ours, "unit": it.unit,
            "low": low, "high": high, "ok": it.ok(), "reported_only": it.accepted.is_none(),
        })
    };
    json!({
        "study": study.name,
        "title": study.title,
        "points": outcome.points.iter().map(point).collect::<Vec<_>>(),
        "figures": names_of(figures),
        "notes": outcome.notes,
    })
}

fn text(study: &Study, outcome: &Outcome, figures: &[PathBuf]) -> String {
    let mut out = format!("{}: {}\n", study.name, study.title);
    let names = outcome.points.iter().map(|point| point.name.chars().count());
    let width = names.max().unwrap_or(0).max(36);
    let _ = writeln!(out, "  {:<width$} {:>9} {:>9} {:>8}  accepted", "", "paper", "ours", "diff");
    for point in &outcome.points {
        let paper = point.paper.map_or_else(|| "-".into(), |paper| format!("{paper:.2}"));
        let differ = point
            .paper
            .map_or_else(|| "-".into(), |paper| format!("{:+.1} %", (point.ours / paper - 1.0) * 100.0));
        let accepted = match (point.accepted, point.ok()) {
            (Some((low, high)), Some(ok)) => {
                format!("{low:.2} to {high:.2}{}", if ok { "" } else { "  MISSED" })
            }
            _ => REPORTED_ONLY.to_owned(),
        };
        let (name, ours) = (&point.name, point.ours);
        let _ = writeln!(out, "  {name:<width$} {paper:>9} {ours:>9.3} {differ:>8}  {accepted}");
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
    let mut files = Vec::new();
    for (number, chart) in outcome.charts.iter().enumerate() {
        let part = if number == 0 { String::new() } else { format!("-{}", number + 1) };
        let stem = format!("{}{part}", study.name);
        let svg = chart.svg().map_err(|error| format!("{stem}: {error}"))?;
        files.extend(write_picture(directory, &stem, &svg)?);
    }
    Ok(files)
}

fn list(arguments: &Arguments) -> ExitCode {
    let text = STUDIES.iter().map(|study| format!("{:<21} {}\n", study.name, study.title)).collect();
    let about = |study: &Study| json!({ "study": study.name, "title": study.title, "takes_trace": study.takes_trace });
    let studies = STUDIES.iter().map(about);
    let result = json!({ "studies": studies.collect::<Vec<_>>() });
    let found = Finding::new(result, text);
    arguments.common.conclude("study", &json!({}), Ok::<_, String>(found))
}

fn unknown(name: &str) -> String {
    let nearest = names::nearest(name, STUDIES.iter().map(|study| study.name));
    let all = || "; `flashwright study` lists them".to_owned();
    let hint = nearest.map_or_else(all, |near| format!("; did you mean `{near}`?"));
    format!("unknown study `{name}`{hint}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use bench::study::StudyError;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn long_name_keeps_columns_aligned() {
        let names = ["short", "share of writes from buckets, soc 16 %"];
        let points = names.map(|name| Point {
            name: name.into(),
            paper: None,
            ours: 0.5,
            unit: "ratio",
            accepted: None,
        });
        let text = text(&STUDIES[0], &Outcome { points: points.into(), ..Outcome::default() }, &[]);
        let ends: Vec<_> = text.lines().skip(2).map(|line| line.find("0.500")).collect();
        assert!(ends.len() == 2 && ends[0] == ends[1] && ends[0].is_some(), "{text}");
        assert!(text.lines().skip(2).all(|line| line.ends_with("  reported only")), "{text}");
    }

    #[test]
    fn study_of_logs_is_part_of_all_only_with_a_directory() {
        let warp = STUDIES.iter().find(|study| study.needs_logs).unwrap();
        let wants = |typed: &[&str]| Typed::try_parse_from(typed).unwrap().arguments.wants(warp);
        assert!(!wants(&["study", "--all"]) && wants(&["study", "--all", "--logs", "logs"]));
        let runner = Runner::new(1, 1, Stop::default(), Progress::new(true));
        let error = warp.make(&runner).unwrap_err().to_string();
        assert!(error.starts_with("needs --logs DIRECTORY, with warp_series.csv"), "{error}");
        let error = warp.make(&runner.with_logs(Some("/nowhere".into()))).unwrap_err().to_string();
        assert!(error.contains("/nowhere/warp_series_meta.csv: No such file"), "{error}");
    }

    #[test]
    fn results_before_an_interrupt_are_kept() {
        let directory = std::env::temp_dir().join(format!("flashwright-study-{}", std::process::id()));
        let file = directory.join("result.json");
        let typed = ["study", "--all", "-q", "--json", file.to_str().unwrap()];
        let arguments = Typed::try_parse_from(typed).unwrap().arguments;
        std::fs::create_dir_all(&directory).unwrap();

        let found = Study {
            name: "found",
            title: "",
            takes_trace: false,
            takes_scale: false,
            needs_logs: false,
            run: |_| Ok(Outcome::default()),
        };
        let interrupted = Study {
            name: "ended",
            title: "",
            takes_trace: false,
            takes_scale: false,
            needs_logs: false,
            run: |_| Err(StudyError::Interrupted),
        };
        let runner = Runner::new(1, 1, Stop::default(), Progress::new(true));
        let run = |chosen: &[&Study]| run_all(chosen, &runner, &json!({}), &arguments);

        let finding = run(&[&found, &interrupted, &found]).ok().unwrap();
        assert_eq!(finding.failures, ["ended: interrupted"]);
        assert_eq!(finding.result["studies"].as_array().map(Vec::len), Some(1));
        let kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(kept["studies"][0]["study"], "found");
        assert_eq!(kept["verdict"], json!({ "passed": false, "failures": ["unfinished"] }));
        assert_eq!(run(&[&interrupted]).err().unwrap(), "ended: interrupted", "there is no result");
        assert_eq!(run(&[&found]).ok().unwrap().result["study"], "found", "a single study is not a list");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
