//! `--admission` of `simulate`.

use bench::simulate::SimulatedAdmission;
use device::names;

use crate::quantity;

/// Names of the rules, and an example of the value that follows.
const RULES: [(&str, Option<&str>); 5] = [
    ("reject-first", None),
    ("below", Some("64KiB")),
    ("probability", Some("0.5")),
    ("size-probability", Some("0.5")),
    ("adaptsize", None),
];

/// Requests between the tunings of AdaptSize, as in libCacheSim.
const ADAPT_SIZE_INTERVAL: u64 = 30_000;

/// Parses a rule such as `below:4KiB`.
pub fn parsed(text: &str) -> Result<SimulatedAdmission, String> {
    let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
    if let Some(requests) = text.strip_prefix("adaptsize:") {
        return quantity::count(requests)
            .and_then(
                |requests| if requests == 0 { Err("must be at least 1".to_owned()) } else { Ok(requests) },
            )
            .map(SimulatedAdmission::AdaptSize);
    }
    let Some((_, example)) = RULES.iter().find(|(known, _)| *known == name) else {
        let known = || RULES.iter().map(|(name, _)| *name);
        let all: Vec<&str> = known().collect();
        return Err(format!(
            "no rule is named `{name}`: {}the rules are {}",
            names::hint(name, known()),
            all.join(", ")
        ));
    };
    match (example, value) {
        (Some(example), None) => return Err(format!("{name} needs a value: {name}:{example}")),
        (None, Some(_)) => return Err(format!("{name} has no value")),
        _ => {}
    }
    let value = value.unwrap_or_default();
    match name {
        "below" => quantity::bytes(value).map(SimulatedAdmission::Below),
        "probability" => quantity::within(value, 0.0, 1.0).map(SimulatedAdmission::Probability),
        "size-probability" => quantity::within(value, 0.0, 1.0).map(SimulatedAdmission::SizeProbability),
        "adaptsize" => Ok(SimulatedAdmission::AdaptSize(ADAPT_SIZE_INTERVAL)),
        _ => Ok(SimulatedAdmission::RejectFirst),
    }
}

/// A rule as typed.
pub fn text(rule: SimulatedAdmission) -> String {
    match rule {
        SimulatedAdmission::Always => "always".to_owned(),
        SimulatedAdmission::Probability(probability) => format!("probability:{probability}"),
        SimulatedAdmission::Below(bytes) => format!("below:{bytes}"),
        SimulatedAdmission::SizeProbability(exponent) => format!("size-probability:{exponent}"),
        SimulatedAdmission::RejectFirst => "reject-first".to_owned(),
        SimulatedAdmission::AdaptSize(ADAPT_SIZE_INTERVAL) => "adaptsize".to_owned(),
        SimulatedAdmission::AdaptSize(requests) => format!("adaptsize:{requests}"),
    }
}

/// Checks that the rule agrees with the other flags.
pub fn check(rule: SimulatedAdmission, ignores_size: bool, samples: bool) -> Result<(), String> {
    let is_by_size = matches!(
        rule,
        SimulatedAdmission::Below(_)
            | SimulatedAdmission::SizeProbability(_)
            | SimulatedAdmission::AdaptSize(_)
    );
    if ignores_size && is_by_size {
        return Err(format!(
            "--admission {}: needs sizes, which --ignore-size and a --size in objects ignore",
            text(rule)
        ));
    }
    if samples {
        return Err(format!("--admission {}: cannot be combined with --sample", text(rule)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_as_text_parses_back() {
        for rule in [
            "reject-first",
            "below:4096",
            "probability:0.25",
            "size-probability:0.0001",
            "adaptsize",
            "adaptsize:500",
        ] {
            assert_eq!(text(parsed(rule).unwrap()), rule);
        }
        assert_eq!(parsed("below:4KiB"), Ok(SimulatedAdmission::Below(4096)));
    }

    #[test]
    fn wrong_rule_is_refused_with_the_nearest_name_or_the_value_that_it_needs() {
        for (text, message) in [
            ("reject-frist", "did you mean `reject-first`"),
            ("below", "below needs a value: below:64KiB"),
            ("reject-first:2", "reject-first has no value"),
            ("probability:2", "2"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
