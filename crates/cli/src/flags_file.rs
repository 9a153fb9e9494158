//! Flags from a TOML file, whose keys are their names: `socket = "/run/a.sock"` is `--socket=/run/a.sock`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use device::names::hint;
use toml::Spanned;

use crate::commands::serve::Settings;
use crate::one_line;

/// The command line with the flags of the file that `serve` or `block serve` names. Typed flags take precedence.
///
/// # Errors
/// If the file cannot be read, or a key or value is wrong: with the file, the line and the nearest name.
pub fn expand(cli: Command, mut typed: Vec<OsString>) -> Result<Vec<OsString>, String> {
    // Errors, as of a flag that is missing without the file, are reported when the command line is parsed again.
    let Ok(matches) = cli.ignore_errors(true).try_get_matches_from(&typed) else { return Ok(typed) };
    let block = matches.subcommand_matches("block").and_then(|block| block.subcommand_matches("serve"));
    typed.extend(match (matches.subcommand_matches("serve"), block) {
        (Some(serve), _) => flags_of_config::<Settings>(serve)?,
        (_, Some(serve)) => flags_of_config::<daemon::Options>(serve)?,
        _ => Vec::new(),
    });
    Ok(typed)
}

/// The flags in the file of the argument `config`, without those that are typed.
fn flags_of_config<T: Args>(matches: &ArgMatches) -> Result<Vec<OsString>, String> {
    let Some(file) = matches.get_one::<PathBuf>("config") else { return Ok(Vec::new()) };
    let is_typed = |arg: &Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    flags(&command_of::<T>(), file, is_typed)
}

/// The flags in a file.
///
/// # Errors
/// As [`expand`], and if a required flag is missing.
pub fn read<T: Args>(file: &Path) -> Result<T, String> {
    let command = command_of::<T>();
    let flags = flags(&command, file, |_| false)?;
    let parsed = command.try_get_matches_from(flags).and_then(|matches| T::from_arg_matches(&matches));
    parsed.map_err(|error| format!("{}: {}", file.display(), one_line(&error.to_string())))
}

/// A command with the flags that a file can set.
fn command_of<T: Args>() -> Command {
    T::augment_args(Command::new("serve").no_binary_name(true))
}

/// The flags of `command` that the file sets and that `is_typed` does not find on the command line.
fn flags(command: &Command, file: &Path, is_typed: impl Fn(&Arg) -> bool) -> Result<Vec<OsString>, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    let in_line = |offset: usize, reason: &str| {
        let line = text.get(..offset).map_or(1, |before| before.matches('\n').count() + 1);
        format!("{name}: line {line}: {reason}")
    };
    let table: BTreeMap<Spanned<String>, toml::Value> = toml::from_str(&text)
        .map_err(|error| in_line(error.span().map_or(0, |span| span.start), error.message()))?;
    let mut flags = Vec::new();
    for (key, value) in table {
        let of_key = find(command, key.as_ref()).and_then(|arg| match flag(arg, key.as_ref(), value)? {
            _ if is_typed(arg) => Ok(Vec::new()),
            flag => check(command, &flag).map(|()| flag),
        });
        flags.extend(of_key.map_err(|reason| in_line(key.span().start, &reason))?);
    }
    Ok(flags)
}

/// Checks the values of flags.
fn check(command: &Command, flags: &[OsString]) -> Result<(), String> {
    match command.clone().try_get_matches_from(flags) {
        // Other errors, as of a required flag, depend on the rest of the command line.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) => {
            Err(one_line(&error.to_string()))
        }
        _ => Ok(()),
    }
}

fn find<'a>(command: &'a Command, key: &str) -> Result<&'a Arg, String> {
    let keys = || command.get_arguments().filter_map(Arg::get_long);
    command.get_arguments().find(|arg| arg.get_long() == Some(key)).ok_or_else(|| {
        let known: Vec<&str> = keys().collect();
        format!("unknown key `{key}`; {}valid keys: {}", hint(key, keys()), known.join(", "))
    })
}

fn flag(arg: &Arg, key: &str, value: toml::Value) -> Result<Vec<OsString>, String> {
    let with_value = |text: String| OsString::from(format!("--{key}={text}"));
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, toml::Value::Boolean(is_set)) => {
            Ok(is_set.then(|| format!("--{key}").into()).into_iter().collect())
        }
        (ArgAction::SetTrue, _) => Err(format!("{key}: must be true or false")),
        (ArgAction::Append, toml::Value::Array(values)) => {
            values.into_iter().map(|value| text(key, value).map(with_value)).collect()
        }
        (_, value) => Ok(vec![with_value(text(key, value)?)]),
    }
}

fn text(key: &str, value: toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Array(_) => Err(format!("{key}: takes one value, not a list")),
        other => Err(format!("{key}: must be text or a number, not a {}", other.type_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(text: &str) -> Result<Vec<OsString>, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.toml");
        std::fs::write(&file, text).unwrap();
        let command = Command::new("serve")
            .arg(Arg::new("disk").long("disk"))
            .arg(Arg::new("ublk").long("ublk"))
            .arg(Arg::new("force").long("force").action(ArgAction::SetTrue))
            .arg(Arg::new("client").long("client").action(ArgAction::Append));
        flags(&command, &file, |arg| arg.get_id() == "ublk")
    }

    #[test]
    fn keys_become_flags_unless_typed() {
        let flags = of_text("client = [\"uid:1\", \"uid:2\"]\ndisk = \"/dev/sdb\"\nforce = true\nublk = 3\n")
            .unwrap();
        assert_eq!(flags, ["--client=uid:1", "--client=uid:2", "--disk=/dev/sdb", "--force"]);
        assert_eq!(of_text("force = false").unwrap(), [""; 0]);
    }

    #[test]
    fn wrong_key_or_value_is_reported_with_file_line_and_nearest_name() {
        for (file, reason) in [
            (
                "disc = \"a\"",
                "a.toml: line 1: unknown key `disc`; did you mean `disk`? valid keys: disk, ublk, force, client",
            ),
            ("force = 1", "a.toml: line 1: force: must be true or false"),
            ("\n\ndisk = [\"a\", \"b\"]", "a.toml: line 3: disk: takes one value, not a list"),
            ("disk = true", "a.toml: line 1: disk: must be text or a number, not a boolean"),
            ("disk = ", "a.toml: line 1: "),
        ] {
            let error = of_text(file).unwrap_err();
            assert!(error.contains(reason), "{file}: {error}");
        }
    }
}
