//! `flashwright block upgrade`.

use std::process::ExitCode;

use daemon::control;
use daemon::operations;

use super::cached::Arguments;
use crate::output::Finding;
use crate::signals::Changing;

/// Runs `block upgrade`.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.common.conclude("block upgrade", &arguments.cached.config(), upgrade(arguments))
}

fn upgrade(arguments: &Arguments) -> Result<Finding, String> {
    arguments.cached.spare(&arguments.common)?;
    let changing = Changing::on_signal("the upgrade completes first")?;
    changing.begin()?;
    let mut answer =
        arguments.cached.reach(|path| control::ask(path, "upgrade", |_| {}), operations::upgrade)?;
    answer["world"] = "real".into();
    let (before, now) = (&answer["format_before"], &answer["format"]);
    let text = if before == now {
        format!("the cache already has format {now}, the newest that this version knows\n")
    } else {
        format!("the cache now has format {now}; versions that know only format {before} will refuse it\n")
    };
    Ok(Finding::new(answer, text))
}
