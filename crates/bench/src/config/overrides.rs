//! Changes to a config from the command line: `--set` and `--device`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::{Map, Value};

use super::findings::Findings;
use super::schema::integer;

/// A change to the JSON, applied before it is read.
#[derive(Debug, Clone, PartialEq)]
pub enum Override {
    /// `--set [0].cache_config.cacheSizeMB=64`; without an index it applies to every instance.
    Set {
        /// Index of the instance; `None` is all.
        instance: Option<usize>,
        /// Keys from the instance down.
        path: Vec<String>,
        /// The new value.
        value: Value,
    },
    /// `--device SPEC`: where flash is, in place of the config's own paths.
    Device(DeviceSpec),
    /// `--device SPEC`: the location of flash, instead of the config's paths.
    IgnoreUnknown,
}

/// Value of `--device`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSpec {
    /// `memory:`
    Memory,
    /// `file:PATH` or `PATH`: a file, a directory or a block device.
    Path(PathBuf),
    /// `sim:CARD`
    Simulated(String),
}

impl FromStr for DeviceSpec {
    type Err = String;

    fn from_str(message: &str) -> Result<Self, String> {
        let (kind, rest) = message.split_once(':').unwrap_or(("", message));
        match kind {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(format!("`{message}`: `memory:` takes no size; set nvmCacheSizeMB instead")),
            "file" | "" if rest.is_empty() => Err(format!("`{message}` names no path")),
            "file" => Ok(Self::Path(rest.into())),
            "sim" if rest.is_empty() => Err(format!("`{message}` names no card, as in sim:pm9d3")),
            "sim" => Ok(Self::Simulated(rest.to_owned())),
            // A misspelt kind must not become a file of that name: a run meant for the model drive would measure the file.
            _ if !kind.is_empty() && !message.contains('/') && !Path::new(message).exists() => Err(format!(
                "`{message}`: unknown kind of device `{kind}:`; use memory:, file:PATH or sim:CARD, or ./{message} for a file of \
                     that name"
            )),
            _ => Ok(Self::Path(message.into())),
        }
    }
}

impl Override {
    /// Name of the model drive, for `sim:CARD`.
    #[must_use]
    pub fn card(&self) -> Option<String> {
        match self {
            Self::Device(DeviceSpec::Simulated(card)) => Some(card.clone()),
            _ => None,
        }
    }
}

/// Parses `cache_config.cacheSizeMB=64`. A value that is not JSON is a string.
impl FromStr for Override {
    type Err = String;

    fn from_str(message: &str) -> Result<Self, String> {
        let form = "expected SECTION.KEY=VALUE, such as cache_config.cacheSizeMB=64";
        let (place, value) = message.split_once('=').ok_or_else(|| format!("`{message}`: {form}"))?;
        let (instance, path) = split_instance(place.trim())?;
        let path: Vec<String> = path.split('.').flat_map(steps).map(str::to_owned).collect();
        if path.len() < 2 || path.iter().any(String::is_empty) {
            return Err(format!("`{message}`: {form}"));
        }
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        Ok(Self::Set { instance, path, value })
    }
}

/// Splits `poolDistributions[0]`, the notation of messages, into the key and the index.
fn steps(name: &str) -> Vec<&str> {
    match name.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
        Some((list, number)) => vec![list, number],
        None => vec![name],
    }
}

fn split_instance(place: &str) -> Result<(Option<usize>, &str), String> {
    let Some(rest) = place.strip_prefix('[') else { return Ok((None, place)) };
    let parts = rest.split_once("].").and_then(|(index, path)| Some((index.parse().ok()?, path)));
    parts
        .map(|(index, path)| (Some(index), path))
        .ok_or_else(|| format!("`{place}`: expected [INDEX].SECTION.KEY"))
}

/// Applies `overrides` in order. Names are checked when the result is read.
pub fn apply(overrides: &[Override], config: &mut Value, findings: &mut Findings) {
    for change in overrides {
        let index = match change {
            Override::Set { instance, .. } => *instance,
            Override::Device(_) => None,
            Override::IgnoreUnknown => continue,
        };
        let mut instances: Vec<&mut Value> = match &mut *config {
            Value::Array(list) => list.iter_mut().collect(),
            single => vec![single],
        };
        let count = instances.len();
        match index {
            Some(index) if index >= count => {
                findings.problem(&format!("[{index}]"), format!("--set: the config has {count} instance(s)"));
            }
            Some(index) => apply_one(change, instances[index], findings),
            None => instances.iter_mut().for_each(|instance| apply_one(change, instance, findings)),
        }
    }
}

fn apply_one(change: &Override, instance: &mut Value, findings: &mut Findings) {
    match change {
        Override::IgnoreUnknown => {}
        Override::Set { path, value: Value::Null, .. } => remove(instance, path, findings),
        Override::Set { path, value, .. } => set(instance, path, value.clone(), findings),
        Override::Device(_) if !has_flash(instance) => {
            findings.warning("--device", "has no effect: nvmCacheSizeMB is 0, there is no flash");
        }
        // The card is kept in the config's `card`; a simulated run has no paths.
        Override::Device(DeviceSpec::Simulated(_) | DeviceSpec::Memory) => {
            set_paths(instance, Value::Array(Vec::new()), findings);
        }
        Override::Device(DeviceSpec::Path(path)) => {
            set_paths(instance, Value::Array(vec![path.to_string_lossy().into()]), findings);
        }
    }
}

fn has_flash(instance: &Value) -> bool {
    let cache = &instance["cache_config"];
    let is_component = cache["allocator"].as_str().is_some_and(|it| it.ends_with("flash"));
    is_component || integer(&cache["nvmCacheSizeMB"]).is_some_and(|mib| mib > 0)
}

fn set_paths(instance: &mut Value, paths: Value, findings: &mut Findings) {
    if let Some(list) =
        instance["cache_config"].as_object_mut().and_then(|it| it.remove("writeAmpDeviceList"))
        && list.as_array().is_some_and(|names| !names.is_empty())
    {
        let message =
            "is ignored: --device moves flash, and the counters of the drives below it are read instead";
        findings.warning("cache_config.writeAmpDeviceList", message);
    }
    set(instance, &["cache_config".to_owned(), "nvmCachePaths".to_owned()], paths, findings);
}

/// Removes the key at `path`, which then has its default. An element of a list cannot be removed.
fn remove(root: &mut Value, path: &[String], findings: &mut Findings) {
    let Some((name, parents)) = path.split_last() else { return };
    let parent = parents.iter().try_fold(root, |here, name| match here {
        Value::Array(list) => list.get_mut(name.parse::<usize>().ok()?),
        here => here.get_mut(name),
    });
    let is_removed = match parent {
        Some(Value::Array(_)) => {
            let message = "--set: null removes a key, and this is an element of a list";
            return findings.problem(&path.join("."), message);
        }
        Some(Value::Object(map)) => map.remove(name).is_some(),
        _ => false,
    };
    if !is_removed {
        findings.warning(&path.join("."), "--set: null removes a key, and the config does not have this one");
    }
}

/// Sets the value at `path`; a number in the path is an index of a list.
fn set(root: &mut Value, path: &[String], value: Value, findings: &mut Findings) {
    let mut here = root;
    for (place, name) in path.iter().enumerate() {
        let is_list = path.get(place + 1).is_some_and(|next| next.parse::<usize>().is_ok());
        let next = match here {
            Value::Object(map) if is_list && !map.contains_key(name) => {
                return findings.problem(&path.join("."), format!("--set: the config has no list `{name}`"));
            }
            Value::Object(map) => map.entry(name.clone()).or_insert_with(|| Value::Object(Map::new())),
            Value::Array(list) => {
                let count = list.len();
                match name.parse::<usize>().ok().and_then(|index| list.get_mut(index)) {
                    Some(element) => element,
                    None => {
                        let message = format!("--set: the list has {count} element(s), and none is `{name}`");
                        return findings.problem(&path.join("."), message);
                    }
                }
            }
            _ => {
                return findings
                    .problem(&path.join("."), format!("--set: `{name}` is not inside an object or a list"));
            }
        };
        here = next;
    }
    *here = value;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn applied(mut config: Value, message: &str) -> (Value, Findings) {
        let mut findings = Findings::default();
        apply(&[message.parse().unwrap()], &mut config, &mut findings);
        (config, findings)
    }

    #[test]
    fn set_key_replaces_or_adds_it() {
        let (config, _) =
            applied(json!({ "cache_config": { "cacheSizeMB": 512 } }), "cache_config.cacheSizeMB=64");
        assert_eq!(config, json!({ "cache_config": { "cacheSizeMB": 64 } }));
        let (config, _) = applied(json!({}), "cache_config.poolSizes=[0.5,0.5]");
        assert_eq!(config, json!({ "cache_config": { "poolSizes": [0.5, 0.5] } }));
        let (config, _) = applied(json!({}), "cache_config.allocator=LRU2Q");
        assert_eq!(config, json!({ "cache_config": { "allocator": "LRU2Q" } }));
    }

    #[test]
    fn set_without_index_changes_all_instances_with_index_only_one() {
        let two = json!([{ "test_config": { "numOps": 1 } }, { "test_config": { "numOps": 1 } }]);
        let (config, _) = applied(two.clone(), "test_config.numOps=7");
        assert_eq!(config[0]["test_config"]["numOps"], 7);
        assert_eq!(config[1]["test_config"]["numOps"], 7);
        let (config, _) = applied(two.clone(), "[1].test_config.numOps=7");
        assert_eq!(config[0]["test_config"]["numOps"], 1);
        assert_eq!(config[1]["test_config"]["numOps"], 7);
        let (_, findings) = applied(two, "[2].test_config.numOps=7");
        assert_eq!(findings.problems.len(), 1);
    }

    #[test]
    fn set_list_element_is_addressed_by_index() {
        let nested = json!({ "test_config": { "poolDistributions": [{ "getRatio": 0.5 }] } });
        for place in ["poolDistributions.0", "poolDistributions[0]"] {
            let (config, _) = applied(nested.clone(), &format!("test_config.{place}.getRatio=0.9"));
            assert_eq!(config["test_config"]["poolDistributions"][0]["getRatio"], 0.9, "{place}");
        }
        let (_, findings) = applied(nested, "test_config.poolDistributions[1].getRatio=0.9");
        let message =
            "test_config.poolDistributions.1.getRatio: --set: the list has 1 element(s), and none is `1`";
        assert_eq!(findings.problems[0].to_string(), message);
        let (config, findings) =
            applied(json!({ "test_config": {} }), "test_config.poolDistributions[0].getRatio=1");
        assert!(findings.problems[0].message.contains("no list `poolDistributions`"), "{findings:?}");
        assert_eq!(config, json!({ "test_config": {} }));
    }

    #[test]
    fn set_without_assignment_is_refused() {
        for message in ["cacheSizeMB", "cacheSizeMB=3", "cache_config.=3", "[x].a.b=1"] {
            assert!(message.parse::<Override>().is_err(), "{message}");
        }
    }

    #[test]
    fn device_override_drops_write_amp_device_list() {
        let flash = json!({ "cache_config": { "nvmCacheSizeMB": 1, "nvmCachePaths": ["/dev/md0"] } });
        let mut listing = flash.clone();
        listing["cache_config"]["writeAmpDeviceList"] = json!(["nvme0n1"]);
        for (config, warnings) in [(flash, 0), (listing, 1)] {
            let (mut findings, mut moved) = (Findings::default(), config);
            let device = Override::Device(DeviceSpec::Path("/mnt/flash".into()));
            apply(&[device], &mut moved, &mut findings);
            let expected = json!({ "nvmCacheSizeMB": 1, "nvmCachePaths": ["/mnt/flash"] });
            assert_eq!((&moved["cache_config"], findings.warnings.len()), (&expected, warnings));
        }
    }

    #[test]
    fn device_spec_parses_each_kind_and_rejects_unknown() {
        assert_eq!("memory:".parse(), Ok(DeviceSpec::Memory));
        assert_eq!("file:/a/b".parse(), Ok(DeviceSpec::Path("/a/b".into())));
        assert_eq!("/dev/nvme0n1".parse(), Ok(DeviceSpec::Path("/dev/nvme0n1".into())));
        assert_eq!("sim:pm9d3".parse(), Ok(DeviceSpec::Simulated("pm9d3".into())));
        assert!("file:".parse::<DeviceSpec>().is_err());
        assert!("".parse::<DeviceSpec>().is_err());
        assert_eq!("./odd:name".parse(), Ok(DeviceSpec::Path("./odd:name".into())));
        let slip = "smi:pm9d3".parse::<DeviceSpec>().unwrap_err();
        assert!(slip.contains("`smi:`; use memory:, file:PATH or sim:CARD"), "{slip}");
    }
}
