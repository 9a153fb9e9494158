//! The plan of a sweep: a command, flags that all cells share, and axes whose values are combined.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use device::names;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Commands that a sweep runs: name, the axis that is the argument without a flag, and the key of the result's rows, or `None` if the
/// result is one row.
pub const COMMANDS: [Swept; 5] = [
    Swept { name: "simulate", argument: "trace", rows: Some("rows"), is_threaded: true },
    Swept { name: "predict", argument: "trace", rows: Some("points"), is_threaded: true },
    Swept { name: "bench", argument: "config", rows: None, is_threaded: false },
    Swept { name: "study", argument: "name", rows: Some("points"), is_threaded: false },
    Swept { name: "ssd run", argument: "card", rows: None, is_threaded: false },
];

/// Cells of the largest sweep. More are a mistake in an axis.
const MOST_CELLS: usize = 1_000_000;

/// Flags that name output files: every cell would write the same file.
const OUTPUTS: [&str; 8] =
    ["json", "quiet", "csv", "parquet", "plot", "figures", "intervals", "progress_stats_file"];

/// A command that a sweep runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Swept {
    pub name: &'static str,
    pub argument: &'static str,
    pub rows: Option<&'static str>,
    /// Whether it uses all cores unless `--threads` says otherwise. The cells already do.
    is_threaded: bool,
}

/// The contents of a plan file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    command: String,
    /// Number of shards of each cell's objects.
    shards: Option<u32>,
    #[serde(default)]
    fixed: toml::Table,
    #[serde(default)]
    axes: toml::Table,
}

/// A plan that was read.
#[derive(Debug)]
pub struct Plan {
    pub command: Swept,
    /// Number of adjacent cells that are shards of one combination; their rows are summed.
    pub shards: usize,
    fixed: toml::Table,
    axes: Vec<(String, Vec<toml::Value>)>,
}

/// One combination of values.
#[derive(Debug)]
pub struct Cell {
    /// From 0, the last axis varying fastest. Axes are in alphabetical order.
    pub number: usize,
    /// The values of the axes, by name.
    pub values: Map<String, Value>,
    /// The file or name that the command takes without a flag.
    pub argument: String,
    /// The flags.
    pub flags: Vec<String>,
    command: Swept,
}

impl Plan {
    /// Reads a plan.
    pub fn read(path: &Path) -> Result<Self, String> {
        let in_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| in_file(&error))?;
        Self::parse(&text).map_err(|error| in_file(&error))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        let found = COMMANDS.into_iter().find(|command| command.name == file.command);
        let command = found.ok_or_else(|| {
            let hint = names::hint(&file.command, COMMANDS.iter().map(|command| command.name));
            let all = COMMANDS.map(|command| command.name).join(", ");
            format!("command: `{}` cannot be swept; {hint}the commands are {all}", file.command)
        })?;
        let mut axes = Vec::new();
        for (name, values) in file.axes {
            if file.fixed.contains_key(&name) {
                return Err(format!("{name}: is both in [fixed] and in [axes]"));
            }
            match values {
                toml::Value::Array(values) if !values.is_empty() => axes.push((name, values)),
                _ => return Err(format!("axes.{name}: must be a list of values, as in [1, 2]")),
            }
        }
        let shards = file.shards.unwrap_or(1);
        if file.shards.is_some() {
            if command.name != "simulate" || shards == 0 {
                return Err("shards: must be a number from 1, and only `simulate` can be divided".to_owned());
            }
            let shard = |number| toml::Value::String(format!("{number}/{shards}"));
            axes.push(("shard".to_owned(), (1..=shards).map(shard).collect()));
        }
        let plan = Self { command, shards: shards as usize, fixed: file.fixed, axes };
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), String> {
        let names: Vec<&String> = self.fixed.keys().chain(self.axes.iter().map(|(name, _)| name)).collect();
        if let Some(name) = names.iter().find(|name| OUTPUTS.contains(&name.replace('-', "_").as_str())) {
            return Err(format!("{name}: a cell cannot have it: all cells would write the same file"));
        }
        let Swept { name, argument, .. } = self.command;
        if !names.iter().any(|name| name.as_str() == argument) {
            return Err(format!("{argument}: is missing in [axes] and in [fixed]: `{name}` needs it"));
        }
        let cells = self.count();
        if cells > MOST_CELLS {
            return Err(format!("the axes have {cells} combinations; at most {MOST_CELLS} are supported"));
        }
        Ok(())
    }

    /// Number of combinations.
    pub fn count(&self) -> usize {
        self.axes.iter().map(|(_, values)| values.len()).fold(1, usize::saturating_mul)
    }

    /// The combination with this number.
    pub fn cell(&self, number: usize) -> Result<Cell, String> {
        let mut rest = number;
        let mut chosen: Vec<(&str, &toml::Value)> = Vec::new();
        for (name, values) in self.axes.iter().rev() {
            chosen.push((name.as_str(), &values[rest % values.len()]));
            rest /= values.len();
        }
        chosen.reverse();
        let values = chosen.iter().map(|(name, value)| ((*name).to_owned(), json_of(value))).collect();
        let fixed = self.fixed.iter().map(|(name, value)| (name.as_str(), value));
        let mut argument = String::new();
        let mut flags = Vec::new();
        for (name, value) in fixed.chain(chosen) {
            if name == self.command.argument {
                argument = text_of(name, value)?;
            } else {
                flags.extend(flags_of(name, value)?);
            }
        }
        if self.command.is_threaded && !flags.iter().any(|flag| flag.starts_with("--threads")) {
            flags.push("--threads=1".to_owned());
        }
        Ok(Cell { number, values, argument, flags, command: self.command })
    }
}

impl Cell {
    /// The cell's command line.
    pub fn arguments(&self) -> Vec<OsString> {
        let text = std::iter::once("flashwright").chain(self.command.name.split(' ')).map(OsString::from);
        let flags = self.flags.iter().map(OsString::from);
        text.chain([OsString::from(&self.argument)]).chain(flags).collect()
    }

    /// Whether it draws plots into a directory.
    pub fn draws(&self) -> bool {
        self.command.name == "study"
    }

    /// The file that the cell reads, if its argument is one.
    pub fn file(&self) -> Option<PathBuf> {
        let path = PathBuf::from(&self.argument);
        path.is_file().then_some(path)
    }
}

/// A value as flags: `true` is a flag alone, `false` none. A name with dots is a key of a bench config.
fn flags_of(name: &str, value: &toml::Value) -> Result<Vec<String>, String> {
    let flag = format!("--{}", name.replace('_', "-"));
    Ok(match value {
        _ if name.contains('.') => vec![format!("--set={name}={}", json_of(value))],
        toml::Value::Boolean(true) => vec![flag],
        toml::Value::Boolean(false) => Vec::new(),
        toml::Value::Array(values) if name == "set" => {
            let all: Result<Vec<String>, String> = values.iter().map(|value| text_of(name, value)).collect();
            all?.into_iter().map(|value| format!("--set={value}")).collect()
        }
        value => vec![format!("{flag}={}", text_of(name, value)?)],
    })
}

/// A value as typed on a command line; a list is joined by commas.
fn text_of(name: &str, value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        toml::Value::Array(values) => {
            let all: Result<Vec<String>, String> = values.iter().map(|value| text_of(name, value)).collect();
            all.map(|all| all.join(","))
        }
        toml::Value::Datetime(_) | toml::Value::Table(_) => {
            Err(format!("{name}: a value must be text, a number, true, false, or a list of these"))
        }
    }
}

fn json_of(value: &toml::Value) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(cell: &Cell) -> String {
        let words: Vec<String> =
            cell.arguments().iter().map(|word| word.to_string_lossy().into_owned()).collect();
        words.join(" ")
    }

    #[test]
    fn axes_combine_with_the_last_varying_fastest() {
        let plan = Plan::parse(
            "command = \"simulate\"\n[fixed]\ntrace = \"a.csv\"\nignore_size = true\n[axes]\npolicy = [\"lru\", [\"fifo\", \"sieve\"]]\nsize = [\"1%\", 100]",
        )
        .unwrap();
        let cells: Vec<String> =
            (0..plan.count()).map(|number| command(&plan.cell(number).unwrap())).collect();
        let prefix = "flashwright simulate a.csv --ignore-size";
        let expected = ["lru --size=1%", "lru --size=100", "fifo,sieve --size=1%", "fifo,sieve --size=100"];
        assert_eq!(cells, expected.map(|rest| format!("{prefix} --policy={rest} --threads=1")));
    }

    #[test]
    fn dotted_axis_overrides_a_config_key() {
        let text = "command = \"bench\"\n[axes]\nconfig = [\"c.json\"]\n\"cache_config.cacheSizeMB\" = [64]\nset = [[\"a=1\", \"b=2\"]]";
        let cells = [Plan::parse(text).unwrap().cell(0).unwrap()];
        assert_eq!(
            command(&cells[0]),
            "flashwright bench c.json --set=cache_config.cacheSizeMB=64 --set=a=1 --set=b=2"
        );
        assert_eq!(cells[0].values["cache_config.cacheSizeMB"], 64);
    }

    #[test]
    fn wrong_plan_is_refused_with_the_key() {
        let trace = "[fixed]\ntrace = \"a\"\n";
        for (text, message) in [
            ("command = \"simulat\"".to_owned(), "did you mean `simulate`"),
            ("command = \"simulate\"".to_owned(), "trace: is missing"),
            (format!("command = \"simulate\"\n{trace}[axes]\nsize = 5"), "axes.size: must be a list"),
            (format!("command = \"simulate\"\n{trace}[axes]\njson = [\"x\"]"), "json: a cell cannot have it"),
            (format!("command = \"simulate\"\n{trace}[axes]\ntrace = [\"b\"]"), "trace: is both in"),
            (format!("command = \"simulate\"\n{trace}[axis]"), "unknown field `axis`"),
        ] {
            let error = Plan::parse(&text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
