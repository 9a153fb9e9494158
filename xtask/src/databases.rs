//! `cargo xtask databases`: real databases on a cached disk.
//!
//! Each trial is a shell script, for it is made of other programs' commands. A trial that cannot be made here says
//! SKIPPED and why; it is counted apart from what passed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What all trials stand on: a file system on a loop device on nbdfuse on a served cache.
const STACK: &str = include_str!("databases/stack.sh");

/// The exit status of a trial that could not be made.
const SKIPPED: i32 = 77;

/// Longer than any trial takes, in seconds, and then for every kill: what does not end has lost an answer.
const PATIENCE_SECONDS: u32 = 900;
const PATIENCE_SECONDS_PER_KILL: u32 = 60;

/// One database on one file system, by the scripts that it is made of.
struct Trial {
    name: &'static str,
    scripts: &'static [&'static str],
    file_system: &'static str,
    /// The kind of cache.
    cache: &'static str,
    /// How the database's disk is served.
    front: &'static str,
    /// With assertions and checks of arithmetic, unless it measures.
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
    Trial { front: "fuse", ..crash("postgres-fuse", &[BANK, POSTGRES, CRASH], "xfs") },
    Trial { front: "fuse", ..crash("sqlite-fuse", &[BANK, SQLITE, CRASH], "ext4") },
    Trial {
        name: "throttled",
        scripts: &[MARIADB, THROTTLED],
        file_system: "ext4",
        cache: "",
        front: "",
        profile: Profile::Release,
    },
];

const fn crash(name: &'static str, scripts: &'static [&'static str], file_system: &'static str) -> Trial {
    Trial { name, scripts, file_system, cache: "write-back", front: "nbd", profile: Profile::Dev }
}

/// Makes the trials that are named on the command line, or all with kills; five kills if no other number is there.
pub fn run() -> Result<(), String> {
    let (kills, trials) = asked(std::env::args().skip(2))?;
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

fn asked(words: impl Iterator<Item = String>) -> Result<(u32, Vec<&'static Trial>), String> {
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

/// The exit status, if there is one.
fn attempt(trial: &Trial, kills: u32) -> Result<Option<i32>, String> {
    let script = [&[STACK], trial.scripts].concat().concat();
    let patience = PATIENCE_SECONDS + PATIENCE_SECONDS_PER_KILL * kills;
    let mut command = Command::new("timeout");
    command.args([&patience.to_string(), "bash", "-c", &script, trial.name]);
    command.arg(build(trial.profile)?).args([
        &kills.to_string(),
        trial.file_system,
        trial.cache,
        trial.front,
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

    fn ask(words: &[&str]) -> Result<(u32, Vec<&'static str>), String> {
        let (kills, trials) = asked(words.iter().map(|&word| word.to_owned()))?;
        Ok((kills, trials.iter().map(|trial| trial.name).collect()))
    }

    #[test]
    fn all_trials_with_kills_are_meant_if_none_is_named() {
        let (kills, trials) = ask(&["30"]).expect("a number is understood");
        assert_eq!((kills, trials.len()), (30, TRIALS.len() - 1));
        assert!(!trials.contains(&"throttled"), "it has no kills, and measures");
        assert_eq!(ask(&["sqlite-xfs", "throttled"]), Ok((5, vec!["sqlite-xfs", "throttled"])));
        assert!(ask(&["oracle"]).is_err_and(|why| why.contains("postgres-ext4")));
    }
}
