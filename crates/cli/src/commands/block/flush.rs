//! `flashwright block flush`.

use std::process::ExitCode;

use daemon::control;
use daemon::operations;
use device::names::noun;
use serde_json::Value;

use super::cached::Arguments;
use crate::output::Finding;

/// Runs `block flush`.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.common.conclude("block flush", &arguments.cached.config(), flush(arguments))
}

fn flush(arguments: &Arguments) -> Result<Finding, String> {
    arguments.cached.spare(&arguments.common)?;
    let progress = |progress: &Value| arguments.common.say(&text(progress));
    let mut answer = arguments.cached.reach(
        |path| control::ask(path, "flush", progress),
        |volume| {
            // Blocks written back so far stay clean, and the cache is closed.
            let stop = arguments.common.stop()?;
            operations::flush(volume, |left| {
                progress(left);
                !stop.is_set()
            })
        },
    )?;
    answer["world"] = "real".into();
    let count = |name: &str| answer[name].as_u64().unwrap_or(0);
    let (before, left) = (count("dirty_blocks_before"), count("dirty_blocks"));
    let seconds = answer["seconds"].as_f64().unwrap_or(0.0);
    let blocks = noun(before, "block");
    let text =
        format!("wrote back {before} dirty {blocks} in {seconds:.1} s; {left} became dirty meanwhile\n");
    Ok(Finding::new(answer, text))
}

fn text(progress: &Value) -> String {
    let left = progress["dirty_blocks"].as_u64().unwrap_or(0);
    match progress["seconds_left"].as_f64() {
        Some(seconds) => format!("{left} dirty {} left, about {seconds:.0} s", noun(left, "block")),
        None => format!("{left} dirty {} left", noun(left, "block")),
    }
}
