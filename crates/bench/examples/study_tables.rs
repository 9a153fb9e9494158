//! Writes the result of `flashwright study --all --json FILE` into the tables of `docs/study-results.md`:
//!
//!     cargo run --release -p flashwright -- study --all --json studies.json
//!     cargo run --release -p flashwright-bench --example study_tables -- studies.json docs/study-results.md
//!
//! The rows of each study in the result replace those in the document; the rows of a new study follow those of the study before it. Rows of
//! other studies and the text stay. A study with at least two values that are published or have an accepted range is listed without its
//! other values.
#![allow(clippy::print_stdout, reason = "an example reports on standard output")]

use std::error::Error;
use std::fs;

use flashwright_bench::study::{Point, STUDIES, table_row};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [result, document] = arguments.as_slice() else {
        return Err("usage: study_tables RESULT.json DOCUMENT.md".into());
    };
    let parsed: Value = serde_json::from_slice(&fs::read(result)?)?;
    if parsed["seed"] != 1 || parsed["config"]["scale"] != "1/2048" {
        return Err(format!("{result}: the tables need a result of seed 1 and scale 1/2048").into());
    }
    let studies = match parsed["studies"].as_array() {
        Some(several) => several.clone(),
        None => vec![parsed],
    };
    let mut text = fs::read_to_string(document)?;
    for study in &studies {
        let name = study["study"].as_str().ok_or_else(|| format!("{result}: a study without a name"))?;
        text = with_rows(&text, name, &rows(name, study)).ok_or_else(|| {
            format!("{document}: no row of {name} and of the study before it: add a heading and a table")
        })?;
        println!("{name}");
    }
    fs::write(document, text)?;
    Ok(())
}

fn rows(name: &str, study: &Value) -> String {
    let point = |it: &Value| Point {
        name: it["name"].as_str().unwrap_or_default().to_owned(),
        paper: it["paper"].as_f64(),
        ours: it["ours"].as_f64().unwrap_or(f64::NAN),
        unit: "",
        accepted: it["low"].as_f64().zip(it["high"].as_f64()),
    };
    let all: Vec<Point> = study["points"].as_array().into_iter().flatten().map(point).collect();
    let is_compared = |point: &&Point| point.paper.is_some() || point.accepted.is_some();
    let has_comparison = all.iter().filter(is_compared).count() > 1;
    all.iter().filter(|point| !has_comparison || is_compared(point)).map(|it| table_row(name, it)).collect()
}

/// The document with the rows of one study replaced, or added after those of the study before it in [`STUDIES`]; `None` if neither has
/// rows.
fn with_rows(text: &str, study: &str, rows: &str) -> Option<String> {
    // Rows of values have five columns.
    let is_row_of =
        |line: &str, name: &str| line.starts_with(&format!("| {name} |")) && line.matches('|').count() == 6;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let own = lines.iter().position(|line| is_row_of(line, study));
    let at = own.or_else(|| {
        let number = STUDIES.iter().position(|known| known.name == study)?;
        let before = STUDIES[number.checked_sub(1)?].name;
        Some(lines.iter().rposition(|line| is_row_of(line, before))? + 1)
    })?;
    let kept =
        |lines: &[&str]| -> String { lines.iter().filter(|line| !is_row_of(line, study)).copied().collect() };
    Some(kept(&lines[..at]) + rows + &kept(&lines[at..]))
}
