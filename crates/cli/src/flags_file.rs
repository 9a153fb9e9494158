//! Flags from a TOML file, whose keys are their names: `socket = "/run/a.sock"` is `--socket=/run/a.sock`.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use device::names::hint;

/// The flags of `command` that the file sets and that `is_typed` does not find on the command line.
///
/// # Errors
/// If the file cannot be read, or has a key that is not a flag of `command`: with the file, the key and the nearest name.
pub fn flags(
    command: &Command,
    file: &Path,
    is_typed: impl Fn(&Arg) -> bool,
) -> Result<Vec<OsString>, String> {
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let in_file = |reason: String| format!("{}: {reason}", file.display());
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| in_file(error.to_string().trim_end().to_owned()))?;
    let mut flags = Vec::new();
    for (key, value) in table {
        let arg = find(command, &key).map_err(in_file)?;
        if !is_typed(arg) {
            flags.extend(flag(arg, &key, value).map_err(in_file)?);
        }
    }
    Ok(flags)
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
    fn wrong_key_or_value_is_reported_with_file_and_nearest_name() {
        for (file, reason) in [
            (
                "disc = \"a\"",
                "a.toml: unknown key `disc`; did you mean `disk`? valid keys: disk, ublk, force, client",
            ),
            ("force = 1", "a.toml: force: must be true or false"),
            ("disk = [\"a\", \"b\"]", "a.toml: disk: takes one value, not a list"),
            ("disk = true", "a.toml: disk: must be text or a number, not a boolean"),
            ("disk = ", "a.toml: TOML parse error at line 1"),
        ] {
            let error = of_text(file).unwrap_err();
            assert!(error.contains(reason), "{file}: {error}");
        }
    }
}
