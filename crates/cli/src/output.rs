//! Where results and words go: what all commands share.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::picture::Format;
use clap::Args;
use serde_json::{Value, json};

use crate::quantity;

/// Exit codes: all went well; it ran and its checks failed; it was asked wrongly.
pub const PASSED: u8 = 0;
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;

/// Flags that every command has, under the usual heading whatever came before.
#[derive(Debug, Args)]
#[command(next_help_heading = None::<&'static str>)]
pub struct Common {
    /// Write the result as JSON to FILE; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed for everything random; recorded in the result
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = quantity::number::<u64>)]
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
    /// Whether somebody asked for the result as JSON.
    pub fn wants_json(&self) -> bool {
        self.json.is_some()
    }

    /// The file that the result goes to, where it goes to one.
    pub fn result_file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|file| *file != Path::new("-"))
    }

    /// Whether the result can be written: asked before a run of hours ends with one that cannot.
    pub fn check_result_file(&self) -> std::io::Result<()> {
        self.result_file().map_or(Ok(()), check_writable)
    }

    /// Where lines for people go: standard output, unless the result goes there.
    pub fn lines(&self) -> Lines {
        match self.json.as_deref() {
            _ if self.quiet => Lines::Nowhere,
            Some(file) if file == Path::new("-") => Lines::Stderr,
            _ => Lines::Stdout,
        }
    }

    /// A line for people, before the end.
    pub fn say(&self, words: &(impl Display + ?Sized)) {
        // A closed pipe is nobody's error.
        let _ = writeln!(self.lines(), "{words}");
    }

    /// Lines for people that are a result; whether anybody reads on.
    ///
    /// # Errors
    /// If they cannot be kept: whoever writes them into a file is told that they are not there.
    pub fn print(&self, words: &str) -> std::io::Result<bool> {
        self.lines().tell(words)
    }

    /// A line for people about what is odd and goes on: to standard error, since it is no result.
    pub fn warn(&self, words: impl Display) {
        if !self.quiet {
            say_error(format_args!("warning: {words}"));
        }
    }

    /// Writes the result where `--json` says, if it was given.
    pub fn write_json(&self, result: &Value) -> std::io::Result<()> {
        let Some(file) = &self.json else { return Ok(()) };
        let mut words = serde_json::to_string_pretty(result)?;
        words.push('\n');
        if file == Path::new("-") {
            return Lines::Stdout.tell(&words).map(drop);
        }
        write_file(file, words.as_bytes())
    }

    /// Writes what has been found so far into the result's file, if there is one: whatever ends the rest, this stays.
    pub fn keep(&self, command: &str, config: &Value, so_far: Finding) -> Result<(), String> {
        if self.json.as_deref() == Some(Path::new("-")) {
            return Ok(());
        }
        let Finding { result, mut failures, .. } = so_far;
        failures.push("unfinished".to_owned());
        let written = self.write_json(&self.envelope(command, config, result, &failures));
        written.map_err(|error| error.to_string())
    }

    /// Prints and writes what was found.
    pub fn conclude(&self, command: &str, config: &Value, found: Result<Finding, String>) -> ExitCode {
        match found {
            Ok(finding) => self.conclude_as(command, config, finding, ("failed", FAILED)),
            Err(error) => usage_error(&error),
        }
    }

    /// The same, with failures as lines that begin with `word`, and the exit code where there are some.
    pub fn conclude_as(
        &self,
        command: &str,
        config: &Value,
        found: Finding,
        (word, code): (&str, u8),
    ) -> ExitCode {
        let Finding { result, text, failures } = found;
        let told = self.lines().tell(&text);
        let kept = self.write_json(&self.envelope(command, config, result, &failures));
        if let Err(error) = kept.and(told) {
            return usage_error(&error);
        }
        for failure in &failures {
            say_error(format_args!("{word}: {failure}"));
        }
        ExitCode::from(if failures.is_empty() { PASSED } else { code })
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
            let mut verdict = json!({ "passed": failures.is_empty(), "failures": failures });
            // Why a run ended early stands with its verdict, as in the result of `bench`.
            if let Some(stopped) = envelope.remove("stopped") {
                verdict["stopped"] = stopped;
            }
            envelope.insert("verdict".into(), verdict);
        }
        envelope
    }
}

/// Lines for people.
pub enum Lines {
    Stdout,
    Stderr,
    Nowhere,
}

impl Lines {
    /// Writes what was found: that it cannot be kept, as on a full disk, is an error, that nobody reads on is not.
    fn tell(mut self, words: &str) -> std::io::Result<bool> {
        match self.write_all(words.as_bytes()).and_then(|()| self.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(cannot_write(Path::new("standard output"), &error)),
        }
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Stdout => std::io::stdout().write(bytes),
            Self::Stderr => std::io::stderr().write(bytes),
            Self::Nowhere => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Stdout => std::io::stdout().flush(),
            Self::Stderr => std::io::stderr().flush(),
            Self::Nowhere => Ok(()),
        }
    }
}

/// One line a reason, and the exit code of wrong usage.
pub fn usage_error(error: &(impl Display + ?Sized)) -> ExitCode {
    for line in error.to_string().lines() {
        say_error(format_args!("error: {line}"));
    }
    ExitCode::from(USAGE)
}

/// A line on standard error; a closed pipe is nobody's error.
pub fn say_error(words: impl Display) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// A file as a result names it: JSON is text, which the name of a file need not be.
pub fn name_of(path: &Path) -> String {
    path.display().to_string()
}

/// Several of them.
pub fn names_of(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| name_of(path)).collect()
}

/// Whether `file` can be written. One that was not there is not there afterwards either: what fails leaves no empty file.
pub fn check_writable(file: &Path) -> std::io::Result<()> {
    if file == Path::new("-") {
        return Err(std::io::Error::other("`-` is not a file: only --json can write to standard output"));
    }
    let is_new = std::fs::symlink_metadata(file).is_err();
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
    opened.map(drop).map_err(|error| cannot_write(file, &error))?;
    if is_new { std::fs::remove_file(file) } else { Ok(()) }
}

/// Writes `file`, which the error names. A file that is there stays as it is until all is written, and if it cannot be.
pub fn write_file(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    replace(file, bytes).map_err(|error| cannot_write(file, &error))
}

/// Writes beside a file and moves that into its place. Devices and pipes are written to, and so is what a symlink leads to.
fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let there = match std::fs::metadata(file) {
        Ok(there) if !there.is_file() => return std::fs::write(file, bytes),
        Ok(there) => Some(there),
        // A link to nothing leads to what is made.
        Err(_) if file.is_symlink() => return std::fs::write(file, bytes),
        Err(_) => None,
    };
    let place = if there.is_some() { std::fs::canonicalize(file)? } else { file.to_owned() };
    let beside = place.with_file_name(format!(".flashwright-{}", std::process::id()));
    let mut new = match std::fs::OpenOptions::new().write(true).create_new(true).open(&beside) {
        // A directory that takes no new files may have one that can be written; and a killed process may have left its own.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::AlreadyExists) => {
            return std::fs::write(file, bytes);
        }
        opened => opened?,
    };
    let mut written = new.write_all(bytes);
    if let Some(there) = &there {
        // Whose it is may be left to the superuser alone.
        let _ = std::os::unix::fs::fchown(&new, Some(there.uid()), Some(there.gid()));
        written = written.and_then(|()| new.set_permissions(there.permissions()));
    }
    // Else a power cut might leave the new name without its bytes.
    let written = written.and_then(|()| new.sync_all()).and_then(|()| std::fs::rename(&beside, &place));
    written.inspect_err(|_| drop(std::fs::remove_file(&beside)))
}

/// Makes the folder that `flag` names, if it is not there, before any work is done that it is for. A longer way that is missing is
/// mistyped.
pub fn make_folder(flag: &str, folder: &Path) -> Result<(), String> {
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir(folder)
        .map_err(|error| format!("{flag}: cannot create the directory {}: {error}", folder.display()))
}

/// Writes a picture in every format there is, as `stem` in `directory`; the answer is the files.
pub fn write_picture(directory: &Path, stem: &str, svg: &str) -> Result<Vec<PathBuf>, String> {
    let write = |format: Format| {
        let file = directory.join(format!("{stem}.{}", format.extension()));
        let picture =
            format.encode(svg.to_owned()).map_err(|error| format!("{}: {error}", file.display()))?;
        write_file(&file, &picture).map_err(|error| error.to_string())?;
        Ok(file)
    };
    Format::ALL.into_iter().map(write).collect()
}

fn cannot_write(file: &Path, error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("writing {}: {error}", file.display()))
}
