//! `flashwright block serve`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use daemon::status::prometheus;
use daemon::{Daemon, Options, StatusReader, Stopped};
use server::metrics::Source;

use super::result_file::spare;
use crate::files::Files;
use crate::output::{Common, Finding};
use crate::{metrics, service_manager, signals};

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
    arguments.common.warn_of_unused_seed("block serve");
    arguments.common.conclude("block serve", &arguments.options.config(), serve(arguments))
}

/// Serves until a signal arrives. Returns the cache's figures, and errors from closing.
fn serve(Arguments { config, options, common }: &Arguments) -> Result<Finding, String> {
    spare(common, options.devices())?;
    Files::reading(config.as_slice())
        .writing([options.recording(), common.result_file()])
        .check_distinct()?;
    // Before the first client, so that a signal during the opening of the volume is not lost.
    let mut signals = signals::of_end()?;
    let address = metrics::permitted(options.metrics(), options.allows_remote(), "--allow-remote")?;
    let daemon = Daemon::start(options)?;
    let endpoint =
        address.map(|address| metrics::start(address, Arc::new(Figures(daemon.status_reader())))).transpose();
    let endpoint = match endpoint {
        Ok(endpoint) => endpoint,
        Err(error) => {
            let failures = daemon.stop(&|message| common.say(message)).failures;
            return Err(std::iter::once(error).chain(failures).collect::<Vec<_>>().join("; "));
        }
    };
    common.say(&daemon.ready_line());
    if let Some(endpoint) = &endpoint {
        common.say(&format_args!("metrics and a live page on http://{}/", endpoint.address()));
    }
    service_manager::report_ready();
    signals.forever().next();
    service_manager::report_stopping();
    common.say("closing: finishing requests in flight; another signal exits immediately");
    signals::exit_at_another(signals)?;
    drop(endpoint);
    let Stopped { result, failures } = daemon.stop(&|message| common.say(message));
    Ok(Finding { result, text: String::new(), failures })
}

/// The figures of a served disk, for [`Endpoint`].
struct Figures(StatusReader);

impl Source for Figures {
    fn text(&self) -> String {
        prometheus::text(&self.0.status())
    }

    fn health(&self) -> Result<(), String> {
        let status = self.0.status();
        if status["fuse"]["failed"] == true {
            return Err("the FUSE session failed: restart the server to mount its file again".to_owned());
        }
        match status["state"]["health"].as_str() {
            // A disk without a cache has no health.
            None | Some("healthy") => Ok(()),
            Some(other) => Err(format!("the cache is not healthy: {other}")),
        }
    }
}
