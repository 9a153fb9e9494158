//! Prometheus's text format, for the figures of a running program.

use std::collections::HashMap;
use std::fmt::{Display, Write as _};

use crate::counters::{Counter, CounterTable, Kind, Path};

/// The name and value of a label.
pub type Label<'a> = (&'a str, &'a str);

/// Metrics, whose names begin with a prefix. The samples of one name are written together, as the format requires.
#[derive(Debug)]
pub struct Metrics {
    prefix: &'static str,
    families: Vec<Family>,
    places: HashMap<String, usize>,
}

/// The name of a counter in a table, and the positions of the tables that contain it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Series {
    name: String,
    labels: Vec<(&'static str, usize)>,
}

/// The samples of one name.
#[derive(Debug)]
struct Family {
    name: String,
    text: String,
}

impl Metrics {
    /// No metrics yet.
    #[must_use]
    pub fn new(prefix: &'static str) -> Self {
        Self { prefix, families: Vec::new(), places: HashMap::new() }
    }

    /// Adds a sample of a metric. The name of a sum gets the suffix `_total`.
    pub fn sample(&mut self, name: &str, kind: Kind, help: &str, labels: &[Label<'_>], value: impl Display) {
        let family = match kind {
            Kind::Sum => self.family(&format!("{name}_total"), "counter", help),
            Kind::State => self.family(name, "gauge", help),
        };
        family.sample("", labels, value);
    }

    /// Adds each counter of a table, with `name` before its own name. Tables in a list are summed over the label `summed`.
    pub fn table(&mut self, name: &str, table: &impl CounterTable, labels: &[Label<'_>], summed: &str) {
        let mut sums: Vec<(Series, &Counter, u64)> = Vec::new();
        let mut places: HashMap<Series, usize> = HashMap::new();
        CounterTable::visit(Some(table), &Path::default().join(name), &mut |it| {
            let Some(value) = it.value else { return };
            let own = it.labels.iter().copied().filter(|(label, _)| *label != summed).collect();
            let series = Series { name: it.name.to_owned(), labels: own };
            let place = *places.entry(series.clone()).or_insert(sums.len());
            if place == sums.len() {
                sums.push((series, it.counter, 0));
            }
            sums[place].2 += value;
        });
        for (Series { name, labels: own }, counter, value) in sums {
            let own: Vec<(&str, String)> =
                own.into_iter().map(|(label, place)| (label, place.to_string())).collect();
            let labels = labels.iter().copied().chain(own.iter().map(|(label, place)| (*label, &**place)));
            self.sample(&name, counter.kind, counter.help, &labels.collect::<Vec<_>>(), value);
        }
    }

    /// Adds a histogram: the upper bound of each bucket with the count of all values up to it, then the sum and the count of all values.
    pub fn histogram(
        &mut self,
        (name, help): (&str, &str),
        labels: &[Label<'_>],
        buckets: impl IntoIterator<Item = (f64, u64)>,
        (sum, count): (impl Display, u64),
    ) {
        let family = self.family(name, "histogram", help);
        let mut bucket = |bound: &str, count: u64| {
            family.sample("_bucket", &[labels, &[("le", bound)]].concat(), count);
        };
        buckets.into_iter().for_each(|(bound, count)| bucket(&bound.to_string(), count));
        bucket("+Inf", count);
        family.sample("_sum", labels, sum);
        family.sample("_count", labels, count);
    }

    /// Adds quantiles: each share with its value, then the sum and the count of all values.
    pub fn summary(
        &mut self,
        (name, help): (&str, &str),
        labels: &[Label<'_>],
        quantiles: impl IntoIterator<Item = (f64, f64)>,
        (sum, count): (f64, u64),
    ) {
        let family = self.family(name, "summary", help);
        for (share, value) in quantiles {
            family.sample("", &[labels, &[("quantile", &*share.to_string())]].concat(), value);
        }
        family.sample("_sum", labels, sum);
        family.sample("_count", labels, count);
    }

    /// The text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.families.into_iter().map(|family| family.text).collect()
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) -> &mut Family {
        let place = self.places.get(name).copied().unwrap_or_else(|| {
            self.places.insert(name.to_owned(), self.families.len());
            let name = format!("{}_{name}", self.prefix);
            let text = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
            self.families.push(Family { name, text });
            self.families.len() - 1
        });
        &mut self.families[place]
    }
}

impl Family {
    fn sample(&mut self, suffix: &str, labels: &[Label<'_>], value: impl Display) {
        let Self { name, text } = self;
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}{suffix}{labels} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::counters! {
        /// Of one shard.
        #[derive(Debug, Clone, Default)]
        pub struct Shard, label "shard" {
            /// Gets that hit.
            hits: sum u64,
            /// Bytes in use.
            used_bytes: state u64,
            /// Bytes written by the medium.
            media_bytes: maybe Option<u64>,
        }
    }

    #[test]
    fn samples_of_one_name_are_together_with_escaped_labels() {
        let mut metrics = Metrics::new("a");
        for disk in ["x", "\"\\\n"] {
            metrics.sample("hits", Kind::Sum, "Gets that hit.", &[("disk", disk)], 3);
            metrics.sample("size", Kind::State, "Bytes.", &[], 0.5);
        }
        let expected = "# HELP a_hits_total Gets that hit.\n# TYPE a_hits_total counter\n\
                        a_hits_total{disk=\"x\"} 3\na_hits_total{disk=\"\\\"\\\\\\n\"} 3\n\
                        # HELP a_size Bytes.\n# TYPE a_size gauge\na_size 0.5\na_size 0.5\n";
        assert_eq!(metrics.into_text(), expected);
    }

    #[test]
    fn tables_keep_their_place_as_label_or_are_summed() {
        let shard = |hits| Shard { hits, used_bytes: 10 * hits, media_bytes: None };
        let lines = |summed| {
            let mut metrics = Metrics::new("a");
            metrics.table("cache", &vec![shard(1), shard(2)], &[("run", "r")], summed);
            let text = metrics.into_text();
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines("shard"), ["a_cache_hits_total{run=\"r\"} 3", "a_cache_used_bytes{run=\"r\"} 30"]);
        let expected = [
            "a_cache_hits_total{run=\"r\",shard=\"0\"} 1",
            "a_cache_hits_total{run=\"r\",shard=\"1\"} 2",
            "a_cache_used_bytes{run=\"r\",shard=\"0\"} 10",
            "a_cache_used_bytes{run=\"r\",shard=\"1\"} 20",
        ];
        assert_eq!(lines(""), expected);
    }

    #[test]
    fn histogram_and_summary_end_with_sum_and_count() {
        let mut metrics = Metrics::new("a");
        metrics.histogram(("seconds", "Time."), &[("kind", "get")], [(0.001, 2), (1.0, 3)], (1.5, 4));
        metrics.summary(("wait_seconds", "Waits."), &[], [(0.99, 0.25)], (2.0, 9));
        let expected = "# HELP a_seconds Time.\n# TYPE a_seconds histogram\na_seconds_bucket{kind=\"get\",le=\"0.001\"} 2\n\
                        a_seconds_bucket{kind=\"get\",le=\"1\"} 3\na_seconds_bucket{kind=\"get\",le=\"+Inf\"} 4\n\
                        a_seconds_sum{kind=\"get\"} 1.5\na_seconds_count{kind=\"get\"} 4\n# HELP a_wait_seconds Waits.\n\
                        # TYPE a_wait_seconds summary\na_wait_seconds{quantile=\"0.99\"} 0.25\na_wait_seconds_sum 2\na_wait_seconds_count 9\n";
        assert_eq!(metrics.into_text(), expected);
    }
}
