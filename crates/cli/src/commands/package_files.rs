//! `flashwright package-files`: man pages and shell completions, to be put into packages.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use crate::output::{Common, Finding, name_of};

/// The shells that get completions, with the name of the file.
const SHELLS: [(Shell, &str); 3] =
    [(Shell::Bash, "flashwright.bash"), (Shell::Zsh, "_flashwright"), (Shell::Fish, "flashwright.fish")];

/// The command line of `package-files`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Directory for man1/ and completions/, which are made
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Runs `package-files` for the command line `cli`.
pub fn run(arguments: &Arguments, cli: Command) -> ExitCode {
    let directory = &arguments.directory;
    let written = write(directory, cli).map_err(|error| format!("{}: {error}", directory.display()));
    let finding = written.map(|()| Finding::new(json!({ "directory": name_of(directory) }), String::new()));
    arguments.common.conclude("package-files", &json!({}), finding)
}

fn write(directory: &Path, mut cli: Command) -> std::io::Result<()> {
    let (manuals, completions) = (directory.join("man1"), directory.join("completions"));
    std::fs::create_dir_all(&manuals)?;
    std::fs::create_dir_all(&completions)?;
    // First, because the generators of completions add the `help` commands permanently.
    clap_mangen::generate_to(without_help(cli.clone()), manuals)?;
    for (shell, name) in SHELLS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut cli, "flashwright", &mut text);
        std::fs::write(completions.join(name), text)?;
    }
    Ok(())
}

/// The commands without their `help` commands, which would have a page for each command again.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}
