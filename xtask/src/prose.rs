//! The language rule: comments and test names use the field's terms (`GLOSSARY.md`), not turns of phrase that a reader of another
//! storage project would have to decode.
//!
//! The check counts comment lines that match [`PATTERNS`], per crate, and names of functions that match [`NAMES`]. A match is not
//! proof of a bad sentence, so a crate may keep a small share of matching lines ([`ALLOWED_LINES`]); names may never match.

use std::fs;
use std::path::Path;

use regex_lite::Regex;

/// Turns of phrase to avoid, each with what to write instead.
const PATTERNS: &[(&str, &str)] = &[
    (
        r"\b(?:nobody|somebody|anybody|everybody|whoever|whatever|wherever)\b",
        "name the caller, thread or client",
    ),
    (
        r"\b(?:is|are|was|were|be|been|gets?|being) told\b|\btold (?:of|by|to)\b",
        "is notified, receives, reports",
    ),
    (r"\btells? (?:of|it|them|those|who)\b|\bto tell\b", "notify, report, emit, detect"),
    (
        r"(?:^|[.,;:(] |\b(?:of|for|by|from|with|in|to|and|or|that|as|than) )[Ww]hat (?:is|was|are|were|has|had|have|it|they|a|an|the|this|that|came|comes|left|leaves|nobody|flash|others|each|one|else)\b",
        "a noun: the item, the request, the data",
    ),
    (
        r"\b(?:who|whom)\b(?: (?:knows|owns|maintain))?",
        "code is not a person: the caller, the task, the device",
    ),
    (r"\bof which\b|\bthat which\b|\bof such\b|\bof those\b|\bof these\b", "split the sentence"),
    (r"\bbrought in\b|\bgives? back what\b|\btakes? back\b|\bput back\b", "load, insert, return, requeue"),
    (
        r"\bso many\b|\bso much\b|\bas many as\b|\bno more than\b|\bnot one\b",
        "name the quantity: `count`, at most `limit`",
    ),
    (r"\belse (?:it|who|a|the|one)\b|\bshould (?:it|one|any|a) \w+,", "otherwise; if"),
    (r"\bfor good\b|\bfor ever\b|\bat once\b", "permanently; immediately; concurrently"),
    (r"\bneed (?:not|be|have)\b|\bmay it\b|\bhad it\b|\bwere it\b", "does not have to; if"),
    (r"\bmeanwhile\b.*\bmeanwhile\b|\banew\b|\btherein\b|\bthereof\b|\bwhereupon\b|\blest\b", "plain words"),
];

/// Names of functions, tests among them, that describe their subject by a clause.
const NAMES: &str = r"\bfn (\w*(?:nobody|somebody|anybody|_told_|_tell_|_who_|_whose_|_of_which_)\w*|what_\w+|who_\w+|whoever_\w+)";

/// Allowed phrases about people.
const PEOPLE: &[&str] = &["who knows", "who owns", "who maintain"];

/// Matching comment lines that a part of the tree may still have. Lower a number when its part improves; never raise one.
const ALLOWED_LINES: &[(&str, usize)] = &[
    ("benches", 0),
    ("crates/bench", 1),
    ("crates/block", 3),
    ("crates/cache", 11),
    ("crates/cli", 1),
    ("crates/device", 1),
    ("crates/policy", 0),
    ("crates/server", 0),
    ("crates/ssd", 0),
    ("crates/workload", 1),
    ("fuzz", 0),
    ("python", 0),
    ("xtask", 0),
];

/// Names that may match [`NAMES`]: the example in the tests of this rule.
const ALLOWED_NAMES: usize = 1;

const SHOWN: usize = 8;

/// One place that breaks the rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    line: usize,
    text: String,
    instead: &'static str,
}

/// Checks the tree under `root`. Returns one breach for each part with too many matching lines, and one for names.
pub fn check(root: &Path, files: &[std::path::PathBuf]) -> Result<Vec<String>, String> {
    let rule = Rule::new();
    let mut lines: Vec<(String, Finding)> = Vec::new();
    let mut names: Vec<(String, Finding)> = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
        lines.extend(rule.comment_lines(&text).into_iter().map(|finding| (name.clone(), finding)));
        names.extend(rule.names(&text).into_iter().map(|finding| (name.clone(), finding)));
    }
    let mut breaches = Vec::new();
    for (part, allowed) in ALLOWED_LINES {
        let found: Vec<_> = lines.iter().filter(|(name, _)| name.starts_with(&format!("{part}/"))).collect();
        breaches.extend(breach(part, "comment lines", &found, *allowed));
    }
    breaches.extend(breach(
        "the tree",
        "names of functions",
        &names.iter().collect::<Vec<_>>(),
        ALLOWED_NAMES,
    ));
    Ok(breaches)
}

fn breach(part: &str, unit: &str, found: &[&(String, Finding)], allowed: usize) -> Option<String> {
    (found.len() > allowed).then(|| {
        let shown: Vec<String> = found
            .iter()
            .take(SHOWN)
            .map(|(name, finding)| {
                format!("    {name}:{}: {}  [{}]", finding.line, finding.text, finding.instead)
            })
            .collect();
        format!(
            "{part} has {} {unit} that GLOSSARY.md rules out, {allowed} allowed; for example:\n{}",
            found.len(),
            shown.join("\n")
        )
    })
}

struct Rule {
    patterns: Vec<(Regex, &'static str)>,
    names: Regex,
    comment: Regex,
}

impl Rule {
    fn new() -> Self {
        let compile = |pattern: &str| Regex::new(pattern).expect("the pattern is constant");
        Self {
            patterns: PATTERNS.iter().map(|(pattern, instead)| (compile(pattern), *instead)).collect(),
            names: compile(NAMES),
            comment: compile(r"^\s*//[/!]?\s?(.*)$"),
        }
    }

    fn comment_lines(&self, text: &str) -> Vec<Finding> {
        let comments = text.lines().enumerate().filter_map(|(at, line)| {
            let comment = self.comment.captures(line)?.get(1)?.as_str();
            Some((at + 1, comment))
        });
        comments
            .filter_map(|(line, text)| {
                let instead = self.phrase(text)?;
                Some(Finding { line, text: text.trim().to_owned(), instead })
            })
            .collect()
    }

    fn phrase(&self, text: &str) -> Option<&'static str> {
        self.patterns.iter().find_map(|(pattern, instead)| {
            let matches = pattern.find_iter(text).any(|found| !PEOPLE.contains(&found.as_str()));
            matches.then_some(*instead)
        })
    }

    fn names(&self, text: &str) -> Vec<Finding> {
        let functions = text.lines().enumerate().filter_map(|(at, line)| {
            let name = self.names.captures(line)?.get(1)?.as_str().to_owned();
            Some(Finding { line: at + 1, text: name, instead: "subject_condition_result" })
        });
        functions.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_line_with_a_listed_phrase_is_found_with_its_replacement() {
        let rule = Rule::new();
        let found =
            rule.comment_lines("fn f() {}\n    /// The policy is told of each hit.\n// Evicts a victim.\n");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].instead), (2, "is notified, receives, reports"));
    }

    #[test]
    fn each_pattern_matches_its_example() {
        let examples = [
            "Nobody reads it.",
            "The policy is told of a hit.",
            "It tells it the size.",
            "A list of what was written.",
            "The one who wakes it.",
            "Slots, some of which are free.",
            "It is put back.",
            "Waits so many seconds.",
            "Free, else it waits.",
            "It is gone for good.",
            "It need not wait.",
            "The count begins anew.",
        ];
        let examples = examples.map(|text| text.to_lowercase());
        let rule = Rule::new();
        assert_eq!(examples.len(), PATTERNS.len());
        for (example, (pattern, _)) in examples.iter().zip(&rule.patterns) {
            assert!(pattern.is_match(example), "{pattern} does not match {example:?}");
        }
    }

    #[test]
    fn plain_sentence_and_code_are_not_found() {
        let rule = Rule::new();
        let text =
            "/// Evicts the least recently used item. Returns its slot.\nlet whoever = told; // whoever\n";
        assert!(rule.comment_lines(text).is_empty());
        assert!(rule.comment_lines("// The developer who owns the device decides.\n").is_empty());
    }

    #[test]
    fn function_named_by_a_clause_is_found() {
        let rule = Rule::new();
        let text = "fn what_was_cleared_does_not_come_back() {\nfn clear_then_reopen_finds_nothing() {\nfn whatever() {}\n";
        let found = rule.names(text);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].text, "what_was_cleared_does_not_come_back");
    }

    #[test]
    fn breach_is_reported_with_count_and_place_only_above_the_allowance() {
        let finding =
            |line| ("crates/a/src/b.rs".to_owned(), Finding { line, text: "x".into(), instead: "y" });
        let found = [finding(3), finding(4)];
        let found: Vec<_> = found.iter().collect();
        assert_eq!(breach("crates/a", "comment lines", &found, 2), None);
        let message = breach("crates/a", "comment lines", &found, 1).unwrap();
        assert!(message.contains("2 comment lines") && message.contains("crates/a/src/b.rs:3"), "{message}");
    }
}
