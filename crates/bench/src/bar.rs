//! Progress display: a bar on a terminal, plain lines otherwise, nothing if quiet.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Progress display on standard error, so that results can be piped.
pub struct Bar {
    bar: Option<ProgressBar>,
    quiet: bool,
}

/// Unit of a bar, which determines its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, with the rate and the remaining time.
    Bytes,
    /// Steps, with the remaining time.
    Steps,
    /// Steps, with a text by the caller that includes the remaining time.
    Custom,
}

impl Bar {
    /// Creates a bar if standard error is a terminal; it is shown at the first [`set`](Self::set). `quiet` shows nothing.
    #[must_use]
    pub fn new(unit: Unit, quiet: bool) -> Self {
        let watched = !quiet && std::io::stderr().is_terminal();
        Self { bar: watched.then(|| ProgressBar::hidden().with_style(unit.style())), quiet }
    }

    /// Whether the bar is shown on a terminal.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.bar.is_some()
    }

    /// Shows `done` of `total`, with a text.
    pub fn set(&self, done: u64, total: u64, message: impl Into<Cow<'static, str>>) {
        let Some(bar) = &self.bar else { return };
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.reset();
        }
        bar.set_length(total);
        bar.set_message(message);
        bar.set_position(done);
    }

    /// Prints a line above the bar.
    pub fn line(&self, message: &str) {
        // A write error on standard error cannot be reported.
        self.suspend(|| drop(writeln!(std::io::stderr(), "{message}")));
    }

    /// Prints a line only if there is no bar.
    pub fn line_instead(&self, message: &str) {
        if self.bar.is_none() {
            self.line(message);
        }
    }

    /// Hides the bar while `write` prints; `quiet` prints nothing.
    pub fn suspend(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None if self.quiet => {}
            None => write(),
        }
    }

    /// Removes the bar; the next [`set`](Self::set) shows a new one.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
    }
}

impl Unit {
    fn style(self) -> ProgressStyle {
        let template = match self {
            Self::Bytes => "{wide_bar} {bytes} {msg} {total_bytes}, {bytes_per_sec}, {eta} left",
            Self::Steps => "{wide_bar} {percent:>3}%  {msg}{eta} left",
            Self::Custom => "{wide_bar} {percent:>3}%  {msg}",
        };
        ProgressStyle::with_template(template).expect("the templates are constants")
    }
}
