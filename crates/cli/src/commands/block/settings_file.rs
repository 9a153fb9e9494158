//! The settings of a server in a file, as `/etc/flashwright/block.d/NAME.toml`: the flags of `block serve` as keys.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Command, CommandFactory, Parser};
use daemon::Options;

use crate::flags_file;

/// The flags that a file can set.
#[derive(Debug, Parser)]
#[command(name = "block serve", no_binary_name = true)]
struct OfFile {
    #[command(flatten)]
    options: Options,
}

/// The options in a file.
pub fn options(file: &Path) -> Result<Options, String> {
    let flags = flags_file::flags(&OfFile::command(), file, |_| false)?;
    let parsed = OfFile::try_parse_from(flags);
    parsed
        .map(|it| it.options)
        .map_err(|error| format!("{}: {}", file.display(), crate::one_line(&error.to_string())))
}

/// The command line with the flags of its file, if it is `block serve` with a file. Typed flags take precedence.
pub fn expand(cli: Command, mut typed: Vec<OsString>) -> Result<Vec<OsString>, String> {
    // `block serve` without a file needs --disk: such errors are reported when the command line is parsed again.
    let Ok(matches) = cli.ignore_errors(true).try_get_matches_from(&typed) else { return Ok(typed) };
    let serve = matches.subcommand_matches("block").and_then(|block| block.subcommand_matches("serve"));
    let Some(serve) = serve else { return Ok(typed) };
    if let Some(file) = serve.get_one::<PathBuf>("config") {
        let is_typed = |id: &str| serve.value_source(id) == Some(ValueSource::CommandLine);
        typed.extend(flags_file::flags(&OfFile::command(), file, |arg| is_typed(arg.get_id().as_str()))?);
    }
    Ok(typed)
}
