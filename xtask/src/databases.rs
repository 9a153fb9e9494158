//! A real database on a cached disk, whose server is killed under it: `cargo xtask databases [kills]`.

use std::path::Path;
use std::process::Command;

/// The chore, for the shell: it is made of other programs' commands.
const SCRIPT: &str = include_str!("databases.sh");

/// Builds the binary and runs the script; five kills if none were asked for.
pub fn run() -> Result<(), String> {
    let kills = std::env::args().nth(2).unwrap_or_else(|| "5".into());
    crate::cargo(&["build", "--package", "flashwright"])?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let binary = target.join("debug/flashwright");
    crate::run(Command::new("bash").args(["-c", SCRIPT, "databases"]).arg(binary).arg(kills))
}
