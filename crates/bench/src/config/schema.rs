//! Definition of keys, and the reader of a section of keys.
//!
//! A key is defined once, in [`super::keys`]: its name, type, default, unit, status and documentation. The `section!` macro
//! generates the typed struct, the reader, the writer, and the table that `docs/cachebench-keys.md` is checked against.

use device::names::nearest;
use serde_json::{Map, Value};

use super::condition::Condition;
use super::findings::{Elsewhere, Findings, join};

/// One key of a config.
#[derive(Debug, Clone, Copy)]
pub struct KeyInfo {
    /// Name in the JSON.
    pub key: &'static str,
    /// Type, as shown to users.
    pub kind: &'static str,
    /// Unit; empty if it has none.
    pub unit: &'static str,
    /// Whether and when the key has an effect.
    pub status: Status,
    /// Documentation.
    pub doc: &'static str,
}

/// Whether and when a key has an effect.
#[derive(Debug, Clone, Copy)]
pub enum Status {
    /// The key works as in CacheBench.
    Honoured,
    /// The key works as in CacheBench if a condition holds; otherwise it is accepted with a warning.
    HonouredIf(Condition),
    /// The key tunes a mechanism that this engine does not have. Holds the reason.
    NoEffect(&'static str),
    /// Old configs have the key, and CacheBench ignores it. Holds the reason.
    Legacy(&'static str),
    /// The value is checked, but a run that needs it is refused. Holds the missing feature.
    Later(&'static str),
}

/// The keys of one JSON object.
pub trait Section: Sized {
    /// Name of the object: `cache_config`, `test_config`, …
    const NAME: &'static str;
    /// The keys.
    const KEYS: &'static [KeyInfo];

    /// Reads the section's keys from `object`; a key that is absent or invalid has its default.
    fn read(object: &Map<String, Value>, at: &str, findings: &mut Findings) -> Self;

    /// Writes every key with its value, including defaults.
    fn write(&self, into: &mut Map<String, Value>);
}

/// A type of config value.
pub trait Typed: Sized {
    /// Name of the type, as shown to users.
    const KIND: &'static str;

    /// Reads a value; returns `None` and reports an error if it is invalid.
    fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self>;

    /// The value as JSON.
    fn write(&self) -> Value;
}

/// Reads the key `key` of section `S`, and adds the warning that its status requires.
pub fn take<S: Section, T: Typed + PartialEq>(
    object: &Map<String, Value>,
    key: &str,
    default: T,
    at: &str,
    findings: &mut Findings,
) -> T {
    let key_info =
        S::KEYS.iter().find(|key_info| key_info.key == key).expect("the macro defines each key in the table");
    let Some(value) = object.get(key) else { return default };
    let path = join(at, key);
    let Some(typed) = T::read(value, &path, findings) else { return default };
    match key_info.status {
        Status::Honoured | Status::HonouredIf(_) => {}
        Status::NoEffect(why) => findings.warning(&path, format!("has no effect here: {why}")),
        Status::Legacy(why) => findings.warning(&path, format!("is ignored: {why}")),
        Status::Later(feature) if typed != default => findings.later(&path, feature),
        Status::Later(_) => {}
    }
    typed
}

/// Reports each key of `object` that is in none of `sections`, with the most similar known key.
pub fn check_names(object: &Map<String, Value>, sections: &[&[KeyInfo]], at: &str, findings: &mut Findings) {
    for name in object.keys() {
        if sections.iter().any(|key_infos| key_infos.iter().any(|key_info| key_info.key == name)) {
            continue;
        }
        let here = sections.iter().flat_map(|key_infos| key_infos.iter().map(|key_info| key_info.key));
        let at = join(at, name);
        match ((findings.elsewhere.0)(name), nearest(name, here)) {
            (Some(Elsewhere::In(section)), _) => findings.misplaced_key(&at, section),
            (Some(Elsewhere::RenamedTo(new)), _) => findings.unknown_key(&at, Some(new)),
            (Some(Elsewhere::Similar(key, section)), None) => findings.similar_key(&at, key, section),
            (_, near) => findings.unknown_key(&at, near),
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

/// Returns a value that was read, and records its conversion unless `is_exact`.
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
        Some(typed) if !is_exact => findings.converted(at, value, &typed.write()),
        Some(_) => {}
    }
    read
}

impl Typed for bool {
    const KIND: &'static str = "boolean";
    fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self> {
        converting(value, at, findings, value.is_boolean(), boolean(value), "true or false")
    }
    fn write(&self) -> Value {
        Value::Bool(*self)
    }
}

/// Reads a boolean like `folly::dynamic::asBool`: any number but 0 is true, and so are some strings.
fn boolean(value: &Value) -> Option<bool> {
    let is_one_of =
        |words: [&str; 5], text: &str| words.iter().any(|word| word.eq_ignore_ascii_case(text.trim()));
    match value {
        Value::Bool(boolean) => Some(*boolean),
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

/// Reads an integer like `folly::dynamic::asInt`: from a number without a fraction, a string or a boolean.
pub(super) fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Bool(boolean) => Some(u64::from(*boolean)),
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Accepts `2.0` for `2`.
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
            Value::Bool(boolean) => Some(f64::from(u8::from(*boolean))),
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

/// Any JSON object, kept unchanged.
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

/// Any JSON value: for legacy keys, which are ignored.
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

/// Reads an object as one section and reports unknown keys.
pub fn read_section<S: Section>(value: &Value, at: &str, findings: &mut Findings) -> Option<S> {
    let Some(object) = value.as_object() else {
        mistyped(value, "an object", at, findings);
        return None;
    };
    check_names(object, &[S::KEYS], at, findings);
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

/// Defines a section: its struct, reader, writer and table.
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

        impl $crate::config::schema::Section for $name {
            const NAME: &'static str = $place;
            const KEYS: &'static [$crate::config::schema::KeyInfo] = &[
                $( $crate::config::schema::KeyInfo {
                    key: $key,
                    kind: <$kind as $crate::config::schema::Typed>::KIND,
                    unit: $unit,
                    status: $status,
                    doc: $doc,
                }, )*
                $( $crate::config::schema::KeyInfo {
                    key: $legacy,
                    kind: "any",
                    unit: "",
                    status: $crate::config::schema::Status::Legacy($why),
                    doc: $why,
                }, )*
            ];

            fn read(
                object: &serde_json::Map<String, serde_json::Value>,
                at: &str,
                findings: &mut $crate::config::findings::Findings,
            ) -> Self {
                use $crate::config::schema::take;
                $( take::<Self, serde_json::Value>(object, $legacy, serde_json::Value::Null, at, findings); )*
                Self { $( $field: take::<Self, $kind>(object, $key, $default, at, findings), )* }
            }

            fn write(&self, into: &mut serde_json::Map<String, serde_json::Value>) {
                use $crate::config::schema::Typed;
                $( into.insert($key.to_owned(), Typed::write(&self.$field)); )*
            }
        }

        impl $crate::config::schema::Typed for Vec<$name> {
            const KIND: &'static str = "list of objects";
            fn read(
                value: &serde_json::Value,
                at: &str,
                findings: &mut $crate::config::findings::Findings,
            ) -> Option<Self> {
                $crate::config::schema::read_list(value, at, findings)
            }
            fn write(&self) -> serde_json::Value {
                self.iter().map($crate::config::schema::Typed::write).collect()
            }
        }

        impl $crate::config::schema::Typed for $name {
            const KIND: &'static str = "object";
            fn read(
                value: &serde_json::Value,
                at: &str,
                findings: &mut $crate::config::findings::Findings,
            ) -> Option<Self> {
                $crate::config::schema::read_section(value, at, findings)
            }
            fn write(&self) -> serde_json::Value {
                let mut map = serde_json::Map::new();
                $crate::config::schema::Section::write(self, &mut map);
                serde_json::Value::Object(map)
            }
        }
    };
}
pub(crate) use section;
