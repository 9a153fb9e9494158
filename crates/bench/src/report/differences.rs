//! Differences in the conditions of two sides of a comparison: config, seed, version, environment.

use std::collections::BTreeMap;

use serde_json::Value;

use super::finished::Finished;

/// A key whose values differ.
#[derive(Debug, Clone, PartialEq)]
pub struct DifferingKey {
    /// The key's path in the files.
    pub key: String,
    /// The first side's value, or a list if its runs differ; `null` if missing.
    pub a: Value,
    /// The second side's value.
    pub b: Value,
}

/// Keys of the environment that differ between any two runs.
const VOLATILE: [&str; 2] = ["environment.started_unix_seconds", "environment.arguments"];

/// Returns the keys that differ between the sides, and the keys other than the seed that differ between runs of one side.
#[must_use]
pub fn between(a: &[Finished], b: &[Finished]) -> (Vec<DifferingKey>, Vec<String>) {
    let (of_a, of_b) = (settings(a), settings(b));
    let mut keys: Vec<&String> = of_a.keys().chain(of_b.keys()).collect();
    keys.sort();
    keys.dedup();
    let mut differing = Vec::new();
    let mut mixed = Vec::new();
    for key in keys {
        let side = |side: &BTreeMap<String, Vec<Value>>, runs: usize| {
            side.get(key).cloned().unwrap_or_else(|| vec![Value::Null; runs])
        };
        let (a, b) = (side(&of_a, a.len()), side(&of_b, b.len()));
        let is_mixed = |side: &[Value]| side.windows(2).any(|pair| pair[0] != pair[1]);
        if key != "seed" && (is_mixed(&a) || is_mixed(&b)) {
            mixed.push(key.clone());
        }
        let (a, b) = (one_or_list(a), one_or_list(b));
        if a != b {
            differing.push(DifferingKey { key: key.clone(), a, b });
        }
    }
    (differing, mixed)
}

fn one_or_list(mut values: Vec<Value>) -> Value {
    let all_same = values.windows(2).all(|pair| pair[0] == pair[1]);
    if all_same { values.pop().unwrap_or(Value::Null) } else { Value::Array(values) }
}

/// The value of `key` in `run`, named as by [`between`]; `None` if it is missing.
#[must_use]
pub fn value<'a>(run: &'a Finished, key: &str) -> Option<&'a Value> {
    leaves(run).into_iter().find(|(name, _)| name == key).map(|(_, value)| value)
}

fn leaves(run: &Finished) -> Vec<(String, &Value)> {
    let parts = ["flashwright", "config", "inputs", "environment", "seed", "world"];
    let mut leaves = vec![("drive.card".to_owned(), run.part(&["drive", "card"]))];
    parts.iter().for_each(|part| flatten((*part).to_owned(), run.part(&[part]), &mut leaves));
    leaves
}

/// The settings of each run of a side by key; `null` for a run that lacks the key.
fn settings(side: &[Finished]) -> BTreeMap<String, Vec<Value>> {
    let mut settings: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (number, run) in side.iter().enumerate() {
        for (key, value) in leaves(run) {
            if !VOLATILE.iter().any(|volatile| key.starts_with(volatile)) {
                settings.entry(key).or_insert_with(|| vec![Value::Null; side.len()])[number] = value.clone();
            }
        }
    }
    settings
}

fn flatten<'a>(key: String, value: &'a Value, into: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, value)| flatten(format!("{key}.{name}"), value, into));
        }
        // A list of numbers is one value; a list of objects is compared key by key.
        Value::Array(list) if list.iter().any(|it| it.is_object() || it.is_array()) => {
            list.iter().enumerate().for_each(|(at, value)| flatten(format!("{key}[{at}]"), value, into));
        }
        _ => into.push((key, value)),
    }
}
