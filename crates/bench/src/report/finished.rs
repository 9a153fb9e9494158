//! Reads result files of finished runs. Everything is validated here, and every error has the file's name.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::amount::cut;
use super::figures::{Better, FIGURES};
use super::intervals::IntervalFormat;

/// Upper limit of a result file's length.
const MAX_BYTES: u64 = 1 << 28;
/// Upper limit of every number in a result, whether a count, bytes or seconds.
pub const LARGEST: f64 = 1.9e19;
/// Keys that the results of all commands have.
pub const ENVELOPE: [&str; 7] =
    ["flashwright", "command", "config", "environment", "seed", "world", "verdict"];
/// The figures of a latency, in order.
pub const PERCENTILES: [&str; 7] = ["mean", "p50", "p90", "p99", "p999", "p9999", "max"];

/// A result file.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its path.
    pub file: PathBuf,
    /// Its contents.
    pub result: Map<String, Value>,
    /// The intervals of the run; empty for other commands, and for files written by versions without intervals.
    pub intervals: Vec<Interval>,
}

/// A file that is not a valid result.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct ReadError {
    /// The file.
    pub file: PathBuf,
    /// The error.
    pub reason: String,
}

/// A figure of a finished run.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureValue {
    /// Its name, which is its path in the file.
    pub name: String,
    /// Its unit; empty for a count, or if unknown.
    pub unit: String,
    /// `None` if unknown.
    pub value: Option<f64>,
    /// The direction in which the figure improves.
    pub better: Better,
}

/// Figures of one interval; `None` if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "the fields are columns of report::intervals")]
pub struct Interval {
    pub until_seconds: f64,
    pub seconds: f64,
    pub ops: Option<f64>,
    pub gets: Option<f64>,
    pub get_misses: Option<f64>,
    pub get_hits_dram: Option<f64>,
    pub get_hits_flash: Option<f64>,
    pub flash_bytes_host: Option<f64>,
    pub flash_bytes_media: Option<f64>,
    /// Completed writes: bytes of keys and values, then bytes written to the device. `None` in results of older versions.
    pub flash_bytes_settled: Option<f64>,
    pub flash_bytes_settled_host: Option<f64>,
    pub get_p99_ns: Option<f64>,
    pub device_read_p99_ns: Option<f64>,
}

impl Finished {
    /// Reads and checks `file`.
    ///
    /// # Errors
    /// The file cannot be read, or is not a result of this program in this or an older version.
    pub fn read(file: &Path) -> Result<Self, ReadError> {
        let mut bytes = Vec::new();
        let read = File::open(file).and_then(|open| open.take(MAX_BYTES + 1).read_to_end(&mut bytes));
        let checked = match read {
            Err(error) => Err(error.to_string()),
            Ok(_) if bytes.len() as u64 > MAX_BYTES => Err("too long to be a flashwright result".to_owned()),
            Ok(_) if IntervalFormat::of(file).is_some() => Self::parse_intervals(file, &bytes),
            Ok(_) => Self::parse(file, &bytes),
        };
        checked.map_err(|reason| ReadError { file: file.to_owned(), reason })
    }

    fn parse(file: &Path, bytes: &[u8]) -> Result<Self, String> {
        let whole: Value = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
            _ if bytes.trim_ascii().is_empty() => "is empty".to_owned(),
            serde_json::error::Category::Eof => format!("is truncated in line {}", error.line()),
            _ => format!("not JSON: {error}"),
        })?;
        let foreign = || "not a flashwright result (`bench --json FILE` writes one)".to_owned();
        let Value::Object(result) = whole else { return Err(foreign()) };
        let version =
            result.get("flashwright").and_then(Value::as_str).and_then(version).ok_or_else(foreign)?;
        result.get("command").and_then(Value::as_str).ok_or_else(foreign)?;
        if Some(version) > self::version(env!("CARGO_PKG_VERSION")) {
            let (theirs, ours) = (&result["flashwright"], env!("CARGO_PKG_VERSION"));
            return Err(format!("written by flashwright {theirs}, which is newer than this version, {ours}"));
        }
        check(&result)?;
        let intervals = intervals(result.get("intervals"))?;
        Ok(Self { file: file.to_owned(), result, intervals })
    }

    /// Reads a file of `bench --intervals`, which has figures over time, but no config and verdict.
    fn parse_intervals(file: &Path, bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is not text".to_owned())?;
        let other = "not an interval file of flashwright (`bench --intervals FILE` writes one)";
        let header = text.lines().next().unwrap_or_default();
        let (rows, is_cut) = match IntervalFormat::of(file) {
            Some(IntervalFormat::JsonLines) => json_lines(text)?,
            // A CSV file without this column is another table. Reading on would only report that a cell is not a number.
            _ if !header.is_empty() && !header.split(',').any(|name| name == "until_seconds") => {
                return Err(other.to_owned());
            }
            _ => csv_rows(text)?,
        };
        let first = rows.first().ok_or_else(|| "has no intervals".to_owned())?;
        if first["until_seconds"].is_null() || first["seconds"].is_null() {
            return Err(other.to_owned());
        }
        let intervals = intervals(Some(&Value::Array(rows)))?;
        let warnings = if is_cut { vec!["the last line is incomplete and was skipped"] } else { Vec::new() };
        let totals = totals(&intervals, &warnings);
        let result = serde_json::json!({ "flashwright": env!("CARGO_PKG_VERSION"), "command": "bench --intervals", "totals": totals });
        let Value::Object(result) = result else { unreachable!("it is an object") };
        Ok(Self { file: file.to_owned(), result, intervals })
    }

    /// The command that wrote the result.
    #[must_use]
    pub fn command(&self) -> &str {
        self.result.get("command").and_then(Value::as_str).unwrap_or_default()
    }

    /// The value at `path`; `null` if it is missing.
    #[must_use]
    pub fn part(&self, path: &[&str]) -> &Value {
        let first = path.first().and_then(|name| self.result.get(*name)).unwrap_or(&Value::Null);
        path.iter().skip(1).fold(first, |value, name| value.get(name).unwrap_or(&Value::Null))
    }

    /// The failed checks.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let listed = self.part(&["verdict", "failures"]).as_array().into_iter().flatten();
        let mut failures: Vec<String> = listed.filter_map(Value::as_str).map(str::to_owned).collect();
        if failures.is_empty() && self.part(&["verdict", "passed"]) == &Value::Bool(false) {
            failures.push("no reason given".to_owned());
        }
        failures
    }

    /// The length of the warm-up that the figures exclude; `None` if there was none, or if the run ended before it did.
    #[must_use]
    pub fn warmup_seconds(&self) -> Option<f64> {
        let warmup = self.part(&["totals", "warmup"]);
        warmup["seconds"].as_f64().filter(|_| warmup["ended"] == true)
    }

    /// Its figures: for `bench`, the totals of all instances, the latencies and the model drive's figures; for other commands, every
    /// number except the inputs.
    #[must_use]
    pub fn figures(&self) -> Vec<FigureValue> {
        let mut figures = Vec::new();
        if matches!(self.command(), "bench" | "bench --intervals") {
            let totals = self.part(&["totals"]);
            figures.extend(FIGURES.iter().map(|figure| FigureValue {
                name: figure.name.to_owned(),
                unit: figure.unit.to_owned(),
                value: totals[figure.name].as_f64(),
                better: figure.better,
            }));
            for layer in ["cache", "device"] {
                flatten(&format!("latency_ns.{layer}"), &totals["latency_ns"][layer], &mut figures);
            }
            flatten("drive", self.part(&["drive"]), &mut figures);
            return figures;
        }
        let inputs = ["inputs", "intervals", "was_stopped", "trace"];
        for (name, value) in &self.result {
            if !ENVELOPE.contains(&name.as_str()) && !inputs.contains(&name.as_str()) {
                flatten(name, value, &mut figures);
            }
        }
        figures
    }
}

/// Parses CSV with a header. Also returns whether the last line lacks its line end and was skipped.
fn csv_rows(text: &str) -> Result<(Vec<Value>, bool), String> {
    let is_cut = !text.is_empty() && !text.ends_with('\n');
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let mut lines = whole.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let row = |(number, line): (usize, &str)| {
        let cells: Vec<&str> = line.split(',').collect();
        if cells.len() != names.len() {
            let (has, header) = (cells.len(), names.len());
            return Err(format!("line {}: has {has} fields, but the header has {header}", number + 2));
        }
        let value = |cell: &str| match cell.trim() {
            "" => Ok(Value::Null),
            cell => serde_json::from_str::<Value>(cell)
                .map_err(|_| format!("line {}: {} is not a number", number + 2, short(&Value::from(cell)))),
        };
        let fields = names.iter().zip(cells).map(|(name, cell)| Ok(((*name).to_owned(), value(cell)?)));
        fields.collect::<Result<Map<_, _>, String>>().map(Value::Object)
    };
    let rows = lines.enumerate().filter(|(_, line)| !line.trim().is_empty()).map(row);
    Ok((rows.collect::<Result<_, _>>()?, is_cut))
}

/// Parses a file with one JSON object per line, likewise.
fn json_lines(text: &str) -> Result<(Vec<Value>, bool), String> {
    let is_cut = !text.is_empty() && !text.ends_with('\n');
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let row = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| format!("line {}: not JSON: {error}", number + 1))
    };
    let rows = whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(row);
    Ok((rows.collect::<Result<_, _>>()?, is_cut))
}

/// The figures of a run that can be computed from its intervals.
fn totals(intervals: &[Interval], warnings: &[&str]) -> Value {
    let sum = |of: fn(&Interval) -> Option<f64>| -> Option<f64> { intervals.iter().map(of).sum() };
    let ratio = |part: Option<f64>, whole: Option<f64>| -> Option<f64> {
        Some(part? / whole.filter(|it| *it > 0.0)?)
    };
    let (seconds, ops) = (sum(|it| Some(it.seconds)), sum(|it| it.ops));
    let (gets, in_dram) = (sum(|it| it.gets), sum(|it| it.get_hits_dram));
    let hits = sum(|it| Some(it.gets? - it.get_misses?));
    let (host, media) = (sum(|it| it.flash_bytes_host), sum(|it| it.flash_bytes_media));
    serde_json::json!({
        "warnings": warnings,
        "ops": ops,
        "seconds": seconds,
        "throughput_ops_per_second": ratio(ops, seconds),
        "gets": gets,
        "hit_ratio": ratio(hits, gets),
        "hit_ratio_dram": ratio(in_dram, gets),
        "hit_ratio_flash": ratio(sum(|it| it.get_hits_flash), gets.zip(in_dram).map(|(gets, dram)| gets - dram)),
        "flash_bytes_host": host,
        "flash_bytes_media": media,
        "alwa": ratio(sum(|it| it.flash_bytes_settled_host), sum(|it| it.flash_bytes_settled)),
        "dlwa": ratio(media, host),
    })
}

/// Parses `1.2.3` with an optional suffix.
fn version(text: &str) -> Option<[u64; 3]> {
    let mut parts = text.split(['-', '+']).next()?.split('.').map(|part| part.parse().ok());
    let version = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(version)
}

/// Checks the types of the keys that are read by name. In results of commands other than `bench`, `drive` may have any type.
fn check(result: &Map<String, Value>) -> Result<(), String> {
    type Is = fn(&Value) -> bool;
    let parts: [(&str, &str, Is); 6] = [
        ("seed", "a whole number", |value| value.is_u64() || value.is_null()),
        ("verdict", "an object", Value::is_object),
        ("totals", "an object", Value::is_object),
        ("instances", "a list", Value::is_array),
        ("drive", "an object", |value| value.is_object() || value.is_null()),
        ("world", "a word", Value::is_string),
    ];
    for (name, kind, is) in parts {
        let is_read = name != "drive" || result["command"] == "bench";
        if let Some(value) = result.get(name).filter(|value| is_read && !is(value)) {
            return Err(format!("{name}: {} is not {kind}", short(value)));
        }
    }
    let Some(verdict) = result.get("verdict") else { return Err("verdict: missing".to_owned()) };
    if !verdict["passed"].is_boolean() {
        return Err(format!("verdict.passed: {} is neither true nor false", short(&verdict["passed"])));
    }
    let Some(totals) = result.get("totals").filter(|_| result["command"] == "bench") else {
        return if result["command"] == "bench" { Err("totals: missing".to_owned()) } else { Ok(()) };
    };
    let of_figures = FIGURES.iter().map(|figure| (figure.name, &totals[figure.name]));
    number_or_null("totals", of_figures)
}

/// Checks that values are numbers in the range of counts, sizes, times and ratios of a run. Others are errors, and cannot be drawn.
fn number_or_null<'a>(of: &str, values: impl Iterator<Item = (&'a str, &'a Value)>) -> Result<(), String> {
    for (name, value) in values.filter(|(_, value)| !value.is_null()) {
        let shown = || short(value);
        let number = value.as_f64().ok_or_else(|| format!("{of}.{name}: {} is not a number", shown()))?;
        if !(0.0..=LARGEST).contains(&number) {
            return Err(format!("{of}.{name}: {} is out of range", shown()));
        }
    }
    Ok(())
}

fn short(value: &Value) -> String {
    cut(&value.to_string(), 40)
}

fn intervals(value: Option<&Value>) -> Result<Vec<Interval>, String> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| format!("intervals: {} is not a list", short(value)))?;
    let mut intervals = Vec::new();
    for (number, value) in list.iter().enumerate() {
        let at = format!("intervals[{number}]");
        let columns = value.as_object().ok_or_else(|| format!("{at}: {} is not an object", short(value)))?;
        number_or_null(&at, columns.iter().map(|(name, value)| (name.as_str(), value)))?;
        intervals.push(Interval::deserialize(value).map_err(|error| format!("{at}: {error}"))?);
    }
    Ok(intervals)
}

/// Collects every number in `value`. An entry of a list is named by its name, its tenant, or its policy and size, otherwise by its index.
fn flatten(name: &str, value: &Value, into: &mut Vec<FigureValue>) {
    match value {
        Value::Object(fields) => flatten_fields(name, fields, into),
        Value::Array(list) => {
            for (number, value) in list.iter().enumerate() {
                let label = label(value).unwrap_or_else(|| number.to_string());
                flatten(&format!("{name}[{label}]"), value, into);
            }
        }
        Value::Number(number) => into.push(FigureValue {
            name: name.to_owned(),
            unit: unit_by_name(name).to_owned(),
            value: number.as_f64(),
            better: Better::by_name(name),
        }),
        _ => {}
    }
}

fn flatten_fields(name: &str, fields: &Map<String, Value>, into: &mut Vec<FigureValue>) {
    // Expected values of a study's point, and fields that identify a row, are not figures.
    let is_key = |field: &str| match field {
        "paper" | "low" | "high" => fields.contains_key("ours"),
        "size_bytes" => fields.contains_key("policy"),
        field => {
            matches!(field, "handles" | "interval" | "page_bytes" | "reclaim_units" | "reclaim_unit_bytes")
        }
    };
    for (field, value) in fields.iter().filter(|(field, _)| !is_key(field)) {
        let unit = fields.get("unit").and_then(Value::as_str).filter(|_| field == "ours");
        let before = into.len();
        flatten(&format!("{name}.{field}"), value, into);
        if let (Some(unit), Some(figure)) = (unit, into.get_mut(before)) {
            unit.clone_into(&mut figure.unit);
        }
    }
}

fn label(value: &Value) -> Option<String> {
    if let Some(name) = value["name"].as_str().or_else(|| value["study"].as_str()) {
        return Some(name.to_owned());
    }
    if let Some(name) = value["tenant"].as_str() {
        return Some(name.to_owned());
    }
    Some(format!(
        "{}, {}",
        value["policy"].as_str()?,
        value["size_bytes"].as_u64().or(value["size_objects"].as_u64())?
    ))
}

fn unit_by_name(name: &str) -> &'static str {
    let leaf = name.rsplit('.').next().unwrap_or(name);
    match FIGURES.iter().find(|figure| figure.name == leaf) {
        Some(figure) => figure.unit,
        None if name.contains("latency_ns") && !["count", "timed_one_in"].contains(&leaf) => "ns",
        None if leaf.ends_with("_bytes") => "B",
        None if leaf.ends_with("ratio") || leaf.ends_with("write_amplification") => "ratio",
        None => "",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn read(name: &str, text: &str) -> Result<Finished, String> {
        Finished::parse_intervals(Path::new(name), text.as_bytes())
    }

    #[test]
    fn interval_file_yields_intervals_and_totals() {
        let csv = "until_seconds,seconds,ops,gets,get_misses\n0.2,0.2,10,8,2\n0.4,0.2,30,12,3\n0.6,0.2,";
        let run = read("run.csv", csv).unwrap();
        assert_eq!((run.intervals.len(), run.part(&["totals", "ops"])), (2, &Value::from(40.0)));
        assert_eq!(run.part(&["totals", "hit_ratio"]), &Value::from(0.75));
        assert_eq!(run.part(&["totals", "flash_bytes_host"]), &Value::Null, "the column is missing");
        assert!(run.part(&["totals", "warnings"])[0].as_str().unwrap().contains("incomplete"));
        let lines = "{\"until_seconds\":0.2,\"seconds\":0.2,\"ops\":5}\n";
        assert_eq!(
            read("run.jsonl", lines).unwrap().part(&["totals", "throughput_ops_per_second"]),
            &Value::from(25.0)
        );
        for (name, text, message) in [
            ("trace.csv", "key,op,size\n1,2,3\n", "not an interval file of flashwright"),
            ("run.csv", "until_seconds,seconds\n0.2\n", "line 2: has 1 fields, but the header has 2"),
            ("run.csv", "time,key,op,size\n1,a,GET,5\n", "not an interval file of flashwright"),
            ("run.csv", "until_seconds,seconds\nx,1\n", "line 2: \"x\" is not a number"),
            ("run.csv", "until_seconds,seconds\n", "has no intervals"),
            ("run.jsonl", "{]\n", "line 1: not JSON"),
        ] {
            let error = read(name, text).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn counts_in_latency_objects_have_no_unit() {
        let unit = |name: &str| unit_by_name(&format!("profiles[0].runs[0].latency_ns.{name}"));
        assert_eq!([unit("timed_one_in"), unit("cache.get.count"), unit("cache.get.p99")], ["", "", "ns"]);
    }
}
