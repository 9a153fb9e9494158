//! Flags as scripts for CacheBench write them: `-progress 5`, `--timeout_seconds=3`.

use std::ffi::{OsStr, OsString};

/// Turns a long flag with one dash into one with two, and `_` in its name into `-`. Values, single letters and everything
/// after `--` stay as they are. A negative number becomes one word with the flag before it, whose value it is: alone it
/// would be taken for a flag, and nobody would say what is wrong with it.
pub fn normalise(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut rest_is_plain = false;
    for argument in spelled(arguments) {
        rest_is_plain |= argument == "--";
        match joined.last_mut() {
            Some(flag) if !rest_is_plain && is_negative(&argument) && takes_value(flag) => {
                flag.push("=");
                flag.push(argument);
            }
            _ => joined.push(argument),
        }
    }
    joined
}

/// Flags that name what is written.
const OUTPUTS: [&str; 4] = ["--json", "--plot", "--intervals", "--progress-stats-file"];

/// What was typed without what names its outputs, so that who does it again writes over nothing.
pub fn repeatable(arguments: impl Iterator<Item = OsString>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut arguments = normalise(arguments).into_iter().skip(1);
    while let Some(argument) = arguments.next() {
        let word = argument.to_string_lossy().into_owned();
        match word.split_once('=').map_or(word.as_str(), |(flag, _)| flag) {
            flag if OUTPUTS.contains(&flag) => drop((!word.contains('=')).then(|| arguments.next())),
            _ => kept.push(word),
        }
    }
    kept
}

/// `-5`, `-.5`, `-5%`, `-1GiB`: no flag begins with a digit.
fn is_negative(argument: &OsStr) -> bool {
    let number = argument.to_str().and_then(|words| words.strip_prefix('-'));
    number.is_some_and(|number| number.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.'))
}

/// A flag, and without a value so far.
fn takes_value(argument: &OsStr) -> bool {
    argument.to_str().is_some_and(|words| words.len() > 1 && words.starts_with('-') && !words.contains('='))
        && !is_negative(argument)
}

fn spelled(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut rest_is_plain = false;
    arguments
        .enumerate()
        .map(|(i, argument)| {
            rest_is_plain |= argument == "--";
            let program_name = i == 0;
            match argument.to_str() {
                Some(words) if !rest_is_plain && !program_name => {
                    flag(words).map_or(argument, OsString::from)
                }
                _ => argument,
            }
        })
        .collect()
}

fn flag(words: &str) -> Option<String> {
    let name = words.strip_prefix("--").or_else(|| words.strip_prefix('-'))?;
    let (name, value) = match name.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (name, None),
    };
    let is_long = name.len() > 1 && name.starts_with(|letter: char| letter.is_ascii_alphabetic());
    is_long.then(|| {
        let name = name.replace('_', "-");
        value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_take_any_spelling_and_values_are_left_alone() {
        let typed = [
            "a_b",
            "-json_test_config",
            "my_file.json",
            "--timeout_seconds=3",
            "-progress",
            "-q",
            "--json",
            "-",
            "-5",
            "-op",
            "-5%",
            "-s",
            "-.5",
            "--set",
            "a_b.c_d=e_f",
            "--",
            "-x_y",
            "-7",
        ];
        let expected = [
            "a_b",
            "--json-test-config",
            "my_file.json",
            "--timeout-seconds=3",
            "--progress",
            "-q",
            "--json",
            "-",
            "-5",
            "--op=-5%",
            "-s=-.5",
            "--set",
            "a_b.c_d=e_f",
            "--",
            "-x_y",
            "-7",
        ];
        assert_eq!(normalise(typed.iter().map(OsString::from)), expected.map(OsString::from));
    }

    #[test]
    fn what_is_repeated_writes_over_nothing() {
        let typed = [
            "p",
            "bench",
            "a b.json",
            "-json",
            "out.json",
            "--plot=x.svg",
            "--seed",
            "7",
            "--set",
            "a=--json",
        ];
        let kept = repeatable(typed.into_iter().map(OsString::from));
        assert_eq!(kept, ["bench", "a b.json", "--seed", "7", "--set", "a=--json"]);
    }

    #[test]
    fn a_value_given_with_equals_keeps_its_underscores() {
        let typed = ["p", "--progress_stats_file=/a_b/c_d"].map(OsString::from);
        assert_eq!(normalise(typed.into_iter())[1], "--progress-stats-file=/a_b/c_d");
    }
}
