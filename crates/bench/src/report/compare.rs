//! Compares two sides, each one or several finished runs: their settings, their figures, and whether a difference exceeds noise.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::amount::{cut, on_one_line, shown};
use super::differences::{self, DifferingKey};
use super::figures::Better;
use super::finished::{FigureValue, Finished};
use super::json::number;
use super::noise::{self, Difference, FALSE_ALARM};

/// Latency histograms have a relative precision of 1 %, so smaller differences than twice that are not significant.
const LATENCY_PRECISION: f64 = 0.02;
/// Limit of the differing keys in the text.
const KEYS_SHOWN: usize = 24;

/// The comparison of two sides.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Settings that differ between the sides.
    pub differing: Vec<DifferingKey>,
    /// Settings that differ between runs of one side, which are therefore no repetitions.
    pub mixed: Vec<String>,
    /// The figures of both sides.
    pub figures: Vec<Compared>,
    /// Number of figures that were tested against noise.
    pub judged: usize,
    /// Whether a side has several runs, from whose scatter the noise is estimated.
    pub is_repeated: bool,
    /// Failed checks of the second side, if all checks of the first side passed.
    pub failed: Vec<String>,
}

/// A figure of both sides.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The first side's figure; its value is the mean of all runs.
    pub a: FigureValue,
    /// The second side's value.
    pub b: Option<f64>,
    /// The difference, if its noise is known: of the means of several runs, or of single runs after their warm-up.
    pub difference: Option<Difference>,
    /// The largest difference that may be noise.
    pub margin: Option<f64>,
    /// Whether the difference exceeds noise; `None` if unknown.
    pub beyond_noise: Option<bool>,
}

/// Compares two sides of one or several runs each.
///
/// # Errors
/// A side has no runs, the results are of different commands or have no common figures, or a repetition is the same run again.
pub fn compare(a: &[Finished], b: &[Finished]) -> Result<Comparison, String> {
    check(a, b)?;
    let figures = pair(a, b);
    if figures.is_empty() {
        return Err(format!("results of `{}` have no figures in common", a[0].command()));
    }
    let (differing, mixed) = differences::between(a, b);
    let passed = a.iter().all(|run| run.failures().is_empty());
    let failed = b.iter().filter(|_| passed).flat_map(|run| {
        let file = run.file.display().to_string();
        run.failures().into_iter().map(move |failure| format!("{file}: {failure}"))
    });
    let judged = figures.iter().filter(|figure| figure.difference.is_some()).count();
    let (failed, is_repeated) = (failed.collect(), a.len() + b.len() > 2);
    let mut comparison = Comparison { differing, mixed, figures, judged, is_repeated, failed };
    comparison.figures.iter_mut().for_each(|figure| figure.judge(judged));
    Ok(comparison)
}

fn check(a: &[Finished], b: &[Finished]) -> Result<(), String> {
    let first = a.first().ok_or("no runs to compare")?;
    if b.is_empty() {
        return Err("one run has nothing to compare with".into());
    }
    if let Some(other) = a.iter().chain(b).find(|run| run.command() != first.command()) {
        let (file, command) = (first.file.display(), first.command());
        let (other_file, other_command) = (other.file.display(), other.command());
        return Err(format!(
            "{file} is a result of `{command}`, {other_file} of `{other_command}`: they have no figures in common"
        ));
    }
    a.iter().enumerate().try_for_each(|(at, run)| not_twice(run, &a[..at]))?;
    b.iter().enumerate().try_for_each(|(at, run)| not_twice(run, &b[..at]))
}

/// Refuses a run that is given twice: it would hide the noise.
fn not_twice(run: &Finished, before: &[Finished]) -> Result<(), String> {
    let same =
        |other: &&Finished| other.part(&["seed"]) == run.part(&["seed"]) && other.figures() == run.figures();
    before.iter().find(same).map_or(Ok(()), |other| {
        let (file, other) = (run.file.display(), other.file.display());
        Err(format!(
            "{file} is the same run as {other}, not a repetition of it: run it again with another --seed"
        ))
    })
}

/// The figures that the first runs of both sides have, in the order of the first side.
fn pair(a: &[Finished], b: &[Finished]) -> Vec<Compared> {
    let side = |runs: &[Finished]| runs.iter().map(Finished::figures).collect::<Vec<_>>();
    let (of_a, of_b) = (side(a), side(b));
    let values = |side: &[Vec<FigureValue>], name: &str| -> Vec<Option<f64>> {
        let in_run = |run: &Vec<FigureValue>| run.iter().find(|it| it.name == name).and_then(|it| it.value);
        side.iter().map(in_run).collect()
    };
    let both = of_a[0].iter().filter(|figure| of_b[0].iter().any(|it| it.name == figure.name));
    let compared = |figure: &FigureValue| {
        let known = |values: Vec<Option<f64>>| values.into_iter().collect::<Option<Vec<f64>>>();
        let in_a = known(values(&of_a, &figure.name));
        let in_b = known(values(&of_b, &figure.name));
        let mean = |values: &Option<Vec<f64>>| values.as_deref().map(noise::mean);
        let difference = match (&in_a, &in_b) {
            (Some(in_a), Some(in_b)) if in_a.len() + in_b.len() > 2 => noise::between_runs(in_a, in_b),
            (Some(_), Some(_)) => over_time(&figure.name, &a[0], &b[0]),
            _ => None,
        };
        Compared {
            b: mean(&in_b),
            difference: difference.filter(|_| figure.better != Better::Zero),
            a: FigureValue { value: mean(&in_a), ..figure.clone() },
            margin: None,
            beyond_noise: None,
        }
    };
    both.map(compared).collect()
}

fn over_time(name: &str, a: &Finished, b: &Finished) -> Option<Difference> {
    let steady = |run: &Finished| noise::steady(name, &run.intervals, run.warmup_seconds());
    Some(noise::between(&steady(a)?, &steady(b)?))
}

impl Compared {
    fn judge(&mut self, figures: usize) {
        let (Some(a), Some(b)) = (self.a.value, self.b) else { return };
        if self.a.better == Better::Zero {
            self.beyond_noise = Some(a != b);
            return;
        }
        let Some(difference) = self.difference else { return };
        let precision = if self.a.unit == "ns" { LATENCY_PRECISION * a.max(b) } else { 0.0 };
        let margin = difference.margin(figures).max(precision);
        self.margin = Some(margin);
        // Sums in a different order may differ in the last bit.
        let rounding = 1e-12 * a.abs().max(b.abs());
        self.beyond_noise = Some(difference.value.abs() > margin + rounding);
    }

    fn ratio(&self) -> Option<f64> {
        let (a, b) = (self.a.value?, self.b?);
        (a != 0.0).then(|| b / a)
    }

    /// The result for the second side relative to the first, if it is known.
    #[must_use]
    pub fn word(&self) -> &'static str {
        let grown = match (self.difference, self.a.value, self.b) {
            (Some(difference), ..) => difference.value > 0.0,
            (None, Some(a), Some(b)) => b > a,
            _ => return "",
        };
        match (self.beyond_noise, self.a.better, grown) {
            (None, ..) => "",
            (Some(false), Better::Zero, _) => "same",
            (Some(false), ..) => "within noise",
            (_, Better::Higher, true) | (_, Better::Lower | Better::Zero, false) => "better",
            (_, Better::Higher, false) | (_, Better::Lower | Better::Zero, true) => "worse",
            (_, Better::Neither, _) => "differs",
        }
    }

    fn json(&self) -> Value {
        let value = |value: Option<f64>| value.map_or(Value::Null, number);
        json!({
            "name": self.a.name,
            "a": value(self.a.value),
            "b": value(self.b),
            "ratio": self.ratio(),
            "beyond_noise": self.beyond_noise,
            "difference": self.difference.map(|it| it.value),
            "margin": self.margin,
            "better": self.a.better.word(),
            "unit": self.a.unit,
        })
    }
}

impl Comparison {
    /// Figures that are worse beyond noise, and failed checks.
    #[must_use]
    pub fn worse(&self) -> Vec<String> {
        let worse = self.figures.iter().filter(|figure| figure.word() == "worse");
        let text = |figure: &Compared| {
            let value = |value: Option<f64>| value.map_or_else(String::new, |it| shown(it, &figure.a.unit));
            format!("worse: {} {} became {}", figure.a.name, value(figure.a.value), value(figure.b))
        };
        worse.map(text).chain(self.failed.iter().cloned()).collect()
    }

    /// The comparison as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let key = |it: &DifferingKey| json!({ "key": it.key, "a": it.a, "b": it.b });
        json!({
            "differences": self.differing.iter().map(key).collect::<Vec<_>>(),
            "differing_within_a_side": self.mixed,
            "noise": { "false_alarm": FALSE_ALARM, "figures_judged": self.judged, "between_runs": self.is_repeated },
            "figures": self.figures.iter().map(Compared::json).collect::<Vec<_>>(),
        })
    }

    /// The comparison as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        if self.differing.is_empty() {
            out += "Config, seed, environment and version are the same.\n";
        } else {
            out += "Differences:\n";
        }
        let key_width =
            self.differing.iter().take(KEYS_SHOWN).map(|it| it.key.chars().count()).max().unwrap_or(0);
        for it in self.differing.iter().take(KEYS_SHOWN) {
            let brief = |value: &Value| cut(&on_one_line(&value.to_string()), 60);
            let (key, a, b) = (on_one_line(&it.key), brief(&it.a), brief(&it.b));
            let _ = writeln!(out, "  {key:<key_width$}  {a}  →  {b}");
        }
        if let Some(more) = self.differing.len().checked_sub(KEYS_SHOWN).filter(|more| *more > 0) {
            let _ = writeln!(out, "  and {more} more keys; --json lists them");
        }
        self.mixed.iter().for_each(|key| {
            let _ =
                writeln!(out, "Runs of one side differ in {}: they are not repetitions.", on_one_line(key));
        });
        self.table(&mut out);
        out
    }

    fn table(&self, out: &mut String) {
        let known = self.figures.iter().filter(|figure| figure.a.value.is_some() || figure.b.is_some());
        let rows: Vec<[String; 5]> = known.map(row).collect();
        let header = ["figure", "a", "b", "b / a", ""].map(str::to_owned);
        let width = |column: usize| {
            let widths = rows.iter().chain([&header]).map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: [usize; 4] = std::array::from_fn(width);
        out.push('\n');
        for [name, a, b, ratio, word] in [&header].into_iter().chain(&rows) {
            let [of_name, of_a, of_b, of_ratio] = widths;
            let line = format!("{name:<of_name$}  {a:>of_a$}  {b:>of_b$}  {ratio:>of_ratio$}  {word}");
            let _ = writeln!(out, "{}", line.trim_end());
        }
        self.footer(out);
    }

    /// Explains the last column.
    fn footer(&self, out: &mut String) {
        if self.judged == 0 {
            *out += "\nThe noise of these figures is unknown: give several runs per side (`compare A… --against B…`).\n";
            return;
        }
        let (judged, percent) = (self.judged, FALSE_ALARM * 100.0);
        let _ = writeln!(
            out,
            "\nFigures tested: {judged}. In {percent} % of comparisons, chance alone puts one of them beyond noise."
        );
        if !self.is_repeated {
            *out += "With one run per side, noise is estimated within the run. Give several runs per side (--against) to include noise between runs.\n";
        }
    }
}

fn row(figure: &Compared) -> [String; 5] {
    let value =
        |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), |it| shown(it, &figure.a.unit));
    let ratio = figure.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.4}"));
    [on_one_line(&figure.a.name), value(figure.a.value), value(figure.b), ratio, figure.word().to_owned()]
}
