//! What two sides of a comparison were not alike in before anything was measured: config, seed, version, environment.

use std::collections::BTreeMap;

use serde_json::Value;

use super::finished::Finished;

/// A key with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Differing {
    /// The way to it in the files.
    pub key: String,
    /// In the first side: a value, or the list of its runs' where they differ; `null` where it is missing.
    pub a: Value,
    /// In the second.
    pub b: Value,
}

/// Keys of the environment that differ always, and say nothing.
const PASSING: [&str; 2] = ["environment.started_unix_seconds", "environment.arguments"];

/// The keys that the sides differ in, and those besides the seed that runs of one side differ in.
#[must_use]
pub fn between(a: &[Finished], b: &[Finished]) -> (Vec<Differing>, Vec<String>) {
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
            differing.push(Differing { key: key.clone(), a, b });
        }
    }
    (differing, mixed)
}

fn one_or_list(mut values: Vec<Value>) -> Value {
    let all_same = values.windows(2).all(|pair| pair[0] == pair[1]);
    if all_same { values.pop().unwrap_or(Value::Null) } else { Value::Array(values) }
}

/// What `run` was asked by `key`, as [`between`] names it; `None` where it was not.
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

/// What each run of a side was asked, by key; `null` where another run of it has a key.
fn settings(side: &[Finished]) -> BTreeMap<String, Vec<Value>> {
    let mut settings: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (number, run) in side.iter().enumerate() {
        for (key, value) in leaves(run) {
            if !PASSING.iter().any(|passing| key.starts_with(passing)) {
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
        // A list of numbers is read as a whole; one of objects key by key.
        Value::Array(list) if list.iter().any(|it| it.is_object() || it.is_array()) => {
            list.iter().enumerate().for_each(|(at, value)| flatten(format!("{key}[{at}]"), value, into));
        }
        _ => into.push((key, value)),
    }
}
