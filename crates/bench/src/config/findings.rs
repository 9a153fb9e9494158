//! The errors of a config, its warnings, and the values that were ignored or converted.

use std::fmt;

use serde_json::Value;

/// A message about one place in a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// JSON path; empty for the whole file.
    pub at: String,
    /// The message.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.at.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.at, self.message)
        }
    }
}

/// The result of reading a config. All errors are collected, so that one run reports every mistake.
#[derive(Debug, Default, Clone)]
pub struct Findings {
    /// Whether unknown keys are skipped with a warning instead of being errors (`--ignore-unknown`).
    pub ignore_unknown: bool,
    /// Looks up a key that is unknown where it was found.
    pub elsewhere: Lookup,
    /// Paths of the unknown keys that were skipped, with the nearest known name if there is one.
    pub ignored: Vec<String>,
    /// Values of another JSON type that were converted as CacheBench does: `"64" as 64`, by path.
    pub conversions: Vec<Diagnostic>,
    /// Errors: the config is refused.
    pub problems: Vec<Diagnostic>,
    /// Warnings: the config is accepted.
    pub warnings: Vec<Diagnostic>,
    /// Valid keys that need an unsupported feature: `at` is the key, `message` the feature.
    pub later: Vec<Diagnostic>,
}

/// A key that is unknown where it was found, and known elsewhere, perhaps under another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// Another section has the key. Holds the name of that section.
    In(&'static str),
    /// CacheBench renamed the key. Holds the new name.
    RenamedTo(&'static str),
    /// Another section has a key with a similar name. Holds the key and the section.
    Similar(&'static str, &'static str),
}

/// Function that looks up a key in all sections; by default it finds none.
#[derive(Debug, Clone, Copy)]
pub struct Lookup(pub fn(&str) -> Option<Elsewhere>);

impl Default for Lookup {
    fn default() -> Self {
        Self(|_| None)
    }
}

impl Findings {
    /// Findings without messages, whose errors about unknown keys use `elsewhere`.
    #[must_use]
    pub fn new(elsewhere: fn(&str) -> Option<Elsewhere>) -> Self {
        Self { elsewhere: Lookup(elsewhere), ..Self::default() }
    }

    /// Adds an error.
    pub fn problem(&mut self, at: &str, message: impl Into<String>) {
        self.problems.push(Diagnostic { at: at.to_owned(), message: message.into() });
    }

    /// Drops the errors after the first `misread` that are about the same keys: a value that could not be read was replaced by
    /// its default, so further errors about it are misleading.
    pub fn drop_consequences(&mut self, misread: usize) {
        let later = self.problems.split_off(misread);
        let causes: Vec<String> = self.problems.iter().map(|problem| problem.at.clone()).collect();
        let follows = |at: &str| {
            let below =
                |cause: &String| at.strip_prefix(cause.as_str()).is_some_and(|rest| rest.starts_with('.'));
            causes.iter().any(|cause| at == cause || !cause.is_empty() && below(cause))
        };
        self.problems.extend(later.into_iter().filter(|problem| !follows(&problem.at)));
    }

    /// Adds a warning.
    pub fn warning(&mut self, at: &str, message: impl Into<String>) {
        self.warnings.push(Diagnostic { at: at.to_owned(), message: message.into() });
    }

    /// Adds an error for an unknown key, or records the key as skipped.
    pub fn unknown_key(&mut self, at: &str, near: Option<&str>) {
        match (self.ignore_unknown, near) {
            (true, Some(near)) => self.ignored.push(format!("{at} (similar to `{near}`)")),
            (true, None) => self.ignored.push(at.to_owned()),
            (false, Some(near)) => self.problem(at, format!("unknown key; did you mean `{near}`?")),
            (false, None) => self.problem(at, "unknown key (--ignore-unknown skips it)"),
        }
    }

    /// Adds an error for an unknown key whose name is similar to that of a key of another object, or records the key as skipped.
    pub fn similar_key(&mut self, at: &str, near: &str, home: &str) {
        match self.ignore_unknown {
            true => self.ignored.push(format!("{at} (similar to `{near}` of {home})")),
            false => self.problem(at, format!("unknown key; did you mean `{near}` of {home}?")),
        }
    }

    /// Reports a key that is in the wrong object.
    pub fn misplaced_key(&mut self, at: &str, home: &str) {
        match self.ignore_unknown {
            true => self.ignored.push(format!("{at} (which belongs in {home})")),
            false => self.problem(at, format!("unknown key here: it belongs in {home}")),
        }
    }

    /// Records a value that was converted to the key's type.
    pub(super) fn converted(&mut self, at: &str, from: &Value, to: &Value) {
        self.conversions.push(Diagnostic { at: at.to_owned(), message: format!("{from} as {to}") });
    }

    /// Merges the skipped keys into one warning, and the converted values into another.
    pub fn summarise(&mut self) {
        const NAMED: usize = 4;
        let ignored = std::mem::take(&mut self.ignored);
        if !ignored.is_empty() {
            let noun = if ignored.len() == 1 { "an unknown key" } else { "unknown keys" };
            self.warning("--ignore-unknown", format!("skips {noun}: {}", ignored.join(", ")));
        }
        let conversions = std::mem::take(&mut self.conversions);
        let Some((first, others)) = conversions.split_first() else { return };
        let mut message =
            format!("has a value of another type, which is converted as CacheBench does: {}", first.message);
        let named = others.iter().take(NAMED).map(|it| format!("; {}: {}", it.at, it.message));
        message.extend(named);
        if others.len() > NAMED {
            message += &format!("; and {} more", others.len() - NAMED);
        }
        self.warning(&first.at, message);
    }

    /// Records a feature that a run of this config needs.
    pub fn later(&mut self, at: &str, feature: impl Into<String>) {
        self.later.push(Diagnostic { at: at.to_owned(), message: feature.into() });
    }
}

/// JSON path of `name` inside `at`.
pub fn join(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}
