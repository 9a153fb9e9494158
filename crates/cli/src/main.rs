//! `flashwright`, the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    flashwright_cli::run(std::env::args_os())
}
