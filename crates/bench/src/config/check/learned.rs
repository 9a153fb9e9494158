//! Checks the model of learned admission and its features.

use serde_json::Value;

use super::super::keys::{MlAdmission, TestConfig};
use super::super::plan::FeatureSource;
use super::super::schema::Findings;
use super::super::text::join;

/// Checks everything that does not need the model file.
pub(super) fn check(test: &TestConfig, at: &str, findings: &mut Findings) {
    let learned = &test.replay.ml_admission;
    let at = join(at, "replayGeneratorConfig.mlAdmissionConfig");
    if learned.model.is_empty() {
        if !learned.numeric.is_empty() || learned.recall != 0.0 || learned.category != 0 {
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
    for (feature, column) in &learned.numeric {
        if source(column).is_none() {
            let names = FeatureSource::NAMED.map(|(name, _)| name).join(", ");
            let message = format!("{column} is not a column that can be a feature; known are {names}");
            findings.problem(&join(&join(&at, "numericFeatures"), feature), message);
        }
    }
}

/// Features of the model, from a checked config.
pub fn features(learned: &MlAdmission) -> Vec<(String, FeatureSource)> {
    let known = learned.numeric.iter();
    known.filter_map(|(feature, column)| Some((feature.clone(), source(column)?))).collect()
}

fn source(column: &Value) -> Option<FeatureSource> {
    let name = column.as_str()?;
    FeatureSource::NAMED.iter().find(|(column, _)| *column == name).map(|(_, source)| *source)
}
