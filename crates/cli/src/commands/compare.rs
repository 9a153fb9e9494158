//! `flashwright compare`: compares finished runs.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::report::amount::on_one_line;
use bench::report::compare::compare;
use bench::report::finished::Finished;
use clap::Args;
use serde_json::{Value, json};

use crate::files::Files;
use crate::output::{Common, Finding, names_of};

/// The command line of `compare`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Results written by --json: two of them, or with --against the repeated runs of the first side
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Repeated runs of the second side; the spread within each side is the noise of each figure
    #[arg(long, value_name = "RUN", num_args = 1..)]
    against: Vec<PathBuf>,
    /// Exit with 1 if the second side is worse beyond noise in any figure, or failed its checks while the first did not
    #[arg(long)]
    fail_if_worse: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let found = sides(arguments).and_then(|(a, b)| compared(arguments, &a, &b));
    let config = json!({ "a": names_of(arguments.sides().0), "b": names_of(arguments.sides().1) });
    arguments.common.conclude("compare", &config, found)
}

impl Arguments {
    /// The files of each side; extra files are in the first.
    fn sides(&self) -> (&[PathBuf], &[PathBuf]) {
        match self.runs.as_slice() {
            [a, b] if self.against.is_empty() => (std::slice::from_ref(a), std::slice::from_ref(b)),
            runs => (runs, &self.against),
        }
    }
}

fn sides(arguments: &Arguments) -> Result<(Vec<Finished>, Vec<Finished>), String> {
    let (a, b) = arguments.sides();
    if b.is_empty() {
        let why =
            if a.len() == 1 { "a comparison needs two RUNs" } else { "more than two RUNs need --against" };
        return Err(format!("{why}: compare A B, or compare A… --against B…"));
    }
    Files::reading(&[a, b].concat()).writing([arguments.common.result_file()]).check()?;
    let read =
        |files: &[PathBuf]| files.iter().map(|file| Finished::read(file)).collect::<Result<Vec<_>, _>>();
    Ok((read(a).map_err(|error| error.to_string())?, read(b).map_err(|error| error.to_string())?))
}

fn compared(arguments: &Arguments, a: &[Finished], b: &[Finished]) -> Result<Finding, String> {
    let comparison = compare(a, b)?;
    let mut result = comparison.to_json();
    // The world of the compared runs; `compare` itself simulates nothing.
    result["world"] = a[0].part(&["world"]).clone();
    let side = |name: &str, runs: &[Finished]| -> String {
        runs.iter().map(|run| format!("{name}  {}\n", summary(run))).collect()
    };
    let text = side("a", a) + &side("b", b) + &comparison.to_text();
    let failures = if arguments.fail_if_worse { comparison.worse() } else { Vec::new() };
    Ok(Finding { result, text, failures })
}

/// A run as one line.
fn summary(run: &Finished) -> String {
    let word = |name: &str| match run.part(&[name]) {
        Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    let (file, command) = (run.file.display(), run.command());
    let verdict = if run.failures().is_empty() { "" } else { ", FAILED its checks" };
    let (version, seed, world) = (word("flashwright"), word("seed"), word("world"));
    on_one_line(&format!("{file}: {command}, flashwright {version}, seed {seed}, {world}{verdict}"))
}
