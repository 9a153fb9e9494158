//! Output of results and messages, shared by all commands.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::picture::Format;
use bench::report::rows::parquet;
use bench::run::stop::Stop;
use bench::simulate::Named;
use clap::Args;
use serde_json::{Value, json};

use crate::call::Call;
use crate::quantity;
use crate::signals::stop_on_signals;

/// Exit codes: success; ran, but checks failed; usage error.
pub const PASSED: u8 = 0;
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;

/// Flags of every command, under the default heading.
#[derive(Debug, Args)]
#[command(next_help_heading = None::<&'static str>)]
pub struct Common {
    /// Write the result as JSON to FILE; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed for everything random; recorded in the result [default: 1]
    #[arg(long, value_name = "N", value_parser = quantity::number::<u64>)]
    seed: Option<u64>,
    /// Whether a part of the run has asked for the seed.
    #[arg(skip)]
    seed_is_used: AtomicBool,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// The call of a program in the same process. `None` on the command line.
    #[arg(skip)]
    call: Option<Call>,
}

/// An error that ends a command.
pub type Failure = Box<dyn std::error::Error>;

/// The result of a command.
pub struct Finding {
    /// The command's own keys of the JSON result.
    pub result: Value,
    /// The result as text.
    pub text: String,
    /// Failed checks; empty on success.
    pub failures: Vec<String>,
}

impl Finding {
    /// The result of a command that checks nothing, or whose checks passed.
    pub fn new(result: Value, text: String) -> Self {
        Self { result, text, failures: Vec::new() }
    }
}

impl Common {
    /// The seed, for a part of the run that draws random numbers. A command that never asks for it warns of `--seed`.
    pub fn seed(&self) -> u64 {
        self.seed_is_used.store(true, Ordering::Relaxed);
        self.seed_or_default()
    }

    fn seed_or_default(&self) -> u64 {
        self.seed.unwrap_or(1)
    }

    /// Warns once if `--seed` was given and nothing in the run used it.
    pub fn warn_of_unused_seed(&self, command: &str) {
        self.warn_of_seed(format_args!("nothing in this run of `{command}` is random"));
    }

    /// Warns once if `--seed` was given and has no effect, with the reason.
    pub fn warn_of_seed(&self, reason: impl Display) {
        if self.seed.is_some() && !self.seed_is_used.swap(true, Ordering::Relaxed) {
            self.warn(format_args!("--seed: has no effect, because {reason}"));
        }
    }

    /// Makes the command return its result to `call` and print nothing.
    pub fn set_call(&mut self, call: Call) {
        self.quiet = true;
        self.call = Some(call);
    }

    /// The flag that ends the command early, set by the first signal.
    pub fn stop(&self) -> Result<Stop, String> {
        let stop = self.new_stop();
        self.stop_on_signals(&stop)?;
        Ok(stop)
    }

    /// The flag that ends the command early: that of the call, or a new one for [`Self::stop_on_signals`].
    pub fn new_stop(&self) -> Stop {
        self.call.as_ref().map_or_else(Stop::default, Call::stop)
    }

    /// Makes the first signal set `stop`. In a call by another program, signals are left to that program.
    pub fn stop_on_signals(&self, stop: &Stop) -> Result<(), String> {
        if self.call.is_some() { Ok(()) } else { stop_on_signals(stop) }
    }

    /// Reports progress to the call, if there is one.
    pub fn set_progress(&self, done: u64, total: Option<u64>) {
        if let Some(call) = &self.call {
            call.set_progress(done, total);
        }
    }

    /// The policy of this name that the calling program added, if there is one.
    pub fn custom_policy(&self, name: &str) -> Option<Named> {
        self.call.as_ref()?.policy(name)
    }

    /// The command line as typed, with the program's name.
    pub fn typed(&self) -> Vec<OsString> {
        match &self.call {
            Some(call) => call.arguments().collect(),
            None => std::env::args_os().collect(),
        }
    }

    /// Fails if a question to the user cannot be asked, as in a call.
    pub fn check_can_ask(&self) -> Result<(), String> {
        match self.call {
            Some(_) => Err("the data on the drive would be lost: confirm with yes=True (--yes)".to_owned()),
            None => Ok(()),
        }
    }

    /// Reports an error, one line for each reason. Returns the exit code of wrong usage.
    pub fn refuse(&self, error: &(impl Display + ?Sized)) -> ExitCode {
        match &self.call {
            None => usage_error(error),
            Some(call) => {
                call.conclude(Err(error.to_string()));
                ExitCode::from(USAGE)
            }
        }
    }

    /// Prints a failure of the run to standard error. A call finds the failure in the verdict of the result instead.
    pub fn say_failure(&self, word: &str, failure: &str) {
        if self.call.is_none() {
            say_error(format_args!("{word}: {failure}"));
        }
    }

    /// Whether the result is written as JSON, or returned to a call.
    pub fn wants_json(&self) -> bool {
        self.json.is_some() || self.call.is_some()
    }

    /// The result file, if there is one.
    pub fn result_file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|file| *file != Path::new("-"))
    }

    /// Checks whether the result can be written, before a run of hours.
    pub fn check_result_file(&self) -> Result<(), String> {
        self.result_file().map_or(Ok(()), check_writable)
    }

    /// The output for text: standard output, unless the JSON result goes there.
    pub fn lines(&self) -> Lines {
        match self.json.as_deref() {
            _ if self.quiet => Lines::Nowhere,
            Some(file) if file == Path::new("-") => Lines::Stderr,
            _ => Lines::Stdout,
        }
    }

    /// Prints a line of text before the end.
    pub fn say(&self, message: &(impl Display + ?Sized)) {
        // A closed pipe is not an error.
        let _ = writeln!(self.lines(), "{message}");
    }

    /// Prints text that is a result; returns whether the reader still reads.
    ///
    /// # Errors
    /// If the text cannot be written, for example to a file on a full disk.
    pub fn print(&self, message: &str) -> Result<bool, String> {
        self.lines().write_text(message)
    }

    /// Prints a warning to standard error.
    pub fn warn(&self, message: impl Display) {
        match &self.call {
            Some(call) => call.warn(message.to_string()),
            None if self.quiet => {}
            None => say_error(format_args!("warning: {message}")),
        }
    }

    /// Writes the result as `--json` specifies, if given.
    pub fn write_json(&self, result: &Value) -> Result<(), String> {
        if let Some(call) = &self.call {
            call.conclude(Ok(result.clone()));
        }
        let Some(file) = &self.json else { return Ok(()) };
        let mut message = serde_json::to_string_pretty(result).map_err(|error| error.to_string())?;
        message.push('\n');
        if file == Path::new("-") {
            return Lines::Stdout.write_text(&message).map(drop);
        }
        write_file(file, message.as_bytes())
    }

    /// Writes an intermediate result to the result file, if there is one, so that it survives an abort.
    pub fn keep(&self, command: &str, config: &Value, so_far: Finding) -> Result<(), String> {
        if self.json.as_deref() == Some(Path::new("-")) {
            return Ok(());
        }
        let Finding { result, mut failures, .. } = so_far;
        failures.push("unfinished".to_owned());
        self.write_json(&self.envelope(command, config, result, &failures))
    }

    /// Prints and writes the result.
    pub fn conclude(&self, command: &str, config: &Value, found: Result<Finding, impl Display>) -> ExitCode {
        match found {
            Ok(finding) => self.conclude_as(command, config, finding, ("failed", FAILED)),
            Err(error) => self.refuse(&error),
        }
    }

    /// Prints and writes a result, with `word` before each failure, and returns `code` if there are failures.
    pub fn conclude_as(
        &self,
        command: &str,
        config: &Value,
        found: Finding,
        (word, code): (&str, u8),
    ) -> ExitCode {
        self.warn_of_unused_seed(command);
        let Finding { result, text, failures } = found;
        let printed = self.lines().write_text(&text);
        let kept = self.write_json(&self.envelope(command, config, result, &failures));
        if let Err(error) = kept.and(printed) {
            return self.refuse(&error);
        }
        for failure in &failures {
            self.say_failure(word, failure);
        }
        ExitCode::from(if failures.is_empty() { PASSED } else { code })
    }

    /// The top level of every result. It does not depend on the machine or the time, so simulated results are equal everywhere.
    fn envelope(&self, command: &str, config: &Value, result: Value, failures: &[String]) -> Value {
        let mut envelope = json!({
            "flashwright": env!("CARGO_PKG_VERSION"),
            "command": command,
            "config": config,
            "environment": { "build": if cfg!(debug_assertions) { "debug" } else { "release" } },
            "seed": self.seed_or_default(),
            "world": "simulated",
        });
        if let (Value::Object(envelope), Value::Object(result)) = (&mut envelope, result) {
            envelope.extend(result);
            let mut verdict = json!({ "passed": failures.is_empty(), "failures": failures });
            // The reason for an early end belongs to the verdict, as in the result of `bench`.
            if let Some(stopped) = envelope.remove("stopped") {
                verdict["stopped"] = stopped;
            }
            envelope.insert("verdict".into(), verdict);
        }
        envelope
    }
}

/// The output for text.
pub enum Lines {
    Stdout,
    Stderr,
    Nowhere,
}

impl Lines {
    /// Writes a result. A full disk is an error; a closed pipe returns false.
    fn write_text(mut self, message: &str) -> Result<bool, String> {
        match self.write_all(message.as_bytes()).and_then(|()| self.flush()) {
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

/// Prints the reason on one line and returns the exit code for wrong usage.
pub fn usage_error(error: &(impl Display + ?Sized)) -> ExitCode {
    for line in error.to_string().lines() {
        say_error(format_args!("error: {line}"));
    }
    ExitCode::from(USAGE)
}

/// Prints a line on standard error; a closed pipe is not an error.
pub fn say_error(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// A file's name in a result, lossily converted: JSON requires Unicode, file names do not.
pub fn name_of(path: &Path) -> String {
    path.display().to_string()
}

/// The names of several files.
pub fn names_of(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| name_of(path)).collect()
}

/// Checks whether `file` can be written, without leaving an empty file.
pub fn check_writable(file: &Path) -> Result<(), String> {
    if file == Path::new("-") {
        return Err("`-` is not a file: only --json can write to standard output".into());
    }
    let is_new = std::fs::symlink_metadata(file).is_err();
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
    let checked = opened.and_then(|_| if is_new { std::fs::remove_file(file) } else { Ok(()) });
    checked.map_err(|error| cannot_write(file, &error))
}

/// Writes `file`; errors name it. An existing file stays unchanged until all bytes are written.
pub fn write_file(file: &Path, bytes: &[u8]) -> Result<(), String> {
    replace(file, bytes).map_err(|error| cannot_write(file, &error))
}

/// Writes a temporary file and renames it. Devices, pipes and the targets of symlinks are written directly.
fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let there = match std::fs::metadata(file) {
        Ok(there) if !there.is_file() => return std::fs::write(file, bytes),
        Ok(there) => Some(there),
        // A dangling symlink: its target is created.
        Err(_) if file.is_symlink() => return std::fs::write(file, bytes),
        Err(_) => None,
    };
    let place = if there.is_some() { std::fs::canonicalize(file)? } else { file.to_owned() };
    let beside = place.with_file_name(format!(".flashwright-{}", std::process::id()));
    let mut new = match std::fs::OpenOptions::new().write(true).create_new(true).open(&beside) {
        // The directory may not allow new files although the file is writable, or a killed process left its temporary file.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::AlreadyExists) => {
            return std::fs::write(file, bytes);
        }
        opened => opened?,
    };
    let mut written = new.write_all(bytes);
    if let Some(there) = &there {
        // Changing the owner can require root.
        let _ = std::os::unix::fs::fchown(&new, Some(there.uid()), Some(there.gid()));
        written = written.and_then(|()| new.set_permissions(there.permissions()));
    }
    // Without the sync, a power cut could leave the new name with missing contents.
    let written = written.and_then(|()| new.sync_all()).and_then(|()| std::fs::rename(&beside, &place));
    written.inspect_err(|_| drop(std::fs::remove_file(&beside)))
}

/// Writes rows of a result, which are objects, as a Parquet file.
pub fn write_rows(file: &Path, rows: &[Value]) -> Result<(), String> {
    let bytes = parquet(rows).map_err(|error| cannot_write(file, &error))?;
    write_file(file, &bytes)
}

/// Writes the rows that a result has as `name` to the file of `--parquet`, if it was given.
pub fn write_parquet(file: Option<&PathBuf>, result: &Value, name: &str) -> Result<(), String> {
    let Some(file) = file else { return Ok(()) };
    let rows = result[name].as_array().map_or(&[][..], Vec::as_slice);
    write_rows(file, rows)
}

/// Creates the directory that `flag` names, if missing, before any work. A missing parent is reported as a mistake.
pub fn make_folder(flag: &str, folder: &Path) -> Result<(), String> {
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir(folder)
        .map_err(|error| format!("{flag}: cannot create the directory {}: {error}", folder.display()))
}

/// Writes a picture to `file`, in the format that its name has.
pub fn write_plot(file: &Path, svg: String) -> Result<(), String> {
    let picture = Format::of(file).and_then(|format| format.encode(svg));
    write_file(file, &picture.map_err(|error| error.to_string())?)
}

/// Writes a picture in all formats as `stem` in `directory`; returns the files.
pub fn write_picture(directory: &Path, stem: &str, svg: &str) -> Result<Vec<PathBuf>, String> {
    let write = |format: Format| {
        let file = directory.join(format!("{stem}.{}", format.extension()));
        let picture =
            format.encode(svg.to_owned()).map_err(|error| format!("{}: {error}", file.display()))?;
        write_file(&file, &picture)?;
        Ok(file)
    };
    Format::ALL.into_iter().map(write).collect()
}

fn cannot_write(file: &Path, error: &dyn Display) -> String {
    format!("writing {}: {error}", file.display())
}
