//! The directory of a sweep: one file for each cell that is done, named by the cell's key, and the combined rows.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::plan::{Cell, Plan};
use super::shards;
use crate::output::write_file;

/// Bytes of each part of a large file that its digest covers, and the number of parts, evenly spaced from its beginning to its end.
const DIGEST_PART_BYTES: u64 = 256 << 10;
const DIGEST_PARTS: u64 = 16;

/// A cell with the key of its result.
pub struct Keyed {
    pub cell: Cell,
    pub key: String,
}

/// The results of a sweep.
pub struct Results {
    directory: PathBuf,
}

impl Results {
    /// The results in this directory, which is created if it is missing.
    pub fn open(directory: &Path) -> Result<Self, String> {
        let cells = directory.join("cells");
        std::fs::create_dir_all(&cells)
            .map_err(|error| format!("--out: cannot create the directory {}: {error}", cells.display()))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Whether the cell has a result.
    pub fn is_done(&self, key: &str) -> bool {
        self.cell_file(key).is_file()
    }

    /// The flag for the cell's plots, whose directory is created.
    pub fn figures_flag(&self, keyed: &Keyed) -> Result<Option<OsString>, String> {
        if !keyed.cell.draws() {
            return Ok(None);
        }
        let directory = self.directory.join("figures").join(&keyed.key);
        std::fs::create_dir_all(&directory)
            .map_err(|error| format!("cannot create the directory {}: {error}", directory.display()))?;
        let mut flag = OsString::from("--figures=");
        flag.push(directory);
        Ok(Some(flag))
    }

    /// Stores the result of a cell. The file appears complete, or not at all.
    pub fn store(&self, keyed: &Keyed, result: &Value, seconds: f64) -> Result<(), String> {
        let stored = json!({
            "key": keyed.key,
            "axes": keyed.cell.values,
            "seconds": seconds,
            "result": result,
        });
        let mut text = stored.to_string();
        text.push('\n');
        // Two processes may run the same cell: each writes a file of its own, and both results are equal. Process numbers are
        // equal in containers that share the directory.
        let random = RandomState::new().build_hasher().finish();
        let part = self.directory.join(format!("cells/.{}.{random:016x}.part", keyed.key));
        write_file(&part, text.as_bytes())?;
        let file = self.cell_file(&keyed.key);
        match std::fs::rename(&part, &file) {
            // Another thread has run an equal cell.
            Err(_) if self.is_done(&keyed.key) => Ok(()),
            renamed => renamed.map_err(|error| format!("writing {}: {error}", file.display())),
        }
    }

    /// Seconds that the finished cells took, on average.
    pub fn mean_seconds(&self, cells: &[Keyed]) -> Option<f64> {
        let seconds: Vec<f64> =
            cells.iter().filter_map(|keyed| self.load(&keyed.key).ok()?["seconds"].as_f64()).collect();
        (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
    }

    /// Writes the rows of all finished cells to `results.jsonl`, in the order of the cells. Returns the file and the rows.
    pub fn combine(&self, plan: &Plan, cells: &[Keyed]) -> Result<(PathBuf, Vec<Value>), String> {
        let mut text = String::new();
        let mut all = Vec::new();
        for (number, shards) in cells.chunks(plan.shards).enumerate() {
            if !shards.iter().all(|keyed| self.is_done(&keyed.key)) {
                continue;
            }
            let load = |keyed: &Keyed| Ok(rows(plan, self.load(&keyed.key)?["result"].take()));
            let parts = shards.iter().map(load).collect::<Result<Vec<_>, String>>()?;
            for row in shards::merged(parts) {
                let row = Value::Object(with_axes(number * plan.shards, &shards[0], row));
                text += &row.to_string();
                text.push('\n');
                all.push(row);
            }
        }
        let file = self.directory.join("results.jsonl");
        write_file(&file, text.as_bytes())?;
        Ok((file, all))
    }

    fn cell_file(&self, key: &str) -> PathBuf {
        self.directory.join(format!("cells/{key}.json"))
    }

    fn load(&self, key: &str) -> Result<Value, String> {
        let file = self.cell_file(key);
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(&file).map_err(|error| failed(&error))?;
        serde_json::from_str(&text)
            .map_err(|error| failed(&format!("{error}; remove the file to run the cell again")))
    }
}

/// The rows of a cell's result.
fn rows(plan: &Plan, mut result: Value) -> Vec<Value> {
    match plan.command.rows.map(|name| result[name].take()) {
        Some(Value::Array(rows)) => rows,
        _ if plan.command.name == "bench" => {
            vec![
                json!({ "totals": result["totals"], "drive": result["drive"], "verdict": result["verdict"] }),
            ]
        }
        _ => {
            if let Value::Object(fields) = &mut result {
                fields.retain(|name, _| {
                    !["flashwright", "command", "config", "environment"].contains(&name.as_str())
                });
            }
            vec![result]
        }
    }
}

/// A row with its cell and, where the row has no such column, the values of the axes.
fn with_axes(number: usize, keyed: &Keyed, row: Value) -> Map<String, Value> {
    let mut all = Map::new();
    all.insert("cell".to_owned(), number.into());
    all.insert("key".to_owned(), keyed.key.clone().into());
    let row = if let Value::Object(row) = row { row } else { Map::new() };
    let absent = keyed.cell.values.iter().filter(|(name, _)| !row.contains_key(*name) && *name != "shard");
    all.extend(absent.map(|(name, value)| (name.clone(), value.clone())));
    all.extend(row);
    all
}

/// Gives each cell its key: a hash of the version, the command with its flags, and the content of the file that it reads. The seed is
/// one of the flags. Moved files keep their results, and changed ones lose them.
pub fn keyed(plan: &Plan, cells: Vec<Cell>) -> Result<Vec<Keyed>, String> {
    let mut digests: HashMap<PathBuf, u128> = HashMap::new();
    let mut all = Vec::new();
    for cell in cells {
        let input = match cell.file() {
            None => cell.argument.clone(),
            Some(path) => {
                let known = digests.get(&path).copied();
                let digest = match known {
                    Some(digest) => digest,
                    None => content_digest(&path).map_err(|error| format!("{}: {error}", path.display()))?,
                };
                digests.insert(path, digest);
                format!("{digest:032x}")
            }
        };
        let parts = json!([crate::VERSION, plan.command.name, input, cell.flags]);
        let key = format!("{:032x}", xxh3_128(parts.to_string().as_bytes()));
        all.push(Keyed { cell, key });
    }
    Ok(all)
}

/// A hash of a file's length and content; of a large file, of parts of the content.
fn content_digest(path: &Path) -> std::io::Result<u128> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut hash = Xxh3::new();
    hash.update(&bytes.to_le_bytes());
    let mut part = Vec::new();
    if bytes <= DIGEST_PARTS * DIGEST_PART_BYTES {
        file.read_to_end(&mut part)?;
        hash.update(&part);
        return Ok(hash.digest128());
    }
    for number in 0..DIGEST_PARTS {
        let last = u128::from(bytes - DIGEST_PART_BYTES);
        let offset = last * u128::from(number) / u128::from(DIGEST_PARTS - 1);
        file.seek(SeekFrom::Start(offset as u64))?;
        part.clear();
        (&mut file).take(DIGEST_PART_BYTES).read_to_end(&mut part)?;
        hash.update(&part);
    }
    Ok(hash.digest128())
}
