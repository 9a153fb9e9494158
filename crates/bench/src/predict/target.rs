//! The cheapest predicted point that meets conditions such as `life>=5y,p99<1ms`, or the reason why no point does.

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

use device::names;
use serde_json::{Value, json};

use super::{Figure, Point, Reads};
use crate::evaluate::criteria::time_text;
use crate::simulate::report::bytes;

/// Conditions on the figures of a point; all must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    text: String,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq)]
struct Condition {
    figure: Name,
    /// Whether the figure must be at least the bound; otherwise at most.
    is_at_least: bool,
    bound: f64,
    text: String,
}

/// Figures that conditions can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Hits,
    DramHits,
    Alwa,
    Dlwa,
    Life,
    Carbon,
    Price,
    Mean,
    P99,
}

const NAMES: [(&str, Name); 9] = [
    ("hits", Name::Hits),
    ("dram-hits", Name::DramHits),
    ("alwa", Name::Alwa),
    ("dlwa", Name::Dlwa),
    ("life", Name::Life),
    ("kgco2e", Name::Carbon),
    ("price", Name::Price),
    ("mean", Name::Mean),
    ("p99", Name::P99),
];

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let conditions = text.split(',').map(|part| part.trim().parse()).collect::<Result<_, String>>()?;
        Ok(Self { text: text.to_owned(), conditions })
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = text
            .find(['<', '>'])
            .ok_or_else(|| format!("{text:?} is not a condition: write life>=5y or p99<1ms"))?;
        let (name, rest) = text.split_at(at);
        let is_at_least = rest.starts_with('>');
        let bound = rest[1..].trim_start_matches('=').trim();
        let name = name.trim().to_ascii_lowercase();
        let Some(&(_, figure)) = NAMES.iter().find(|(known, _)| *known == name) else {
            let known = || NAMES.iter().map(|(name, _)| *name);
            let list: Vec<&str> = known().collect();
            return Err(format!(
                "{name:?} is not a figure; {}valid ones are {}",
                names::hint(&name, known()),
                list.join(", ")
            ));
        };
        let bound =
            figure.parse(bound).ok_or_else(|| format!("{text}: {bound:?} is not {}", figure.example()))?;
        Ok(Self { figure, is_at_least, bound, text: text.to_owned() })
    }
}

impl Name {
    fn parse(self, text: &str) -> Option<f64> {
        let number = |text: &str| {
            text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
        };
        let suffix =
            |suffix: &str, factor: f64| number(text.strip_suffix(suffix)?).map(|number| number * factor);
        match self {
            Self::Hits | Self::DramHits => {
                suffix("%", 0.01).or_else(|| number(text).filter(|share| *share <= 1.0))
            }
            Self::Life => suffix("y", 1.0).or_else(|| number(text)),
            Self::Mean | Self::P99 => suffix("us", 1e3)
                .or_else(|| suffix("µs", 1e3))
                .or_else(|| suffix("ms", 1e6))
                .or_else(|| suffix("s", 1e9)),
            Self::Alwa | Self::Dlwa | Self::Carbon | Self::Price => number(text),
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Hits | Self::DramHits => "a percentage, such as 80%",
            Self::Life => "a number of years, such as 5y",
            Self::Mean | Self::P99 => "a time, such as 500us or 1ms",
            Self::Alwa | Self::Dlwa | Self::Carbon | Self::Price => "a number",
        }
    }

    fn of(self, point: &Point) -> Option<Figure> {
        match (self, &point.reads) {
            (Self::Hits, _) => point.hit_ratio,
            (Self::DramHits, _) => point.hit_ratio_dram,
            (Self::Alwa, _) => point.alwa,
            (Self::Dlwa, _) => point.dlwa,
            (Self::Life, _) => point.life_years,
            (Self::Carbon, _) => point.kgco2e,
            (Self::Price, _) => point.price,
            (Self::Mean, Reads::Take(latency)) => Some(Figure::exact(latency.mean_ns as f64)),
            (Self::P99, Reads::Take(latency)) => Some(Figure::exact(latency.p99_ns as f64)),
            (Self::Mean | Self::P99, _) => None,
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::Hits | Self::DramHits => format!("{:.1} %", value * 100.0),
            Self::Life => format!("{value:.1} years"),
            Self::Mean | Self::P99 => time_text(Duration::from_nanos(value as u64)),
            Self::Alwa | Self::Dlwa => format!("{value:.2}"),
            Self::Carbon => format!("{value:.0} kg CO2e"),
            Self::Price => format!("{value:.0} USD"),
        }
    }
}

impl Condition {
    fn holds(&self, value: f64) -> bool {
        if self.is_at_least { value >= self.bound } else { value <= self.bound }
    }

    /// Whether the predicted value meets the condition. An unknown value does not, except for the life of a drive without writes.
    fn is_met(&self, point: &Point) -> bool {
        self.figure.of(point).is_some_and(|figure| self.holds(figure.value))
    }

    /// Whether the worse bound of the interval meets the condition, too.
    fn is_certain(&self, point: &Point) -> bool {
        let worse = |figure: Figure| if self.is_at_least { figure.low } else { figure.high };
        self.figure.of(point).is_some_and(|figure| self.holds(worse(figure)))
    }

    /// The best predicted value of all points.
    fn best(&self, points: &[Point]) -> Option<f64> {
        let values = points.iter().filter_map(|point| Some(self.figure.of(point)?.value));
        values.reduce(if self.is_at_least { f64::max } else { f64::min })
    }
}

impl Target {
    /// The number of the cheapest point that meets all conditions. Without prices, points are compared by DRAM, then by flash.
    #[must_use]
    pub fn cheapest(&self, points: &[Point]) -> Option<usize> {
        let cost = |point: &Point| {
            let layout = &point.inputs.layout;
            let price = point.price.map_or(f64::INFINITY, |price| price.value);
            (price, layout.dram_bytes as f64, layout.flash_bytes as f64)
        };
        let meets = |point: &Point| self.conditions.iter().all(|condition| condition.is_met(point));
        let fitting = points.iter().enumerate().filter(|(_, point)| meets(point));
        fitting
            .min_by(|a, b| cost(a.1).partial_cmp(&cost(b.1)).unwrap_or(std::cmp::Ordering::Equal))
            .map(|(number, _)| number)
    }

    /// The result as JSON: `point` is the number of the cheapest point or null, and `conditions` has the best value of each figure.
    #[must_use]
    pub fn json(&self, points: &[Point]) -> Value {
        let cheapest = self.cheapest(points);
        let conditions = self.conditions.iter().map(|condition| {
            json!({
                "condition": condition.text,
                "best": condition.best(points),
                "points": points.iter().filter(|point| condition.is_met(point)).count(),
            })
        });
        json!({
            "target": self.text,
            "point": cheapest,
            "is_certain": cheapest.map(|number| self.conditions.iter().all(|it| it.is_certain(&points[number]))),
            "conditions": conditions.collect::<Vec<Value>>(),
        })
    }

    /// The result as text.
    #[must_use]
    pub fn text(&self, points: &[Point]) -> String {
        let Some(number) = self.cheapest(points) else { return self.refusal(points) };
        let point = &points[number];
        let figures = self.conditions.iter().filter_map(|it| Some((it, it.figure.of(point)?.value)));
        let figures: Vec<String> =
            figures.map(|(it, value)| format!("{} for {}", it.figure.text(value), it.text)).collect();
        let certain = self.conditions.iter().all(|condition| condition.is_certain(point));
        let doubt = if certain { "" } else { "; the worse end of an interval misses a condition" };
        format!(
            "target: the cheapest point that meets it: {}: {}{doubt}\n",
            layout_text(point),
            figures.join(", ")
        )
    }

    fn refusal(&self, points: &[Point]) -> String {
        let mut text = format!("target: no point meets {}\n", self.text);
        let mut is_each_met = true;
        for condition in &self.conditions {
            is_each_met &= points.iter().any(|point| condition.is_met(point));
            let best = match condition.best(points) {
                Some(best) if condition.holds(best) => format!(
                    "met by {} of {} points",
                    points.iter().filter(|it| condition.is_met(it)).count(),
                    points.len()
                ),
                Some(best) => format!("the best point has {}", condition.figure.text(best)),
                None => "unknown for all points; give --rate, or --scale for a trace with times".into(),
            };
            let _ = writeln!(text, "  {}: {best}", condition.text);
        }
        if is_each_met {
            text += "  each condition is met, but by different points: try more sizes of DRAM and shares of the drive\n";
        }
        text
    }
}

fn layout_text(point: &Point) -> String {
    let layout = &point.inputs.layout;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    format!(
        "{} of DRAM, {} of the drive, {} of flash for small objects, {} admitted, placement {}",
        bytes(layout.dram_bytes),
        percent(layout.utilization),
        percent(layout.small_share),
        percent(layout.admission),
        if point.inputs.placement { "on" } else { "off" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_parsed_with_their_units_and_refused_by_name() {
        let target: Target = "life>=5y, p99<1ms,hits>80%".parse().unwrap();
        let bounds: Vec<(bool, f64)> =
            target.conditions.iter().map(|it| (it.is_at_least, it.bound)).collect();
        assert_eq!(bounds, [(true, 5.0), (false, 1e6), (true, 0.8)]);
        for (wrong, expected) in [
            ("life", "\"life\" is not a condition: write life>=5y"),
            ("lives>5y", "\"lives\" is not a figure; did you mean `life`? valid ones are hits"),
            ("p99<5", "p99<5: \"5\" is not a time, such as 500us or 1ms"),
            ("hits>80", "hits>80: \"80\" is not a percentage, such as 80%"),
        ] {
            let error = wrong.parse::<Target>().unwrap_err();
            assert!(error.starts_with(expected), "{wrong}: {error}");
        }
    }
}
