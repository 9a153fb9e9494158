//! Parses JSON in CacheBench's dialect: plain JSON with `//` and `/* */` comments.

use jsonc_parser::ast;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::{Map, Number, Value};

use super::findings::{Findings, join};

/// Parses `text`. If a key occurs twice in an object, the last value counts, as in CacheBench, and a warning is added: the
/// shipped `kvcache_l2_wc` config has one. Trailing commas are errors, as in CacheBench.
pub fn parse(text: &str, findings: &mut Findings) -> Option<Value> {
    // Some editors write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = match parse_to_ast(text, &CollectOptions::default(), &strict_with_comments()) {
        Ok(parsed) => parsed.value,
        Err(error) => {
            findings.problem("", format!("not valid JSON: {error}"));
            return None;
        }
    };
    let Some(value) = parsed else {
        findings.problem("", "the file has no JSON value");
        return None;
    };
    Some(convert(value, "", findings))
}

fn strict_with_comments() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

fn convert(value: ast::Value<'_>, at: &str, findings: &mut Findings) -> Value {
    match value {
        ast::Value::StringLit(literal) => Value::String(literal.value.into_owned()),
        ast::Value::BooleanLit(literal) => Value::Bool(literal.value),
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::NumberLit(literal) => number(literal.value, at, findings),
        ast::Value::Array(array) => {
            let elements = array.elements.into_iter().enumerate();
            Value::Array(
                elements.map(|(i, element)| convert(element, &format!("{at}[{i}]"), findings)).collect(),
            )
        }
        ast::Value::Object(object) => {
            let mut map = Map::new();
            for property in object.properties {
                let name = property.name.into_string();
                let path = join(at, &name);
                let value = convert(property.value, &path, findings);
                if map.insert(name, value).is_some() {
                    findings.warning(&path, "is given twice in this object; the last value is used");
                }
            }
            Value::Object(map)
        }
    }
}

fn number(literal: &str, at: &str, findings: &mut Findings) -> Value {
    match literal.parse::<Number>() {
        Ok(number) => Value::Number(number),
        Err(error) => {
            findings.problem(at, format!("`{literal}` is not a number: {error}"));
            Value::Null
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_with_findings(text: &str) -> (Option<Value>, Findings) {
        let mut findings = Findings::default();
        let value = parse(text, &mut findings);
        (value, findings)
    }

    #[test]
    fn parse_skips_comments_outside_strings() {
        let (value, findings) = parse_with_findings("// head\n{ \"a\": /* mid */ \"x // y\" } // tail");
        assert_eq!(value, Some(serde_json::json!({ "a": "x // y" })));
        assert!(findings.problems.is_empty() && findings.warnings.is_empty());
    }

    #[test]
    fn parse_duplicate_key_keeps_last_value_and_warns() {
        let (value, findings) =
            parse_with_findings(r#"{ "test_config": { "setRatio": 0.1, "setRatio": 0.2 } }"#);
        assert_eq!(value, Some(serde_json::json!({ "test_config": { "setRatio": 0.2 } })));
        assert_eq!(findings.warnings.len(), 1);
        assert!(findings.warnings[0].to_string().starts_with("test_config.setRatio: is given twice"));
    }

    #[test]
    fn parse_trailing_comma_reports_its_line() {
        let (value, findings) = parse_with_findings("{\n \"a\": 1,\n}");
        assert_eq!(value, None);
        let message = findings.problems[0].to_string();
        assert!(message.contains("line 2"), "{message}");
    }

    #[test]
    fn parse_64_bit_integers_exactly() {
        let (value, _) = parse_with_findings(r#"{ "numKeys": 14463466000000, "big": 18446744073709551615 }"#);
        assert_eq!(value, Some(serde_json::json!({ "numKeys": 14_463_466_000_000_u64, "big": u64::MAX })));
    }
}
