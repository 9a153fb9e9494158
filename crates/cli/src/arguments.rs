//! Accepts flags as CacheBench scripts write them: `-progress 5`, `--timeout_seconds=3`, `--noreport_api_latency`.

use std::ffi::{OsStr, OsString};

/// CacheBench's boolean flags.
const SWITCHES: [&str; 1] = ["report-api-latency"];
/// CacheBench's flags for which an empty value is the same as no flag.
const OFF_IF_EMPTY: [&str; 2] = ["progress-stats-file", "report-ac-memory-usage-stats"];

/// Converts a long flag with one dash to two dashes and `_` in its name to `-`, and normalises booleans. Values, single letters and
/// everything after `--` are unchanged. A negative number is joined to the preceding flag: alone, clap would report it as an unknown flag.
pub fn normalise(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut rest_is_plain = false;
    for argument in with_clap_spelling(arguments) {
        rest_is_plain |= argument == "--";
        match joined.last_mut() {
            _ if !rest_is_plain && is_off(&argument) => {}
            Some(flag) if !rest_is_plain && is_negative(&argument) && takes_value(flag) => {
                flag.push("=");
                flag.push(argument);
            }
            _ => joined.push(argument),
        }
    }
    joined
}

/// Flags that name output files.
const OUTPUTS: [&str; 4] = ["--json", "--plot", "--intervals", "--progress-stats-file"];

/// The typed arguments without output files, so that repeating the command overwrites nothing.
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

/// Whether this is a flag without a value, which the next argument can provide.
fn takes_value(argument: &OsStr) -> bool {
    argument.to_str().is_some_and(|words| words.len() > 1 && words.starts_with('-') && !words.contains('='))
        && !is_negative(argument)
}

/// Whether this is a flag such as `--progress_stats_file=`, whose empty value disables it.
fn is_off(argument: &OsStr) -> bool {
    let name = argument.to_str().and_then(|words| words.strip_prefix("--")?.strip_suffix('='));
    name.is_some_and(|name| OFF_IF_EMPTY.contains(&name))
}

fn with_clap_spelling(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
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

/// Dashes by which text processors replace `--`: em dash, en dash, horizontal bar.
const TYPOGRAPHIC_DASHES: [char; 3] = ['\u{2014}', '\u{2013}', '\u{2015}'];

/// `progress_stats_file` for `—progress_stats_file`: flags copied from a web page look like this.
fn after_typographic_dash(words: &str) -> Option<&str> {
    let name = words
        .strip_prefix(TYPOGRAPHIC_DASHES)?
        .trim_start_matches(['-'])
        .trim_start_matches(TYPOGRAPHIC_DASHES);
    name.starts_with(|letter: char| letter.is_ascii_alphabetic()).then_some(name)
}

/// A warning for each flag with a typographic dash.
pub fn dash_warnings(arguments: impl Iterator<Item = OsString>) -> Vec<String> {
    let flags = arguments.skip(1).take_while(|argument| argument != "--");
    let flags: Vec<String> = flags.filter_map(|argument| argument.into_string().ok()).collect();
    let warning = |typed: &String| {
        let read = format!("--{}", after_typographic_dash(typed)?);
        let (typed, read) = (typed.split('=').next()?, read.split('=').next()?);
        Some(format!("`{typed}` begins with a typographic dash, and is read as `{read}`"))
    };
    flags.iter().filter_map(warning).collect()
}

fn flag(words: &str) -> Option<String> {
    let name = after_typographic_dash(words)
        .or_else(|| words.strip_prefix("--"))
        .or_else(|| words.strip_prefix('-'))?;
    let (name, value) = match name.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (name, None),
    };
    let is_long = name.len() > 1 && name.starts_with(|letter: char| letter.is_ascii_alphabetic());
    is_long.then(|| {
        let name = name.replace('_', "-");
        let (name, value) = switched(&name, value);
        value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"))
    })
}

/// A flag as gflags accepts it: a boolean can have the prefix `no`, which overrides its value, and several words for its values.
fn switched<'a>(name: &'a str, value: Option<&'a str>) -> (&'a str, Option<&'a str>) {
    if let Some(switch) = name.strip_prefix("no").filter(|name| SWITCHES.contains(name)) {
        return (switch, Some("false"));
    }
    if !SWITCHES.contains(&name) {
        return (name, value);
    }
    let is_any = |words: [&str; 5]| {
        value.is_some_and(|value| words.iter().any(|word| word.eq_ignore_ascii_case(value)))
    };
    match value {
        _ if is_any(["1", "t", "true", "y", "yes"]) => (name, Some("true")),
        _ if is_any(["0", "f", "false", "n", "no"]) => (name, Some("false")),
        value => (name, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_normalised_and_values_unchanged() {
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
    fn boolean_flags_accept_the_values_of_gflags() {
        for (typed, read) in [
            ("--noreport_api_latency", "--report-api-latency=false"),
            ("-noreport-api-latency", "--report-api-latency=false"),
            ("--noreport_api_latency=true", "--report-api-latency=false"),
            ("--report_api_latency", "--report-api-latency"),
            ("--report_api_latency=1", "--report-api-latency=true"),
            ("-report_api_latency=Yes", "--report-api-latency=true"),
            ("--report_api_latency=F", "--report-api-latency=false"),
            ("--report_api_latency=2", "--report-api-latency=2"),
            ("--noprogress", "--noprogress"),
            ("--no-header", "--no-header"),
        ] {
            assert_eq!(normalise(["p", typed].map(OsString::from).into_iter())[1], read, "{typed}");
        }
        let typed = ["p", "--progress_stats_file=", "-report_ac_memory_usage_stats=", "--json="];
        assert_eq!(normalise(typed.map(OsString::from).into_iter()), ["p", "--json="]);
    }

    #[test]
    fn repeatable_arguments_omit_output_files() {
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
    fn flags_with_an_em_dash_are_accepted_with_a_warning() {
        let typed =
            ["p", "bench", "\u{2014}progress_stats_file=/a_b", "\u{2013}quiet", "\u{2014}", "a\u{2014}b"];
        let read = normalise(typed.iter().map(OsString::from));
        assert_eq!(read, ["p", "bench", "--progress-stats-file=/a_b", "--quiet", "\u{2014}", "a\u{2014}b"]);
        let warnings = dash_warnings(typed.iter().map(OsString::from));
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].starts_with("`\u{2014}progress_stats_file` begins with"), "{warnings:?}");
    }

    #[test]
    fn value_after_equals_sign_keeps_underscores() {
        let typed = ["p", "--progress_stats_file=/a_b/c_d"].map(OsString::from);
        assert_eq!(normalise(typed.into_iter())[1], "--progress-stats-file=/a_b/c_d");
    }
}
