//! Where results and words go: what the commands of the model share.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

/// Exit codes: all went well; it ran and its checks failed; it was asked wrongly.
pub const PASSED: u8 = 0;
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;

/// Flags that every command has.
#[derive(Debug, Args)]
pub struct Common {
    /// Write the result as JSON to FILE, or to standard output for `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of everything random; recorded in the result
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// What a command came to.
pub struct Finding {
    /// The result's own keys; the top level is added.
    pub result: Value,
    /// For humans.
    pub text: String,
    /// What failed; nothing where all is well.
    pub failures: Vec<String>,
}

impl Common {
    /// Whether a bar or lines of progress are welcome: not beside JSON on a pipe that nobody watches.
    pub fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// Whether somebody asked for the result as JSON.
    pub fn wants_json(&self) -> bool {
        self.json.is_some()
    }

    /// Whether the result can be written: asked before a run of hours ends with one that cannot.
    pub fn check_result_file(&self) -> Result<(), String> {
        let Some(file) = self.json.as_ref().filter(|file| *file != Path::new("-")) else { return Ok(()) };
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
        opened.map(drop).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// A line for people, before the end.
    pub fn say(&self, words: &str) {
        if self.quiet {
            return;
        }
        // A closed pipe is nobody's error.
        let _ = if self.json.as_deref() == Some(Path::new("-")) {
            writeln!(std::io::stderr(), "{words}")
        } else {
            writeln!(std::io::stdout(), "{words}")
        };
    }

    /// Prints and writes what was found.
    pub fn conclude(&self, command: &str, config: &Value, found: Result<Finding, String>) -> ExitCode {
        let Finding { result, text, failures } = match found {
            Ok(finding) => finding,
            Err(error) => return usage_error(&error),
        };
        let to_stdout = self.json.as_deref() == Some(Path::new("-"));
        if !self.quiet {
            // A closed pipe is nobody's error.
            let _ = if to_stdout {
                write!(std::io::stderr(), "{text}")
            } else {
                write!(std::io::stdout(), "{text}")
            };
        }
        if let Some(file) = &self.json
            && let Err(error) = write_json(file, &self.envelope(command, config, result, &failures))
        {
            return usage_error(&format!("{}: {error}", file.display()));
        }
        for failure in &failures {
            say_error(&format!("failed: {failure}"));
        }
        ExitCode::from(if failures.is_empty() { PASSED } else { FAILED })
    }

    /// The top level of every result. Nothing in it depends on the machine or the hour: what is worked out is the same
    /// everywhere.
    fn envelope(&self, command: &str, config: &Value, result: Value, failures: &[String]) -> Value {
        let mut envelope = json!({
            "flashwright": env!("CARGO_PKG_VERSION"),
            "command": command,
            "config": config,
            "environment": { "build": if cfg!(debug_assertions) { "debug" } else { "release" } },
            "seed": self.seed,
            "world": "simulated",
        });
        if let (Value::Object(envelope), Value::Object(result)) = (&mut envelope, result) {
            envelope.extend(result);
            let verdict = json!({ "passed": failures.is_empty(), "failures": failures });
            envelope.insert("verdict".into(), verdict);
        }
        envelope
    }
}

/// One line a reason, and the exit code of wrong usage.
pub fn usage_error(error: &str) -> ExitCode {
    for line in error.lines() {
        say_error(&format!("error: {line}"));
    }
    ExitCode::from(USAGE)
}

fn say_error(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

fn write_json(file: &Path, result: &Value) -> std::io::Result<()> {
    let mut words = serde_json::to_string_pretty(result)?;
    words.push('\n');
    if file == Path::new("-") {
        return std::io::stdout().write_all(words.as_bytes());
    }
    std::fs::write(file, words)
}
