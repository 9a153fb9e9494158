//! The text and tables of a page.

use serde_json::{Map, Value};

use super::Named;
use super::charts::{operations, text};
use crate::report::amount::{on_one_line, shown};
use crate::report::compare::{Compared, Comparison, compare};
use crate::report::differences;
use crate::report::figures::FIGURES;
use crate::report::finished::{ENVELOPE, FigureValue, Finished, PERCENTILES};
use crate::report::html::Html;

/// Limit of the rows of a table.
const MAX_ROWS: usize = 2_000;
/// Limit of the tenants on a page.
const MAX_TENANTS: usize = 50;

/// The verdict and the warnings of each run.
pub(super) fn verdicts(body: &mut Html, runs: &[Named<'_>]) {
    for Named { name, run } in runs {
        if runs.len() > 1 {
            body.element("h3", name);
        }
        let failures = run.failures();
        if run.part(&["verdict"]).is_null() {
            body.element("p", "Intervals of a run: its verdict is in its result file.");
            body.list(&warnings(run));
            continue;
        }
        body.markup("<p>");
        let not_judged: Vec<String> =
            run.part(&["not_judged"]).as_array().into_iter().flatten().map(plain).collect();
        match (failures.is_empty(), run.part(&["verdict", "stopped"]).as_str()) {
            (false, _) => body.markup("<span class=\"failed\">Failed its checks</span>"),
            (true, Some(reason)) if !not_judged.is_empty() => {
                body.text(&format!("Ended early: {reason}. Not judged: {}", not_judged.join(", ")))
            }
            (true, Some(reason)) => body
                .markup("<span class=\"passed\">Passed its checks</span>")
                .text(&format!(", ended early: {reason}")),
            (true, None) => body.markup("<span class=\"passed\">Passed its checks</span>"),
        };
        let about = |key: &str| plain(run.part(&[key]));
        body.markup(" <span class=\"pale\">");
        body.text(&format!(
            "{} of flashwright {}, {} world, seed {}",
            run.command(),
            about("flashwright"),
            about("world"),
            about("seed")
        ));
        body.markup("</span></p>\n");
        body.list(&failures);
        body.list(&warnings(run));
    }
}

fn warnings(run: &Finished) -> Vec<String> {
    run.part(&["totals", "warnings"]).as_array().into_iter().flatten().map(plain).collect()
}

/// Settings that differ between the first run and any other.
pub(super) fn differences(body: &mut Html, runs: &[Named<'_>]) {
    let Some((first, rest)) = runs.split_first().filter(|(_, rest)| !rest.is_empty()) else { return };
    let side = |named: &Named<'_>| vec![named.run.clone()];
    let mut keys: Vec<String> = Vec::new();
    for other in rest {
        let (differing, _) = differences::between(&side(first), &side(other));
        keys.extend(differing.into_iter().map(|it| it.key));
    }
    keys.sort();
    keys.dedup();
    if keys.is_empty() {
        return;
    }
    body.element("h2", "Differences between the runs");
    body.table("", heads(runs), |body| {
        for key in keys.iter().take(MAX_ROWS) {
            let value =
                |it: &Named<'_>| differences::value(it.run, key).map_or_else(|| "—".to_owned(), plain);
            body.markup("<tr>").element("td", key).elements("td", runs.iter().map(value)).markup("</tr>\n");
        }
    });
}

/// Heads of a table with a column for each run.
fn heads<'a>(runs: &'a [Named<'_>]) -> impl Iterator<Item = &'a str> {
    let named = runs.len() > 1;
    std::iter::once("").chain(runs.iter().map(move |it| if named { it.name.as_str() } else { "" }))
}

/// All figures except latencies, which have a table of their own, and evaluations, which have a page of their own. With two runs, the
/// second is compared with the first.
pub(super) fn figures(body: &mut Html, runs: &[Named<'_>]) {
    let has_own_page = |it: &&Named<'_>| it.run.command() == "evaluate";
    if runs.iter().any(|it| has_own_page(&it)) {
        return;
    }
    let of_runs: Vec<Vec<FigureValue>> = runs.iter().map(|it| it.run.figures()).collect();
    let judged = judged(runs);
    let mut rows: Vec<&FigureValue> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for figure in of_runs.iter().flatten() {
        if !figure.name.starts_with("latency_ns.") && seen.insert(figure.name.as_str()) {
            rows.push(figure);
        }
    }
    if rows.is_empty() {
        return;
    }
    body.element("h2", "Figures");
    let judgement_head = judged.as_ref().map(|_| format!("{} is", runs[1].name));
    body.table("", heads(runs).chain(judgement_head.as_deref()), |body| {
        for row in rows.iter().take(MAX_ROWS) {
            let formula = FIGURES.iter().find(|it| it.name == row.name).map_or("", |it| it.formula);
            body.markup("<tr>").explained("td", &row.name, formula);
            for figures in &of_runs {
                cell(body, figures.iter().find(|it| it.name == row.name));
            }
            if let Some(judged) = &judged {
                judgement(body, judged.figures.iter().find(|it| it.a.name == row.name));
            }
            body.markup("</tr>\n");
        }
    });
    if rows.len() > MAX_ROWS {
        body.element("p", &format!("and {} more in the result file", rows.len() - MAX_ROWS));
    }
}

/// The comparison of two runs; `None` for any other number of runs, or without common figures.
fn judged(runs: &[Named<'_>]) -> Option<Comparison> {
    let [a, b] = runs else { return None };
    compare(std::slice::from_ref(a.run), std::slice::from_ref(b.run)).ok()
}

/// Better, worse or within noise; empty if the noise is unknown.
fn judgement(body: &mut Html, compared: Option<&Compared>) {
    let text = compared.and_then(|it| Some((it.word(), it.a.value?, it.b?)));
    let Some((word, a, b)) = text.filter(|(word, ..)| !word.is_empty()) else {
        body.markup("<td></td>");
        return;
    };
    match word {
        "better" => body.markup("<td class=\"passed\">"),
        "worse" => body.markup("<td class=\"failed\">"),
        _ => body.markup("<td class=\"pale\">"),
    };
    let change = if a == 0.0 { String::new() } else { format!(" ({:+.1} %)", (b / a - 1.0) * 100.0) };
    body.text(word).text(&change);
    body.markup("</td>");
}

/// A formatted value, with the exact one as a tooltip.
fn cell(body: &mut Html, figure: Option<&FigureValue>) {
    let Some(figure) = figure else {
        body.element("td", "—");
        return;
    };
    let Some(value) = figure.value else {
        body.element("td", "unknown");
        return;
    };
    let text = shown(value, &figure.unit);
    // The name of a count already contains what it counts, and sizes and times are formatted with their unit.
    let is_redundant = ["", "B", "ns", "s", "ratio", "ops", "gets", "sets", "deletes", "items"]
        .contains(&figure.unit.as_str());
    let unit = if is_redundant { String::new() } else { format!(" {}", figure.unit) };
    body.explained("td", &(text + &unit), &value.to_string());
}

/// Percentiles of each layer and operation, with one row per run.
pub(super) fn latencies(body: &mut Html, runs: &[Named<'_>]) {
    let operations = operations(runs);
    if operations.is_empty() {
        return;
    }
    body.table("", ["", "count"].iter().chain(&PERCENTILES), |body| {
        for (layer, operation) in &operations {
            for it in runs {
                let latency = it.run.part(&["totals", "latency_ns", layer, operation]);
                if !latency.is_object() {
                    continue;
                }
                let name = text(layer, operation);
                let name = if runs.len() > 1 { format!("{name}, {}", it.name) } else { name };
                let value = |name: &str, unit: &str| {
                    latency[name].as_f64().map_or_else(|| "—".to_owned(), |it| shown(it, unit))
                };
                body.markup("<tr>").element("td", &name).element("td", &value("count", ""));
                body.elements("td", PERCENTILES.map(|name| value(name, "ns"))).markup("</tr>\n");
            }
        }
    });
}

/// The placement handle of each consumer.
pub(super) fn drives(body: &mut Html, runs: &[Named<'_>]) {
    for it in runs {
        let of_drive = rows_of(it.run.part(&["drive", "handles"]));
        let instances = it.run.part(&["instances"]).as_array().into_iter().flatten();
        let handles = instances.flat_map(|instance| rows_of(&instance["placement"]));
        let rows: Vec<&Map<String, Value>> = if of_drive.is_empty() { handles.collect() } else { of_drive };
        if !rows.is_empty() {
            let of = if runs.len() > 1 { format!(", {}", it.name) } else { String::new() };
            body.element("h2", &format!("Placement{of}"));
            table_of(body, &rows);
        }
    }
}

/// The tenants of each run, ordered by the number of requests.
pub(super) fn tenants(body: &mut Html, runs: &[Named<'_>]) {
    for it in runs {
        let tenants = it.run.part(&["totals", "tenants"]);
        let rows = rows_of(&tenants["largest"]);
        if rows.is_empty() {
            continue;
        }
        let of = if runs.len() > 1 { format!(", {}", it.name) } else { String::new() };
        body.element("h2", &format!("Tenants{of}"));
        table_of(body, &rows[..rows.len().min(MAX_TENANTS)]);
        let others = tenants["distinguished"].as_u64().unwrap_or(0).saturating_sub(MAX_TENANTS as u64);
        if others > 0 {
            body.element(
                "p",
                &format!("and {others} with fewer requests; the result file has the largest of them"),
            );
        }
    }
}

fn rows_of(list: &Value) -> Vec<&Map<String, Value>> {
    list.as_array().into_iter().flatten().filter_map(Value::as_object).collect()
}

/// A table of objects, with one column per key.
fn table_of(body: &mut Html, rows: &[&Map<String, Value>]) {
    let mut columns: Vec<&String> = Vec::new();
    rows.iter().flat_map(|row| row.keys()).for_each(|key| {
        if !columns.contains(&key) {
            columns.push(key);
        }
    });
    body.table("words", &columns, |body| {
        for row in rows.iter().take(MAX_ROWS) {
            body.markup("<tr>");
            columns.iter().for_each(|column| match row.get(*column) {
                Some(value) if is_long(value) => {
                    body.markup("<td>");
                    folded(body, "…", value);
                    body.markup("</td>");
                }
                value => drop(body.element("td", &value.map_or_else(|| "—".to_owned(), plain))),
            });
            body.markup("</tr>\n");
        }
    });
}

/// Whether a value is too nested to be readable in a table cell.
fn is_long(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(list) => list.iter().any(|it| it.is_object() || it.is_array()),
        _ => false,
    }
}

/// A table of objects. Lists of objects within them follow as separate tables.
fn tables_of(body: &mut Html, title: &str, list: &Value) {
    let is_table = |value: &Value| !rows_of(value).is_empty();
    let rows = rows_of(list);
    let flat: Vec<Map<String, Value>> = rows
        .iter()
        .map(|row| {
            let fields = row.iter().filter(|(_, value)| !is_table(value));
            fields.map(|(key, value)| (key.clone(), value.clone())).collect()
        })
        .collect();
    body.element("h2", title);
    table_of(body, &flat.iter().collect::<Vec<_>>());
    for (number, row) in rows.iter().enumerate().take(MAX_ROWS) {
        let name = row.values().find_map(Value::as_str).map_or_else(|| number.to_string(), on_one_line);
        for (key, value) in row.iter().filter(|(_, value)| is_table(value)) {
            body.element("h3", &format!("{title}, {name}: {key}"));
            table_of(body, &rows_of(value));
        }
    }
}

/// Keys of a result that have sections of their own.
const SHOWN: [&str; 3] = ["intervals", "totals", "instances"];

/// The remaining keys of a result: lists as tables, other values folded as JSON.
pub(super) fn everything_else(body: &mut Html, runs: &[Named<'_>]) {
    for it in runs {
        let of = if runs.len() > 1 { format!("{}: ", it.name) } else { String::new() };
        let is_shown = |key: &str| match key {
            "drive" => it.run.command() == "bench",
            "profiles" | "notes" => it.run.command() == "evaluate",
            key => SHOWN.contains(&key),
        };
        let own = it.run.result.iter().filter(|(key, _)| !ENVELOPE.contains(&key.as_str()) && !is_shown(key));
        for (key, value) in own {
            let rows = rows_of(value);
            if rows.is_empty() {
                if value.as_str().is_some() || value.is_object() || value.is_array() {
                    folded(body, &format!("{of}{key}"), value);
                }
            } else {
                tables_of(body, &format!("{of}{key}"), value);
            }
        }
    }
}

/// How each run was made: command, config and environment, and finally all counters.
pub(super) fn as_run(body: &mut Html, runs: &[Named<'_>]) {
    for it in runs {
        body.element("h2", if runs.len() > 1 { &it.name } else { "As run" });
        if let Some(command) = command_line(it.run) {
            body.element("p", "To repeat the run:").element("pre", &command);
        }
        folded(body, "Config as run", it.run.part(&["config"]));
        folded(body, "Environment", it.run.part(&["environment"]));
        for key in ["totals", "instances"] {
            folded(body, &format!("All counters: {key}"), it.run.part(&[key]));
        }
    }
}

fn folded(body: &mut Html, title: &str, value: &Value) {
    if !value.is_null() {
        let as_json = || serde_json::to_string_pretty(value).unwrap_or_default();
        let text = value.as_str().map_or_else(as_json, str::to_owned);
        body.markup("<details>").element("summary", title).element("pre", &text).markup("</details>\n");
    }
}

/// The command line, quoted for a shell, without its output files.
fn command_line(run: &Finished) -> Option<String> {
    let typed = run.part(&["environment", "arguments"]).as_array()?;
    let typed = typed.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
    let quoted = |word: &&str| {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,%+@".contains(letter);
        if !word.is_empty() && word.chars().all(is_plain) {
            (*word).to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    Some(
        std::iter::once("flashwright".to_owned())
            .chain(typed.iter().map(quoted))
            .collect::<Vec<_>>()
            .join(" "),
    )
}

/// Formats a value as text.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => on_one_line(text),
        other => other.to_string(),
    }
}
