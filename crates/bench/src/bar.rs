//! How far something is: a bar on a terminal, plain lines elsewhere, nothing where quiet is asked for.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Goes to standard error, so that results can be piped.
pub struct Bar {
    bar: Option<ProgressBar>,
    quiet: bool,
}

/// What a bar counts, and so how it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, with the rate and the time left.
    Bytes,
    /// Steps of any kind, with the time left.
    Steps,
    /// Steps, by somebody who tells the time left better.
    Told,
}

impl Bar {
    /// A bar, if somebody watches; it shows with the first [`set`](Self::set). `quiet` shows nothing at all.
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

    /// `done` of `total`, with some words.
    pub fn set(&self, done: u64, total: u64, words: impl Into<Cow<'static, str>>) {
        let Some(bar) = &self.bar else { return };
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.reset();
        }
        bar.set_length(total);
        bar.set_message(words);
        bar.set_position(done);
    }

    /// A line beside the bar.
    pub fn line(&self, words: &str) {
        // Nobody reads: then nobody misses it.
        self.beside(|| drop(writeln!(std::io::stderr(), "{words}")));
    }

    /// A line where there is no bar that tells the same.
    pub fn line_instead(&self, words: &str) {
        if self.bar.is_none() {
            self.line(words);
        }
    }

    /// Lets `write` have the terminal for a while; quiet lets it not.
    pub fn beside(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None if self.quiet => {}
            None => write(),
        }
    }

    /// Takes the bar away; the next [`set`](Self::set) begins a new one.
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
            Self::Told => "{wide_bar} {percent:>3}%  {msg}",
        };
        ProgressStyle::with_template(template).expect("the templates are constants")
    }
}
