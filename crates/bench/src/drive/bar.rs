//! How far a drive is: a bar on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

/// Goes to standard error, so that results can be piped.
pub struct Bar {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Bar {
    /// A bar, if somebody watches. `quiet` shows nothing at all.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        let style = ProgressStyle::with_template(
            "{wide_bar} {bytes} {msg} {total_bytes}, {bytes_per_sec}, {eta} left",
        );
        let style = style.expect("the template is a constant");
        let watched = !quiet && std::io::stderr().is_terminal();
        Self { bar: watched.then(|| ProgressBar::new(0).with_style(style)), quiet }
    }

    /// `done` of `most` bytes, with a word between them.
    pub fn set(&self, done: u64, most: u64, word: &'static str) {
        if let Some(bar) = &self.bar {
            bar.set_length(most);
            bar.set_message(word);
            bar.set_position(done);
        }
    }

    /// A line beside the bar.
    pub fn line(&self, words: &str) {
        match &self.bar {
            Some(bar) => bar.println(words),
            None if self.quiet => {}
            // Nobody reads: then nobody misses it.
            None => drop(writeln!(std::io::stderr(), "{words}")),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
