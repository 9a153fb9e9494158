//! `cargo xtask databases`: tests real databases on a cached disk.
//!
//! A trial is a shell script, because it mainly runs other programs. A trial whose requirements are missing prints SKIPPED with the reason
//! and is counted separately.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The common part of all trials: a file system on a loop device on nbdfuse on a served cache.
const STACK: &str = include_str!("databases/stack.sh");

/// Exit status of a skipped trial.
const SKIPPED: i32 = 77;

/// Time limit of a trial, and its extension per kill: a longer trial waits for a lost reply.
const TIME_LIMIT_SECONDS: u32 = 900;
const TIME_LIMIT_SECONDS_PER_KILL: u32 = 60;

/// One database on one file system, and its scripts.
struct Trial {
    name: &'static str,
    scripts: &'static [&'static str],
    file_system: &'static str,
    /// The kind of cache.
    cache: &'static str,
    /// The frontend that serves the database's disk.
    frontend: &'static str,
    /// Debug builds have assertions and overflow checks; measurements use release builds.
    profile: Profile,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Profile {
    Dev,
    Release,
}

const BANK: &str = include_str!("databases/bank.sh");
const CRASH: &str = include_str!("databases/crash.sh");
const POSTGRES: &str = include_str!("databases/postgres.sh");
const MARIADB: &str = include_str!("databases/mariadb.sh");
const SQLITE: &str = include_str!("databases/sqlite.sh");
const THROTTLED: &str = include_str!("databases/throttled.sh");

const TRIALS: &[Trial] = &[
    crash("postgres-ext4", &[BANK, POSTGRES, CRASH], "ext4"),
    crash("postgres-xfs", &[BANK, POSTGRES, CRASH], "xfs"),
    crash("mariadb-ext4", &[BANK, MARIADB, CRASH], "ext4"),
    crash("mariadb-xfs", &[BANK, MARIADB, CRASH], "xfs"),
    crash("sqlite-ext4", &[BANK, SQLITE, CRASH], "ext4"),
    crash("sqlite-xfs", &[BANK, SQLITE, CRASH], "xfs"),
    Trial { cache: "ordered", ..crash("postgres-ordered", &[BANK, POSTGRES, CRASH], "ext4") },
    Trial { cache: "ordered", ..crash("mariadb-ordered", &[BANK, MARIADB, CRASH], "xfs") },
    Trial { cache: "write-through", ..crash("mariadb-write-through", &[BANK, MARIADB, CRASH], "ext4") },
    Trial { frontend: "fuse", ..crash("postgres-fuse", &[BANK, POSTGRES, CRASH], "xfs") },
    Trial { frontend: "fuse", ..crash("sqlite-fuse", &[BANK, SQLITE, CRASH], "ext4") },
    Trial {
        name: "throttled",
        scripts: &[MARIADB, THROTTLED],
        file_system: "ext4",
        cache: "",
        frontend: "",
        profile: Profile::Release,
    },
];

const fn crash(name: &'static str, scripts: &'static [&'static str], file_system: &'static str) -> Trial {
    Trial { name, scripts, file_system, cache: "write-back", frontend: "nbd", profile: Profile::Dev }
}

/// Runs the trials named on the command line, or all with kills; the default is five kills.
pub fn run() -> Result<(), String> {
    let (kills, trials) = selection(std::env::args().skip(2))?;
    let (mut passed, mut skipped, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for trial in trials {
        println!("== {}", trial.name);
        match attempt(trial, kills)? {
            Some(0) => passed.push(trial.name),
            Some(SKIPPED) => skipped.push(trial.name),
            _ => failed.push(trial.name),
        }
    }
    println!("passed: {}; SKIPPED: {}", listed(&passed), listed(&skipped));
    if failed.is_empty() { Ok(()) } else { Err(listed(&failed)) }
}

fn selection(words: impl Iterator<Item = String>) -> Result<(u32, Vec<&'static Trial>), String> {
    let (mut kills, mut trials) = (5, Vec::new());
    for word in words {
        if let Ok(number) = word.parse() {
            kills = number;
            continue;
        }
        let named = TRIALS.iter().find(|trial| trial.name == word);
        trials.push(named.ok_or_else(|| {
            let names: Vec<&str> = TRIALS.iter().map(|trial| trial.name).collect();
            format!("{word}: a number of kills, or of {}", listed(&names))
        })?);
    }
    if trials.is_empty() {
        trials = TRIALS.iter().filter(|trial| trial.profile == Profile::Dev).collect();
    }
    Ok((kills, trials))
}

fn build(profile: Profile) -> Result<PathBuf, String> {
    let (flags, folder): (&[&str], &str) = match profile {
        Profile::Dev => (&[], "debug"),
        Profile::Release => (&["--release"], "release"),
    };
    crate::cargo(&[&["build", "--quiet", "--package", "flashwright"], flags].concat())?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    Ok(target.join(folder).join("flashwright"))
}

/// Runs a trial; returns its exit status, or `None` if a signal ended it.
fn attempt(trial: &Trial, kills: u32) -> Result<Option<i32>, String> {
    let script = [&[STACK], trial.scripts].concat().concat();
    let time_limit = TIME_LIMIT_SECONDS + TIME_LIMIT_SECONDS_PER_KILL * kills;
    let mut command = Command::new("timeout");
    command.args([&time_limit.to_string(), "bash", "-c", &script, trial.name]);
    command.arg(build(trial.profile)?).args([
        &kills.to_string(),
        trial.file_system,
        trial.cache,
        trial.frontend,
    ]);
    let status = command.status().map_err(|error| format!("{}: timeout: {error}", trial.name))?;
    Ok(status.code())
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(words: &[&str]) -> Result<(u32, Vec<&'static str>), String> {
        let (kills, trials) = selection(words.iter().map(|&word| word.to_owned()))?;
        Ok((kills, trials.iter().map(|trial| trial.name).collect()))
    }

    #[test]
    fn all_trials_with_kills_run_by_default() {
        let (kills, trials) = select(&["30"]).expect("a number is accepted");
        assert_eq!((kills, trials.len()), (30, TRIALS.len() - 1));
        assert!(!trials.contains(&"throttled"), "it measures without kills");
        assert_eq!(select(&["sqlite-xfs", "throttled"]), Ok((5, vec!["sqlite-xfs", "throttled"])));
        assert!(select(&["oracle"]).is_err_and(|why| why.contains("postgres-ext4")));
    }
}
