//! The results of a sweep as one page: heat maps over the axes, a Pareto front, and a table of all rows with filters.
//!
//! The filters are checkboxes that a style sheet evaluates (`:has`), so the page needs no script.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value};

use super::amount::shown;
use super::finished::ReadError;
use super::html::Html;
use super::page;

mod front;
mod maps;

/// Maximum number of rows in the table.
const ROWS_SHOWN: usize = 5000;
/// Maximum number of values of an axis that has a filter.
const FILTERED_VALUES: usize = 40;

/// Names align with their heading, figures by their last digit.
const STYLE: &str = ".rows .axis { text-align: left }\n";

type Row = Map<String, Value>;

/// A sweep that was read.
#[derive(Debug)]
pub struct Sweep {
    name: String,
    axes: Vec<Axis>,
    rows: Vec<Row>,
}

/// An axis with at least two values in the rows.
#[derive(Debug)]
struct Axis {
    name: String,
    /// As text, in order.
    values: Vec<String>,
}

/// Figures of the rows, by their path in a row: the quality that heat maps show and fronts maximise or minimise.
const FIGURES: [Figure; 7] = [
    Figure { path: "object_hit_ratio", title: "hits, share of requests", is_better_high: true },
    Figure { path: "byte_hit_ratio", title: "hits, share of bytes", is_better_high: true },
    Figure { path: "hit_ratio", title: "hits, share of gets", is_better_high: true },
    Figure { path: "write_amplification", title: "bytes written per byte admitted", is_better_high: false },
    Figure { path: "dlwa", title: "write amplification of the drive", is_better_high: false },
    Figure { path: "life_years", title: "years of life", is_better_high: true },
    Figure { path: "ours", title: "value of the study", is_better_high: true },
];
/// Costs of a row for the Pareto front, which are better when lower.
const COSTS: [(&str, &str); 3] = [
    ("kgco2e", "kg CO2e of drives and DRAM"),
    ("size_bytes", "cache size, bytes"),
    ("size_objects", "cache size, objects"),
];

#[derive(Debug, Clone, Copy)]
struct Figure {
    path: &'static str,
    title: &'static str,
    is_better_high: bool,
}

impl Sweep {
    /// Reads the results in a directory of `flashwright sweep`.
    ///
    /// # Errors
    /// The directory has no combined results, or they are damaged.
    pub fn read(directory: &Path) -> Result<Self, ReadError> {
        let file = directory.join("results.jsonl");
        let failed = |reason: String| ReadError { file: file.clone(), reason };
        let text = std::fs::read_to_string(&file).map_err(|error| {
            failed(format!("{error}; it is written at the end of `flashwright sweep`, or by its --combine"))
        })?;
        let parse = |(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| failed(format!("line {}: {error}", number + 1)))
        };
        let rows = text.lines().enumerate().map(parse).collect::<Result<Vec<Row>, _>>()?;
        let first = rows.first().ok_or_else(|| failed("has no rows".to_owned()))?;
        let cell = directory.join(format!("cells/{}.json", first["key"].as_str().unwrap_or_default()));
        let of_cell = |reason: String| ReadError { file: cell.clone(), reason };
        let cell_text = std::fs::read_to_string(&cell).map_err(|error| of_cell(error.to_string()))?;
        let stored: Value = serde_json::from_str(&cell_text).map_err(|error| of_cell(error.to_string()))?;
        let names = stored["axes"].as_object().map(|axes| axes.keys().cloned().collect()).unwrap_or_default();
        let name = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, axes: axes(names, &rows), rows })
    }

    /// Renders the page.
    ///
    /// # Errors
    /// An error of the drawing library. Drawing in memory should cause none.
    pub fn render(&self) -> Result<String, Box<dyn std::error::Error>> {
        let title = format!("{} — flashwright sweep", self.name);
        let mut body = Html::default();
        body.element("h1", &title);
        let figures: Vec<Figure> = FIGURES.into_iter().filter(|figure| self.has(figure.path)).collect();
        for figure in figures.iter().take(2) {
            maps::heat_map(&mut body, self, *figure);
        }
        if let (Some(figure), Some(cost)) = (figures.first(), COSTS.iter().find(|(path, _)| self.has(path))) {
            front::fronts(&mut body, self, *figure, *cost)?;
        }
        let style = self.filters(&mut body);
        self.table(&mut body, &figures);
        Ok(page::document(&title, &(style + maps::STYLE + STYLE), &body.finish()))
    }

    fn has(&self, path: &str) -> bool {
        self.rows.iter().any(|row| number(row, path).is_some())
    }

    /// Checkboxes for the values of the axes. Returns the style sheet that hides the rows of values that are not checked.
    fn filters(&self, body: &mut Html) -> String {
        let mut style = String::new();
        body.element("h2", "Rows");
        body.markup("<p class=\"pale\">Clear a box to hide the rows with that value.</p>\n");
        for (number, axis) in
            self.axes.iter().enumerate().filter(|(_, axis)| axis.values.len() <= FILTERED_VALUES)
        {
            body.markup("<p>").element("b", &axis.name);
            for (place, value) in axis.values.iter().enumerate() {
                let class = class(number, place);
                body.checkbox(&class, value);
                let _ = writeln!(style, "body:has(#{class}:not(:checked)) tr.{class} {{ display: none }}");
            }
            body.markup("</p>\n");
        }
        style
    }

    fn table(&self, body: &mut Html, figures: &[Figure]) {
        let costs = COSTS.iter().filter(|(path, _)| self.has(path));
        let columns: Vec<&str> =
            figures.iter().map(|figure| figure.path).chain(costs.map(|(path, _)| *path)).collect();
        body.markup("<div class=\"scroll\"><table class=\"rows\"><thead><tr>");
        for axis in &self.axes {
            body.markup("<th class=\"axis\">").text(&axis.name).markup("</th>");
        }
        for column in &columns {
            body.element("th", column);
        }
        body.markup("</tr></thead><tbody>\n");
        for row in self.rows.iter().take(ROWS_SHOWN) {
            let place =
                |axis: &Axis| axis.values.binary_search_by(|value| order(value, &text(row, &axis.name))).ok();
            let classes =
                self.axes.iter().enumerate().filter_map(|(number, axis)| Some(class(number, place(axis)?)));
            body.row_of_classes(&classes.collect::<Vec<_>>());
            for axis in &self.axes {
                body.markup("<td class=\"axis\">").text(&text(row, &axis.name)).markup("</td>");
            }
            for column in &columns {
                match number(row, column) {
                    Some(value) => body.explained("td", &figure_text(column, value), &value.to_string()),
                    None => body.element("td", ""),
                };
            }
            body.markup("</tr>\n");
        }
        body.markup("</tbody></table></div>\n");
        if self.rows.len() > ROWS_SHOWN {
            let more = self.rows.len() - ROWS_SHOWN;
            body.element("p", &format!("{more} further rows are in results.jsonl"));
        }
    }
}

fn class(axis: usize, value: usize) -> String {
    format!("f{axis}-{value}")
}

/// The axes whose values differ, with their values in order.
fn axes(names: Vec<String>, rows: &[Row]) -> Vec<Axis> {
    let axis = |name: String| {
        let mut values: Vec<String> = rows.iter().map(|row| text(row, &name)).collect();
        values.sort_by(|a, b| order(a, b));
        values.dedup();
        Axis { name, values }
    };
    names.into_iter().filter(|name| name != "shard").map(axis).filter(|axis| axis.values.len() > 1).collect()
}

/// Numbers by value, others as text. `1%` is a number.
fn order(a: &str, b: &str) -> std::cmp::Ordering {
    let number = |text: &str| text.trim_end_matches('%').parse::<f64>().ok();
    match (number(a), number(b)) {
        (Some(left), Some(right)) => left.total_cmp(&right).then_with(|| a.cmp(b)),
        (left, right) => right.is_some().cmp(&left.is_some()).then_with(|| a.cmp(b)),
    }
}

/// A value of an axis. Of a path the file's name, which is shorter.
fn text(row: &Row, name: &str) -> String {
    match row.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) if name == "trace" || name == "config" => Path::new(text)
            .file_name()
            .map_or_else(|| text.clone(), |file| file.to_string_lossy().into_owned()),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A figure of a row; of a figure with an interval, its value.
fn number(row: &Row, path: &str) -> Option<f64> {
    let value = row.get(path)?;
    value.as_f64().or_else(|| value.get("value")?.as_f64())
}

/// A figure as text in its column.
fn figure_text(column: &str, value: f64) -> String {
    shown(
        value,
        match column {
            "size_bytes" => "B",
            _ if column.ends_with("ratio") => "ratio",
            _ => "",
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sweep(directory: &Path) -> Sweep {
        std::fs::create_dir_all(directory.join("cells")).unwrap();
        let axes = json!({ "axes": { "policy": "lru", "size": "1%", "trace": "t/a<b.csv", "seed": 1 } });
        std::fs::write(directory.join("cells/k0.json"), axes.to_string()).unwrap();
        let mut rows = String::new();
        for (number, (policy, size, hits)) in
            [("lru", "1%", 0.25), ("lru", "10%", 0.5), ("sieve", "1%", 0.375), ("sieve", "10%", 0.4375)]
                .iter()
                .enumerate()
        {
            let bytes = if *size == "1%" { 100 } else { 1000 };
            let row = json!({ "cell": number, "key": format!("k{number}"), "seed": 1, "size": size, "trace": "t/a<b.csv",
                "policy": policy, "size_bytes": bytes, "object_hit_ratio": hits, "byte_hit_ratio": null });
            rows += &format!("{row}\n");
        }
        std::fs::write(directory.join("results.jsonl"), rows).unwrap();
        Sweep::read(directory).unwrap()
    }

    #[test]
    fn page_has_a_heat_map_a_front_and_a_filter_for_each_value() {
        let directory = tempfile::tempdir().unwrap();
        let page = sweep(directory.path()).render().unwrap();
        assert_eq!(page.matches("type=\"checkbox\"").count(), 4, "seed and trace have one value: {page}");
        assert!(page.contains("body:has(#f0-1:not(:checked)) tr.f0-1"), "{page}");
        assert!(page.contains("<tr class=\"f0-1 f1-0\"><td class=\"axis\">sieve</td><td class=\"axis\">1%</td><td title=\"0.375\">0.3750</td>"), "{page}");
        assert_eq!(page.matches("<svg").count(), 1);
        assert!(page.contains(">0.500</td>") && page.contains("hits, share of requests"), "{page}");
        assert!(!page.contains("<script"));
    }

    #[test]
    fn sizes_are_in_order_of_their_numbers() {
        let rows: Vec<Row> = ["10%", "2%", "0.5%", "64MiB"]
            .map(|size| json!({ "size": size }).as_object().unwrap().clone())
            .into();
        assert_eq!(axes(vec!["size".to_owned()], &rows)[0].values, ["0.5%", "2%", "10%", "64MiB"]);
    }

    #[test]
    fn directory_without_results_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = Sweep::read(directory.path()).unwrap_err().to_string();
        assert!(error.contains("results.jsonl: ") && error.contains("--combine"), "{error}");
    }
}
