//! `flashwright report`: finished runs, or a sweep, as an HTML page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::report::finished::Finished;
use bench::report::page::{self, MARK};
use bench::report::sweep::Sweep;
use clap::Args;
use serde_json::json;

use crate::files::Files;
use crate::output::{Common, Finding, name_of, names_of, write_file};

/// The command line of `report`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Results written by --json, of any command, or intervals written by `bench --intervals` (.csv, .jsonl); or the directory of one
    /// sweep
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// HTML file to write [default: the first RUN's name, ending in .html]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config = json!({ "runs": names_of(&arguments.runs) });
    arguments.common.conclude("report", &config, reported(arguments))
}

fn reported(arguments: &Arguments) -> Result<Finding, String> {
    let output = output(arguments)?;
    let written = |page: String| {
        write_file(&output, page.as_bytes())?;
        let text = format!("{}\n", output.display());
        Ok(Finding::new(json!({ "page": name_of(&output) }), text))
    };
    if let Some(directory) = arguments.runs.iter().find(|run| run.is_dir()) {
        if arguments.runs.len() > 1 {
            return Err(format!("{}: a sweep has a page of its own: name it alone", directory.display()));
        }
        Files::reading(&[]).writing([Some(output.as_path()), arguments.common.result_file()]).check()?;
        let page = Sweep::read(directory).map_err(|error| error.to_string())?.render();
        return written(page.map_err(|error| format!("{}: {error}", output.display()))?);
    }
    let files =
        Files::reading(&arguments.runs).writing([Some(output.as_path()), arguments.common.result_file()]);
    files.check_distinct()?;
    let read = arguments.runs.iter().map(|file| Finished::read(file)).collect::<Result<Vec<_>, _>>();
    let runs = read.map_err(|error| error.to_string())?;
    files.check()?;
    let page = page::render(&runs).map_err(|error| format!("{}: {error}", output.display()))?;
    written(page)
}

/// The file of the page. An existing file with the default name is kept unless it is such a page.
fn output(arguments: &Arguments) -> Result<PathBuf, String> {
    if let Some(output) = &arguments.output {
        return Ok(output.clone());
    }
    let first = arguments.runs.first().map_or(Path::new("report"), PathBuf::as_path);
    let output = if first.is_dir() { first.join("report.html") } else { first.with_extension("html") };
    let is_foreign =
        std::fs::read(&output).is_ok_and(|page| !page.windows(MARK.len()).any(|at| at == MARK.as_bytes()));
    if is_foreign {
        return Err(format!(
            "{}: exists and is not a page of flashwright: name another file with -o FILE",
            output.display()
        ));
    }
    Ok(output)
}
