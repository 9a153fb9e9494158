//! `flashwright block list`: the caches that files in a directory name, and the state of their servers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use daemon::{Options, control};
use serde_json::{Value, json};

use crate::flags_file;
use crate::output::{Common, Finding, name_of};

/// The command line of `block list`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Directory with a file NAME.toml for each cache, whose keys are the flags of `block serve`
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/flashwright/block.d")]
    directory: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Runs `block list`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config = json!({ "directory": name_of(&arguments.directory) });
    arguments.common.conclude("block list", &config, list(&arguments.directory))
}

fn list(directory: &Path) -> Result<Finding, String> {
    let unreadable = |error| format!("cannot read {}: {error}", directory.display());
    let entries = std::fs::read_dir(directory).map_err(unreadable)?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let caches: Vec<Value> = files.iter().map(|file| cache(file)).collect();
    let failures = caches.iter().filter_map(|cache| cache["error"].as_str().map(str::to_owned)).collect();
    let text =
        if caches.is_empty() { format!("no NAME.toml in {}\n", directory.display()) } else { text(&caches) };
    Ok(Finding { result: json!({ "world": "real", "caches": caches }), text, failures })
}

/// The cache of one file.
fn cache(file: &Path) -> Value {
    let mut cache = json!({ "name": file.file_stem().map(|stem| stem.to_string_lossy().into_owned()) });
    let found = flags_file::read::<Options>(file).and_then(|options| {
        options.addresses().map(|(address, control)| (options.config(), address, control))
    });
    match found {
        Ok((config, address, control)) => {
            cache["flash"] = config["flash"].clone();
            cache["disk"] = config["disk"].clone();
            cache["address"] = address.into();
            let status = control::ask(&control, "status", |_| {});
            cache["served"] = status.is_ok().into();
            cache["dirty_blocks"] =
                status.map_or(Value::Null, |status| status["state"]["dirty_blocks"].clone());
        }
        Err(error) => cache["error"] = error.into(),
    }
    cache
}

fn text(caches: &[Value]) -> String {
    let mut message =
        format!("{:16} {:8} {:>12} {:24} {:24} address\n", "name", "state", "dirty blocks", "flash", "disk");
    let column = |cache: &Value, key: &str| match &cache[key] {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    for cache in caches {
        let state = match (cache["served"].as_bool(), cache.get("error")) {
            (_, Some(_)) => "invalid",
            (Some(true), _) => "served",
            _ => "stopped",
        };
        let [name, dirty, flash, disk, address] =
            ["name", "dirty_blocks", "flash", "disk", "address"].map(|key| column(cache, key));
        let _ = writeln!(message, "{name:16} {state:8} {dirty:>12} {flash:24} {disk:24} {address}");
    }
    message
}
