//! `flashwright block serve`.

use std::process::ExitCode;

use clap::Args;
use daemon::{Daemon, Options, Stopped};
use signal_hook::iterator::Signals;

use super::result_file::spare;
use crate::files::Files;
use crate::output::{Common, Finding};
use crate::signals;

/// The command line of `block serve`.
#[derive(Debug, Args)]
pub struct Arguments {
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
fn serve(Arguments { options, common }: &Arguments) -> Result<Finding, String> {
    spare(common, options.devices())?;
    Files::default().writing([options.recording(), common.result_file()]).keep_apart()?;
    // Before the first client, so that a signal during the opening of the volume is not lost.
    let mut signals = Signals::new(signals::of_end()).map_err(|error| format!("signals: {error}"))?;
    let daemon = Daemon::start(options)?;
    common.say(&daemon.ready_line());
    signals.forever().next();
    common.say("closing: finishing requests in flight; another signal exits at once");
    signals::exit_at_another(signals).map_err(|error| format!("signals: {error}"))?;
    let Stopped { result, failures } = daemon.stop(&|words| common.say(words));
    Ok(Finding { result, text: String::new(), failures })
}
