//! Checks the model of learned admission and its features.

use serde_json::{Map, Value};

use super::super::findings::{Findings, join};
use super::super::keys::{MlAdmission, TestConfig};
use super::super::plan::{Feature, FeatureSource};

/// Checks everything that does not need the model file.
pub(super) fn check(test: &TestConfig, at: &str, findings: &mut Findings) {
    let learned = &test.replay.ml_admission;
    let at = join(at, "replayGeneratorConfig.mlAdmissionConfig");
    if learned.model.is_empty() {
        let has_features = by_key(learned).any(|(_, features)| !features.is_empty());
        if has_features || learned.recall != 0.0 || learned.category != 0 {
            findings.problem(
                &join(&at, "modelPath"),
                "is missing: the other keys of mlAdmissionConfig need a model",
            );
        }
        return;
    }
    if !(0.0..=1.0).contains(&learned.recall) {
        findings.problem(&join(&at, "targetRecall"), "must be 0 to 1");
    }
    for (key, features) in by_key(learned) {
        for (feature, column) in features {
            if source(column).is_none() {
                let names = FeatureSource::NAMED.map(|(name, _)| name).join(", ");
                let message = format!("{column} is not a column that can be a feature; known are {names}");
                findings.problem(&join(&join(&at, key), feature), message);
            }
        }
    }
    for feature in learned.categorical.keys().filter(|name| learned.numeric.contains_key(*name)) {
        let at = join(&join(&at, "categoricalFeatures"), feature);
        findings.problem(&at, "is in numericFeatures, too: a feature is either a category or a number");
    }
}

/// The features of each key.
fn by_key(learned: &MlAdmission) -> impl Iterator<Item = (&'static str, &Map<String, Value>)> {
    [("numericFeatures", &learned.numeric), ("categoricalFeatures", &learned.categorical)].into_iter()
}

/// Features of the model, from a checked config.
pub fn features(learned: &MlAdmission) -> Vec<Feature> {
    let of_key = |(key, features)| {
        let features: &Map<String, Value> = features;
        features.iter().filter_map(move |(name, column)| {
            let is_category = key == "categoricalFeatures";
            Some(Feature { name: name.clone(), source: source(column)?, is_category })
        })
    };
    by_key(learned).flat_map(of_key).collect()
}

fn source(column: &Value) -> Option<FeatureSource> {
    let name = column.as_str()?;
    FeatureSource::NAMED.iter().find(|(column, _)| *column == name).map(|(_, source)| *source)
}
