//! `flashwright block serve`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use daemon::{Daemon, Options, Stopped};
use signal_hook::iterator::Signals;

use super::result_file::spare;
use crate::files::Files;
use crate::output::{Common, Finding};
use crate::{service_manager, signals};

/// The command line of `block serve`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Settings in TOML, with the names of the flags as keys; a flag takes precedence
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    common: Common,
}

/// Runs `block serve`.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.common.conclude("block serve", &arguments.options.config(), serve(arguments))
}

/// Serves until a signal arrives. Returns the cache's figures, and errors from closing.
fn serve(Arguments { config, options, common }: &Arguments) -> Result<Finding, String> {
    spare(common, options.devices())?;
    Files::reading(config.as_slice()).writing([options.recording(), common.result_file()]).keep_apart()?;
    // Before the first client, so that a signal during the opening of the volume is not lost.
    let mut signals = Signals::new(signals::of_end()).map_err(|error| format!("signals: {error}"))?;
    let daemon = Daemon::start(options)?;
    common.say(&daemon.ready_line());
    service_manager::report_ready();
    signals.forever().next();
    service_manager::report_stopping();
    common.say("closing: finishing requests in flight; another signal exits at once");
    signals::exit_at_another(signals).map_err(|error| format!("signals: {error}"))?;
    let Stopped { result, failures } = daemon.stop(&|words| common.say(words));
    Ok(Finding { result, text: String::new(), failures })
}
