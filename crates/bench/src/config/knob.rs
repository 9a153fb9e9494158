//! What a key is, and how a section of keys is read.
//!
//! A key is defined once, in [`super::keys`]: its name, type, default, unit, what happens to it here, and a sentence
//! for the documentation. The `section!` macro makes of that one definition the typed struct, the reader, the writer and the
//! table that `docs/cachebench.md` is checked against.

use std::fmt;

use device::names::nearest;
use serde_json::{Map, Value};

use super::needs::Needs;
use super::text::join;

/// One key of a config.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// Its name in the JSON.
    pub key: &'static str,
    /// Its type, as users read it.
    pub kind: &'static str,
    /// Its unit; empty where it has none.
    pub unit: &'static str,
    /// What becomes of it here.
    pub status: Status,
    /// What it says.
    pub doc: &'static str,
}

/// What becomes of a key here.
#[derive(Debug, Clone, Copy)]
pub enum Status {
    /// It does what CacheBench says it does.
    Honoured,
    /// It does, beside what it needs; without that it is accepted with a warning.
    HonouredIf(Needs),
    /// It tunes something that this engine does not have; why.
    NoEffect(&'static str),
    /// Old configs carry it and CacheBench itself ignores it; why.
    Legacy(&'static str),
    /// Checked, but a run that needs it is refused; the feature that is missing.
    Later(&'static str),
}

/// Something said about one place in a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// JSON path, empty for the whole file.
    pub at: String,
    /// The sentence.
    pub words: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.at.is_empty() { f.write_str(&self.words) } else { write!(f, "{}: {}", self.at, self.words) }
    }
}

/// All that reading a config brought up: everything is collected, so that one look shows every mistake.
#[derive(Debug, Default, Clone)]
pub struct Findings {
    /// Unknown keys are skipped with a warning instead of being problems (`--ignore-unknown`).
    pub ignore_unknown: bool,
    /// Unknown keys that were skipped: paths, with the nearest known name where there is one.
    pub ignored: Vec<String>,
    /// Values of another JSON type than the key's, which are converted as CacheBench does: `"64" as 64`, by path.
    pub conversions: Vec<Remark>,
    /// Mistakes: the config is refused.
    pub problems: Vec<Remark>,
    /// Accepted, but the user should know.
    pub warnings: Vec<Remark>,
    /// Valid, but needs a feature that is not here yet: `at` is the key, `words` the feature.
    pub later: Vec<Remark>,
}

impl Findings {
    /// Notes a mistake.
    pub fn problem(&mut self, at: &str, words: impl Into<String>) {
        self.problems.push(Remark { at: at.to_owned(), words: words.into() });
    }

    /// Keeps of the problems behind the first `misread` those that are not about the same keys: what could not be read has its
    /// default, and what is wrong with that is nothing the user typed.
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

    /// Notes something the user should know.
    pub fn warning(&mut self, at: &str, words: impl Into<String>) {
        self.warnings.push(Remark { at: at.to_owned(), words: words.into() });
    }

    /// Notes an unknown key: a mistake, unless unknown keys are to be skipped.
    pub fn unknown_key(&mut self, at: &str, near: Option<&str>) {
        match (self.ignore_unknown, near) {
            (true, Some(near)) => self.ignored.push(format!("{at} (similar to `{near}`)")),
            (true, None) => self.ignored.push(at.to_owned()),
            (false, Some(near)) => self.problem(at, format!("unknown key; did you mean `{near}`?")),
            (false, None) => self.problem(at, "unknown key (--ignore-unknown skips it)"),
        }
    }

    /// Notes a key that stands in another object than it belongs in.
    pub fn misplaced_key(&mut self, at: &str, home: &str) {
        match self.ignore_unknown {
            true => self.ignored.push(format!("{at} (which belongs in {home})")),
            false => self.problem(at, format!("unknown key here: it belongs in {home}")),
        }
    }

    /// Notes a value that was converted to the key's type.
    fn converted(&mut self, at: &str, value: &Value, typed: &impl Typed) {
        self.conversions.push(Remark { at: at.to_owned(), words: format!("{value} as {}", typed.write()) });
    }

    /// Turns what concerns many keys alike into one warning each.
    pub fn summarise(&mut self) {
        const NAMED: usize = 4;
        let ignored = std::mem::take(&mut self.ignored);
        if !ignored.is_empty() {
            let noun = if ignored.len() == 1 { "an unknown key" } else { "unknown keys" };
            self.warning("--ignore-unknown", format!("skips {noun}: {}", ignored.join(", ")));
        }
        let conversions = std::mem::take(&mut self.conversions);
        let Some((first, others)) = conversions.split_first() else { return };
        let mut words =
            format!("has a value of another type, which is read as CacheBench reads it: {}", first.words);
        let named = others.iter().take(NAMED).map(|it| format!("; {}: {}", it.at, it.words));
        words.extend(named);
        if others.len() > NAMED {
            words += &format!("; and {} more", others.len() - NAMED);
        }
        self.warning(&first.at, words);
    }

    /// Notes a feature that a run of this config would need.
    pub fn later(&mut self, at: &str, feature: impl Into<String>) {
        self.later.push(Remark { at: at.to_owned(), words: feature.into() });
    }
}

/// A group of keys that live in one JSON object.
pub trait Section: Sized {
    /// Where the keys live, as users know it: `cache_config`, `test_config`, …
    const NAME: &'static str;
    /// The keys.
    const KNOBS: &'static [Knob];

    /// Reads the section's keys from `object`; what is absent or wrong keeps its default.
    fn read(object: &Map<String, Value>, at: &str, findings: &mut Findings) -> Self;

    /// Writes every key with its value, defaults included.
    fn write(&self, into: &mut Map<String, Value>);
}

/// A type that a key can have.
pub trait Typed: Sized {
    /// Its name for users.
    const KIND: &'static str;

    /// Reads it; says what is wrong and answers `None` where it cannot.
    fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self>;

    /// The value as JSON.
    fn write(&self) -> Value;
}

/// Reads the key `key` of section `S`, and says what its status asks for.
pub fn take<S: Section, T: Typed + PartialEq>(
    object: &Map<String, Value>,
    key: &str,
    default: T,
    at: &str,
    findings: &mut Findings,
) -> T {
    let knob = S::KNOBS.iter().find(|knob| knob.key == key).expect("the macro that asks also made the table");
    let Some(value) = object.get(key) else { return default };
    let path = join(at, key);
    let Some(typed) = T::read(value, &path, findings) else { return default };
    match knob.status {
        Status::Honoured | Status::HonouredIf(_) => {}
        Status::NoEffect(why) => findings.warning(&path, format!("has no effect here: {why}")),
        Status::Legacy(why) => findings.warning(&path, format!("is ignored: {why}")),
        Status::Later(feature) if typed != default => findings.later(&path, feature),
        Status::Later(_) => {}
    }
    typed
}

/// Says of every key in `object` that is in none of `sections` what it may have been meant to be.
pub fn check_names(object: &Map<String, Value>, sections: &[&[Knob]], at: &str, findings: &mut Findings) {
    for name in object.keys() {
        if sections.iter().any(|knobs| knobs.iter().any(|knob| knob.key == name)) {
            continue;
        }
        let here = sections.iter().flat_map(|knobs| knobs.iter().map(|knob| knob.key));
        match super::keys::home_of(name) {
            Some(home) => findings.misplaced_key(&join(at, name), home),
            None => {
                let near = super::keys::new_name_of(name).or_else(|| nearest(name, here));
                findings.unknown_key(&join(at, name), near);
            }
        }
    }
}

fn mistyped(value: &Value, expected: &str, at: &str, findings: &mut Findings) {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
        Value::String(_) => format!("the string {value}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    findings.problem(at, format!("expected {expected}, found {found}"));
}

/// Reads a value of the type that `is_exact` tells, or converts it; the conversion is noted.
fn converting<T: Typed>(
    value: &Value,
    at: &str,
    findings: &mut Findings,
    is_exact: bool,
    read: Option<T>,
    expected: &str,
) -> Option<T> {
    match &read {
        None => mistyped(value, expected, at, findings),
        Some(typed) if !is_exact => findings.converted(at, value, typed),
        Some(_) => {}
    }
    read
}

impl Typed for bool {
    const KIND: &'static str = "boolean";
    fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self> {
        converting(value, at, findings, value.is_boolean(), truth(value), "true or false")
    }
    fn write(&self) -> Value {
        Value::Bool(*self)
    }
}

/// A truth value as `folly::dynamic::asBool` reads it: any number but 0 is true, and so are some words.
fn truth(value: &Value) -> Option<bool> {
    let is_one_of =
        |words: [&str; 5], text: &str| words.iter().any(|word| word.eq_ignore_ascii_case(text.trim()));
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Number(number) => number.as_f64().map(|number| number != 0.0),
        Value::String(text) if is_one_of(["1", "true", "t", "yes", "y"], text) => Some(true),
        Value::String(text) if is_one_of(["0", "false", "f", "no", "n"], text) => Some(false),
        Value::String(text) if text.trim().eq_ignore_ascii_case("on") => Some(true),
        Value::String(text) if text.trim().eq_ignore_ascii_case("off") => Some(false),
        _ => None,
    }
}

impl Typed for u64 {
    const KIND: &'static str = "integer";
    fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self> {
        converting(value, at, findings, value.is_u64(), integer(value), "a whole number, 0 or more")
    }
    fn write(&self) -> Value {
        Value::from(*self)
    }
}

/// A whole number as `folly::dynamic::asInt` reads it: from a number without a fraction, a string or a truth value.
pub(super) fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Bool(truth) => Some(u64::from(*truth)),
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// `2.0` is as good as `2`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be whole and in range"
)]
fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..9.0e15).contains(&number)).then_some(number as u64)
}

impl Typed for f64 {
    const KIND: &'static str = "number";
    fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self> {
        let read = match value {
            Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
            Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
            _ => value.as_f64(),
        };
        converting(value, at, findings, value.is_number(), read, "a number")
    }
    fn write(&self) -> Value {
        Value::from(*self)
    }
}

impl Typed for String {
    const KIND: &'static str = "string";
    fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self> {
        let read = value.as_str().map(str::to_owned);
        converting(value, at, findings, true, read, "a string")
    }
    fn write(&self) -> Value {
        Value::String(self.clone())
    }
}

/// Any JSON object, kept as it is: for keys whose feature is not here yet.
impl Typed for Map<String, Value> {
    const KIND: &'static str = "object";
    fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self> {
        let read = value.as_object().cloned();
        if read.is_none() {
            mistyped(value, "an object", at, findings);
        }
        read
    }
    fn write(&self) -> Value {
        Value::Object(self.clone())
    }
}

/// Any JSON value: for legacy keys, which nobody reads.
impl Typed for Value {
    const KIND: &'static str = "any";
    fn read(value: &Value, _at: &str, _findings: &mut Findings) -> Option<Self> {
        Some(value.clone())
    }
    fn write(&self) -> Value {
        self.clone()
    }
}

/// Reads a list element by element.
pub fn read_list<T: Typed>(value: &Value, at: &str, findings: &mut Findings) -> Option<Vec<T>> {
    let Some(elements) = value.as_array() else {
        mistyped(value, "a list", at, findings);
        return None;
    };
    elements
        .iter()
        .enumerate()
        .map(|(i, element)| T::read(element, &format!("{at}[{i}]"), findings))
        .collect()
}

/// Reads a whole object as one section, unknown names refused.
pub fn read_section<S: Section>(value: &Value, at: &str, findings: &mut Findings) -> Option<S> {
    let Some(object) = value.as_object() else {
        mistyped(value, "an object", at, findings);
        return None;
    };
    check_names(object, &[S::KNOBS], at, findings);
    Some(S::read(object, at, findings))
}

macro_rules! typed_lists {
    ($($element:ty => $kind:literal),*) => { $(
        impl Typed for Vec<$element> {
            const KIND: &'static str = $kind;
            fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self> {
                read_list(value, at, findings)
            }
            fn write(&self) -> Value {
                self.iter().map(Typed::write).collect()
            }
        }
    )* };
}
typed_lists!(u64 => "list of integers", f64 => "list of numbers", String => "list of strings");

/// Defines a section: struct, reader, writer and table of one list.
///
/// `Name: "json place" => { "doc"; field: type = default, "key", "unit", status; … }`, then optionally
/// `legacy { "key", "why"; … }` for names that are accepted and ignored.
macro_rules! section {
    (
        $(#[$meta:meta])*
        $name:ident : $place:literal => {
            $( $doc:literal; $field:ident : $kind:ty = $default:expr, $key:literal, $unit:literal, $status:expr; )*
        }
        legacy { $( $legacy:literal, $why:literal; )* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name { $( #[doc = $doc] pub $field: $kind, )* }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $crate::config::knob::Section for $name {
            const NAME: &'static str = $place;
            const KNOBS: &'static [$crate::config::knob::Knob] = &[
                $( $crate::config::knob::Knob {
                    key: $key,
                    kind: <$kind as $crate::config::knob::Typed>::KIND,
                    unit: $unit,
                    status: $status,
                    doc: $doc,
                }, )*
                $( $crate::config::knob::Knob {
                    key: $legacy,
                    kind: "any",
                    unit: "",
                    status: $crate::config::knob::Status::Legacy($why),
                    doc: $why,
                }, )*
            ];

            fn read(
                object: &serde_json::Map<String, serde_json::Value>,
                at: &str,
                findings: &mut $crate::config::knob::Findings,
            ) -> Self {
                use $crate::config::knob::take;
                $( take::<Self, serde_json::Value>(object, $legacy, serde_json::Value::Null, at, findings); )*
                Self { $( $field: take::<Self, $kind>(object, $key, $default, at, findings), )* }
            }

            fn write(&self, into: &mut serde_json::Map<String, serde_json::Value>) {
                use $crate::config::knob::Typed;
                $( into.insert($key.to_owned(), Typed::write(&self.$field)); )*
            }
        }

        impl $crate::config::knob::Typed for Vec<$name> {
            const KIND: &'static str = "list of objects";
            fn read(
                value: &serde_json::Value,
                at: &str,
                findings: &mut $crate::config::knob::Findings,
            ) -> Option<Self> {
                $crate::config::knob::read_list(value, at, findings)
            }
            fn write(&self) -> serde_json::Value {
                self.iter().map($crate::config::knob::Typed::write).collect()
            }
        }

        impl $crate::config::knob::Typed for $name {
            const KIND: &'static str = "object";
            fn read(
                value: &serde_json::Value,
                at: &str,
                findings: &mut $crate::config::knob::Findings,
            ) -> Option<Self> {
                $crate::config::knob::read_section(value, at, findings)
            }
            fn write(&self) -> serde_json::Value {
                let mut map = serde_json::Map::new();
                $crate::config::knob::Section::write(self, &mut map);
                serde_json::Value::Object(map)
            }
        }
    };
}
pub(crate) use section;
