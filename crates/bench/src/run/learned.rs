//! Learned admission (`mlAdmissionConfig`): a gradient-boosted model decides for each set of a replay whether it is executed.
//!
//! CacheBench publishes the config keys but no model. The model here is a file that XGBoost saved as JSON, with two or more classes. As in
//! CacheBench, a rejected set is skipped: the item enters neither DRAM nor flash.

use std::collections::HashMap;

use serde_json::Value;
use workload::Request;

use crate::config::plan::{Feature, FeatureSource, LearnedPlan};

/// A model, and the request fields that are its features.
pub struct LearnedAdmission {
    model: Model,
    /// In the order of the model's features.
    features: Vec<FeatureSource>,
    admitted_class: usize,
    /// With two classes: the lowest score that counts as class 1.
    threshold: f64,
}

/// Gradient-boosted trees.
#[derive(Debug, PartialEq)]
struct Model {
    trees: Vec<Tree>,
    /// The class whose score each tree contributes to.
    class_of_tree: Vec<usize>,
    classes: usize,
    /// Initial score of each class.
    base_margin: f64,
}

#[derive(Debug, PartialEq)]
struct Tree(Vec<Node>);

#[derive(Debug, PartialEq)]
enum Node {
    /// `left_if_missing` is the direction of an unknown value.
    Split {
        feature: usize,
        split: Split,
        left: usize,
        right: usize,
        left_if_missing: bool,
    },
    Leaf(f64),
}

#[derive(Debug, PartialEq)]
enum Split {
    /// Smaller values go left.
    Value(f64),
    /// These categories go right, all others left.
    Categories(Vec<u64>),
}

impl Split {
    fn goes_left(&self, value: f64) -> bool {
        match self {
            // XGBoost compares in single precision.
            Self::Value(split) => (value as f32) < *split as f32,
            // A negative number is no category.
            Self::Categories(right) => value < 0.0 || !right.contains(&(value as u64)),
        }
    }
}

impl LearnedAdmission {
    /// Reads the model of `plan`.
    ///
    /// # Errors
    /// A message that names the wrong key or file.
    pub fn open(plan: &LearnedPlan) -> Result<Self, String> {
        let file = &plan.model;
        let wrong = |message: String| format!("modelPath: {}: {message}", file.display());
        let bytes = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let json: Value =
            serde_json::from_slice(&bytes).map_err(|error| wrong(format!("not JSON: {error}")))?;
        let (model, names) = Model::parse(&json).map_err(wrong)?;
        let features = model.sources(&names, &plan.features, &file.display().to_string())?;
        let (classes, admitted) = (model.classes, plan.admitted_class);
        if admitted >= classes as u64 {
            return Err(format!(
                "admitCategory: {admitted} is not a category of the model, which has {classes}, numbered from 0"
            ));
        }
        let threshold =
            threshold(&json, plan.target_recall).map_err(|message| format!("targetRecall: {message}"))?;
        Ok(Self { model, features, admitted_class: admitted as usize, threshold })
    }

    /// Whether the model admits the set.
    #[must_use]
    pub fn admits(&self, request: &Request<'_>) -> bool {
        let value = |feature: usize| self.features.get(feature).and_then(|source| source.of(request));
        self.class(&value) == self.admitted_class
    }

    fn class(&self, value: &dyn Fn(usize) -> Option<f64>) -> usize {
        let margins = self.model.margins(value);
        match margins[..] {
            [margin] => usize::from(1.0 / (1.0 + (-margin).exp()) >= self.threshold),
            _ => (1..margins.len())
                .fold(0, |best, class| if margins[class] > margins[best] { class } else { best }),
        }
    }
}

impl FeatureSource {
    /// The feature's value in a request; `None` if unknown.
    fn of(self, request: &Request<'_>) -> Option<f64> {
        match self {
            Self::Size => Some(request.value_bytes as f64),
            Self::KeySize => Some(request.key.len() as f64),
            Self::Ttl => request.ttl_seconds.map(f64::from),
            Self::Time => request.time_ns.map(|ns| ns as f64 / 1e9),
        }
    }
}

/// The lowest score that counts as class 1. It is 0.5 if `recall` is 0. Otherwise it comes from the model's attribute
/// `recall_thresholds`, a JSON object that maps recalls to thresholds.
fn threshold(json: &Value, recall: f64) -> Result<f64, String> {
    if recall == 0.0 {
        return Ok(0.5);
    }
    let missing = || {
        "the model has no attribute `recall_thresholds`; omit targetRecall for a threshold of 0.5".to_owned()
    };
    let message = json["learner"]["attributes"]["recall_thresholds"].as_str().ok_or_else(missing)?;
    let table: serde_json::Map<String, Value> =
        serde_json::from_str(message).map_err(|error| format!("the model's recall_thresholds: {error}"))?;
    let rows = table
        .iter()
        .filter_map(|(recall, threshold)| Some((recall.parse::<f64>().ok()?, threshold.as_f64()?)));
    // The highest of the thresholds that reach the recall.
    let reaching = rows.filter(|(reached, _)| *reached >= recall).map(|(_, threshold)| threshold);
    reaching.reduce(f64::max).ok_or_else(|| format!("no threshold of the model reaches a recall of {recall}"))
}

impl Model {
    /// Parses a model, and returns the names of its features in order.
    fn parse(json: &Value) -> Result<(Self, Vec<String>), String> {
        let learner = &json["learner"];
        let booster = &learner["gradient_booster"];
        let trees = booster["model"]["trees"].as_array().ok_or(
            "not a model that XGBoost saved as JSON: it has no learner.gradient_booster.model.trees",
        )?;
        let number = |name: &str| {
            let message = learner["learner_model_param"][name].as_str().unwrap_or_default();
            message
                .trim_matches(['[', ']'])
                .parse::<f64>()
                .map_err(|_| format!("learner_model_param.{name}: `{message}` is not a number"))
        };
        let objective = learner["objective"]["name"].as_str().unwrap_or_default();
        let classes = (number("num_class")? as usize).max(2);
        let base_score = number("base_score")?;
        let base_margin = match objective {
            "binary:logistic" if base_score > 0.0 && base_score < 1.0 => {
                (base_score / (1.0 - base_score)).ln()
            }
            "multi:softprob" | "multi:softmax" => base_score,
            _ => {
                return Err(format!(
                    "the objective `{objective}` is not supported; binary:logistic, multi:softprob and multi:softmax are"
                ));
            }
        };
        let features = number("num_feature")? as usize;
        let names: Vec<String> = learner["feature_names"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        if names.len() != features {
            return Err(format!(
                "it names {} of its {features} features: save it with feature names",
                names.len()
            ));
        }
        let parsed = trees
            .iter()
            .enumerate()
            .map(|(at, tree)| Tree::parse(tree, features).map_err(|message| format!("tree {at}: {message}")));
        let trees = parsed.collect::<Result<Vec<_>, _>>()?;
        let class_of_tree = match booster["model"]["tree_info"].as_array() {
            _ if classes == 2 => vec![0; trees.len()],
            Some(info) => info.iter().map(|class| class.as_u64().unwrap_or(0) as usize).collect(),
            None => return Err("tree_info is missing".to_owned()),
        };
        if class_of_tree.len() != trees.len() || class_of_tree.iter().any(|class| *class >= classes) {
            return Err("tree_info does not match the number of trees and classes".to_owned());
        }
        Ok((Self { trees, class_of_tree, classes, base_margin }, names))
    }

    /// The source of each of the model's features. An error names the key.
    fn sources(&self, names: &[String], given: &[Feature], file: &str) -> Result<Vec<FeatureSource>, String> {
        if let Some(unused) = given.iter().find(|feature| !names.contains(&feature.name)) {
            let (key, name, known) = (key(unused.is_category), &unused.name, names.join(", "));
            return Err(format!("{key}: the model in {file} has no feature `{name}`; it has {known}"));
        }
        let source = |(number, name): (usize, &String)| {
            let by_category = self.trees.iter().find_map(|tree| tree.splits_by_category(number));
            let Some(feature) = given.iter().find(|feature| feature.name == *name) else {
                let key = key(by_category.unwrap_or(false));
                return Err(format!("{key}: the model in {file} needs a feature `{name}`"));
            };
            match by_category {
                Some(by_category) if by_category != feature.is_category => Err(format!(
                    "{}: the model in {file} splits `{name}` by {}: name it in {}",
                    key(feature.is_category),
                    if by_category { "category" } else { "value" },
                    key(by_category),
                )),
                _ => Ok(feature.source),
            }
        };
        names.iter().enumerate().map(source).collect()
    }

    /// The score of each class before its conversion to a probability. With two classes, that of class 1 only.
    fn margins(&self, value: &dyn Fn(usize) -> Option<f64>) -> Vec<f64> {
        let mut margins = vec![self.base_margin; if self.classes == 2 { 1 } else { self.classes }];
        for (tree, class) in self.trees.iter().zip(&self.class_of_tree) {
            margins[*class] += tree.leaf(value);
        }
        margins
    }
}

impl Tree {
    fn parse(json: &Value, features: usize) -> Result<Self, String> {
        let list = |name: &str| json[name].as_array().ok_or_else(|| format!("no list `{name}`"));
        let (left, right) = (list("left_children")?, list("right_children")?);
        let (indices, conditions) = (list("split_indices")?, list("split_conditions")?);
        let missing = list("default_left")?;
        let nodes = left.len();
        if nodes == 0 || [right, indices, conditions, missing].iter().any(|list| list.len() != nodes) {
            return Err("its lists differ in length, or are empty".to_owned());
        }
        let mut categories = categories(json)?;
        let mut node = |at: usize| {
            let value = conditions[at].as_f64().ok_or("a split condition is not a number")?;
            if left[at].as_i64() == Some(-1) {
                return Ok(Node::Leaf(value));
            }
            // Children have higher numbers than their parent, so that the tree has no cycle.
            let child = |list: &[Value]| {
                list[at].as_u64().map(|child| child as usize).filter(|child| (at + 1..nodes).contains(child))
            };
            let feature =
                indices[at].as_u64().map(|feature| feature as usize).filter(|feature| *feature < features);
            let left_if_missing = missing[at].as_u64().map_or(missing[at] == true, |bit| bit != 0);
            match (feature, child(left), child(right)) {
                (Some(feature), Some(left), Some(right)) => {
                    let split = categories.remove(&at).map_or(Split::Value(value), Split::Categories);
                    Ok(Node::Split { feature, split, left, right, left_if_missing })
                }
                _ => Err("a node refers to a feature or child that does not exist".to_owned()),
            }
        };
        let parsed = (0..nodes).map(&mut node).collect::<Result<_, String>>()?;
        match categories.keys().min() {
            Some(node) => Err(format!("categories_nodes: node {node} is a leaf or does not exist")),
            None => Ok(Self(parsed)),
        }
    }

    /// Whether the tree splits `wanted` by category, if it splits it.
    fn splits_by_category(&self, wanted: usize) -> Option<bool> {
        self.0.iter().find_map(|node| match node {
            Node::Split { feature, split, .. } if *feature == wanted => {
                Some(matches!(split, Split::Categories(_)))
            }
            _ => None,
        })
    }

    fn leaf(&self, value: &dyn Fn(usize) -> Option<f64>) -> f64 {
        let mut at = 0;
        loop {
            match &self.0[at] {
                Node::Leaf(score) => return *score,
                Node::Split { feature, split, left, right, left_if_missing } => {
                    let goes_left = value(*feature).map_or(*left_if_missing, |value| split.goes_left(value));
                    at = if goes_left { *left } else { *right };
                }
            }
        }
    }
}

/// The config key of a feature.
fn key(is_category: bool) -> &'static str {
    if is_category { "categoricalFeatures" } else { "numericFeatures" }
}

/// The categories that go right, of each node that splits by category.
fn categories(tree: &Value) -> Result<HashMap<usize, Vec<u64>>, String> {
    let list = |name: &str| -> Result<Vec<u64>, String> {
        let numbers = tree[name].as_array().into_iter().flatten().map(Value::as_u64);
        numbers.collect::<Option<_>>().ok_or_else(|| format!("{name}: not a list of whole numbers"))
    };
    let (nodes, all) = (list("categories_nodes")?, list("categories")?);
    let (starts, sizes) = (list("categories_segments")?, list("categories_sizes")?);
    if [&starts, &sizes].iter().any(|list| list.len() != nodes.len()) {
        return Err("its lists of categories differ in length".to_owned());
    }
    let of_node = |((node, start), size): ((u64, u64), u64)| {
        let end = start.checked_add(size)?;
        Some((node as usize, all.get(start as usize..end as usize)?.to_vec()))
    };
    let found = nodes.into_iter().zip(starts).zip(sizes).map(of_node).collect::<Option<_>>();
    found.ok_or_else(|| "categories_segments: outside the list of categories".to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;
    use workload::RequestKind;

    use super::*;

    /// A tree over size and TTL: -2 for values of 1000 bytes or more; for smaller ones 1, or 3 with a TTL of a minute or more or none.
    fn model() -> Value {
        let leaf = |score: f64| {
            json!({ "left_children": [-1], "right_children": [-1], "split_indices": [0],
            "split_conditions": [score], "default_left": [0] })
        };
        let tree = json!({ "left_children": [1, 3, -1, -1, -1], "right_children": [2, 4, -1, -1, -1],
            "split_indices": [0, 1, 0, 0, 0], "split_conditions": [1000.0, 60.0, -2.0, 1.0, 3.0],
            "default_left": [0, 0, 0, 0, 0] });
        json!({ "learner": {
            "attributes": { "recall_thresholds": "{\"0.5\": 0.9, \"0.9\": 0.2}" },
            "feature_names": ["bytes", "lives"],
            "gradient_booster": { "model": { "trees": [tree, leaf(0.0)], "tree_info": [0, 0] } },
            "learner_model_param": { "base_score": "5E-1", "num_class": "0", "num_feature": "2" },
            "objective": { "name": "binary:logistic" } } })
    }

    fn request(value_bytes: u64, ttl_seconds: Option<u32>) -> Request<'static> {
        Request {
            kind: RequestKind::Set,
            key: b"key",
            key_id: 1,
            value_bytes,
            chain_bytes: &[],
            ttl_seconds,
            pool: 0,
            time_ns: None,
            repeat: 1,
            tenant: None,
            part: None,
        }
    }

    fn open(model: &Value, change: impl FnOnce(&mut LearnedPlan)) -> Result<LearnedAdmission, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.json");
        std::fs::write(&file, model.to_string()).unwrap();
        let numeric = |name: &str, source| Feature { name: name.to_owned(), source, is_category: false };
        let features = vec![numeric("bytes", FeatureSource::Size), numeric("lives", FeatureSource::Ttl)];
        let mut plan = LearnedPlan { model: file, features, admitted_class: 1, target_recall: 0.0 };
        change(&mut plan);
        LearnedAdmission::open(&plan)
            .map_err(|message| message.replace(&plan.model.display().to_string(), "M"))
    }

    #[test]
    fn trees_are_evaluated_by_value_and_missing_values_take_their_direction() {
        let admission = open(&model(), |_| {}).unwrap();
        let cases = [
            (request(2000, None), -2.0),
            (request(999, Some(59)), 1.0),
            (request(10, Some(60)), 3.0),
            (request(10, None), 3.0),
        ];
        for (request, score) in cases {
            let value = |feature: usize| admission.features[feature].of(&request);
            assert_eq!(admission.model.margins(&value), [score]);
            assert_eq!(admission.admits(&request), score > 0.0);
        }
    }

    /// As [`model`], with TTLs of 5, 60 or 3600 seconds in the right child: 3, other TTLs 1.
    fn model_with_categories() -> Value {
        let mut model = model();
        let tree = &mut model["learner"]["gradient_booster"]["model"]["trees"][0];
        for (name, list) in [
            ("split_type", json!([0, 1, 0, 0, 0])),
            ("categories_nodes", json!([1])),
            ("categories_segments", json!([1])),
            ("categories_sizes", json!([3])),
            ("categories", json!([7, 5, 60, 3600, 9])),
        ] {
            tree[name] = list;
        }
        model
    }

    #[test]
    fn categories_of_a_split_go_right_and_all_others_left() {
        let lives_is_category = |plan: &mut LearnedPlan| plan.features[1].is_category = true;
        let admission = open(&model_with_categories(), lives_is_category).unwrap();
        let cases = [
            (Some(5), 3.0),
            (Some(60), 3.0),
            (Some(3600), 3.0),
            (Some(7), 1.0),
            (Some(9), 1.0),
            (Some(59), 1.0),
            (Some(u32::MAX), 1.0),
            (None, 3.0),
        ];
        for (ttl, score) in cases {
            let request = request(10, ttl);
            let value = |feature: usize| admission.features[feature].of(&request);
            assert_eq!(admission.model.margins(&value), [score], "{ttl:?}");
        }
        assert!(Split::Categories(vec![0]).goes_left(-0.5), "no category");
        assert!(!Split::Categories(vec![0]).goes_left(0.5), "truncated to category 0");
    }

    #[test]
    fn wrong_category_is_refused_with_its_key() {
        let refused = |model: &Value, is_category| {
            let change = |plan: &mut LearnedPlan| plan.features[1].is_category = is_category;
            open(model, change).err().unwrap()
        };
        assert_eq!(
            refused(&model_with_categories(), false),
            "numericFeatures: the model in M splits `lives` by category: name it in categoricalFeatures"
        );
        assert_eq!(
            refused(&model(), true),
            "categoricalFeatures: the model in M splits `lives` by value: name it in numericFeatures"
        );
        let missing = open(&model_with_categories(), |plan| plan.features.truncate(1)).err().unwrap();
        assert_eq!(missing, "categoricalFeatures: the model in M needs a feature `lives`");
        for (name, list, reason) in [
            ("categories_sizes", json!([5]), "categories_segments: outside the list of categories"),
            ("categories_sizes", json!([u64::MAX]), "categories_segments: outside the list of categories"),
            ("categories_sizes", json!([]), "its lists of categories differ in length"),
            ("categories", json!([7, 5, 60, -1]), "categories: not a list of whole numbers"),
            ("categories_nodes", json!([3]), "categories_nodes: node 3 is a leaf or does not exist"),
        ] {
            let mut model = model_with_categories();
            model["learner"]["gradient_booster"]["model"]["trees"][0][name] = list;
            assert_eq!(refused(&model, true), format!("modelPath: M: tree 0: {reason}"), "{name}");
        }
    }

    #[test]
    fn recall_selects_the_threshold_and_the_category_the_side() {
        // 1 / (1 + e^-1) is 0.73, 1 / (1 + e^2) is 0.12.
        let admits = |recall, class| {
            let admission =
                open(&model(), |plan| (plan.target_recall, plan.admitted_class) = (recall, class)).unwrap();
            [request(2000, None), request(10, Some(1)), request(10, None)].map(|it| admission.admits(&it))
        };
        assert_eq!(admits(0.0, 1), [false, true, true]);
        assert_eq!(admits(0.5, 1), [false, false, true]);
        assert_eq!(admits(0.9, 1), [false, true, true]);
        assert_eq!(admits(0.0, 0), [true, false, false]);
    }

    #[test]
    fn wrong_model_or_feature_is_refused_with_its_name() {
        let refused = |model: &Value, change: fn(&mut LearnedPlan)| open(model, change).err().unwrap();
        assert_eq!(
            refused(&model(), |plan| plan.features.truncate(1)),
            "numericFeatures: the model in M needs a feature `lives`"
        );
        assert_eq!(
            refused(&model(), |plan| plan.admitted_class = 2),
            "admitCategory: 2 is not a category of the model, which has 2, numbered from 0"
        );
        assert_eq!(
            refused(&model(), |plan| plan.target_recall = 0.95),
            "targetRecall: no threshold of the model reaches a recall of 0.95"
        );
        assert!(
            refused(&json!({}), |_| {}).starts_with("modelPath: M: not a model that XGBoost saved as JSON")
        );
        assert!(refused(&model(), |plan| plan.model = PathBuf::from("/no/model")).starts_with("modelPath: "));
        let mut cyclic = model();
        cyclic["learner"]["gradient_booster"]["model"]["trees"][0]["left_children"][1] = json!(0);
        assert!(
            refused(&cyclic, |_| {})
                .contains("tree 0: a node refers to a feature or child that does not exist")
        );
    }
}
